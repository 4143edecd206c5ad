"""Answers to questions about a document of any length."""

import torch

from ..answers import WINDOW, best_answers, windows_of
from .served_model import ServedModel

MAX_ANSWERS = 3


@torch.inference_mode()
def answer_question(served: ServedModel, question: str, context: str) -> tuple[list[dict], str]:
    """Return the best answers, best first, and the document.

    An answer has `score`, `start`, `end` and `answer`, which is `context[start:end]`.

    Raises:
        ServingError: a text is empty or too long, or the question leaves no room for the document.
    """
    question, context = served.checked(question, "the question"), served.checked(context, "the document")
    windows = []
    for window in windows_of(served.tokenizer, question, context, min(served.longest, WINDOW)):
        outputs = served.model(
            **{name: torch.tensor([ids], device=served.model.device) for name, ids in window.inputs.items()}
        )
        logits = torch.stack([outputs.start_logits[0, window.places], outputs.end_logits[0, window.places]])
        windows.append((window.offsets, logits))
    return [
        {"score": score, "start": start, "end": end, "answer": context[start:end]}
        for start, end, score in best_answers(windows, MAX_ANSWERS)
    ], context
