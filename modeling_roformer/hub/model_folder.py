"""Check that a folder holds a complete model before it is published."""

from pathlib import Path

from safetensors import SafetensorError

from ..files.reading import read_json, read_whole
from ..model_cards import check_metadata
from ..model_cards.facts import safetensors_header
from ..output.console import sentence_of
from ..tokenization.vocabulary import read_vocabulary
from .onnx_graphs import GRAPH, check_graphs
from .published_files import PublishedFiles, published_files

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
EMBEDDINGS = "embeddings.word_embeddings.weight"


def check_model_folder(directory: str | Path) -> PublishedFiles:
    """Return the files of a folder to publish.

    Raises:
        ValueError: something is missing or broken, which the message names: config.json, the weights (each shard, and
            each tensor that the index names) or a graph for ONNX Runtime in their place, the vocabulary (an id without
            a row in the embeddings), or the metadata of the card; or a link leads out of the folder.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a folder")
    if not (directory / "config.json").is_file():  # such as an adapter, whose card may name a folder
        raise ValueError(f"{directory} has no config.json, so it is not a saved model")
    published = published_files(directory, _card(directory / "README.md"))
    config = read_json(directory / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise ValueError(f"{directory / 'config.json'} has no model_type, so the model could not be loaded")
    check_graphs(published.files)
    shapes = _check_weights(directory, published)
    if not (directory / "vocab.txt").is_file() and not (directory / "tokenizer.json").is_file():
        raise ValueError(f"{directory} has no tokenizer (vocab.txt or tokenizer.json): save it there first")
    read_json(directory / "tokenizer_config.json", default={})  # refuses a broken one
    _check_vocabulary(directory, shapes)
    return published


def _check_weights(directory: Path, published: PublishedFiles) -> dict[str, list[int]]:
    """Return the shape of each tensor that from_pretrained reads."""
    whole, index = directory / WEIGHTS, directory / WEIGHTS_INDEX
    if not whole.exists() and not index.exists():
        if GRAPH in published.files:  # the graph holds the weights
            return {}
        raise ValueError(f"{directory} has no weights ({WEIGHTS} or {WEIGHTS_INDEX}): save the model there first")
    shapes = _shapes(whole) if whole.exists() else {}
    if index.exists():
        shapes = _check_shards(directory, read_json(index).get("weight_map"), published) | shapes
    return shapes


def shown(name: str) -> str:
    """Return a name from a file as messages show it: escaped if it has line breaks or the like."""
    return name if name.isprintable() else ascii(name)


def _check_shards(directory: Path, weight_map: object, published: PublishedFiles) -> dict[str, list[int]]:
    """Return the shape of each tensor; check that each shard exists, is published, and has the tensors of the index."""
    shapes: dict[str, list[int]] = {}
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(f, str) for f in weight_map.values()):
        raise ValueError(f"{directory / WEIGHTS_INDEX} has no weight_map, so the weights could not be loaded")
    for shard in sorted(set(weight_map.values())):
        if not (directory / shard).is_file():
            raise ValueError(f"{directory} lacks {shown(shard)}, which {WEIGHTS_INDEX} names")
        if shard not in published.files:
            raise ValueError(
                f"{directory / WEIGHTS_INDEX} names {shown(shard)}, which is not published: save the model again"
            )
        found = _shapes(directory / shard)
        if absent := {name for name, file in weight_map.items() if file == shard} - found.keys():
            raise ValueError(f"{directory / shard} lacks {min(absent)}, which {WEIGHTS_INDEX} lists there")
        shapes |= found
    return shapes


def _shapes(path: Path) -> dict[str, list[int]]:
    try:
        return {name: shape for name, (_, shape) in safetensors_header(path).items()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a whole safetensors file: {sentence_of(error)}") from error


def _check_vocabulary(directory: Path, shapes: dict[str, list[int]]) -> None:
    """Raise ValueError if an id has no row in the embeddings, which may have extra rows for speed."""
    rows = max((shape[0] for name, shape in shapes.items() if name.endswith(EMBEDDINGS) and shape), default=None)
    for path in (directory / "vocab.txt", directory / "added_tokens.json", directory / "tokenizer.json"):
        ids = _ids(path) if path.is_file() else {}
        if rows is not None and ids and (last := max(ids)) >= rows:
            raise ValueError(
                f"{path} gives {ids[last][:50]!r} the id {last:,}, but the embeddings have {rows:,} rows: save the "
                "model and its own tokenizer there, or call resize_token_embeddings"
            )


def _ids(path: Path) -> dict[int, str]:
    """Return id -> entry of a tokenizer's file; of tokenizer.json, both the vocabulary's entries and added tokens."""
    vocabulary = read_vocabulary(path) if path.name == "vocab.txt" else read_json(path)
    added = None
    if path.name == "tokenizer.json":
        model, added = vocabulary.get("model"), vocabulary.get("added_tokens")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
    pairs = list(vocabulary.items()) if isinstance(vocabulary, dict) else []
    if isinstance(vocabulary, list):  # pieces with their scores, numbered in order
        pairs = [(piece[0], number) for number, piece in enumerate(vocabulary) if isinstance(piece, list) and piece]
    if isinstance(added, list):
        pairs += [(token.get("content"), token.get("id")) for token in added if isinstance(token, dict)]
    return {number: entry for entry, number in pairs if type(number) is int and isinstance(entry, str)}


def _card(path: Path) -> str:
    """Return the text of the card, "" if there is none; raise ValueError if the Hub would refuse it."""
    if not path.exists():
        return ""
    try:
        card = read_whole(path)
        check_metadata(card)
    except ValueError as error:
        raise ValueError(f"the Hub would refuse {path}: {sentence_of(error)}") from error
    return card
