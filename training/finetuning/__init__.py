"""Fine-tuning on labelled texts: reading them, results per seed, and the card of the model."""
