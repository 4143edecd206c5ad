"""What commands write and show: folders that appear whole or not at all, progress bars, summaries."""
