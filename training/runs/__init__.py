"""Code that every training run shares: devices, data sets, models, checkpoints, resuming, digests and results."""
