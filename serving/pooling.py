"""The files of a saved model that state how it makes vectors of texts, read without torch."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from modeling_roformer.files.reading import read_json, read_whole

from .errors import ServingError
from .model_folder import named_when_unreadable, read_model_folder

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MODULES = "modules.json"
TRANSFORMER = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
_MATCHER = ["RoFormerForTripletMatching"]
# Fields of sentence_bert_config.json that change which tokens are read.
_TRANSFORMER_FIELDS = ("query_length", "document_length", "query_expansion", "processing_kwargs")
_ROUTERS = (".Router", ".Asym")


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
    with named_when_unreadable(folder / MODULES):
        reasons = _not_computed(folder)
    if reasons:
        raise ServingError(
            f"{folder / MODULES} makes vectors by {', '.join(reasons)}, which is not supported: compute them with "
            "SentenceTransformer, or remove the file for the model's own vectors"
        )
    return folder


def pooling_of(config: dict) -> str:
    """Return how an encoder without modules of sentence-transformers makes a vector of a text.

    Returns:
        "pooler": RoFormer-Sim's pooler, a linear layer over [CLS]; "bi": the normalised mean over tokens, of a
        RoFormerForTripletMatching; "mean": the mean over tokens, of every other encoder.
    """
    has_pooler = config.get("add_pooling_layer") and config.get("pooler_activation") == "linear"
    return "bi" if config.get("architectures") == _MATCHER else "pooler" if has_pooler else "mean"


def modules_of(folder: Path) -> list[tuple[str, str]]:
    """Return the modules of sentence-transformers, each as its type and its folder; none if it did not save the
    model."""
    path = folder / MODULES
    if not path.is_file():
        return []
    return [(module["type"], module["path"]) for module in json.loads(read_whole(path))]


def length_of_older_versions(folder: Path) -> int | None:
    """Return the maximum number of tokens that older versions of sentence-transformers wrote, or None.

    Later versions write it as the tokenizer's `model_max_length`. They prefer the older field, and read it only with a
    list of modules.
    """
    if not modules_of(folder):
        return None
    length = read_json(folder / TRANSFORMER, default={}).get("max_seq_length")
    return length if isinstance(length, int) and length > 0 else None


def length_for_servers(folder: Path, tokenizer_length: int, config: "PretrainedConfig") -> int:
    """Return the maximum number of tokens that an exported folder states: the model's positions, or less if its own
    files do.

    transformers' default is 1e30, at which vLLM, fastembed and text-embeddings-inference stop.
    """
    stated = (tokenizer_length, length_of_older_versions(folder), config.max_position_embeddings)
    return min(filter(None, stated))


def _not_computed(folder: Path) -> list[str]:
    """Return the types of modules, and the names of settings, that make vectors in a way that is not computed here."""
    if not (folder / MODULES).is_file():
        return []
    types, paths = [kind for kind, _ in modules_of(folder)], [path for _, path in modules_of(folder)]
    transformer = read_json(folder / TRANSFORMER, default={})
    # Of several routes, the texts' task would choose one. Other packages' types would run code from the folder.
    names = [kind for kind in types if not kind.startswith("sentence_transformers.") or kind.endswith(_ROUTERS)]
    if len(types) < 2 or [kind for kind in types if kind.endswith(".Transformer")] != types[:1]:
        names.append(f"these modules: {', '.join(types) or 'none'}")
    names += [path for path in paths if Path(path).is_absolute() or ".." in Path(path).parts]
    names += [name for name in _TRANSFORMER_FIELDS if transformer.get(name)]
    output = (transformer.get("modality_config") or {}).get("text", {}).get("method_output_name")
    if output not in (None, "last_hidden_state"):
        names.append("modality_config")
    if transformer.get("transformer_task") not in (None, "feature-extraction"):
        names.append("transformer_task")
    # Our tokenizer has the same field, and lower-cases by default.
    lowers = read_json(folder / "tokenizer_config.json", default={}).get("do_lower_case", True)
    if transformer.get("do_lower_case") and not lowers:
        names.append("do_lower_case")
    if read_json(folder / PROMPTS, default={}).get("truncate_dim") is not None:
        names.append("truncate_dim")
    return names
