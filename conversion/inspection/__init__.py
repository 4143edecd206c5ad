"""What a checkpoint is, without loading it."""
