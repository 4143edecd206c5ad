"""Pooling of a saved model: one vector for each text, from the hidden states of its tokens."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from modeling_roformer.files.reading import read_json, read_whole

from .errors import ServingError
from .model_folder import named_when_unreadable, read_model_folder

if TYPE_CHECKING:
    import torch
    from transformers.utils import ModelOutput

MODULES = "modules.json"
SQRT = "mean_sqrt_len_tokens"
_MATCHER = ["RoFormerForTripletMatching"]
# Fields of sentence-transformers before version 6, which had one for each pooling.
_OLDER_FIELDS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
# `is_normalised` reads Normalize, which has to be at the end. Dropout is for training.
_WITHOUT_EFFECT = ("Normalize", "Dropout")
# Fields of a module that name its input and its output.
_INPUT_AND_OUTPUT_FIELDS = ("module_input_name", "module_output_name")
# Fields of sentence_bert_config.json that change vectors.
_ENCODER_FIELDS = ("query_length", "document_length", "query_expansion", "processing_kwargs")


def check_model(directory: str | Path) -> Path:
    """Return the folder of a saved encoder; raise ServingError if its files show that it has no vectors of texts."""
    folder = Path(directory)
    config = read_model_folder(folder)
    if config.get("is_encoder_decoder"):
        raise ServingError(f"{folder} is an encoder-decoder, which has no vectors of texts: name an encoder")
    if config.get("architectures") == _MATCHER and config.get("triplet_scorer", "cross") == "cross":
        raise ServingError(
            f'{folder} reads texts in pairs (triplet_scorer="cross") and has no vectors of single texts: train a model '
            'with --scorer bi, or compare texts with pipeline("triplet-matching")'
        )
    return folder


def pooling_of(folder: Path, config: dict) -> str:
    """Return the pooling of a saved encoder.

    It is read from the configuration and from the files of sentence-transformers.

    Returns:
        "pooler": RoFormer-Sim's pooler, a linear layer over [CLS]; "bi": the normalised mean over tokens, of a
        RoFormerForTripletMatching; "cls": the first token; "mean_sqrt_len_tokens": the sum over tokens, divided by the
        root of their number; "mean": the mean over tokens, of every other encoder.

    Raises:
        ServingError: the files of sentence-transformers state other vectors, or cannot be read.
    """
    has_pooler = config.get("add_pooling_layer") and config.get("pooler_activation") == "linear"
    own = "bi" if config.get("architectures") == _MATCHER else "pooler" if has_pooler else "mean"
    path = folder / MODULES
    if not path.is_file():
        return own
    modules = modules_of(folder)
    with named_when_unreadable(path):
        poolings = _poolings_and_options(folder, modules)
    if poolings == [SQRT] and (own == "bi" or is_normalised(folder)):  # the length of the vector is then 1
        poolings = ["mean"]
    expected = {"pooler": ["cls", "Dense"], "bi": ["mean"], "mean": ["mean"]}[own]
    if poolings == expected and (own != "pooler" or _has_pooler_as_dense(dict(modules)["Dense"], folder)):
        return own
    if own == "mean" and poolings in (["cls"], [SQRT]):
        return poolings[0]
    description = ", ".join(map(str, poolings)) or "no pooling"
    if poolings == expected:
        description = f"a Dense without the weights of the model's pooler ({dict(modules)['Dense']})"
    raise ServingError(
        f"{path} makes vectors by {description}, which is not supported for this model: compute them with "
        f"SentenceTransformer if its modules fit these weights, or remove the file for the model's own vectors"
    )


def is_normalised(folder: Path) -> bool:
    """Return whether modules.json normalises the vectors."""
    return any(name == "Normalize" for name, _ in modules_of(folder))


def modules_of(folder: Path) -> list[tuple[str, Path]]:
    """Return the modules of sentence-transformers, each with its folder; none if it did not save the model."""
    path = folder / MODULES
    if not path.is_file():
        return []
    with named_when_unreadable(path):
        return [(module["type"].rpartition(".")[2], folder / module["path"]) for module in json.loads(read_whole(path))]


def pool(
    outputs: "ModelOutput", attention_mask: "torch.Tensor", pooling: str, prompt_length: int = 0
) -> "torch.Tensor":
    """Return the vector of each text, (b, hidden_size), not normalised, from a bare model's outputs.

    Args:
        attention_mask: shape (b, s), with padding on the right.
        pooling: pooling as `pooling_of` returns it.
        prompt_length: number of the first tokens of each text that the vector leaves out; they belong to its prompt.
    """
    import torch

    from modeling_roformer.heads import mean_over_tokens

    if pooling == "pooler":
        return outputs.pooler_output
    states, mask = outputs.last_hidden_state, attention_mask
    if prompt_length:
        mask = mask.clone()
        mask[:, :prompt_length] = 0
    if pooling == "cls" and not prompt_length:
        return states[:, 0]
    if pooling == "cls":  # the first token after the prompt; of a text without such, its first
        return states[torch.arange(len(states), device=states.device), mask.argmax(dim=1)]
    means, count = mean_over_tokens(states, mask), mask.sum(dim=1, keepdim=True)
    return means * count.sqrt().to(means.dtype) if pooling == SQRT else means


def length_of_older_versions(folder: Path) -> int | None:
    """Return the maximum number of tokens that older versions of sentence-transformers wrote, or None.

    Later versions write it as the tokenizer's `model_max_length`. They prefer the older field, and read it only with a
    list of modules.
    """
    if not modules_of(folder):
        return None
    length = read_json(folder / "sentence_bert_config.json", default={}).get("max_seq_length")
    return length if isinstance(length, int) and length > 0 else None


def _poolings_and_options(folder: Path, modules: list[tuple[str, Path]]) -> list[str]:
    """Return the poolings, and the names of other modules after the encoder and of options that change vectors."""
    names = []
    for number, (name, place) in enumerate(modules, 1):
        if name == "Pooling":
            settings = read_json(place / "config.json")
            chosen = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value]
            older = [_OLDER_FIELDS.get(key, key.removeprefix("pooling_mode_")) for key in chosen] or ["mean"]
            poolings = settings.get("pooling_mode", older)
            names += [poolings] if isinstance(poolings, str) else poolings
        elif name not in ("Transformer", *_WITHOUT_EFFECT):
            names.append(name)
        elif name == "Normalize":
            settings = read_json(place / "config.json", default={})
            is_last = all(later in _WITHOUT_EFFECT for later, _ in modules[number:])
            if not (is_last and _is_of_vectors(settings)):
                names.append(name)
    settings = read_json(folder / "config_sentence_transformers.json", default={})
    encoder = read_json(folder / "sentence_bert_config.json", default={})
    names += [name for name in _ENCODER_FIELDS if encoder.get(name)]
    if not _is_of_last_states(encoder):
        names.append("modality_config")
    # Our tokenizer has the same field, and lower-cases by default.
    lowers = read_json(folder / "tokenizer_config.json", default={}).get("do_lower_case", True)
    if encoder.get("do_lower_case") and not lowers:
        names.append("do_lower_case")
    if settings.get("truncate_dim") is not None:
        names.append("truncate_dim")
    return names


def _is_of_last_states(encoder: dict) -> bool:
    """Return whether sentence_bert_config.json pools the last hidden states, as it does by default."""
    task, outputs = encoder.get("transformer_task"), encoder.get("modality_config") or {}
    output = outputs.get("text", {}).get("method_output_name")
    return task in (None, "feature-extraction") and output in (None, "last_hidden_state")


def _is_of_vectors(settings: dict) -> bool:
    """Return whether a module reads and writes the vectors of texts, as it does by default."""
    return all(settings.get(name) in (None, "sentence_embedding") for name in _INPUT_AND_OUTPUT_FIELDS)


def _has_pooler_as_dense(place: Path, folder: Path) -> bool:
    """Return whether a Dense module computes what the model's own pooler does."""
    from modeling_roformer.pooler_copy import has_pooler_copy

    with named_when_unreadable(place):
        settings = read_json(place / "config.json")
    # sentence-transformers takes an activation of any other package for tanh.
    is_linear = re.fullmatch(r"torch\..+\.Identity", str(settings.get("activation_function")))
    if not is_linear or settings.get("use_residual") or not _is_of_vectors(settings):
        return False
    return has_pooler_copy(folder, place)
