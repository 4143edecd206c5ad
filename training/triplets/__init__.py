"""Fine-tuning on triplets (is text A closer to B or to C?) and baselines: Table 5 of the RoFormer paper."""
