"""`roformer page`: a saved model in a browser. It needs the extra `page`."""
