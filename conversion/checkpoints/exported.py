"""The bert_config.json of a checkpoint that this package exported in the original format.

It names the exported class; the fields that only `roformer convert` reads are in objects of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CheckpointError
from ..folder.settings import OPTIONAL_SIZES, RATES, REQUIRED_SIZES, Settings, check_types
from ..folder.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from transformers import PreTrainedConfig

    from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer

MARK, PACKAGE = "exported_from", "modeling_roformer"
EXPORTED_AS = "exported_as"  # the field of the family
CONFIG, TOKENIZER = "config", "tokenizer"
OWN = (MARK, EXPORTED_AS, CONFIG, TOKENIZER)
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


def is_exported(settings: Settings) -> bool:
    """Return whether this package wrote the bert_config.json; in any other, the fields `OWN` mean nothing."""
    return settings.ignored.get(MARK) == PACKAGE


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
