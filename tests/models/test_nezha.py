"""NEZHA: its formulas written out in float64, bert4keras' recorded numbers, transformers 4's checkpoints."""

import json
import shutil

import numpy as np
import pytest
import torch
from helpers.messages import refused
from helpers.paths import REPOSITORY
from helpers.properties import max_examples
from helpers.small_models import SMALL
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForNextSentencePrediction,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertTokenizer,
    pipeline,
)

from modeling_roformer import (
    NezhaConfig,
    NezhaForMaskedLM,
    NezhaForMultipleChoice,
    NezhaForNextSentencePrediction,
    NezhaForPreTraining,
    NezhaForQuestionAnswering,
    NezhaForSequenceClassification,
    NezhaForTokenClassification,
    NezhaModel,
    RoFormerTokenizer,
)
from modeling_roformer.nezha import NezhaSelfAttention, relative_position_embeddings

SIZES = {**SMALL, "vocab_size": 80, "num_hidden_layers": 3, "max_relative_position": 5}
POOLED = [NezhaForPreTraining, NezhaForNextSentencePrediction, NezhaForSequenceClassification, NezhaForMultipleChoice]
SERVED = {
    AutoModel: NezhaModel,
    AutoModelForTextEncoding: NezhaModel,
    AutoModelForPreTraining: NezhaForPreTraining,
    AutoModelForMaskedLM: NezhaForMaskedLM,
    AutoModelForNextSentencePrediction: NezhaForNextSentencePrediction,
    AutoModelForSequenceClassification: NezhaForSequenceClassification,
    AutoModelForTokenClassification: NezhaForTokenClassification,
    AutoModelForQuestionAnswering: NezhaForQuestionAnswering,
    AutoModelForMultipleChoice: NezhaForMultipleChoice,
}


def make_model(head=NezhaForMaskedLM, **fields):
    """Make a model with weights as large as trained ones, so that a wrong position shows."""
    torch.manual_seed(4)
    model = head(NezhaConfig(**{**SIZES, **fields})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(mean=float("LayerNorm.weight" in name), std=0.2)
    return model


def make_ids(*shape):
    return torch.randint(5, 80, shape, generator=torch.Generator().manual_seed(0))


def table(length, depth, k):
    """All p_ij, shape (length, length, depth), one number after the other as the paper writes them."""
    entries = torch.empty(length, length, depth, dtype=torch.float64)
    for distance in range(-length + 1, length):
        row = max(-k, min(k, distance)) + k
        vector = torch.empty(depth, dtype=torch.float64)
        for n in range(depth // 2):
            angle = torch.tensor(row / 10000 ** (2 * n / depth), dtype=torch.float64)
            vector[2 * n], vector[2 * n + 1] = angle.sin(), angle.cos()
        torch.diagonal(entries, distance).copy_(vector[:, None].expand(-1, length - abs(distance)))
    return entries


def formulas(weights, config, ids, segments):
    """Hidden states of one text, shape (s, hidden_size), in float64, from the bare model's state dict."""
    weights = {name: tensor.double() for name, tensor in weights.items()}

    def dense(name, x):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name, x):
        scale, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return F.layer_norm(x, x.shape[-1:], scale, shift, config.layer_norm_eps)

    h, s = config.num_attention_heads, len(ids)
    d = config.hidden_size // h
    positions = table(s, d, config.max_relative_position)
    words, kinds = (weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "token_type"))
    x = norm("embeddings.LayerNorm", words[ids] + kinds[segments])
    for i in range(config.num_hidden_layers):
        name = f"encoder.layer.{i}"
        q, k, v = (dense(f"{name}.attention.self.{part}", x).view(s, h, d) for part in ("query", "key", "value"))
        scores = torch.einsum("ihd,jhd->hij", q, k) + torch.einsum("ihd,ijd->hij", q, positions)
        probabilities = (scores / d**0.5).softmax(-1)
        context = torch.einsum("hij,jhd->ihd", probabilities, v) + torch.einsum(
            "hij,ijd->ihd", probabilities, positions
        )
        x = norm(
            f"{name}.attention.output.LayerNorm", dense(f"{name}.attention.output.dense", context.reshape(s, -1)) + x
        )
        inner = F.gelu(dense(f"{name}.intermediate.dense", x))
        x = norm(f"{name}.output.LayerNorm", dense(f"{name}.output.dense", inner) + x)
    return x


