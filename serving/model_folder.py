"""Checks of a saved model's folder, and loading of a model that is complete. Only loading needs torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from modeling_roformer.files.model_folder import why_no_model
from modeling_roformer.files.reading import read_json
from modeling_roformer.model_cards.kinds import Positions, described_kind
from modeling_roformer.output.console import no_transformers_bar, no_warnings, sentence_of

from .errors import ServingError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

TOKENIZER_FILES = ("vocab.txt", "tokenizer.json")


def read_model_folder(folder: Path) -> dict:
    """Return the config.json of a saved model.

    Raises:
        ServingError: there is no such folder, or it has no config.json or no tokenizer.
        ValueError: names one of these files that cannot be read as JSON.
    """
    if reason := why_no_model(folder):
        raise ServingError(reason)
    config = read_json(folder / "config.json")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ServingError(
            f"{folder} has no tokenizer ({' or '.join(TOKENIZER_FILES)}): save the model's tokenizer there"
        )
    read_json(folder / "tokenizer_config.json", default={})  # transformers' error would not name it
    return config


def table_length(config: dict) -> int | None:
    """Return the length of a model's table of positions, by its config.json; None without a table."""
    has_table = described_kind(config, word_level=False).positions is Positions.TABLE
    return config.get("max_position_embeddings", 512) if has_table else None


def load_whole(model_class, folder: Path, unused: tuple[str, ...] = (), **options) -> "PreTrainedModel":
    """Load a model by a class of transformers or of this package.

    transformers initialises missing weights at random. This package refuses that for a backbone, but not for a head.

    Args:
        unused: starts of the names of weights that may be missing.
        options: arguments of `from_pretrained`.

    Raises:
        ServingError: the model cannot be loaded, or weights are missing or misshapen.
    """
    from modeling_roformer.loading import LoadedWhole

    with named_when_unreadable(folder), no_transformers_bar(), no_warnings("transformers"):
        model, report = model_class.from_pretrained(
            folder, output_loading_info=True, ignore_mismatched_sizes=True, local_files_only=True, **options
        )
        if isinstance(model, LoadedWhole):
            model.check_loaded(report, str(folder))
            unused = (*unused, f"{model.base_model_prefix}." if model.base_model is not model else "")
    if absent := sorted(name for name in report["missing_keys"] if not name.startswith(unused)):
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise ServingError(
            f"{folder}: a {type(model).__name__} needs the weights {absent[0]}{more}, which are missing: save the "
            "model again, or correct its config.json"
        )
    if misshapen := sorted(report["mismatched_keys"]):
        name, shape, expected = misshapen[0]
        raise ServingError(
            f"{folder} has {name} of shape {tuple(shape)}, but its config.json implies {tuple(expected)}: correct the "
            "config.json"
        )
    return model


def check_vocabulary(folder: Path, tokenizer: "PreTrainedTokenizerBase", config: "PretrainedConfig") -> None:
    """Raise ServingError if the tokenizer has ids that the model has no embeddings for."""
    if len(tokenizer) > config.vocab_size:
        raise ServingError(
            f"{folder}: the tokenizer has {len(tokenizer):,} entries, but the model's vocabulary "
            f"{config.vocab_size:,}: copy the vocab.txt of the model's training there"
        )


@contextmanager
def named_when_unreadable(folder: Path) -> Iterator[None]:
    """Turn any error in the block into a ServingError that names the folder: not all loaders' errors name a file."""
    try:
        yield
    except SafetensorError as error:
        raise ServingError(f"{_damaged_weights(folder)} is damaged: {sentence_of(error)}; copy it again") from None
    except Exception as error:  # of any type
        raise ServingError(f"{folder} cannot be loaded: {sentence_of(error)}") from None


def _damaged_weights(folder: Path) -> Path:
    """Return the first file of weights that cannot be opened."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "np"):
                continue
        except SafetensorError:
            return path
    return folder
