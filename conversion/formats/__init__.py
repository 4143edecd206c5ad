"""File formats: bytes, tensors, and the names of bert4keras' layers."""
