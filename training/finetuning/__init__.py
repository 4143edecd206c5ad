"""Fine-tuning on labelled texts: reading them, results for each seed, and the card of the model."""
