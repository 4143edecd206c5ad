"""RoFormer-GPT: the first version's variables, with a causal mask."""

from ..folder.settings import Settings
from ..folder.vocabulary import Vocabulary
from . import roformer_v1
from .family import Config, Family


def config(settings: Settings, vocabulary: Vocabulary) -> Config:
    """Return the configuration of a decoder whose texts begin with [CLS] and end with [SEP]."""
    return roformer_v1.config(
        settings,
        vocabulary,
        "RoFormerForCausalLM",
        is_decoder=True,
        bos_token_id=vocabulary.id_of("[CLS]"),
        eos_token_id=vocabulary.id_of("[SEP]"),
    )


FAMILY = Family(
    name="gpt",
    title="RoFormer-GPT",
    config=config,
    weights=roformer_v1.weights,
    tokenizer=lambda config: {"add_sep_token": False},  # [SEP] would end the text after the prompt
)
