"""Conversion of legacy TensorFlow checkpoints."""
