"""Texts in one row without padding, and an attention function that takes such rows."""

import itertools

import torch
from transformers import DataCollatorWithFlattening
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

LENGTHS = (3, 7, 1, 7, 4)
TEXTS = [torch.randint(5, 90, (n,), generator=torch.Generator().manual_seed(i)) for i, n in enumerate(LENGTHS)]
ENDS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
EVERYTHING = {"return_flash_attn_kwargs": True, "return_seq_idx": True}


def flatten(texts=None, names=("position_ids",)):
    """Return the batch of `DataCollatorWithFlattening` with those of its arguments that separate the texts."""
    texts = TEXTS if texts is None else texts
    batch = DataCollatorWithFlattening(**EVERYTHING)([{"input_ids": text} for text in texts])
    return {name: x for name, x in batch.items() if name == "input_ids" or name in names}


def use_varlen_attention(monkeypatch):
    """Register a stand-in for flash attention, which needs a GPU: it takes its arguments and computes their definition.

    Returns its name, and a list of its calls' keyword arguments.
    """
    name, calls = "flash_attention_stand_in", []

    def varlen_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
        assert attention_mask is None
        calls.append(kwargs)
        ends, ends_k = kwargs["cu_seq_lens_q"].tolist(), kwargs["cu_seq_lens_k"].tolist()
        assert ends == ends_k
        assert kwargs["cu_seq_lens_q"].dtype == torch.int32
        assert kwargs["max_length_q"] == kwargs["max_length_k"] == max(b - a for a, b in itertools.pairwise(ends))
        n = query.shape[2]
        text = torch.bucketize(torch.arange(n), torch.tensor(ends[1:]), right=True)
        sees = text[:, None] == text
        if module.is_causal:
            sees = sees.tril()
        scores = (query @ key.transpose(-1, -2) * scaling).masked_fill(~sees, -torch.inf)
        return (scores.softmax(-1) @ value).transpose(1, 2), None

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, name, varlen_attention)
    monkeypatch.setitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, name, flash_attention_mask)
    return name, calls
