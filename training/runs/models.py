"""Tokenizers and models that a run starts from."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedTokenizerBase, set_seed

from ...configuration import RoFormerConfig
from ...files.reading import read_json
from ...heads import RoFormerForMaskedLM
from ...output.console import sentence_of
from ...registration import transformers
from ...tokenization.tokenizer import RoFormerTokenizer
from ..errors import TrainingError
from .arguments import SIZES, require_place
from .finite import require_finite_start

_TOKENIZER_FILES = ("vocab.txt", "tokenizer.json")
_SPECIAL = ("cls_token", "sep_token", "mask_token", "pad_token")


def load_tokenizer(place: str | Path, **options) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a saved model's folder, or of a vocab.txt, with options of `RoFormerTokenizer`.

    Raises a TrainingError if there is none, or it lacks a special token that masking needs.
    """
    if Path(place).is_dir() and not any(
        (Path(place) / name).exists() for name in ("config.json", "tokenizer_config.json")
    ):
        if not (Path(place) / "vocab.txt").is_file():
            raise TrainingError(f"{place} has no tokenizer: expected {' or '.join(_TOKENIZER_FILES)}")
        place = Path(place) / "vocab.txt"  # of a checkpoint of bert4keras
    tokenizer = RoFormerTokenizer(str(place), **options) if Path(place).is_file() else saved_tokenizer(place, **options)
    vocabulary = tokenizer.get_vocab()
    if missing := [name for name in _SPECIAL if getattr(tokenizer, name) not in vocabulary]:
        raise TrainingError(f"{place}: masked language modelling needs {', '.join(missing)} in the vocabulary")
    return tokenizer


def saved_tokenizer(place: str | Path, **options) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a saved model's folder. Raise a TrainingError if there is none, or it is damaged."""
    require_place(place)
    try:
        return transformers.AutoTokenizer.from_pretrained(place, **options)
    except Exception as error:  # of any type, for example for damaged files
        raise TrainingError(
            f"{place} has no tokenizer that can be loaded ({sentence_of(error)}): restore it, or use another folder"
        ) from None


def fresh_model(
    tokenizer: PreTrainedTokenizerBase, fields: dict | str | Path | None = None, seed: int = 0
) -> RoFormerForMaskedLM:
    """Return a RoFormerForMaskedLM with random weights from `seed`, and the vocabulary size of a tokenizer.

    `fields` are fields of `RoFormerConfig` that replace its defaults, a JSON file with them, or a name in `SIZES`.
    """
    if isinstance(fields, str) and fields in SIZES:
        layers, width = SIZES[fields]
        fields = {
            "num_hidden_layers": layers,
            "hidden_size": width,
            "num_attention_heads": width // 64,
            "intermediate_size": 4 * width,
        }
    if isinstance(fields, (str, Path)):
        try:
            fields = read_json(fields, encoding="utf-8-sig")
        except ValueError as error:
            raise TrainingError(f'{error}; expected fields of RoFormerConfig, as {{"hidden_size": 256}}') from None
    given = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id} | (fields or {})
    if unknown := sorted(name for name in given if not hasattr(RoFormerConfig(), name)):
        raise TrainingError(f"RoFormerConfig has no field {', '.join(unknown)}")
    set_seed(seed)
    return RoFormerForMaskedLM(RoFormerConfig(**given))


def saved_config(place: str | Path) -> RoFormerConfig:
    """Load the configuration of a saved RoFormer. Raise a TrainingError if it is not one, or a file of weights was cut
    short."""
    place = require_place(place)
    if Path(place).is_dir() and not (Path(place) / "config.json").exists():
        raise TrainingError(f"{place} has no config.json: convert an original checkpoint with `roformer convert`")
    config = transformers.AutoConfig.from_pretrained(place)
    if not isinstance(config, RoFormerConfig):
        raise TrainingError(
            f"{place} has the model type {config.model_type}; expected a RoFormer. Convert a BERT or WoBERT with "
            "`roformer convert --as roformer`"
        )
    if clause := unreadable_weights(Path(place)):
        raise TrainingError(f"{clause}: restore it from a copy")
    return config


def unreadable_weights(folder: Path) -> str | None:
    """Return a clause that names a weight file of a folder that cannot be opened, such as one that was cut short, or
    None."""
    for file in sorted(folder.glob("model*.safetensors")):
        try:
            with safe_open(file, "pt"):
                pass
        except (OSError, SafetensorError) as error:
            return f"{file} cannot be loaded ({sentence_of(error)})"
    return None


def trained_model(place: str | Path, tokenizer: PreTrainedTokenizerBase, seed: int = 0) -> RoFormerForMaskedLM:
    """Load a saved RoFormer in float32 to train it further. If it has no MLM head, add one with weights from the seed.

    Raises a TrainingError if it is another model or a decoder, its vocabulary is not the tokenizer's, or a weight is
    not finite.
    """
    config = saved_config(place)
    if config.is_decoder:
        raise TrainingError(f"{place} is a causal language model (is_decoder); expected a masked language model")
    of_model = transformers.AutoTokenizer.from_pretrained(place).get_vocab() if has_tokenizer(place) else None
    if config.vocab_size < len(tokenizer) or of_model not in (None, tokenizer.get_vocab()):
        raise TrainingError(
            f"{place} has another vocabulary than the tokenizer: leave out --tokenizer, or give the checkpoint the new "
            "vocabulary with `roformer vocab-init`"
        )
    set_seed(seed)
    model = RoFormerForMaskedLM.from_pretrained(place, dtype=torch.float32)
    require_finite_start(model, place)
    return model


def has_tokenizer(place: str | Path) -> bool:
    """Return whether a saved model's folder has tokenizer files. Return True for a name on the Hub, without a
    request."""
    return any((Path(place) / name).is_file() for name in _TOKENIZER_FILES) or not Path(place).is_dir()
