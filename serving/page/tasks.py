"""Tasks of the page on one text: tokens, labels, generation."""

import torch

from .served_model import EncodedText, ServedModel

MAX_NEW_TOKENS = 64
SAMPLES = 3


def segments(served: ServedModel, text: str) -> tuple[list[tuple[str, bool]], EncodedText]:
    """Return the tokens that are read of a text, and for each whether it is unknown."""
    encoded, unknown = served.encode(text), served.tokenizer.unk_token_id
    tokens = served.tokenizer.convert_ids_to_tokens(encoded.ids)
    return [(token, id_ == unknown) for token, id_ in zip(tokens, encoded.ids, strict=True)], encoded


@torch.inference_mode()
def classify(served: ServedModel, text: str, second: str = "") -> tuple[list[tuple[str, float]], list[EncodedText]]:
    """Return every label with its score, best first; `second` is the other text of a pair."""
    encoded_texts = [served.encode(text)]
    inputs = {"text": encoded_texts[0].part}
    if second and second.strip():
        encoded_texts.append(served.encode(second, name="the second text"))
        inputs["text_pair"] = encoded_texts[1].part
    outputs = served.pipeline(inputs, top_k=None, truncation=True, max_length=served.longest)
    return [(output["label"], output["score"]) for output in outputs], encoded_texts


@torch.inference_mode()
def entities(served: ServedModel, text: str) -> tuple[list[dict], EncodedText]:
    """Return the labelled spans of the text that is read, with `entity`, `score`, `start` and `end`."""
    encoded = served.encode(text)
    spans = served.pipeline(encoded.part, aggregation_strategy="simple")
    return [
        {"entity": span["entity_group"], **{name: span[name] for name in ("score", "start", "end")}} for span in spans
    ], encoded


@torch.inference_mode()
def write(served: ServedModel, text: str) -> tuple[list[str], EncodedText]:
    """Return three sampled continuations of a text or, from an encoder-decoder, the best of four beams."""
    encoded = served.encode(text)
    ids = served.ids(encoded)
    translates = served.model.config.is_encoder_decoder
    options = {"num_beams": 4} if translates else {"do_sample": True, "top_p": 0.95, "num_return_sequences": SAMPLES}
    written = served.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=MAX_NEW_TOKENS, **options)
    new = written if translates else written[:, ids.shape[1] :]
    return served.tokenizer.batch_decode(new, skip_special_tokens=True), encoded
