"""Masked language model pre-training in stages: documents, masks, examples, optimizer and Trainer."""
