"""Model cards of the published checkpoints, one folder each."""
