"""Answers to questions about a document of any length."""

import torch

from ..errors import ServingError
from .served_model import ServedModel

MAX_ANSWERS = 3
MAX_ANSWER_LENGTH = 30  # tokens
WINDOW = 512  # tokens of a window, question included
OVERLAP = 128  # tokens that a window shares with the next


@torch.inference_mode()
def answer_question(served: ServedModel, question: str, context: str) -> tuple[list[dict], str]:
    """Return the best answers, best first, and the document.

    An answer has `score`, `start`, `end` and `answer`, which is `context[start:end]`.

    A long document is read in overlapping windows. Start and end probabilities are computed over the tokens of all
    windows, so that scores of different windows are comparable.

    Raises:
        ServingError: a text is empty or too long, or the question leaves no room for the document.
    """
    question, context = served.checked(question, "the question"), served.checked(context, "the document")
    tokenizer, longest = served.tokenizer, min(served.longest, WINDOW)
    question_tokens = len(tokenizer(question, add_special_tokens=False)["input_ids"])
    room = longest - question_tokens - tokenizer.num_special_tokens_to_add(pair=True)
    if room < 1:
        raise ServingError(
            f"the question has {question_tokens} tokens and leaves no room for the document: a model reads {longest} "
            "at once"
        )
    encoded = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=longest,
        stride=min(OVERLAP, room // 2),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    windows = []  # offsets of the document's tokens, and their start and end logits, of shape (2, tokens)
    for i, offsets in enumerate(encoded["offset_mapping"]):
        inputs = {name: torch.tensor([encoded[name][i]]) for name in tokenizer.model_input_names if name in encoded}
        outputs = served.model(**{name: ids.to(served.model.device) for name, ids in inputs.items()})
        inside = [place for place, part in enumerate(encoded.sequence_ids(i)) if part == 1]
        logits = torch.stack([outputs.start_logits[0, inside], outputs.end_logits[0, inside]])
        windows.append(([offsets[place] for place in inside], logits.cpu().double()))  # not every GPU has float64

    total = torch.cat([logits for _, logits in windows], dim=1).logsumexp(1, keepdim=True)
    scores: dict[tuple[int, int], float] = {}
    for offsets, logits in windows:
        start, end = (logits - total).exp()
        products = torch.outer(start, end).triu().tril(MAX_ANSWER_LENGTH - 1)
        best = products.flatten().topk(min(4 * MAX_ANSWERS, products.numel()))
        for score, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            first, last = divmod(index, len(offsets))
            if score > 0:
                span = (offsets[first][0], offsets[last][1])
                scores[span] = max(scores.get(span, 0.0), score)
    best = sorted(scores.items(), key=lambda item: -item[1])[:MAX_ANSWERS]
    return [
        {"score": score, "start": start, "end": end, "answer": context[start:end]} for (start, end), score in best
    ], context
