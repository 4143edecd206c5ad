"""Text that a model writes: RoFormer-GPT goes on, RoFormer-Sim says it in other words, encoder and decoder translate."""

import torch

from .reading import Reading
from .served_model import ServedModel

NEW_TOKENS = 64
TEXTS = 3


@torch.inference_mode()
def write(served: ServedModel, text: str) -> tuple[list[str], Reading]:
    """Three samples of what follows a text; of a model that translates, the best of four beams."""
    reading = served.read(text)
    ids = served.ids(reading)
    translates = served.model.config.is_encoder_decoder
    how = {"num_beams": 4} if translates else {"do_sample": True, "top_p": 0.95, "num_return_sequences": TEXTS}
    written = served.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, **how)
    new = written if translates else written[:, ids.shape[1] :]
    return served.tokenizer.batch_decode(new, skip_special_tokens=True), reading
