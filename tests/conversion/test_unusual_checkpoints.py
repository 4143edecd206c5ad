"""Checkpoints that differ from the released ones: what they are converted to, or why both commands refuse them.

Outputs are compared with the formulas in float64, written out here, on the variables of the TensorFlow checkpoint.
"""

import json
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from helpers import command_line
from helpers.legacy_checkpoints import PREFIX, copy_form, edit_config, read, rewrite
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, pipeline

from modeling_roformer import NezhaModel, RoFormerForCausalLM, RoFormerForMaskedLM, RoFormerModel
from modeling_roformer.conversion.converter import convert
from modeling_roformer.conversion.errors import CheckpointError
from modeling_roformer.conversion.inspection.info import info
from modeling_roformer.conversion.tf_exporter import export_tf

FIXTURES = REPOSITORY / "tests" / "fixtures"
LEGACY = FIXTURES / "legacy"
WIDTH, NARROW = 24, 10  # the fixtures' hidden size, and that of factorised embeddings here
Variables = dict[str, np.ndarray]


def edited(base: str, change: Callable[[Variables], object] = lambda v: None, **config) -> Callable[[Path], None]:
    """Return a function that makes a checkpoint: a fixture with other variables and settings."""

    def make(folder: Path) -> None:
        shutil.copytree(LEGACY / base, folder)
        rewrite(folder, change)
        edit_config(folder, **config)

    return make


def headless(variables: Variables) -> None:
    for name in [name for name in variables if name.startswith("cls/predictions/")]:
        del variables[name]


def pooled(variables: Variables) -> None:
    random = np.random.default_rng(1)
    variables["bert/pooler/dense/kernel"] = random.normal(size=(WIDTH, WIDTH), scale=0.3).astype("f4")
    variables["bert/pooler/dense/bias"] = random.normal(size=WIDTH).astype("f4")


def factorised(variables: Variables) -> None:
    """Give a BERT embeddings of NARROW dimensions, and the projection that bert4keras then adds."""
    random = np.random.default_rng(2)
    narrow = ("word_embeddings", "token_type_embeddings", "position_embeddings", "LayerNorm/beta", "LayerNorm/gamma")
    for name in narrow:
        variables[f"bert/embeddings/{name}"] = variables[f"bert/embeddings/{name}"][..., :NARROW].copy()
    mapping = "bert/encoder/embedding_hidden_mapping_in"
    variables[f"{mapping}/kernel"] = random.normal(size=(NARROW, WIDTH)).astype("f4")
    variables[f"{mapping}/bias"] = random.normal(size=WIDTH).astype("f4")
    for name in [name for name in variables if name.endswith(("adam_m", "adam_v"))]:
        del variables[name]
    for name in [name for name in variables if name.startswith("cls/predictions/transform/")]:
        variables[name] = variables[name][..., :NARROW].copy()


def padded(variables: Variables) -> None:
    """Add six rows, which is a common way to a multiple of 8."""
    random = np.random.default_rng(3)
    for name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
        more = random.normal(size=(6, *variables[name].shape[1:])).astype("f4")
        variables[name] = np.concatenate([variables[name], more])


def padded_words(variables: Variables) -> None:
    words = variables["bert/embeddings/word_embeddings"]
    variables["bert/embeddings/word_embeddings"] = np.concatenate([words, words[:6]])


def fewer_rows(variables: Variables) -> None:
    for name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
        variables[name] = variables[name][:-1].copy()


def kept(*chosen: str, shorten: bool = True, **config) -> Callable[[Path], None]:
    """Return a function that makes a checkpoint as keep_tokens of bert4keras does: vocab_size stays as it was."""
    entries = (LEGACY / "word" / "vocab.txt").read_text(encoding="utf-8").split()
    chosen = [*chosen, *entries[100:]]
    ids = [entries.index(entry) for entry in chosen]
    names = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")

    def make(folder: Path) -> None:
        edited("word", lambda v: v.update({name: v[name][ids] for name in names}), **config)(folder)
        text = "\n".join(chosen if shorten else entries)
        (folder / "vocab.txt").write_text(f"{text}\n", encoding="utf-8", newline="\n")

    return make


SIMPLIFIED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")  # `startswith` of bert4keras' examples


