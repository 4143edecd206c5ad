"""The kinds of checkpoint, what each is made of, and how it is told from the others."""
