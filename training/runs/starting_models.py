"""Tokenizers and models that training starts from, and their learning rate."""

from pathlib import Path

import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id
from transformers import PreTrainedTokenizerBase, set_seed

from modeling_roformer.configuration import RoFormerConfig
from modeling_roformer.conversion.checkpoints.exported import tokenizer_arguments
from modeling_roformer.conversion.folder.settings import read_settings
from modeling_roformer.conversion.folder.vocabulary import read_vocabulary
from modeling_roformer.files.model_folder import why_no_model
from modeling_roformer.files.reading import read_json
from modeling_roformer.heads import RoFormerForMaskedLM
from modeling_roformer.output.console import sentence_of
from modeling_roformer.registration import registered_transformers
from modeling_roformer.tokenization.tokenizer import RoFormerTokenizer

from ..errors import TrainingError
from .finite_callback import NotFinite, first_not_finite
from .new_head import new_head

# Sizes of https://github.com/google-research/bert: layers and width. A head has 64 dimensions.
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512), "base": (12, 768)}
_BASE_RATE, _BASE_WIDTH = 3e-5, 768  # of the paper's section 4.3
_MAX_RATE = 1e-3
CONFIG = "config.json"
_TOKENIZERS = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")  # the last one may name files of another kind
# Files that save_pretrained writes beside a vocab.txt; a folder without any of them may have a vocab.txt alone.
_TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json", "special_tokens_map.json", "added_tokens.json")


def check_model_source(source: str | Path, needs_tokenizer: bool = True) -> None:
    """Raise a TrainingError, before anything else is loaded, if a model to start from is not there.

    Args:
        source: folder of a saved model, or its name on the Hub, which is asked once, unless the model is in its cache.
        needs_tokenizer: whether the model must come with its tokenizer.

    >>> check_model_source("runs")
    Traceback (most recent call last):
    modeling_roformer.training.errors.TrainingError: runs has no config.json, so it is not a saved model: name \
    runs/model, which has one
    """
    folder = Path(source)
    if not folder.exists():
        if _is_path(source):
            raise TrainingError(f"{source} does not exist: name the folder of a saved model, or its name on the Hub")
        _check_on_the_hub(str(source), (CONFIG,), "model")
        return
    if reason := why_no_model(folder):
        raise TrainingError(reason)
    if needs_tokenizer and not any((folder / name).is_file() for name in _TOKENIZERS):
        raise TrainingError(
            f"{folder} has no tokenizer ({' or '.join(_TOKENIZERS[:2])}): save the model's tokenizer there"
        )


def _is_path(source: str | Path) -> bool:
    """Return whether a name is a path, and cannot be the name of a repository on the Hub."""
    try:
        validate_repo_id(str(source))
    except HFValidationError:
        return True
    return isinstance(source, Path) or ("/" in source and Path(source).parent.is_dir())


def _check_on_the_hub(name: str, needed: tuple[str, ...], kind: str) -> None:
    """Raise a TrainingError unless a repository has one of these files.

    The Hub is asked once, where transformers repeats each request, and warns each time.
    """
    if any(isinstance(try_to_load_from_cache(name, file), str) for file in needed):
        return
    try:
        files = {file.rfilename for file in HfApi().model_info(name, timeout=30).siblings or ()}
    except GatedRepoError:
        return  # transformers says how to get access
    except RepositoryNotFoundError:
        raise TrainingError(
            f"{name} is not here, and no repository on the Hub: correct the name, or log in with `hf auth login` for a "
            "private one"
        ) from None
    except Exception as error:  # of several libraries, for a connection that fails or is switched off
        raise TrainingError(
            f"{name} is not here, and the Hub cannot be asked for a {kind} of that name: {sentence_of(error)}"
        ) from None
    if files.isdisjoint(needed):
        raise TrainingError(f"{name} on the Hub has no {kind} ({' or '.join(needed)})")


