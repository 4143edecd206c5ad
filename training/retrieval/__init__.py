"""Retrieval: the passages that answer questions, found by vectors or by words."""
