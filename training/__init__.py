"""Training: documents, masks, stages, triplets, metrics and curves, for the scripts of `examples/` and those made after them.

What transformers, accelerate and datasets do, they do; here is what they lack. It needs the extra `train`.
"""
