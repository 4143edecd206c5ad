"""What commands leave and show: folders that appear whole or not at all, progress bars, summaries."""
