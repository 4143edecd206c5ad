"""Fine-tuning on triplets, text A closer to B or to C, and what it is compared with (Table 5 of the RoFormer paper)."""
