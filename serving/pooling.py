"""How a saved model makes one vector of a text."""

import json
from pathlib import Path

from ..tokenization.whole_file import read_json, read_whole
from .errors import ServingError

# Fields of sentence-transformers before version 6, which had one for each kind.
_OLDER = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}


def is_matcher(config: dict) -> bool:
    """Return whether a configuration is that of a RoFormerForTripletMatching."""
    return (config.get("architectures") or [""])[0] == "RoFormerForTripletMatching"


def pooling_of(folder: Path, config: dict) -> str:
    """Return the kind of vectors of a saved encoder, from its configuration and from the files of sentence-transformers.

    Returns:
        "pooler": RoFormer-Sim's pooler, a linear layer over [CLS]; "bi": the normalised mean over tokens, of a
        RoFormerForTripletMatching; "cls": the first token; "mean": the mean over tokens, of every other encoder.

    Raises:
        ServingError: modules.json states other vectors, or cannot be read.
    """
    has_pooler = config.get("add_pooling_layer") and config.get("pooler_activation") == "linear"
    own = "bi" if is_matcher(config) else "pooler" if has_pooler else "mean"
    stated = _stated(folder)
    if own == "pooler" and stated in (None, ["cls", "Dense"]):
        return own
    if own == "bi" and stated in (None, ["mean"]):
        return own
    if own == "mean" and stated in (None, ["mean"], ["cls"]):
        return "mean" if stated is None else stated[0]
    raise ServingError(
        f"{folder / 'modules.json'} makes vectors by {', '.join(stated)}; expected the first token (cls) or the mean over tokens: "
        "compute them with SentenceTransformer, or remove the file for the mean"
    )


def _stated(folder: Path) -> list[str] | None:
    """Return the modules after the encoder, pooling as its kinds, or None if the folder has no modules.json."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    try:
        found = []
        for module in json.loads(read_whole(path)):
            name = module["type"].rpartition(".")[2]
            if name == "Pooling":
                found += _kinds(read_json(folder / module["path"] / "config.json"))
            elif name not in ("Transformer", "Normalize"):  # the length of a vector does not change its cosines
                found.append(name)
        return found
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OSError) as error:
        raise ServingError(
            f"{path} cannot be read ({error}): save the model again with sentence-transformers"
        ) from None


def _kinds(settings: dict) -> list[str]:
    """Return the kinds of pooling in the config.json of a Pooling module."""
    if "pooling_mode" in settings:
        kinds = settings["pooling_mode"]
        return [kinds] if isinstance(kinds, str) else list(kinds)
    chosen = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value]
    return [_OLDER.get(name, name.removeprefix("pooling_mode_")) for name in chosen] or ["mean"]
