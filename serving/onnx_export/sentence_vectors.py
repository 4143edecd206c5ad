"""An encoder whose graph returns the vector of each text, so that a program needs no code for pooling."""

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from ..sentence_vectors import SentenceVectors


class ExportedVectors(torch.nn.Module):
    """Bare model with the vectors of its texts, of length 1."""

    def __init__(self, model: PreTrainedModel, vectors: SentenceVectors):
        super().__init__()
        self.model, self.vectors, self.config = model, vectors, model.config

    def forward(self, input_ids, attention_mask, token_type_ids=None) -> dict[str, torch.Tensor]:
        """Return `sentence_embedding`, (b, width), of length 1, and `token_embeddings`, (b, s, hidden_size).

        Other exports for sentence-transformers have the same names.
        """
        outputs = self.model(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        vectors = self.vectors(outputs, input_ids, attention_mask)
        return {"sentence_embedding": F.normalize(vectors, dim=-1), "token_embeddings": outputs.last_hidden_state}
