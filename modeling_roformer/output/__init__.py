"""Output of commands: folders that appear complete or not at all, progress bars, summaries."""
