"""Checkpoints in the original format that this package exported: the variable name of every weight of any class.

A family's own weights have the names of its released checkpoints, and so do BERT's pooler and next-sentence head. A
task head is called `task/<key>`: bert4keras reads variables by name and ignores it, and `roformer convert` finds it.
bert_config.json names the exported class; the fields that only `roformer convert` reads are in objects of their own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CheckpointError
from ..families.family import Config, Family, Weight, dense
from ..families.registry import EXPORTED_AS
from ..folder.settings import OPTIONAL_SIZES, RATES, REQUIRED_SIZES, Settings, check_types, class_of
from ..folder.vocabulary import Vocabulary
from .checkpoint import make_config

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from transformers import PreTrainedConfig, PreTrainedModel

    from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer

MARK, PACKAGE = "exported_from", "modeling_roformer"
CONFIG, TOKENIZER = "config", "tokenizer"
OWN = (MARK, EXPORTED_AS, CONFIG, TOKENIZER)
TASK = "task/"
SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
SIDES = ("padding_side", "truncation_side")
# Fields with names of their own in bert_config.json, and fields that do not describe the model.
NOT_OWN = (
    *REQUIRED_SIZES,
    *OPTIONAL_SIZES,
    *RATES,
    "model_type",
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
)


def own_fields(family: str, config: PreTrainedConfig, tokenizer: RoFormerTokenizer) -> dict[str, object]:
    """Return the fields that only this package reads: the family, and all values other than their class's defaults."""
    from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

    values, defaults = config.to_dict(), type(config)().to_dict()
    saved = {"do_lower_case": tokenizer.do_lower_case, "add_sep_token": tokenizer.add_sep_token}
    saved |= {name: side for name in SIDES if (side := getattr(tokenizer, name)) != "right"}
    if tokenizer.model_max_length < VERY_LARGE_INTEGER:
        saved["model_max_length"] = tokenizer.model_max_length
    if added := added_tokens(tokenizer):
        saved["added_tokens"] = [{"id": number, **token.__getstate__()} for number, token in added.items()]
    if tokenizer.extra_special_tokens:
        saved["extra_special_tokens"] = tokenizer.extra_special_tokens
    return {
        MARK: PACKAGE,
        EXPORTED_AS: family,
        CONFIG: {name: value for name, value in values.items() if name not in NOT_OWN and value != defaults.get(name)},
        TOKENIZER: saved,
    }


def added_tokens(tokenizer: RoFormerTokenizer) -> dict[int, AddedToken]:
    """Return id -> token, for the tokens that the user added; texts are searched for these first."""
    added = sorted(tokenizer.added_tokens_decoder.items())
    return {number: token for number, token in added if token.content not in SPECIAL_TOKENS.values()}


def model_on_meta(config: PreTrainedConfig, architecture: str, path: Path) -> PreTrainedModel:
    """Make the model that a configuration (the file `path`) names, on the meta device; only our classes and BERT's."""
    import torch

    from modeling_roformer.registration import public_names, registered_transformers

    is_bert = isinstance(config, registered_transformers.BertConfig)
    architecture_class = getattr(registered_transformers if is_bert else public_names, architecture, None)
    if getattr(architecture_class, "config_class", None) is not type(config):
        raise CheckpointError(
            f"{path}: architectures names {architecture}, which is neither in modeling_roformer nor a BERT of "
            "transformers"
        )
    with torch.device("meta"):
        return architecture_class(config)


def exported_weights(family: Family, config: PreTrainedConfig, model: PreTrainedModel) -> list[Weight]:
    """Return every untied weight of the class, with the variable that it is exported as."""
    prefix, hidden = f"{model.base_model_prefix}.", config.hidden_size
    known = [
        *family.weights(config),
        *dense(f"{prefix}pooler.dense", "bert/pooler/dense", hidden, hidden),
        Weight("cls.seq_relationship.weight", "cls/seq_relationship/output_weights", (2, hidden)),
        Weight("cls.seq_relationship.bias", "cls/seq_relationship/output_bias", (2,)),
    ]
    variables = {weight.key: weight for weight in known}
    found = []
    for key, tensor in model.state_dict().items():
        if key in model.all_tied_weights_keys:
            continue
        weight = variables.get(key) or variables.get(prefix + key) or _task_weight(key, tuple(tensor.shape))
        found.append(replace(weight, key=key))
    return found


def _task_weight(key: str, shape: tuple[int, ...]) -> Weight:
    variable = TASK + key.replace(".", "/")
    if key.endswith(".weight") and len(shape) == 2:
        return Weight(key, f"{variable.removesuffix('weight')}kernel", shape[::-1], transpose=True)
    return Weight(key, variable, shape)


def is_exported(settings: Settings) -> bool:
    """Return whether this package wrote the bert_config.json; in any other, the fields `OWN` mean nothing."""
    return settings.ignored.get(MARK) == PACKAGE


def as_exported(family: Family, settings: Settings) -> Family:
    """Return the family as this package exported it: its class, its fields, and all weights of the class."""
    architecture, fields = class_of(settings.path, settings.ignored), own_config(settings)

    def own_fields(settings: Settings, vocabulary) -> dict:
        values = {name: value for name, value in settings.values.items() if value is not None}
        return {**values, **fields, "architectures": [architecture]}

    def weights(sizes: Config) -> list[Weight]:
        config = make_config(settings.path, family.base, vars(sizes))
        return exported_weights(family, config, model_on_meta(config, architecture, settings.path))

    return replace(family, fields=own_fields, weights=weights, dropped={})


def own_config(settings: Settings) -> dict[str, object]:
    """Return the fields that only this package reads of an exported model's configuration; empty for any other."""
    if not is_exported(settings):
        return {}
    check_types(settings.path, settings.ignored, {dict: (CONFIG, TOKENIZER)})
    return settings.ignored[CONFIG]


def exported_tokenizer(settings: Settings) -> dict[str, object]:
    """Return the arguments of an exported checkpoint's tokenizer; empty for any other checkpoint."""
    if not is_exported(settings):
        return {}
    from tokenizers import AddedToken

    fields, added = dict(settings.ignored[TOKENIZER]), {}
    for token in fields.pop("added_tokens", []):
        if "normalized" not in token:
            raise CheckpointError(
                f"{settings.path} does not say whether the added token {token['content']!r} is normalized: export the "
                "model again with `roformer export-tf`"
            )
        flags = dict(token)
        number, content = flags.pop("id"), flags.pop("content")
        added[number] = AddedToken(content, **flags)
    return {**fields, "added_tokens_decoder": added}


def tokenizer_arguments(vocabulary: Vocabulary, settings: Settings | None) -> dict[str, object]:
    """Return the arguments of a checkpoint's tokenizer, by its vocabulary and, if it has one, its configuration.

    A vocabulary with capital letters is not lower-cased, unless an exported tokenizer was.
    """
    arguments: dict[str, object] = {"do_lower_case": not vocabulary.is_cased}
    if "[MASK]" not in vocabulary.ids:
        arguments["mask_token"] = None
    return arguments | (exported_tokenizer(settings) if settings is not None else {})
