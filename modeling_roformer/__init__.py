"""RoFormer, the transformer with rotary position embedding, for the Hugging Face Hub."""
