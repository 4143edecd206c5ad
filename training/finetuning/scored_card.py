"""Model card of a fine-tuned model, with its scores in the metadata that the Hub reads."""

import math
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard

from ...model_cards import card_of_folder, check_metadata
from ...model_cards.folder_card import CARD
from ...tokenization.whole_file import write_whole

_HEADING, _NOTHING = "## Results\n\n", "Not published.\n"


def write_scored_card(
    folder: str | Path, scores: Sequence[EvalResult], name: str | None = None, **facts: object
) -> None:
    """Write scores into the card of a saved model: into its `model-index`, and into the text under "Results".

    Args:
        folder: folder of the model. If it has no card, write one.
        scores: the scores. They replace older scores of the same metric and data.
        name: name of the model in a new card; if None, the name of the folder.
        facts: facts for `card_of_folder`. With any, write a new card; with `results`, that is the text under "Results".

    Raises a ValueError, and writes nothing, if a score is not finite.

    >>> score = EvalResult("text-classification", "reviews", "reviews", "accuracy", 0.925)
    >>> write_scored_card("classifier/model", [score])
    """
    for score in scores:
        if not math.isfinite(score.metric_value):
            raise ValueError(f"{score.metric_type} on {score.dataset_name} is {score.metric_value}: the run has failed")
    path = Path(folder) / CARD
    old = path.exists() and not facts
    card = ModelCard(path.read_text(encoding="utf-8") if old else card_of_folder(folder, name, **facts))
    known = card.data.eval_results or []
    others = [other for other in known if not any(score.is_equal_except_value(other) for score in scores)]
    card.data.eval_results = [*others, *scores]
    card.data.metrics = sorted({score.metric_type for score in card.data.eval_results})
    card.data.model_name = card.data.model_name or name or Path(folder).resolve().name
    if "results" not in facts:
        card.text = _with_lines(card.text, scores)
    check_metadata(str(card))
    write_whole(path.resolve(), str(card))


def _with_lines(text: str, scores: Sequence[EvalResult]) -> str:
    """Return the text with a line per score at the start of "Results", if it has that. Keep what people wrote there."""
    before, heading, after = text.partition(_HEADING)
    if not heading:
        return text
    new = {f"- {score.metric_type} on {score.dataset_name}: ": score.metric_value for score in scores}
    lines = [line for line in after.removeprefix(_NOTHING).splitlines(keepends=True) if not line.startswith(tuple(new))]
    end = next((i for i, line in enumerate(lines) if not line.startswith("- ")), len(lines))
    gap = "\n" * bool("".join(lines[end : end + 1]).strip())  # a blank line before text that people wrote
    return (
        before
        + heading
        + "".join([*lines[:end], *(f"{start}{value:.4g}\n" for start, value in new.items()), gap, *lines[end:]])
    )
