"""RoFormer-GPT: the first version's variables, with a causal mask. Its texts begin with [CLS] and end with [SEP]."""

from . import roformer_v1
from .family import CAUSAL, Family

# [SEP] would end the text after the prompt.
FAMILY = Family(
    name="gpt",
    title="RoFormer-GPT",
    weights=roformer_v1.weights,
    mask=CAUSAL,
    ends={"bos_token_id": "[CLS]", "eos_token_id": "[SEP]"},
    tokenizer=lambda config: {"add_sep_token": False},
)
