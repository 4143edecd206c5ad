"""Code that every training run shares: its folder, its data, and checks of its numbers."""
