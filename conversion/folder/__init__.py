"""What lies together in a checkpoint's folder: its files, its configuration, its vocabulary, and how its weights are opened."""