@pytest.mark.parametrize("length", [1, 4, 40])
@pytest.mark.parametrize("k", [1, 5, 64])
def test_equals_the_formulas_in_float64(length, k):
    model = make_model(NezhaModel, max_relative_position=k, max_position_embeddings=30)  # no length is too long
    ids, segments = make_ids(length), torch.arange(length) // 7 % 2
    with torch.no_grad():
        found = model(ids[None], token_type_ids=segments[None])
        expected = formulas(model.state_dict(), model.config, ids, segments)
    torch.testing.assert_close(found.last_hidden_state[0].double(), expected, atol=2e-5, rtol=0)
    pooler = model.pooler.dense
    pooled = torch.tanh(expected[0] @ pooler.weight.double().T + pooler.bias.double())
    torch.testing.assert_close(found.pooler_output[0].double(), pooled, atol=2e-5, rtol=0)


def attention_and_input(h, d, k, b, s):
    torch.manual_seed(b * s + d)
    config = NezhaConfig(hidden_size=h * d, num_attention_heads=h, max_relative_position=k)
    attention = NezhaSelfAttention(config, 0).double().eval()
    hidden_states = torch.randn(b, s, h * d, dtype=torch.float64)
    return attention, hidden_states


@max_examples(40)
@given(st.data())
def test_any_positions(data):
    """Only the distances between `position_ids` count, whatever their order."""
    h, d, k, b, s = (data.draw(st.integers(1, n), name) for n, name in zip((3, 4, 9, 3, 12), "hdkbs", strict=True))
    attention, hidden_states = attention_and_input(h, 2 * d, k, b, s)
    shared = data.draw(st.booleans(), "shared")
    numbers = st.lists(st.integers(0, 30), min_size=s, max_size=s)
    position_ids = torch.tensor([data.draw(numbers) for _ in range(1 if shared else b)])
    with torch.no_grad():
        embeddings = relative_position_embeddings(position_ids, 2 * d, k)
        context, probabilities = attention(hidden_states, *embeddings)
        every = table(31, 2 * d, k)
        positions = every[position_ids[:, :, None], position_ids[:, None, :]].expand(b, s, s, 2 * d)
        q, key, v = (
            part(hidden_states).view(b, s, h, -1) for part in (attention.query, attention.key, attention.value)
        )
        scores = torch.einsum("bihd,bjhd->bhij", q, key) + torch.einsum("bihd,bijd->bhij", q, positions)
        expected = (scores / (2 * d) ** 0.5).softmax(-1)
        values = v[:, None] + positions[:, :, :, None]  # (b, i, j, h, d)
        torch.testing.assert_close(probabilities, expected, atol=1e-6, rtol=0)
        expected = torch.einsum("bhij,bijhd->bihd", expected, values).reshape(b, s, -1)
        torch.testing.assert_close(context, expected, atol=1e-6, rtol=0)


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that is stored while this is active."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return result


def test_no_tensor_holds_a_vector_for_each_pair():
    s, h = 200, 2
    model = make_model(NezhaModel, hidden_size=128, max_relative_position=8, num_hidden_layers=1)
    with torch.no_grad(), Largest() as largest:
        model(make_ids(1, s))
    assert (
        s * s * 4 <= largest.bytes <= h * s * s * 8
    )  # scores of every head; of pairs alone, 64 numbers each are 64 / h


# Checkpoints


def save_as_transformers_4(folder, model, **changes):
    """Write the files of transformers 4: positions in every layer, a config without fields of ours."""
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    prefix = "" if isinstance(model, NezhaModel) else "nezha."
    for i in range(model.config.num_hidden_layers):
        # Garbage, as is what nobody may use.
        name = f"{prefix}encoder.layer.{i}.attention.self.relative_positions_encoding.positions_encoding"
        weights[name] = torch.full((64, 64, model.config.head_dim), torch.nan)
    weights.update(changes)
    torch.save(weights, folder / "pytorch_model.bin")
    fields = {  # embedding_size is never read
        "architectures": [type(model).__name__],
        "attention_probs_dropout_prob": 0.1,
        "bos_token_id": 2,
        "classifier_dropout": 0.1,
        "embedding_size": 128,
        "eos_token_id": 3,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "inner_group_num": 1,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 64,
        "model_type": "nezha",
        "num_hidden_groups": 1,
        "pad_token_id": 0,
        "torch_dtype": "float32",
        "transformers_version": "4.20.0.dev0",
        "type_vocab_size": 2,
        "use_cache": True,
        "use_relative_position": True,
        **SIZES,
    }
    (folder / "config.json").write_text(json.dumps(fields))
    return weights


