"""The parts of a checkpoint's folder: its files, its configuration, its vocabulary and its tokenizer."""
