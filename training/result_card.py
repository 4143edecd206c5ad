"""The card of a fine-tuned model: how it was trained, and its score where people and the Hub look for it."""

from pathlib import Path

from huggingface_hub import EvalResult, ModelCard

from ..model_cards import card_of_folder, check_metadata
from ..model_cards.folder_card import CARD
from ..tokenization.whole_file import write_whole


def write_result_card(
    folder: str | Path, name: str, scores: list[EvalResult], training: str, results: str, **facts: object
) -> Path:
    """Write README.md beside a saved model, in place of the one that is there.

    Args:
        folder: of the model.
        name: what the model is called.
        scores: what goes into the metadata, as `model-index`, which the Hub reads.
        training, results: Markdown for the card's sections.
        facts: rows of its table, as `card_of_folder` takes them.
    """
    card = ModelCard(
        card_of_folder(folder, name, training=training, results=results, **facts), ignore_metadata_errors=False
    )
    card.data.model_name = name
    card.data.eval_results = scores
    card.data.metrics = sorted({score.metric_type for score in scores})
    text = str(card)
    check_metadata(text)
    path = Path(folder) / CARD
    write_whole(path.resolve(), text)
    return path