@pytest.mark.parametrize("auto_class", SERVED, ids=lambda cls: cls.__name__)
def test_checkpoints_of_transformers_4_load_without_a_word(auto_class, tmp_path, said):
    model = make_model(SERVED[auto_class])
    weights = save_as_transformers_4(tmp_path, model)
    loaded = auto_class.from_pretrained(tmp_path)
    assert type(loaded) is SERVED[auto_class]
    assert not said.records
    assert loaded.config.embedding_size == loaded.config.hidden_size == 32
    assert loaded.config.add_pooling_layer == (type(loaded) in (NezhaModel, *POOLED))
    ids = make_ids(2, 70) if type(loaded) is not NezhaForMultipleChoice else make_ids(2, 3, 70)
    with torch.no_grad():
        for found, expected in zip(loaded(ids).to_tuple(), model(ids).to_tuple(), strict=True):
            torch.testing.assert_close(found, expected)
    assert model.load_state_dict(weights, strict=True)
    assert any("positions_encoding" in name for name in weights)  # the caller's own is left alone
    loaded.save_pretrained(tmp_path / "new")
    assert not any("positions_encoding" in name for name in load_file(tmp_path / "new" / "model.safetensors"))
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert "embedding_size" not in config and config["model_type"] == "nezha"
    again, report = type(loaded).from_pretrained(tmp_path / "new", output_loading_info=True)
    assert not any(report.values()), report
    assert all(torch.equal(again.state_dict()[name], weight) for name, weight in loaded.state_dict().items())


def test_pretraining_checkpoints_go_into_every_model(tmp_path, said):
    """The released ones hold a pooler, a language model and next sentence prediction."""
    model = make_model(NezhaForPreTraining)
    save_as_transformers_4(tmp_path, model)
    ids = make_ids(2, 9)
    with torch.no_grad():
        outputs, bare = model(ids), model.nezha(ids)
        assert torch.equal(AutoModelForMaskedLM.from_pretrained(tmp_path)(ids).logits, outputs.prediction_logits)
        follows = AutoModelForNextSentencePrediction.from_pretrained(tmp_path)
        assert torch.equal(follows(ids).logits, outputs.seq_relationship_logits)
        assert torch.equal(AutoModel.from_pretrained(tmp_path)(ids).pooler_output, bare.pooler_output)
        classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
        assert torch.equal(classifier.nezha(ids).pooler_output, bare.pooler_output)
        tagger = AutoModelForTokenClassification.from_pretrained(tmp_path)
        assert torch.equal(tagger.nezha(ids).last_hidden_state, bare.last_hidden_state)
    assert not any(name in said.text for name in ("positions_encoding", "nezha.pooler", "cls."))


@pytest.mark.parametrize("written", [True, False])
def test_the_decoder_is_tied_to_the_embeddings(written, tmp_path):
    """Tied, whether the checkpoint holds it under a name of its own, as transformers 4 wrote it, or not."""
    model = make_model()
    weights = save_as_transformers_4(tmp_path, model)
    if not written:
        for name in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
            del weights[name]
        torch.save(weights, tmp_path / "pytorch_model.bin")
    loaded = NezhaForMaskedLM.from_pretrained(tmp_path)
    assert loaded.cls.predictions.decoder.weight is loaded.nezha.embeddings.word_embeddings.weight
    assert loaded.cls.predictions.decoder.bias is loaded.cls.predictions.bias
    torch.testing.assert_close(loaded(make_ids(1, 9)).logits, model(make_ids(1, 9)).logits)


