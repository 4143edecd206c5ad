"""Formats of files: bytes and tensors, and nothing of models but the names that bert4keras gives its layers."""
