"""RoFormer-GPT: the first version's variables, with a causal mask."""

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from . import roformer_v1
from .family import CAUSAL, Family


def fields(settings: Settings, vocabulary: Vocabulary) -> dict:
    """Return the configuration's fields of a decoder whose texts begin with [CLS] and end with [SEP]."""
    ends = FAMILY.end_ids(vocabulary.id_of)
    return roformer_v1.fields(settings, vocabulary, "RoFormerForCausalLM", is_decoder=True, **ends)


# [SEP] would end the text after the prompt.
FAMILY = Family(
    name="gpt",
    title="RoFormer-GPT",
    fields=fields,
    weights=roformer_v1.weights,
    mask=CAUSAL,
    ends={"bos_token_id": "[CLS]", "eos_token_id": "[SEP]"},
    tokenizer=lambda config: {"add_sep_token": False},
)
