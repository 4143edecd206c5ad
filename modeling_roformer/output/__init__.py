"""Output of commands: progress bars, summaries."""
