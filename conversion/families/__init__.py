"""The families of checkpoints: what each consists of, and how to recognise it."""
