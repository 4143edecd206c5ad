"""Tabs that a saved model gets on the page, by the files in its folder."""

from dataclasses import dataclass
from pathlib import Path

from modeling_roformer.model_cards.facts import vocabulary_of
from modeling_roformer.model_cards.kinds import architecture_of, described_kind, size_of
from modeling_roformer.model_cards.trained_card import published_name
from modeling_roformer.model_cards.usage import makes_sentences, task_of
from modeling_roformer.tokenization.vocabulary import has_words

from ..errors import ServingError
from ..model_folder import read_model_folder, table_length

# Names of the tabs, in the page's order.
TABS = ("fill", "document", "segments", "triplet", "rank", "compare", "classify", "entities", "answer", "write")
_WITH_VECTORS = ("triplet", "rank", "compare")
# Task on the Hub -> tabs. Every model has the tab "segments" as well.
_TABS_OF_TASK = {
    "fill-mask": ("fill", "document", *_WITH_VECTORS),
    "text-classification": ("classify",),
    "token-classification": ("entities",),
    "question-answering": ("answer",),
    "text-generation": ("write",),
    "translation": ("write",),
}
MAX_LENGTH = 4096  # tokens of an input, by default


@dataclass(frozen=True)
class ModelInfo:
    """Description of a model for the page."""

    name: str  # as `published_name` returns it
    facts: str  # kind of model and sizes
    task: str  # on the Hub
    tabs: tuple[str, ...]
    positions: int | None  # length of the table of positions; None without a table


def model_info_of(folder: Path) -> ModelInfo:
    """Read config.json and the vocabulary; raise ServingError if the page cannot show the folder's model."""
    config = read_model_folder(folder)
    entries = vocabulary_of(folder)
    word_level = has_words(entries)
    kind, architecture = described_kind(config, word_level), architecture_of(config)
    if kind is None:
        raise ServingError(
            f"{folder}: model_type is {config.get('model_type')!r}; expected a model of the RoFormer family"
        )
    task = task_of(config, word_level)
    layers, width = size_of(config, "num_hidden_layers"), size_of(config, "hidden_size")
    return ModelInfo(
        name=published_name(folder.resolve()),
        facts=f"{kind.title} · {layers} 层 layers × {width} · {len(entries):,} 词 entries",
        task=task,
        tabs=_tabs(folder, config, task, architecture, word_level),
        positions=table_length(config),
    )


def _tabs(folder: Path, config: dict, task: str, architecture: str | None, word_level: bool) -> tuple[str, ...]:
    if makes_sentences(config, word_level):  # RoFormer-Sim
        tabs = (*_WITH_VECTORS, "write")
    elif task == "sentence-similarity":
        tabs = _WITH_VECTORS if config.get("triplet_scorer") == "bi" else ("triplet",)
    elif task == "feature-extraction" and architecture.endswith("Model") and not config.get("is_encoder_decoder"):
        tabs = _WITH_VECTORS
    else:
        tabs = _TABS_OF_TASK.get(task, ())
    if not tabs:
        raise ServingError(
            f"the page has no tab for a {architecture}, the model in {folder}: it shows masked language models, "
            "encoders, triplet matchers, text and token classifiers, question answering and generation"
        )
    return tuple(tab for tab in TABS if tab in (*tabs, "segments"))
