"""An encoder whose graph returns the vector of each text, so that a program needs no code for pooling."""

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from ..pooling import pool


class SentenceVectors(torch.nn.Module):
    """Bare model with pooling and normalisation. `pooling` is a result of `pooling_of`."""

    def __init__(self, model: PreTrainedModel, pooling: str):
        super().__init__()
        self.model, self.pooling, self.config = model, pooling, model.config

    def forward(self, input_ids, attention_mask, token_type_ids=None) -> dict[str, torch.Tensor]:
        """Return `sentence_embedding`, (b, hidden_size), of length 1, and `token_embeddings`, (b, s, hidden_size).

        Other exports for sentence-transformers have the same names.
        """
        outputs = self.model(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        pooled = pool(outputs, attention_mask, self.pooling)
        return {"sentence_embedding": F.normalize(pooled, dim=-1), "token_embeddings": outputs.last_hidden_state}
