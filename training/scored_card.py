"""The model card of what a fine-tuning has made, with its score where the Hub looks for it."""

from pathlib import Path

from huggingface_hub import EvalResult, ModelCard

from ..model_cards import card_of_folder, check_metadata
from ..tokenization.whole_file import write_whole

_HEADING, _NOTHING = "## Results\n\n", "Not published.\n"


def write_scored_card(
    folder: str | Path, task_type: str, dataset: str, metric: str, value: float, name: str | None = None
) -> None:
    """Add a score to the card of a saved model: to its `model-index`, and to the text under "Results".

    Args:
        folder: of the model; a card that it lacks is written.
        task_type: the Hub's name of the task: "text-classification".
        dataset: name of the data that the model was tested with.
        metric: what was measured: "accuracy".
        value: the score; an older one of this metric and data is replaced.
        name: of the model, in a new card; that of the folder if None.

    >>> write_scored_card("classifier/model", "text-classification", "reviews", "accuracy", 0.925)
    """
    path = Path(folder) / "README.md"
    card = ModelCard(path.read_text(encoding="utf-8") if path.exists() else card_of_folder(folder, name))
    result = EvalResult(task_type, dataset, dataset, metric, float(value))
    others = [other for other in card.data.eval_results or [] if not result.is_equal_except_value(other)]
    card.data.eval_results = [*others, result]
    card.data.model_name = card.data.model_name or name or Path(folder).resolve().name
    before, heading, after = card.text.partition(_HEADING)
    if heading:
        start = f"- {metric} on {dataset}: "
        lines = after.removeprefix(_NOTHING).splitlines(keepends=True)
        lines = [line for line in lines if not line.startswith(start)]
        end = next((i for i, line in enumerate(lines) if not line.startswith("- ")), len(lines))
        gap = "\n" * bool("".join(lines[end : end + 1]).strip())  # before what people wrote
        card.text = before + heading + "".join([*lines[:end], f"{start}{value:.4g}\n", gap, *lines[end:]])
    check_metadata(str(card))
    write_whole(path, str(card))
