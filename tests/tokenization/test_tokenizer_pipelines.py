"""transformers' token classification pipeline finds the right characters in Chinese text."""

import pytest
from helpers.tokenizer_files import VOCABULARY

from modeling_roformer import RoFormerConfig, RoFormerForTokenClassification
from modeling_roformer.tokenization import RoFormerTokenizer

torch = pytest.importorskip("torch")
from transformers import pipeline  # noqa: E402

#       0    5      0 1     6 8        1 3    8  9    2 4      ...
TEXT = "今天的天气，ＡＢ中文cafe\u0301很好😀我们2023hello Wörld。公园"


class ById(torch.nn.Module):
    """A classifier that knows the label of each token id: 1 for `marked`, else 0."""

    def __init__(self, ids):
        super().__init__()
        self.ids = ids

    def forward(self, input_ids):
        logits = torch.zeros(*input_ids.shape, 2)
        marked = torch.isin(input_ids, torch.tensor(self.ids))
        logits[..., 0] = torch.where(marked, -4.0, 4.0)
        return logits


def entities(tokenizer, strategy, marked, text, **options):
    """Return the pipeline's result if exactly the tokens with ids `marked` are entities."""
    config = RoFormerConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        id2label={0: "O", 1: "B-X"},
        label2id={"O": 0, "B-X": 1},
    )
    model = RoFormerForTokenClassification(config)
    classify = ById(marked)
    forward = model.forward

    def labelled(input_ids, **kwargs):
        output = forward(input_ids=input_ids, **kwargs)
        output.logits = classify(input_ids)
        return output

    model.forward = labelled
    finder = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy)
    found = finder(text, **options)
    if options.get("is_split_into_words"):  # then a list of words comes back as a batch of one
        (found,) = found
    return [(entity["start"], entity["end"]) for entity in found]


STRATEGIES = ["none", "simple", "first", "average", "max"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_token_where_it_stands(words, strategy):
    """One kind of token at a time, words of several pieces as a whole where the strategy says so."""
    batch = words(TEXT, return_offsets_mapping=True)
    numbers = batch.word_ids()
    for index, (token, (start, end)) in enumerate(zip(batch.tokens(), batch.offset_mapping, strict=True)):
        if numbers[index] is None or token.startswith("##") or batch.input_ids.count(batch.input_ids[index]) > 1:
            continue
        found = entities(words, strategy, [batch.input_ids[index]], TEXT)
        if strategy == "first":
            last = max(place for place, word in enumerate(numbers) if word == numbers[index])
            end = batch.offset_mapping[last][1]
        if numbers.count(numbers[index]) == 1 or strategy in ("none", "simple", "first"):
            assert found == [(start, end)], token


def test_windows():
    text = "，".join(["今天的天气非常好"] * 30)
    short = RoFormerTokenizer(VOCABULARY, model_max_length=24)
    marked = [short.convert_tokens_to_ids("天气")]
    found = entities(short, "first", marked, text, stride=6)
    assert [text[start:end] for start, end in found] == ["天气"] * 30


def test_words_given_by_the_user(words):
    marked = [words.convert_tokens_to_ids("天气")]
    given = ["今天", "的", "天气", "Wörld"]
    joined = " ".join(given)
    found = entities(words, "first", marked, given, is_split_into_words=True)
    assert [joined[start:end] for start, end in found] == ["天气"]
