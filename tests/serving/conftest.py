"""Small models, and the naive formula for their vectors."""

import numpy as np
import pytest
import torch
from helpers.small_texts import LEGACY
from transformers import AutoModel, AutoTokenizer

import modeling_roformer
from modeling_roformer.conversion import convert


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Return a function from the name of a kind to the folder of a small model."""
    folder = tmp_path_factory.mktemp("models")

    def saved(kind: str):
        path = folder / kind
        if path.exists():
            return path
        if kind in ("bi", "cross"):
            torch.manual_seed(0)
            place = saved("word")
            model = modeling_roformer.RoFormerForTripletMatching.from_pretrained(place, triplet_scorer=kind)
            model.save_pretrained(path)
            AutoTokenizer.from_pretrained(place).save_pretrained(path)
        else:
            convert(LEGACY / kind, path)
        return path

    return saved


@pytest.fixture(scope="session")
def naive():
    """Return a function that computes vectors one text at a time: float32 of shape (n, width)."""

    @torch.no_grad()
    def naive(folder, texts, pooling, max_length=None) -> np.ndarray:
        model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        found = []
        for text in texts:
            ids = tokenizer(text)["input_ids"]
            if max_length is not None and len(ids) > max_length:
                ids = [*ids[: max_length - 1], tokenizer.sep_token_id]
            outputs = model(torch.tensor([ids]))
            vector = outputs.pooler_output[0] if pooling == "pooler" else outputs.last_hidden_state[0].mean(dim=0)
            found.append(vector / vector.norm() if pooling == "bi" else vector)
        return torch.stack(found).numpy()

    return naive
