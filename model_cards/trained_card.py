"""Card of a model that a script has trained: its base model, data, hyperparameters and scores.

The card is complete when it is written, so that the folder can be pushed as it is. It names files and folders without
their paths.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from modeling_roformer.files import write_whole

from .folder_card import CARD, card_of_folder
from .metadata import metadata_of


def write_trained_card(
    folder: str | Path,
    name: str,
    training: str,
    *,
    base: str | Path | None = None,
    data: Sequence[str | Path] = (),
    hyperparameters: Mapping[str, object] | None = None,
    scores: Sequence[EvalResult] = (),
    results: str | None = None,
    **facts: object,
) -> None:
    """Write the card of a model that was trained, in place of an earlier card of the same folder.

    Args:
        folder: folder of the saved model.
        name: name of the model, for the title and the `model-index`.
        training: Markdown for the section on training.
        base: model that training started from, a folder or a name on the Hub; None for random weights. Only a name on
            the Hub becomes the field `base_model`, or for a folder, the one in its card.
        data: sources of the training data. Those on the Hub become the field `datasets`.
        hyperparameters: settings of the training by name, listed after `training`; None leaves one out.
        scores: scores for the `model-index` and the section on results. Their `dataset_name` is a `published_name`.
        results: Markdown for the section on results, in place of a line per score.
        **facts: further facts for `card_of_folder`: `language` and `license`; `place`, the folder in the example, such
            as `classifier/model`, by default `name`; `pairs`, for a classifier of pairs of texts.

    Raises a ValueError, and writes nothing, if a score is not finite.

    >>> source = published_name("data/reviews.csv")
    >>> score = EvalResult("text-classification", source, source, "accuracy", 0.925, dataset_split="test")
    >>> write_trained_card("classifier/model", "reviews", f"Fine-tuned on 24 texts of {source}.", scores=[score])
    """
    for score in scores:
        if not math.isfinite(score.metric_value):
            raise ValueError(f"{score.metric_type} on {score.dataset_name} is {score.metric_value}: the run has failed")
    known = {key: value for key, value in (hyperparameters or {}).items() if value is not None}
    settings = [f"- {key.replace('_', ' ')}: {_shown(value)}" for key, value in known.items()]
    training = "\n\n".join([training, *(["\n".join(settings)] if settings else [])])
    results = results or "\n".join(f"- {_line(score)}" for score in scores)
    facts = {"base_model": published_name(base) if base else None, **facts}
    card = ModelCard(card_of_folder(folder, name, training=training, results=results, **facts))
    card.data.base_model = published_base(base) if base else None
    on_hub = [str(source).partition(":")[0] for source in data if "/" in str(source) and not Path(source).exists()]
    card.data.datasets = [source for source in on_hub if _is_repository(source)] or None
    if scores:
        card.data.model_name = name
        card.data.eval_results = list(scores)
        card.data.metrics = sorted({score.metric_type for score in scores})
    write_whole((Path(folder) / CARD).resolve(), str(card))


def published_name(source: str | Path) -> str:
    """Return the name of a file, a folder or a data set without its path; a name on the Hub as it is.

    The folder `model` of a run is called like the run.

    >>> published_name("/home/me/reviews.csv"), published_name("nyu-mll/glue:sst2")
    ('reviews.csv', 'nyu-mll/glue:sst2')
    """
    path = Path(source)
    if not path.exists() and not path.is_absolute():
        return str(source)
    path = path.absolute()
    return path.parent.name if path.name == "model" else path.name


def published_base(base: str | Path) -> str | None:
    """Return the repository of the base model on the Hub: `base` itself, or that in the card of a folder, or None.

    A card that cannot be read names no base model: it must not cost the training that is to be saved.
    """
    if not Path(base).exists():
        return str(base) if _is_repository(str(base)) else None
    known = None
    with suppress(OSError, ValueError):
        known = metadata_of((Path(base) / CARD).read_text(encoding="utf-8")).get("base_model")
    if isinstance(known, list):
        known = known[0] if known else None
    return known if isinstance(known, str) and _is_repository(known) else None


def _is_repository(name: str) -> bool:
    """Return whether a string can be the name of a repository on the Hub."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return name.isascii()  # which huggingface_hub 1.31 does not check


def _line(score: EvalResult) -> str:
    split = f" ({score.dataset_split})" if score.dataset_split else ""
    return f"{score.metric_type} on {score.dataset_name}{split}: {score.metric_value:.4g}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Path):
        return published_name(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
