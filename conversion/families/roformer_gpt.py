"""RoFormer-GPT: the first version's variables, with a causal mask."""

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from . import roformer_v1
from .family import CAUSAL, Family


def fields(settings: Settings, vocabulary: Vocabulary) -> dict:
    """Return the configuration's fields of a decoder whose texts begin with [CLS] and end with [SEP]."""
    ends = {"bos_token_id": vocabulary.id_of("[CLS]"), "eos_token_id": vocabulary.id_of("[SEP]")}
    return roformer_v1.fields(settings, vocabulary, "RoFormerForCausalLM", is_decoder=True, **ends)


# [SEP] would end the text after the prompt.
FAMILY = Family(
    name="gpt",
    title="RoFormer-GPT",
    fields=fields,
    weights=roformer_v1.weights,
    mask=CAUSAL,
    tokenizer=lambda config: {"add_sep_token": False},
)
