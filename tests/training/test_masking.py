"""Masks are a function of seed, stage, epoch, document and piece, of whole words, and in BERT's shares."""

import numpy as np
import pytest
import torch
from helpers.paths import REPOSITORY
from transformers import set_seed

from modeling_roformer.tokenization import RoFormerTokenizer
from modeling_roformer.training.pretraining.masking import MaskingCollator, uniform

VOCAB = REPOSITORY / "examples" / "roformer-mini-zh" / "vocab.txt"


@pytest.fixture(scope="module")
def tokenizer():
    return RoFormerTokenizer(str(VOCAB))


def make_piece(document=0, number=0, epoch=0, length=100, word=1):
    """Numbers 1000, 1001 …, in words of so many tokens."""
    return {
        "epoch": epoch,
        "document": document,
        "piece": number,
        "input_ids": np.arange(1000, 1000 + length, dtype=np.uint16),
        "word_starts": np.arange(length) % word == 0,
    }


def test_masks_depend_on_nothing_else(tokenizer):
    pieces = [make_piece(document, number) for document in range(3) for number in range(3)]
    set_seed(1)
    batch = MaskingCollator(tokenizer, seed=7)(pieces)
    set_seed(2)
    for row, piece in enumerate(pieces):
        alone = MaskingCollator(tokenizer, seed=7)([piece])
        assert all(torch.equal(batch[name][row : row + 1], alone[name]) for name in batch)
    masks = {tuple((row != -100).tolist()) for row in batch["labels"]}
    for change in dict(epoch=1), dict(epoch=2**40):
        masks |= {tuple((MaskingCollator(tokenizer, seed=7)([make_piece(**change)])["labels"][0] != -100).tolist())}
    for change in dict(seed=8), dict(seed=7, stage=1):
        masks |= {tuple((MaskingCollator(tokenizer, **change)([make_piece()])["labels"][0] != -100).tolist())}
    assert len(masks) == 9 + 2 + 2


def test_numbers_are_the_same_ones_everywhere():
    """Philox4x64-10 of key (0, 0): its first block in Random123's known answers, at counter 0."""
    known = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    philox = np.random.Philox(key=np.zeros(2, np.uint64), counter=np.array([2**64 - 1] * 4, dtype=np.uint64))
    assert philox.random_raw(4).tolist() == known  # numpy steps the counter before it draws
    assert uniform((0, 0), (0, 0, 0), 2).tolist() == uniform((0, 0), (0, 0, 0), 9)[:2].tolist()


def masked_one_by_one(tokenizer, piece, key, share):
    """A piece's ids and labels by the rule, token by token, so that a run of an earlier version goes on as it began."""
    n = len(piece["input_ids"])
    draws = uniform(key, (piece["epoch"], piece["document"], piece["piece"]), 3 * n)
    word_of, first = [], []
    for token in range(n):
        if token == 0 or piece["word_starts"][token]:
            first.append(token)
        word_of.append(len(first) - 1)
    least = min(draws[token] for token in first)
    ordinary = [i for i in range(len(tokenizer)) if i not in tokenizer.all_special_ids]
    ids, labels = piece["input_ids"].tolist(), [-100] * n
    for token, word in enumerate(word_of):
        draw, what, other = draws[first[word]], draws[n + token], draws[2 * n + token]
        if draw < share or draw == least:
            labels[token] = ids[token]
            if what < 0.8:
                ids[token] = tokenizer.mask_token_id
            elif what < 0.9:
                ids[token] = ordinary[int(other * len(ordinary))]
    return ids, labels


def test_the_masks_of_a_batch_are_those_of_the_rule(tokenizer):
    pieces = [
        {**make_piece(document, document % 3, document % 2, 1 + 7 * document, word=1 + document % 4), **more}
        for document, more in enumerate([{}, {"share": 0.5}, {"share": 0.01}] * 5)
    ]
    pieces[3]["word_starts"][:] = False
    batch = MaskingCollator(tokenizer, seed=3, stage=2)(pieces)
    assert all(values.dtype == torch.int64 for values in batch.values())
    for row, piece in enumerate(pieces):
        ids, labels = masked_one_by_one(tokenizer, piece, (3, 2), piece.get("share", 0.15))
        padding = [0] * (batch["input_ids"].shape[1] - len(ids) - 2)
        ends = tokenizer.cls_token_id, tokenizer.sep_token_id
        assert batch["input_ids"][row].tolist() == [ends[0], *ids, ends[1], *padding]
        assert batch["labels"][row].tolist() == [-100, *labels, -100, *([-100] * len(padding))]
        assert batch["attention_mask"][row].tolist() == [1] * (len(ids) + 2) + padding


def test_shares(tokenizer):
    batch = MaskingCollator(tokenizer)([make_piece(document) for document in range(1000)])
    ids, labels = batch["input_ids"][:, 1:-1], batch["labels"][:, 1:-1]
    assert (batch["labels"][:, [0, -1]] == -100).all()
    assert (batch["input_ids"][:, [0, -1]] == torch.tensor([tokenizer.cls_token_id, tokenizer.sep_token_id])).all()
    real = torch.arange(1000, 1100).expand_as(ids)
    masked = labels != -100
    assert torch.equal(labels[masked], real[masked]) and torch.equal(ids[~masked], real[~masked])

    def close(part, of, share):  # four standard deviations
        n = of.sum().item()
        assert abs(part.sum().item() - share * n) < 4 * (n * share * (1 - share)) ** 0.5

    close(masked, torch.ones_like(masked), 0.15)
    close(ids[masked] == tokenizer.mask_token_id, masked, 0.8)
    stays = ids[masked] == real[masked]
    close(stays, masked, 0.1)
    other = ids[masked][~stays & (ids[masked] != tokenizer.mask_token_id)]
    assert len(set(other.tolist())) > 0.9 * len(other) and not set(other.tolist()) & set(tokenizer.all_special_ids)
    assert other.min() < 200 and other.max() > 11_800
