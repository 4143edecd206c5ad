"""What a saved model can do on the page, found in its folder without loading it."""

from dataclasses import dataclass
from pathlib import Path

from ...conversion.folder.legacy_folder import missing
from ...model_cards.facts import read_json, vocabulary_of
from ...model_cards.kinds import TABLE, architecture_of, described_kind, size_of
from ...model_cards.usage import makes_sentences, task_of
from ...tokenization.vocabulary import has_words
from ..errors import ServingError

FILL, DOCUMENT, SEGMENTS, TRIPLET, RANK, COMPARE, CLASSIFY, ENTITIES, ANSWER, WRITE = TABS = (
    "fill", "document", "segments", "triplet", "rank", "compare", "classify", "entities", "answer", "write",
)  # fmt: skip
WITH_VECTORS = (COMPARE, RANK, TRIPLET)
# The Hub's task -> the tabs beside the segmentation, which every tokenizer has.
_TABS = {
    "fill-mask": (FILL, DOCUMENT, *WITH_VECTORS),
    "text-classification": (CLASSIFY,),
    "token-classification": (ENTITIES,),
    "question-answering": (ANSWER,),
    "text-generation": (WRITE,),
    "translation": (WRITE,),
}
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")


@dataclass(frozen=True)
class Abilities:
    """What the page offers: its `tabs`, in their order.

    `name` is the folder's, `title` the kind of model, `task` the Hub's, `size` layers and width, `entries` those of the
    vocabulary, and `positions` the length of a table of positions, None where there is none.
    """

    name: str
    title: str
    task: str
    tabs: tuple[str, ...]
    size: tuple[int, int]
    entries: int
    positions: int | None


def abilities_of(folder: Path) -> Abilities:
    """Read config.json and the vocabulary; a ServingError says why there is no page for a folder."""
    if not folder.exists():
        raise ServingError(missing(folder, "the folder of a saved model"))
    config = read_json(folder / "config.json") if folder.is_dir() else {}
    if not config:
        raise ServingError(
            f"{folder} is not a saved model, which has a config.json: `roformer convert` makes one of a checkpoint"
        )
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ServingError(f"{folder} has no tokenizer: save it there with tokenizer.save_pretrained")
    try:
        entries = vocabulary_of(folder)
    except ValueError as error:
        raise ServingError(str(error)) from None
    word_level = has_words(entries)
    kind, architecture = described_kind(config, word_level), architecture_of(config)
    if kind is None:
        raise ServingError(
            f"{folder} holds a model of the type {config.get('model_type')!r}, which is none of the RoFormer family"
        )
    task = task_of(config, word_level)
    return Abilities(
        name=folder.resolve().name.encode("utf-8", "replace").decode("utf-8"),  # a name may be any bytes
        title=kind.title,
        task=task,
        tabs=_tabs(folder, config, task, architecture, word_level),
        size=(size_of(config, "num_hidden_layers"), size_of(config, "hidden_size")),
        entries=len(entries),
        positions=config.get("max_position_embeddings", 512) if kind.length == TABLE else None,
    )


def _tabs(folder: Path, config: dict, task: str, architecture: str | None, word_level: bool) -> tuple[str, ...]:
    if makes_sentences(config, word_level):  # RoFormer-Sim
        tabs = (*WITH_VECTORS, WRITE)
    elif task == "sentence-similarity":
        tabs = WITH_VECTORS if config.get("triplet_scorer") == "bi" else (TRIPLET,)
    elif task == "feature-extraction" and architecture.endswith("Model") and not config.get("is_encoder_decoder"):
        tabs = WITH_VECTORS
    else:
        tabs = _TABS.get(task, ())
    if not tabs:
        raise ServingError(
            f"{folder} holds a {architecture}, for which the page has no tab: it shows masked language models, encoders, "
            "matchers of triplets, classifiers of texts and of tokens, question answering and generation"
        )
    return tuple(tab for tab in TABS if tab in (*tabs, SEGMENTS))