def after(base: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return a function that makes a checkpoint: a fixture of which `change` edits the files."""

    def make(folder: Path) -> None:
        shutil.copytree(LEGACY / base, folder)
        change(folder)

    return make


def truncated(folder: Path) -> None:
    path = next(folder.glob("*.data-*"))
    path.write_bytes(path.read_bytes()[:-1])


def without_a_token(folder: Path) -> None:
    path = folder / "vocab.txt"
    path.write_text(path.read_text(encoding="utf-8").replace("[MASK]", "[X]"), encoding="utf-8", newline="\n")


def lose_a_line(folder: Path) -> None:
    """Delete the entry 明 from vocab.txt, which shifts the ids of all entries behind it."""
    path = folder / "vocab.txt"
    path.write_text(path.read_text(encoding="utf-8").replace("\n明\n", "\n"), encoding="utf-8", newline="\n")


def both(*changes: Callable[[Variables], object]) -> Callable[[Variables], None]:
    return lambda variables: [change(variables) for change in changes] and None


MAPPING = {"embedding_size": NARROW}
# Name of the folder -> how it is made, and the class that it becomes.
CONVERTED = {
    "encoder": (edited("word", headless), "RoFormerModel"),
    "encoder-character": (edited("character", headless), "RoFormerModel"),
    "encoder-factorized": (edited("factorized", headless), "RoFormerModel"),
    "encoder-pooled": (edited("word", both(headless, pooled)), "RoFormerModel"),
    "encoder-causal": (edited("gpt", headless, application="lm"), "RoFormerModel"),
    "bert-encoder": (edited("wobert", headless), "BertModel"),
    "bert-encoder-pooled": (edited("wobert", both(headless, pooled)), "BertModel"),
    "bert-pooled": (edited("wobert", pooled), "BertForMaskedLM"),
    "nezha-encoder": (edited("wonezha", headless), "NezhaModel"),
    "nezha-encoder-pooled": (edited("wonezha", both(headless, pooled)), "NezhaModel"),
    "bert-factorised": (edited("wobert", factorised, **MAPPING), "RoFormerForMaskedLM"),
    "bert-factorised-encoder-pooled": (
        edited("wobert", both(factorised, headless, pooled), **MAPPING),
        "RoFormerModel",
    ),
    "chinese_simbert": (edited("wobert", pooled), "RoFormerForCausalLM"),
    "simbert-small": (edited("wobert", both(factorised, pooled), **MAPPING), "RoFormerForCausalLM"),
    "simbert-encoder": (edited("wobert", both(headless, pooled)), "RoFormerModel"),
    "unilm": (edited("wobert", pooled, application="unilm"), "RoFormerForCausalLM"),
    "kept": (kept(*SIMPLIFIED, "[MASK]"), "RoFormerForMaskedLM"),
    "kept-prefix-model": (kept(*SIMPLIFIED, application="unilm"), "RoFormerForCausalLM"),
    "kept-gpt": (kept(*SIMPLIFIED, application="lm"), "RoFormerForCausalLM"),
    "nezha_gpt-encoder": (edited("wonezha", application="encoder"), "NezhaForMaskedLM"),
    "v2-lm": (edited("v2", application="lm"), "RoFormerForCausalLM"),
    "prefix-model": (edited("word", application="unilm"), "RoFormerForCausalLM"),
    "v2-causal": (edited("v2", is_decoder=True), "RoFormerForCausalLM"),
}
# Name of the folder -> how it is made, and the class that it becomes with `padded_vocabulary`.
PADDED = {
    "padded": (edited("word", padded, vocab_size=160), "RoFormerForMaskedLM"),
    "padded-v2": (edited("v2", padded_words, vocab_size=160), "RoFormerForMaskedLM"),
    "padded-bert": (edited("wobert", padded, vocab_size=160), "BertForMaskedLM"),
}
PADDED_FACTS = ["vocab.txt", "154 entries", "bert_config.json", 160, "--padded-vocabulary"]
# Name of the folder -> how it is made, and the facts of the error of both commands.
REFUSED = {
    "fewer-rows": (edited("word", fewer_rows, vocab_size=153), ["vocab.txt", "154 entries", "153 rows"]),
    "kept-without-mask": (kept(*SIMPLIFIED), ["vocab.txt", "[MASK]"]),
    "kept-but-not-shortened": (kept(*SIMPLIFIED, shorten=False), ["154 entries", "58 rows", "keep_tokens"]),
    "rows-of-another-size": (edited("word", padded), ["(160, 24)", "(154, 24)"]),
    "lost-line": (
        after("word", lose_a_line),
        ["vocab.txt", "153 entries", "bert_config.json", 154, "--padded-vocabulary"],
    ),
    **{name: (make, PADDED_FACTS) for name, (make, _) in PADDED.items()},
    "half-a-head": (edited("word", lambda v: v.pop("cls/predictions/output_bias")), ["cls/predictions/output_bias"]),
    "half-a-pooler": (edited("sim", lambda v: v.pop("bert/pooler/dense/bias")), ["bert/pooler/dense/bias"]),
    "unknown": (edited("v2", lambda v: v.update({"bert/new": np.ones(2, "f4")})), ["bert/new"]),
    "integers": (
        edited("gpt", lambda v: v.update({"bert/embeddings/LayerNorm/beta": np.ones(WIDTH, "i4")})),
        ["int32"],
    ),
    "layers": (edited("wonezha", num_hidden_layers=3), ["bert/encoder/layer_2/attention/self/query/kernel"]),
    "shapes": (edited("wobert", max_position_embeddings=17), ["(17, 24)"]),
    "no-vocabulary": (after("word", lambda folder: (folder / "vocab.txt").unlink()), ["vocab.txt", "missing"]),
    "no-mask-token": (after("word", without_a_token), ["[MASK]"]),
    "no-data": (after("word", lambda folder: next(folder.glob("*.data-*")).unlink()), ["missing"]),
    "truncated": (after("word", truncated), ["truncated"]),
    "no-activation": (edited("word", hidden_act="new"), ["hidden_act"]),
    "chinese_nezha_gpt_L-12_H-768_A-12": (edited("wobert"), ["table of positions", "NEZHA"]),
    "type-gpt": (edited("wobert", model_type="gpt", vocab_size=154), ["GPT", "causal mask"]),
    "type-of-a-bert": (edited("word", model_type="bert"), ["table of positions", "BERT"]),
    "bert-decoder": (edited("wobert", is_decoder=True), ["WoBERT", "causal mask", "is_decoder"]),
    "nezha-decoder": (edited("wonezha", is_decoder=True, model="nezha"), ["WoNEZHA", "causal mask", "is_decoder"]),
}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """Return a function that returns the folder of a checkpoint, made once; nobody may change it."""
    parent = tmp_path_factory.mktemp("cases")

    def make(name: str) -> Path:
        if not (parent / name).exists():
            (CONVERTED | REFUSED)[name][0](parent / name)
        return parent / name

    return make


@pytest.fixture(scope="module")
def converted(case, tmp_path_factory):
    """Return a function that returns the folder that a checkpoint is converted to, once; nobody may change it."""
    parent = tmp_path_factory.mktemp("converted")

    def make(name: str) -> Path:
        if not (parent / name).exists():
            convert(case(name), parent / name, padded_vocabulary=name in PADDED)
        return parent / name

    return make


@pytest.mark.parametrize("name", REFUSED)
def test_both_commands_give_the_same_reason(name, case, tmp_path):
    folder = case(name)
    with refused(CheckpointError, *REFUSED[name][1]) as caught:
        convert(folder, tmp_path / "output", dry_run=True)
    assert list(tmp_path.iterdir()) == []
    try:
        described = info(folder)
    except ValueError as error:
        assert_states(error, *REFUSED[name][1])
    else:
        assert described.converts_to is None and str(caught.value) in described.notes


@pytest.mark.parametrize("name", CONVERTED)
def test_the_class_that_info_names_is_made(name, case, converted):
    before, after = info(case(name)), info(converted(name))
    assert before.converts_to == after.architecture == CONVERTED[name][1] and not before.notes
    assert (before.parameters, before.vocabulary) == (after.parameters, after.vocabulary)


# The formulas.


def dense(x, variables, name):
    return x @ variables[f"{name}/kernel"] + variables[f"{name}/bias"]


def norm(x, variables, name):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return x * variables[f"{name}/gamma"] + variables[f"{name}/beta"]


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def rotated(x):
    """RoFormer's equation 34 on x of shape (positions, width of a head)."""
    angles = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    even, odd = x[:, ::2], x[:, 1::2]
    turned = even * np.cos(angles) - odd * np.sin(angles), odd * np.cos(angles) + even * np.sin(angles)
    return np.stack(turned, -1).reshape(x.shape)


def naive(folder: Path, ids: list[int], segments: list[int], causal: bool = False) -> tuple[np.ndarray, Variables]:
    """Hidden states of one text, and the variables in float64. A second segment attends as UniLM has it."""
    variables = {name: value.astype("f8") for name, value in read(folder).items()}
    config = json.loads((folder / "bert_config.json").read_text())
    x = variables["bert/embeddings/word_embeddings"][ids] + variables["bert/embeddings/token_type_embeddings"][segments]
    has_table = "bert/embeddings/position_embeddings" in variables
    if has_table:
        x = x + variables["bert/embeddings/position_embeddings"][: len(ids)]
    x = norm(x, variables, "bert/embeddings/LayerNorm")
    if "embedding_size" in config and config["embedding_size"] != config["hidden_size"]:
        x = dense(x, variables, "bert/encoder/embedding_hidden_mapping_in")
    order = np.arange(len(ids)) if causal else np.cumsum(segments)
    hidden = order[None] > order[:, None]
    heads = np.split(np.arange(config["hidden_size"]), config["num_attention_heads"])
    for i in range(config["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{i}"
        query, key, value = (
            dense(x, variables, f"{layer}/attention/self/{part}") for part in ("query", "key", "value")
        )
        context = []
        for head in heads:
            q, k = (part[:, head] if has_table else rotated(part[:, head]) for part in (query, key))
            scores = np.where(hidden, -np.inf, q @ k.T / math.sqrt(len(head)))
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            context.append(weights / weights.sum(-1, keepdims=True) @ value[:, head])
        attended = dense(np.concatenate(context, -1), variables, f"{layer}/attention/output/dense")
        x = norm(x + attended, variables, f"{layer}/attention/output/LayerNorm")
        inner = dense(x, variables, f"{layer}/intermediate/dense")
        inner = gelu(inner) if config["hidden_act"] == "gelu" else np.maximum(inner, 0)
        x = norm(x + dense(inner, variables, f"{layer}/output/dense"), variables, f"{layer}/output/LayerNorm")
    return x, variables


def logits_of(x: np.ndarray, variables: Variables) -> np.ndarray:
    x = norm(
        gelu(dense(x, variables, "cls/predictions/transform/dense")), variables, "cls/predictions/transform/LayerNorm"
    )
    return x @ variables["bert/embeddings/word_embeddings"].T + variables["cls/predictions/output_bias"]


IDS = [2, 30, 17, 99, 45, 101, 12, 3]
CLOSE = {"rtol": 0, "atol": 2e-5}


def close(found: torch.Tensor, expected: np.ndarray) -> None:
    assert np.ptp(expected) > 0.5
    np.testing.assert_allclose(found.detach().numpy(), expected, **CLOSE)


ENCODERS = [name for name in CONVERTED if "encoder" in name and "nezha" not in name]


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_give_the_hidden_states_of_the_formulas(name, case, converted):
    options = {"add_pooling_layer": False} if name == "bert-encoder" else {}
    model, loading = AutoModel.from_pretrained(converted(name), output_loading_info=True, **options)
    assert not any(loading.values())
    expected, variables = naive(case(name), IDS, [0] * len(IDS), causal="causal" in name)
    outputs = model.eval()(torch.tensor([IDS]))
    close(outputs.last_hidden_state[0], expected)
    if "bert/pooler/dense/kernel" in variables:
        vector = dense(expected[0], variables, "bert/pooler/dense")
        close(outputs.pooler_output[0], vector if "bert-" not in name or "simbert" in name else np.tanh(vector))
    else:
        assert getattr(outputs, "pooler_output", None) is None


def test_a_nezhas_pooler_is_berts(case, converted, tmp_path):
    """Against bert4keras' recorded hidden states: the language model of the fixture, whose encoder this is."""
    convert(LEGACY / "wonezha", tmp_path / "whole")
    whole = AutoModelForMaskedLM.from_pretrained(tmp_path / "whole").eval()
    for name in ("nezha-encoder", "nezha-encoder-pooled"):
        model = AutoModel.from_pretrained(converted(name)).eval()
        assert type(model) is NezhaModel
        outputs, hidden = model(torch.tensor([IDS])), whole.nezha(torch.tensor([IDS])).last_hidden_state
        assert torch.equal(outputs.last_hidden_state, hidden)
        assert (outputs.pooler_output is not None) == (name == "nezha-encoder-pooled")
    variables = read(case("nezha-encoder-pooled"))
    close(outputs.pooler_output[0], np.tanh(dense(hidden[0, 0].detach().numpy(), variables, "bert/pooler/dense")))


# SimBERT, and BERTs with factorised embeddings.


@pytest.mark.parametrize("name", ["chinese_simbert", "simbert-small", "unilm"])
def test_simbert_keeps_its_sentence_vectors_and_its_mask(name, case, converted):
    folder = converted(name)
    segments = [0] * 5 + [1] * 3
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert type(model) is RoFormerForCausalLM
    for given in ([0] * len(IDS), segments):
        outputs = model(torch.tensor([IDS]), token_type_ids=torch.tensor([given]))
        expected, variables = naive(case(name), IDS, given)
        close(outputs.logits[0], logits_of(expected, variables))
        close(outputs.pooler_output[0], dense(expected[0], variables, "bert/pooler/dense"))
    tokenizer, text = AutoTokenizer.from_pretrained(folder), "明月照着远处"
    ids = tokenizer(text).input_ids
    vector = dense(naive(case(name), ids, [0] * len(ids))[0][0], variables, "bert/pooler/dense")
    encoder = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(encoder.encode(text), vector, **CLOSE)
    assert encoder.max_seq_length == tokenizer.model_max_length == 16  # the table has no more
    assert encoder.encode(text * 20).shape == (WIDTH,)
    with torch.inference_mode():
        answer = model.generate(torch.tensor([ids]), max_new_tokens=3, min_new_tokens=3, do_sample=False)[0].tolist()
    so_far = list(ids)
    for _ in range(3):
        given = [0] * len(ids) + [1] * (len(so_far) - len(ids))
        step = logits_of(naive(case(name), so_far, given)[0], variables)[-1]
        step[tokenizer.sep_token_id] = -np.inf
        so_far.append(int(step.argmax()))
    assert answer == so_far


def test_a_factorised_bert_has_the_logits_of_the_formulas(case, converted):
    model = AutoModelForMaskedLM.from_pretrained(converted("bert-factorised")).eval()
    assert type(model) is RoFormerForMaskedLM
    expected, variables = naive(case("bert-factorised"), IDS, [0] * len(IDS))
    close(model(torch.tensor([IDS])).logits[0], logits_of(expected, variables))
    tokenizer = AutoTokenizer.from_pretrained(converted("bert-factorised"))
    assert tokenizer.model_max_length == 16


def test_any_bert_is_a_start(run, tmp_path, case, converted):
    """TensorFlow, and the folder that it was converted to, as PyTorch has it: `--as roformer` of both."""
    names = ["bert-encoder", "bert-encoder-pooled", "simbert-small", "nezha-encoder", "bert-factorised"]
    sources = [(name, case(name)) for name in names]
    sources += [(name, converted(name)) for name in names if CONVERTED[name][1].startswith(("Bert", "Nezha"))]
    assert len(sources) == 8
    for number, (name, source) in enumerate(sources):
        start = tmp_path / str(number)
        code, _, err = run("convert", source, start, "--as", "roformer", "--verify")
        assert code == 0, err
        variables = read(case(name))
        model, loading = AutoModel.from_pretrained(start, output_loading_info=True)
        assert type(model) is RoFormerModel and not loading["missing_keys"]
        architecture = json.loads((start / "config.json").read_text())["architectures"]
        assert architecture == ["RoFormerModel" if "encoder" in name else "RoFormerForMaskedLM"]
        words = model.embeddings.word_embeddings.weight.detach().numpy()
        assert (words == variables["bert/embeddings/word_embeddings"]).all()
        assert model(torch.tensor([IDS * 9])).last_hidden_state.shape == (1, 9 * len(IDS), WIDTH)  # beyond the table


def reads_ahead(model) -> bool:
    """Return whether the hidden state of a token depends on a later one."""
    ids, others = torch.tensor([IDS]), torch.tensor([[*IDS[:-1], IDS[-1] + 1]])
    with torch.inference_mode():
        return not torch.equal(model.eval()(ids)[0][:, 0], model(others)[0][:, 0])


@pytest.mark.parametrize("fixture", ["wobert", "wonezha"])
def test_a_causal_bert_starts_a_causal_roformer(fixture, tmp_path):
    edited(fixture, is_decoder=True, model=fixture)(tmp_path / "legacy")
    convert(tmp_path / "legacy", tmp_path / "start", as_family="roformer", verify=True)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "start")
    assert type(model) is RoFormerForCausalLM and model.config.eos_token_id == 3
    assert not reads_ahead(model)


@pytest.mark.parametrize("architecture", ["BertLMHeadModel", "BertForMaskedLM"])
def test_a_causal_bert_of_transformers_starts_a_causal_roformer(architecture, tmp_path):
    """In PyTorch, and exported for TensorFlow by this package, whose bert_config.json has is_decoder elsewhere."""
    convert(LEGACY / "wobert", tmp_path / "bert")
    kind = getattr(transformers, architecture)
    kind.from_pretrained(tmp_path / "bert", is_decoder=True).save_pretrained(tmp_path / "causal")
    AutoTokenizer.from_pretrained(tmp_path / "bert").save_pretrained(tmp_path / "causal")
    sources = [tmp_path / "causal"]
    if architecture == "BertLMHeadModel":
        export_tf(tmp_path / "causal", tmp_path / "tensorflow")
        sources.append(tmp_path / "tensorflow")
    for source in sources:
        report = convert(source, tmp_path / f"start-{source.name}", as_family="roformer", verify=True)
        model = AutoModelForCausalLM.from_pretrained(report.output)
        assert type(model) is RoFormerForCausalLM and model.config.eos_token_id == 3
        assert not reads_ahead(model)


# Padded embeddings.


@pytest.mark.parametrize("name", PADDED)
def test_padded_embeddings_are_kept_and_stated(name, tmp_path, case, converted):
    """One rule for TensorFlow and PyTorch: the configuration has the rows, the tokenizer the entries."""
    entries = len((LEGACY / "word" / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    for source, form in ((case(name), "tensorflow"), (converted(name), "pytorch")):
        is_first = form == "tensorflow"  # whose result needs no option: its tokenizer.json has the id of every entry
        report = convert(source, tmp_path / form, verify=True, padded_vocabulary=is_first)
        assert report.architecture == PADDED[name][1] and len(report.warnings) == is_first
        assert_states(report.rows["padded embeddings"], 160, entries, 160 - entries)
        assert json.loads((tmp_path / form / "config.json").read_text())["vocab_size"] == 160
        assert len(AutoTokenizer.from_pretrained(tmp_path / form)) == entries
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "tensorflow").eval()
    logits = model(torch.tensor([IDS])).logits[0]
    if name != "padded-v2":
        expected, variables = naive(case(name), IDS, [0] * len(IDS))
        close(logits, logits_of(expected, variables))
    fill = pipeline("fill-mask", model=str(tmp_path / "tensorflow"))
    answers = fill("明[MASK]照着", top_k=160)
    assert [answer["token"] for answer in answers if not answer["token_str"]] != []
    assert {answer["token"] for answer in answers} == set(range(160))


def test_an_exported_padded_model_needs_no_option_but_all_its_lines(tmp_path, converted):
    """`export-tf` writes a line for each row, so its vocabulary is shorter only if it lost one."""
    export_tf(converted("padded"), tmp_path / "exported")
    report = convert(tmp_path / "exported", tmp_path / "first")
    assert (report.vocab_size, report.warnings) == (160, [])
    lose_a_line(tmp_path / "exported")
    with refused(CheckpointError, "vocab.txt", "159 entries", "bert_config.json", 160, "--padded-vocabulary"):
        convert(tmp_path / "exported", tmp_path / "second")
    report = convert(tmp_path / "exported", tmp_path / "second", padded_vocabulary=True)
    assert_states(report.warnings[0], 159, 160)


@pytest.mark.parametrize("name", ["v1", "wobert", "nezha"])
def test_a_pytorch_folder_that_lost_a_line_of_its_vocabulary_is_refused(name, tmp_path):
    facts = ["vocab.txt", "153 entries", "config.json", 154, "--padded-vocabulary"]
    source = shutil.copytree(FIXTURES / "pytorch" / name, tmp_path / "source")
    lose_a_line(source)
    for command in (convert, export_tf):
        with refused(CheckpointError, *facts) as caught:
            command(source, tmp_path / "output")
        assert not (tmp_path / "output").exists()
    described = info(source)
    assert described.converts_to is None and str(caught.value) in described.notes
    for command in (convert, export_tf)[: 1 if name == "nezha" else 2]:  # bert4keras lacks the fixture's positions
        report = command(source, tmp_path / command.__name__, padded_vocabulary=True)
        assert_states(report.warnings[0], 153, 154)


def test_a_saved_folder_whose_two_vocabularies_differ_is_refused_with_the_option_too(tmp_path, converted):
    source = shutil.copytree(converted("padded"), tmp_path / "source")
    lose_a_line(source)
    for padded_vocabulary in (False, True):
        with refused(CheckpointError, "tokenizer.json", "vocab.txt"):
            convert(source, tmp_path / "output", padded_vocabulary=padded_vocabulary)


def test_info_describes_a_checkpoint_that_lost_a_line(case):
    described = info(case("lost-line"))
    assert (described.family, described.layers, described.vocabulary["entries"]) == ("RoFormer", 2, 153)


def test_the_installed_command_warns_in_its_summary_and_on_stderr(case, tmp_path):
    command = [command_line.ROFORMER, "convert", case("lost-line"), tmp_path / "output"]
    environment = os.environ | {"COLUMNS": "500"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (1, "") and not (tmp_path / "output").exists()
    assert_states(done.stderr, *REFUSED["lost-line"][1])
    done = subprocess.run([*command, "--padded-vocabulary"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and (tmp_path / "output" / "vocab.txt").is_file()
    for text in (done.stdout, done.stderr):
        (line,) = (line for line in text.splitlines() if "WARNING" in line)
        assert_states(line, "vocab.txt", 153, "bert_config.json", 154)


@pytest.mark.parametrize("name", ["kept-prefix-model", "kept-gpt"])
def test_kept_tokens_go_there_and_back(name, tmp_path, case, converted):
    """[MASK] is in no tokenizer, and the end is where the vocabulary has [SEP]."""
    assert_states(convert(case(name), tmp_path / "first").rows["embeddings"], 58, 154)
    convert(converted(name), tmp_path / "pytorch")
    export_tf(converted(name), tmp_path / "legacy")
    kept("[PAD]", "[UNK]", "[SEP]", "[CLS]")(tmp_path / "other")  # of what was exported, other entries
    for file in ("vocab.txt", *(file.name for file in (tmp_path / "other").glob(f"{PREFIX}*"))):
        shutil.copy(tmp_path / "other" / file, tmp_path / "legacy" / file)
    edit_config(tmp_path / "legacy", vocab_size=154)
    convert(tmp_path / "legacy", tmp_path / "tensorflow")
    for form, end in (("pytorch", 3), ("tensorflow", 2)):
        config = json.loads((tmp_path / form / "config.json").read_text())
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / form)
        assert tokenizer.mask_token is None and len(tokenizer) == config["vocab_size"] == 58
        assert tokenizer.sep_token_id == config["eos_token_id"] == end


def test_info_of_an_archive_names_the_class_too(case, tmp_path):
    """Names of a tf.keras model's layers are in its data, which info does not unpack."""
    copy_form(FIXTURES / "keras" / "mlm", "best_model.weights", tmp_path / "mlm")
    folders = {"simbert-small": case("simbert-small"), "mlm": tmp_path / "mlm"}
    for name, folder in folders.items():
        shutil.make_archive(str(tmp_path / name), "zip", folder.parent, folder.name)
    described = info(tmp_path / "simbert-small.zip")
    assert (described.family, described.converts_to) == ("SimBERT", "RoFormerForCausalLM") and not described.notes
    with refused(CheckpointError, "mlm.zip", "layers", "data file"):
        info(tmp_path / "mlm.zip")
