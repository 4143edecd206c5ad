"""`roformer embed` and `roformer rank`: vectors of a corpus, and search among them. It needs the extra `embed`."""
