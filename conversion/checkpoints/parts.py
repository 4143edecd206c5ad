"""The files of a checkpoint beside the tensors, and what they state: configuration, vocabulary and tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeling_roformer.saved_fields import MODEL_TYPES

from ..errors import CheckpointError
from ..families.detection import FIELDS
from ..families.registry import FAMILIES
from ..folder.legacy_folder import BERT4TORCH, TOKENIZER_CONFIG, LegacyFiles
from ..folder.settings import class_of, read_fields, read_settings
from ..folder.vocabulary import Vocabulary, read_vocabulary
from .exported import EXPORTED_AS, OWN, is_exported, own_config, tokenizer_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer

# The values of model_type in configurations of PyTorch weights that can be converted.
MODEL_TYPES_READ = (*MODEL_TYPES, "bert", "nezha", "gpt", "roformer_gpt")
# Fields of PyTorch's configurations on code, paths and tokenizers, which are not copied.
NOT_KEPT = ("auto_map", "custom_pipelines", "_name_or_path", "tokenizer_class")
# Fields that the original framework does not know, and settings of tokenizers, which count if a file states them.
STATED = ("layer_norm_eps", "bos_token_id", "eos_token_id")
STATED_OF_TOKENIZER = ("do_lower_case", "add_sep_token")
# Signs of the family, which have other names in the new configuration.
ONLY_SIGNS = ("model_type", "architectures", "model", "application", "use_relative_position")


@dataclass(frozen=True)
class Parts:
    """The parts of a checkpoint beside the tensors.

    `fields` are what the configuration states of the new one, `all_fields` all of its fields, which are also signs of
    the family, and `ignored` the names of those without a meaning. `architecture` is the class that it names, if that
    decides. `exported_as` is the family that this package exported, and `own` the fields that it wrote then. `ids` maps
    [PAD], [CLS] and [SEP] to the ids of the tokens with these roles. `make_tokenizer` takes the new configuration,
    arguments that the files may leave open, and whether texts of the new model may be longer than those of the old one.
    """

    config: Path
    fields: dict[str, Any]
    all_fields: Mapping[str, Any]
    ignored: list[str]
    architecture: str | None
    exported_as: str | None
    own: Mapping[str, Any]
    vocabulary: Vocabulary
    ids: Mapping[str, int | None]
    make_tokenizer: Callable[[PreTrainedConfig, dict[str, object], bool], RoFormerTokenizer]


def original_parts(files: LegacyFiles) -> Parts:
    """Read bert_config.json and vocab.txt of the original framework."""
    settings, vocabulary = read_settings(files.config), read_vocabulary(files.vocab)
    exported = is_exported(settings) and settings.ignored.get(EXPORTED_AS) in FAMILIES
    own = own_config(settings)
    fields = settings.values | {name: value for name, value in settings.ignored.items() if name in STATED}
    if settings.ignored.get("max_relative_position"):
        fields["max_relative_position"] = settings.size("max_relative_position")
    saved = read_fields(files.vocab.with_name(TOKENIZER_CONFIG), default={})
    stated = {name: value for name, value in saved.items() if name in STATED_OF_TOKENIZER}
    return Parts(
        config=files.config,
        fields=fields,
        all_fields={**settings.ignored, **own},
        ignored=sorted(settings.ignored.keys() - {*FIELDS, *STATED, *(OWN if is_exported(settings) else ())}),
        architecture=class_of(files.config, settings.ignored) if exported else None,
        exported_as=settings.ignored[EXPORTED_AS] if exported else None,
        own=own,
        vocabulary=vocabulary,
        ids=vocabulary.ids,
        make_tokenizer=partial(_new_tokenizer, vocabulary, tokenizer_arguments(vocabulary, settings) | stated),
    )


def _new_tokenizer(
    vocabulary: Vocabulary,
    stated: Mapping[str, object],
    config: PreTrainedConfig,
    left_open: dict[str, object],
    has_no_limit: bool,
) -> RoFormerTokenizer:
    from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer

    arguments = {**left_open, **stated}
    if has_no_limit:
        arguments.pop("model_max_length", None)
    return RoFormerTokenizer(vocabulary.ids, **arguments)


def pytorch_parts(files: LegacyFiles) -> Parts:
    """Read config.json or another configuration, and the tokenizer, of a PyTorch folder.

    bert4torch writes its own configuration beside transformers', and names the family there.
    """
    from ..folder.saved_tokenizer import read_tokenizer

    fields = read_fields(files.config)
    model_type = fields.get("model_type")
    if model_type not in (None, *MODEL_TYPES_READ):
        known = ", ".join(MODEL_TYPES_READ)
        raise CheckpointError(f"{files.config}: model_type is {model_type!r}, but only {known} can be converted")
    beside = read_fields(files.config.with_name(BERT4TORCH), default={})
    tokenizer = read_tokenizer(files.vocab.parent)
    kept = {name: value for name, value in fields.items() if name not in (*NOT_KEPT, *ONLY_SIGNS)}
    if kept.get("pooler_activation") is None:
        kept.pop("pooler_activation", None)
    return Parts(
        config=files.config,
        fields=kept,
        all_fields={name: value for name, value in beside.items() if name in FIELDS} | fields,
        ignored=[name for name in NOT_KEPT if name in fields],
        architecture=class_of(files.config, fields),
        exported_as=None,
        own={},
        vocabulary=Vocabulary(files.vocab, tokenizer.get_vocab()),
        ids={"[PAD]": tokenizer.pad_token_id, "[CLS]": tokenizer.cls_token_id, "[SEP]": tokenizer.sep_token_id},
        make_tokenizer=partial(_saved_tokenizer, files, tokenizer),
    )


def _saved_tokenizer(
    files: LegacyFiles,
    old: RoFormerTokenizer,
    config: PreTrainedConfig,
    left_open: dict[str, object],
    has_no_limit: bool,
) -> RoFormerTokenizer:
    """Return a folder's tokenizer as a RoFormerTokenizer; a table of positions limits its maximum length."""
    from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

    from ..folder.saved_tokenizer import written_anew

    stated = read_fields(files.vocab.with_name(TOKENIZER_CONFIG), default={})
    changes = {name: value for name, value in left_open.items() if name not in stated}
    if "model_max_length" in left_open:
        changes["model_max_length"] = min(left_open["model_max_length"], old.model_max_length)
    if has_no_limit:
        changes["model_max_length"] = VERY_LARGE_INTEGER
    return written_anew(old, **changes)
