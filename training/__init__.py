"""Training: what the scripts of `examples/` share beside transformers, accelerate and datasets. Needs the extra
`train`."""