@pytest.mark.parametrize("by_transformers_4", [False, True])
def test_a_pooler_is_never_made_up(by_transformers_4, tmp_path):
    model = make_model(NezhaForMaskedLM)
    save_as_transformers_4(tmp_path, model) if by_transformers_4 else model.save_pretrained(tmp_path)
    bare = AutoModel.from_pretrained(tmp_path)
    assert not bare.config.add_pooling_layer
    assert set(bare(make_ids(1, 9)).keys()) == {"last_hidden_state"}
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path)  # part of a fresh head
    assert torch.equal(
        classifier.nezha(make_ids(1, 9)).last_hidden_state, model.nezha(make_ids(1, 9)).last_hidden_state
    )
    classifier.save_pretrained(tmp_path / "trained")
    assert AutoModel.from_pretrained(tmp_path / "trained").config.add_pooling_layer


@pytest.mark.parametrize("head", SERVED.values(), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(
    "name",
    ["encoder.layer.1.attention.self.key.weight", "embeddings.token_type_embeddings.weight", "pooler.dense.bias"],
)
def test_a_missing_weight_is_named(name, head, tmp_path):
    """Half a pooler too, where it is used."""
    if "pooler" in name and head not in (NezhaModel, *POOLED):
        pytest.skip("has no pooler")
    make_model(NezhaForPreTraining).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights[f"nezha.{name}"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with refused(ValueError, tmp_path, name if head is NezhaModel else f"nezha.{name}", "output_loading_info=True"):
        head.from_pretrained(tmp_path)


def test_the_pooler_is_left_out_on_request(tmp_path, said):
    model = make_model(NezhaModel)
    save_as_transformers_4(tmp_path, model)
    loaded = NezhaModel.from_pretrained(tmp_path, add_pooling_layer=False)
    outputs = loaded(make_ids(1, 9))
    assert set(outputs.keys()) == {"last_hidden_state"} and not said.records
    torch.testing.assert_close(outputs.last_hidden_state, model(make_ids(1, 9)).last_hidden_state)


# Heads


def test_pretraining():
    model = make_model(NezhaForPreTraining)
    ids, follows = make_ids(3, 10), torch.tensor([0, 1, -100])
    outputs = model(ids, labels=ids, next_sentence_label=follows)
    expected = F.cross_entropy(outputs.prediction_logits.flatten(0, 1), ids.flatten())
    expected = expected + F.cross_entropy(outputs.seq_relationship_logits, follows)
    torch.testing.assert_close(outputs.loss, expected)
    bare = model.nezha(ids)
    weight, bias = model.cls.seq_relationship.weight, model.cls.seq_relationship.bias
    torch.testing.assert_close(outputs.seq_relationship_logits, bare.pooler_output @ weight.T + bias)
    assert model(ids, labels=ids).loss is None  # as in transformers 4: one of two losses is none


def test_next_sentence():
    model = make_model(NezhaForNextSentencePrediction)
    outputs = model(make_ids(3, 10), labels=torch.tensor([0, 1, 1]))
    torch.testing.assert_close(outputs.loss, F.cross_entropy(outputs.logits, torch.tensor([0, 1, 1])))
    outputs.loss.backward()
    assert model.nezha.pooler.dense.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(("fields", "labels"), [
    ({"num_labels": 3}, torch.tensor([0, 2])),
    ({"num_labels": 1}, torch.tensor([0.5, -1.0])),
    ({"num_labels": 3}, torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])),
])  # fmt: skip
def test_classification_reads_the_pooler(fields, labels):
    model = make_model(NezhaForSequenceClassification, **fields)
    ids = make_ids(2, 10)
    outputs = model(ids, labels=labels)
    first = model.nezha(ids).last_hidden_state[:, 0]
    pooled = torch.tanh(F.linear(first, model.nezha.pooler.dense.weight, model.nezha.pooler.dense.bias))
    expected = F.linear(pooled, model.classifier.weight, model.classifier.bias)
    torch.testing.assert_close(outputs.logits, expected)
    if fields["num_labels"] == 1:
        expected = F.mse_loss(expected[:, 0], labels)
    elif labels.ndim == 1:
        expected = F.cross_entropy(expected, labels)
    else:
        expected = F.binary_cross_entropy_with_logits(expected, labels)
    torch.testing.assert_close(outputs.loss, expected)


