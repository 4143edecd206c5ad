"""What a fine-tuned model says of a text: its labels, labels of its words, answers found in it."""

import torch

from ..errors import ServingError
from .reading import Reading
from .served_model import ServedModel

ANSWERS = 3


@torch.inference_mode()
def classify(served: ServedModel, text: str, second: str = "") -> tuple[list[tuple[str, float]], list[Reading]]:
    """Every label with its score, best first; `second` is the other text of a pair, where the model was trained on pairs."""
    readings = [served.read(text)]
    inputs = {"text": readings[0].part}
    if second and second.strip():
        readings.append(served.read(second, name="the second text"))
        inputs["text_pair"] = readings[1].part
    answers = served.pipeline(inputs, top_k=None, truncation=True, max_length=served.longest)
    return [(answer["label"], answer["score"]) for answer in answers], readings


@torch.inference_mode()
def entities(served: ServedModel, text: str) -> tuple[list[dict], Reading]:
    """Spans of the text that is read, with `entity`, `score`, `start` and `end`."""
    reading = served.read(text)
    found = served.pipeline(reading.part, aggregation_strategy="simple")
    return [
        {"entity": span["entity_group"], **{name: span[name] for name in ("score", "start", "end")}} for span in found
    ], reading


@torch.inference_mode()
def answer(served: ServedModel, question: str, context: str) -> list[dict]:
    """The likeliest answers, best first, with `score`, `start`, `end` and `answer`; a long context is read in windows."""
    question, context = served.checked(question, "the question"), served.checked(context, "the document")
    try:
        found = served.pipeline(question=question, context=context, top_k=ANSWERS)
    except ValueError as error:  # the question leaves no room for the document
        raise ServingError(str(error)) from None
    if not found:
        raise ServingError("no answer was found in the document")
    return found
