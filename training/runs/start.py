"""What a pre-training starts from: a tokenizer, and a fresh or a trained model of its vocabulary."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase, set_seed

from ...configuration import RoFormerConfig
from ...heads import RoFormerForMaskedLM
from ...tokenization.tokenizer import RoFormerTokenizer
from ...tokenization.whole_file import read_json
from ..errors import TrainingError

_TOKENIZER_FILES = ("vocab.txt", "tokenizer.json")
_SPECIAL = ("cls_token", "sep_token", "mask_token", "pad_token")


def load_tokenizer(place: str | Path, **options) -> PreTrainedTokenizerBase:
    """The tokenizer of a saved model's folder, or of a vocab.txt; `options` are `RoFormerTokenizer`'s.

    Raises a TrainingError where it lacks a token that masking needs.
    """
    if Path(place).is_dir() and not (Path(place) / "config.json").exists():  # of the original framework
        place = Path(place) / "vocab.txt"
    if Path(place).is_file():
        tokenizer = RoFormerTokenizer(str(place), **options)
    else:
        tokenizer = AutoTokenizer.from_pretrained(_folder(place), **options)
    vocabulary = tokenizer.get_vocab()
    if missing := [name for name in _SPECIAL if getattr(tokenizer, name) not in vocabulary]:
        raise TrainingError(
            f"{place}: the vocabulary has no {', '.join(missing)}, which masked language modelling needs"
        )
    return tokenizer


def fresh_model(
    tokenizer: PreTrainedTokenizerBase, fields: dict | str | Path | None = None, seed: int = 0
) -> RoFormerForMaskedLM:
    """A RoFormerForMaskedLM of random weights.

    Args:
        tokenizer: gives the size of the vocabulary.
        fields: of `RoFormerConfig`, beside or in place of its defaults, or a JSON file with them.
        seed: of the weights.
    """
    if isinstance(fields, (str, Path)):
        try:
            given = read_json(fields, encoding="utf-8-sig")
            why = "" if isinstance(given, dict) else "it holds something else"
        except (ValueError, RecursionError) as error:
            why = str(error)
        if why:
            raise TrainingError(f'{fields} must be a JSON object, as {{"hidden_size": 256}}: {why}')
        fields = given
    given = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id} | (fields or {})
    if unknown := sorted(name for name in given if not hasattr(RoFormerConfig(), name)):
        raise TrainingError(f"RoFormerConfig has no field {', '.join(unknown)}")
    set_seed(seed)
    return RoFormerForMaskedLM(RoFormerConfig(**given))


def saved_config(place: str | Path) -> RoFormerConfig:
    """The configuration of a saved RoFormer; raises a TrainingError where it is another model, or none."""
    place = _folder(place)
    if Path(place).is_dir() and not (Path(place) / "config.json").exists():
        raise TrainingError(f"{place} holds no config.json: `roformer convert` makes a model of an original checkpoint")
    config = AutoConfig.from_pretrained(place)
    if not isinstance(config, RoFormerConfig):
        raise TrainingError(
            f"{place} is of the type {config.model_type}, not a RoFormer; of a BERT or WoBERT `roformer convert --as "
            "roformer` makes one"
        )
    return config


def trained_model(place: str | Path, tokenizer: PreTrainedTokenizerBase, seed: int = 0) -> RoFormerForMaskedLM:
    """A saved RoFormer to train on, in float32; an MLM head that it lacks is fresh, from the seed.

    Raises a TrainingError where it is another model, generates text, or has another vocabulary than the tokenizer.
    """
    config = saved_config(place)
    if config.is_decoder:
        raise TrainingError(f"{place} generates text (is_decoder), and has not learned to fill masks")
    of_model = AutoTokenizer.from_pretrained(place).get_vocab() if has_tokenizer(place) else None
    if config.vocab_size < len(tokenizer) or of_model not in (None, tokenizer.get_vocab()):
        raise TrainingError(
            f"{place} is a checkpoint of another vocabulary than the tokenizer's: leave --tokenizer out, or give the "
            "checkpoint the new vocabulary with `roformer vocab-init`"
        )
    set_seed(seed)
    return RoFormerForMaskedLM.from_pretrained(place, dtype=torch.float32)


def has_tokenizer(place: str | Path) -> bool:
    """Whether there are a tokenizer's files beside a saved model; a name on the Hub is not asked."""
    return any((Path(place) / name).is_file() for name in _TOKENIZER_FILES) or not Path(place).is_dir()


def _folder(place: str | Path) -> str:
    """A folder that is there, or what may be a name on the Hub."""
    if not Path(place).exists() and (Path(place).is_absolute() or str(place).count("/") != 1 or str(place)[0] == "."):
        raise TrainingError(f"{place} does not exist")
    return str(place)