def test_multiple_choice_scores_each_text_by_itself():
    model = make_model(NezhaForMultipleChoice)
    ids = make_ids(2, 3, 10)
    outputs = model(ids, labels=torch.tensor([2, 0]))
    pooled = model.nezha(ids[:, 1]).pooler_output
    torch.testing.assert_close(outputs.logits[:, 1:2], model.classifier(pooled))
    torch.testing.assert_close(outputs.loss, F.cross_entropy(outputs.logits, torch.tensor([2, 0])))


@pytest.mark.parametrize("value", [0.5, None])
@pytest.mark.parametrize(
    "head",
    [NezhaForSequenceClassification, NezhaForTokenClassification, NezhaForMultipleChoice],
    ids=lambda c: c.__name__,
)
def test_the_classifiers_dropout(head, value):
    model = make_model(head, classifier_dropout=value, hidden_dropout_prob=0.3)
    assert model.dropout.p == (0.3 if value is None else value)


# Bad input


def test_bad_sentence_labels():
    with refused(ValueError, "next_sentence_label", 2, 1, -100):
        make_model(NezhaForPreTraining)(make_ids(1, 4), next_sentence_label=torch.tensor([2]))


@pytest.mark.parametrize("name", ["sdpa", "flash_attention_2", "flex_attention", "paged|eager"])
def test_attention_that_gives_no_probabilities_is_refused(name, tmp_path):
    model = make_model()
    model.save_pretrained(tmp_path)
    with refused(ValueError, f'attn_implementation="{name}"', "NEZHA", '"eager"'):
        AutoModelForMaskedLM.from_pretrained(tmp_path, attn_implementation=name)
    for loaded in (
        AutoModelForMaskedLM.from_pretrained(tmp_path),
        AutoModelForMaskedLM.from_pretrained(tmp_path, attn_implementation="eager"),
    ):
        assert loaded.config._attn_implementation == "eager"
    with refused(ValueError, f'attn_implementation="{name}"', "NEZHA", '"eager"'):
        loaded.set_attn_implementation(name)


# Tokenizers and registration

WORDS = REPOSITORY / "tests" / "fixtures" / "tokenization" / "vocab.txt"
CHARACTERS = REPOSITORY / "tests" / "fixtures" / "tokenization" / "vocab_chars.txt"
TEXTS = [
    "今天天气很好，我想去公园玩。",
    "苹果公司在北京召开了新闻发布会，介绍iPhone 12！",
    "The unbelievable embeddings, re-trained; WordPiece: playing  Café 3.14",
    "[MASK]的首都是北京[SEP]",
    "  ",
    "",
]


def nezha_folder(path, vocabulary, **tokenizer_config):
    path.mkdir(exist_ok=True)
    lines = vocabulary.read_text(encoding="utf-8").splitlines()
    NezhaForMaskedLM(NezhaConfig(**{**SIZES, "vocab_size": len(lines)})).save_pretrained(path)
    shutil.copy(vocabulary, path / "vocab.txt")
    if tokenizer_config:
        (path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return path


def test_a_bert_tokenizer_stays_one(tmp_path):
    folder = nezha_folder(tmp_path, CHARACTERS, tokenizer_class="BertTokenizer", do_lower_case=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert type(tokenizer).__name__.startswith("Bert") and not isinstance(tokenizer, RoFormerTokenizer)
    expected = BertTokenizer.from_pretrained(folder)
    assert tokenizer(TEXTS)["input_ids"] == expected(TEXTS)["input_ids"]


def test_word_level_folders_carry_our_tokenizer(tmp_path):
    folder = nezha_folder(tmp_path, WORDS)
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert type(tokenizer) is RoFormerTokenizer
    assert any(len(token) > 1 for token in tokenizer.tokenize(TEXTS[0]))
    guesses = pipeline("fill-mask", model=str(folder))("今天[MASK]很好")
    assert len(guesses) == 5


def test_pipelines(tmp_path):
    folder = nezha_folder(tmp_path, CHARACTERS)
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    assert {"score", "label"} == set(pipeline("text-classification", model=str(folder))("今天天气很好")[0])
    assert np.shape(pipeline("feature-extraction", model=str(folder))("今天")) == (1, 4, 32)
