"""Tasks of the page on one text: tokens, labels, generation."""

import torch

from .served_model import Reading, ServedModel

MAX_NEW_TOKENS = 64
SAMPLES = 3


def segments(served: ServedModel, text: str) -> tuple[list[tuple[str, bool]], Reading]:
    """Return the tokens that are read of a text, and for each whether it is unknown."""
    reading, unknown = served.read(text), served.tokenizer.unk_token_id
    tokens = served.tokenizer.convert_ids_to_tokens(reading.ids)
    return [(token, id_ == unknown) for token, id_ in zip(tokens, reading.ids, strict=True)], reading


@torch.inference_mode()
def classify(served: ServedModel, text: str, second: str = "") -> tuple[list[tuple[str, float]], list[Reading]]:
    """Return every label with its score, best first; `second` is the other text of a pair."""
    readings = [served.read(text)]
    inputs = {"text": readings[0].part}
    if second and second.strip():
        readings.append(served.read(second, name="the second text"))
        inputs["text_pair"] = readings[1].part
    outputs = served.pipeline(inputs, top_k=None, truncation=True, max_length=served.longest)
    return [(output["label"], output["score"]) for output in outputs], readings


@torch.inference_mode()
def entities(served: ServedModel, text: str) -> tuple[list[dict], Reading]:
    """Return the labelled spans of the text that is read, with `entity`, `score`, `start` and `end`."""
    reading = served.read(text)
    spans = served.pipeline(reading.part, aggregation_strategy="simple")
    return [
        {"entity": span["entity_group"], **{name: span[name] for name in ("score", "start", "end")}} for span in spans
    ], reading


@torch.inference_mode()
def write(served: ServedModel, text: str) -> tuple[list[str], Reading]:
    """Return three sampled continuations of a text or, from an encoder-decoder, the best of four beams."""
    reading = served.read(text)
    ids = served.ids(reading)
    translates = served.model.config.is_encoder_decoder
    options = {"num_beams": 4} if translates else {"do_sample": True, "top_p": 0.95, "num_return_sequences": SAMPLES}
    written = served.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=MAX_NEW_TOKENS, **options)
    new = written if translates else written[:, ids.shape[1] :]
    return served.tokenizer.batch_decode(new, skip_special_tokens=True), reading
