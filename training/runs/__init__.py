"""What every training run needs: devices, checkpoints, resuming, fingerprints and results."""
