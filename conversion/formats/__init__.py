"""File formats: bytes and tensors, and nothing about models except the names of bert4keras' layers."""