def load_tokenizer(place: str | Path, **options) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a saved model, of a checkpoint of bert4keras, or of a vocab.txt.

    `options` are those of `RoFormerTokenizer`. Without them, a vocab.txt with capital letters is not lower-cased, as
    `roformer convert` has it.

    Raises a TrainingError if there is none, or it lacks a special token that masking needs.
    """
    path, settings = Path(place), None
    vocabulary = path if path.is_file() else None
    if not path.exists():
        if _is_path(place):
            raise TrainingError(f"{place} does not exist: name a vocab.txt, or the folder of a saved model")
        _check_on_the_hub(str(place), _TOKENIZERS, "tokenizer")
    try:
        is_saved = any((path / name).exists() for name in _TOKENIZER_FILES)
        # From config.json alone, transformers would choose BERT's tokenizer, without words and with another case.
        if path.is_dir() and not is_saved and ((path / "vocab.txt").exists() or not (path / "config.json").exists()):
            if (path / "bert_config.json").is_file():  # a checkpoint of bert4keras
                settings = read_settings(path / "bert_config.json")
            vocabulary = path / "vocab.txt"
            if not vocabulary.exists():
                raise ValueError(f"{vocabulary} does not exist")
        if vocabulary is not None:
            arguments = tokenizer_arguments(read_vocabulary(vocabulary), settings)
            tokenizer = RoFormerTokenizer(str(vocabulary), **(arguments | options))
        else:
            tokenizer = registered_transformers.AutoTokenizer.from_pretrained(place, **options)
    except Exception as error:  # of any type, for example for damaged files
        raise TrainingError(f"{place} has no tokenizer that can be loaded: {sentence_of(error)}") from None
    special = ("cls_token", "sep_token", "mask_token", "pad_token")
    if missing := [name for name in special if getattr(tokenizer, name) not in tokenizer.get_vocab()]:
        raise TrainingError(f"{place}: masked language modelling needs {', '.join(missing)} in the vocabulary")
    return tokenizer


def fresh_model(
    tokenizer: PreTrainedTokenizerBase, fields: dict | str | Path | None = None, seed: int = 0
) -> RoFormerForMaskedLM:
    """Return a RoFormerForMaskedLM with random weights from `seed`, and the vocabulary size of a tokenizer.

    `fields` are fields of `RoFormerConfig` that replace its defaults, a JSON file with them, or a name in `SIZES`.
    """
    if isinstance(fields, str) and fields in SIZES:
        layers, width = SIZES[fields]
        fields = dict(
            num_hidden_layers=layers,
            hidden_size=width,
            num_attention_heads=width // 64,
            intermediate_size=4 * width,
        )
    file = fields if isinstance(fields, (str, Path)) else None
    if file is not None:
        if not Path(file).is_file():
            raise TrainingError(f"{file} does not exist: name a JSON file, or one of the sizes {', '.join(SIZES)}")
        try:
            fields = read_json(file, encoding="utf-8-sig")
        except ValueError as error:
            raise TrainingError(f'{error}; expected fields of RoFormerConfig, as {{"hidden_size": 256}}') from None
    given = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id} | (fields or {})
    if unknown := sorted(name for name in given if not hasattr(RoFormerConfig(), name)):
        raise TrainingError(f"{f'{file}: ' if file else ''}RoFormerConfig has no field {', '.join(unknown)}")
    try:
        config = RoFormerConfig(**given)
    except ValueError as error:
        if file is None:
            raise
        raise TrainingError(f"{file}: {sentence_of(error)}") from None
    set_seed(seed)
    return RoFormerForMaskedLM(config)


def trained_model(place: str | Path, tokenizer: PreTrainedTokenizerBase, seed: int = 0) -> RoFormerForMaskedLM:
    """Load a saved RoFormer in float32 to train it further. If it has no MLM head, add one with weights from the seed.

    Raises a TrainingError if it is another model or a decoder, its vocabulary is not the tokenizer's, or a weight is
    not finite.
    """
    check_model_source(place, needs_tokenizer=False)
    try:
        config = registered_transformers.AutoConfig.from_pretrained(place)
    except (OSError, ValueError) as error:
        raise TrainingError(f"{place} is not a saved model: {sentence_of(error)}") from None
    if not isinstance(config, RoFormerConfig) or config.is_decoder:
        found = "a decoder" if isinstance(config, RoFormerConfig) else f"of type {config.model_type}"
        raise TrainingError(
            f"{place} is {found}; expected a RoFormer encoder (`roformer convert --as roformer` makes one of a BERT)"
        )
    has_own = not Path(place).is_dir() or any((Path(place) / name).exists() for name in ("vocab.txt", "tokenizer.json"))
    own = registered_transformers.AutoTokenizer.from_pretrained(place).get_vocab() if has_own else tokenizer.get_vocab()
    if config.vocab_size < len(tokenizer) or own != tokenizer.get_vocab():
        raise TrainingError(
            f"{place} has another vocabulary than the tokenizer: leave out --tokenizer, or give the checkpoint the new "
            "vocabulary with `roformer vocab-init`"
        )
    set_seed(seed)
    with new_head():
        model = RoFormerForMaskedLM.from_pretrained(place, dtype=torch.float32)
    if name := first_not_finite(model):
        raise NotFinite(f"the weight {name} of {place} is not finite: use an earlier checkpoint")
    return model


def fine_tuning_rate(config: RoFormerConfig, pairs: bool = False) -> float:
    """Return a learning rate for fine-tuning a model, and print it: 3e-5 at a width of 768, more for narrower models.

    For single texts, it is in inverse proportion to the square of the width: 3e-4 at 256. A model learns to compare
    the two texts of a pair later than it learns words, and at that rate it may not learn it at all. So the rate for
    pairs is in inverse proportion to the width: 9e-5 at 256. Both are at most 1e-3, and have one digit.

    Args:
        config: the model's configuration.
        pairs: whether the model classifies pairs of texts.
    """
    narrower = _BASE_WIDTH / config.hidden_size
    rate = float(f"{min(_BASE_RATE * (narrower if pairs else narrower**2), _MAX_RATE):.0e}")
    what = f"{'pairs and ' if pairs else ''}a model of width {config.hidden_size:,}"
    print(f"learning rate {rate:g}, chosen for {what}; --learning-rate sets another")
    return rate
