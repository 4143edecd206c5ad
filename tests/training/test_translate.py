"""examples/translate.py and what it is made of: pairs, one vocabulary, batches by tokens, averaged checkpoints,
BLEU."""

import gzip
import json
import re
import runpy
import shutil
import tracemalloc

import datasets
import pandas
import pytest
import torch
import transformers
from helpers.messages import assert_states, refused
from helpers.paths import REPOSITORY
from helpers.properties import max_examples
from helpers.scripts import run_script
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, Seq2SeqTrainer

from modeling_roformer.training.errors import TrainingError
from modeling_roformer.training.runs.checkpoints import atomic_checkpoint, average_checkpoints, average_of_last
from modeling_roformer.training.translation.pairs import TokenBatches, hold_out, read_pairs, train_tokenizer
from modeling_roformer.training.translation.setting import read_setting

SCRIPT = REPOSITORY / "examples" / "translate.py"
NUMBERS = ["null", "eins", "zwei", "drei", "vier"]
ENGLISH = ["zero", "one", "two", "three", "four"]
SETTING = """
vocabulary_size: 290
longest: 24
batch_tokens: 96
steps: 6
warmup_steps: 2
save_steps: 2
averaged: 2
beams: 2
model: {d_model: 16, encoder_layers: 1, decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2,
  encoder_ffn_dim: 16, decoder_ffn_dim: 16, dropout: 0.1}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = [(a, b) for a in range(5) for b in range(5)]
    for part, some in (("train", pairs), ("validation", pairs[:6]), ("test", pairs[6:10])):
        (tmp_path / f"{part}.de").write_text("".join(f"{NUMBERS[a]} und {NUMBERS[b]}.\n" for a, b in some), "utf-8")
        (tmp_path / f"{part}.en").write_text("".join(f"{ENGLISH[a]} and {ENGLISH[b]}.\n" for a, b in some), "utf-8")
    (tmp_path / "setting.yaml").write_text(SETTING)
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capfd):
    files = [word for part in ("train", "validation", "test") for word in (f"--{part}", f"{part}.de", f"{part}.en")]

    def run(*options, setting="setting.yaml"):
        return run_script(SCRIPT, [setting, *files, "--output", "runs", *options], monkeypatch, capfd)

    return run


def test_models_are_compared_and_scored(folder, run, monkeypatch, capfd):
    code, out, error = run("--seeds", "0", "1")
    assert code == 0, error
    runs = json.loads((folder / "runs/results.json").read_text(encoding="utf-8"))["runs"]
    assert [(one["encoding"], one["seed"]) for one in runs] == [
        (encoding, seed) for seed in (0, 1) for encoding in ("rotary", "sinusoidal")
    ]
    assert_states(out, "4 of the 4 test sentences are also in training")
    assert "RoFormer (rotary)" in out and "Transformer (sinusoidal)" in out and "±" in out and "tok:13a" in out
    assert (folder / "runs/losses.png").read_bytes().startswith(b"\x89PNG")
    # What was saved is the average of the last two checkpoints, and translates as it did.
    place = folder / "runs/rotary-1"
    last = [place / f"checkpoint-{step}" for step in (4, 6)]
    saved = AutoModelForSeq2SeqLM.from_pretrained(place / "model")
    for name, weight in average_checkpoints(last).items():
        torch.testing.assert_close(saved.state_dict()[name], weight)
    assert saved.generation_config.num_beams == 2
    code, out, error = run_script(
        SCRIPT, ["--score", "runs/rotary-1/model", "--test", "test.de", "test.en"], monkeypatch, capfd
    )
    assert code == 0, error
    assert f"BLEU {runs[2]['bleu']:.2f} ({runs[2]['signature']})" in out
    scored = ["--score", "runs/rotary-1/model", "--test", "test.de", "test.en", "--bleu-tokenize"]
    code, out, error = run_script(SCRIPT, [*scored, "zh"], monkeypatch, capfd)
    assert code == 0 and "tok:zh" in out, error
    code, _, error = run_script(SCRIPT, ["--score", "nothing", "--test", "test.de", "test.en"], monkeypatch, capfd)
    assert code == 1 and error == "translate: nothing does not exist"

    monkeypatch.setattr(Seq2SeqTrainer, "train", lambda *_, **__: pytest.fail("trained again"))
    code, again, error = run("--seeds", "0", "1", "0", "--encodings", "rotary", "sinusoidal", "rotary")
    assert code == 0, error
    assert again.count("RoFormer (rotary)") == 1 and again.count("±") == 4


def test_a_stopped_run_goes_on(folder, run, monkeypatch):
    code, _, error = run("--encodings", "rotary")
    assert code == 0, error
    whole = AutoModelForSeq2SeqLM.from_pretrained("runs/rotary-0/model").state_dict()
    (folder / "runs").rename(folder / "first")
    save = Seq2SeqTrainer._save_checkpoint

    def stop(self, *args, **kwargs):
        save(self, *args, **kwargs)
        if self.state.global_step == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Seq2SeqTrainer, "_save_checkpoint", stop)
    code, _, _ = run("--encodings", "rotary")
    assert code
    monkeypatch.setattr(Seq2SeqTrainer, "_save_checkpoint", save)
    # The embeddings are tied: the files have them once, under one name.
    monkeypatch.setattr(transformers.trainer.logger, "warning", lambda *words: pytest.fail(str(words)))
    code, _, error = run("--encodings", "rotary")
    assert code == 0, error
    again = AutoModelForSeq2SeqLM.from_pretrained("runs/rotary-0/model").state_dict()
    for name, weight in whole.items():
        torch.testing.assert_close(again[name], weight, atol=1e-6, rtol=0)


def test_checkpoints_of_another_run_are_not_averaged(folder, run):
    code, _, error = run("--encodings", "rotary", "--seeds", "0", "1")
    assert code == 0, error
    place = folder / "runs" / "rotary-0"
    for path in (place / "model", place / "checkpoint-4"):
        shutil.rmtree(path)
    shutil.copytree(folder / "runs" / "rotary-1" / "checkpoint-4", place / "checkpoint-4")
    code, _, error = run("--encodings", "rotary", "--seeds", "0", "1")
    assert code == 1 and not (place / "model").exists()
    assert_states(error, place.relative_to(folder) / "checkpoint-4", "another run", "seed")


def test_a_failed_run_is_named_and_the_others_compared(folder, run, failing, monkeypatch):
    failing("rotary-0")
    code, out, error = run("--seeds", "0", "1")
    assert code == 0, error
    assert_states(out, "failed: RoFormer, seed 0", "nan at step 2")
    text = (folder / "runs/results.json").read_text(encoding="utf-8")
    first, *others = json.loads(text, parse_constant=pytest.fail)["runs"]
    assert (
        first["bleu"] is None and "nan at step 2" in first["failed"] and not (folder / "runs/rotary-0/model").exists()
    )
    assert len(others) == 3 and not any("failed" in one for one in others)
    assert re.search(rf"RoFormer \(rotary\) +│ {others[1]['bleu']:.2f} +│", out)
    monkeypatch.setattr(Seq2SeqTrainer, "train", lambda *_, **__: pytest.fail("trained again"))
    code, out, error = run("--encodings", "rotary")
    assert code == 1 and error.startswith("translate: ") and re.search(r"RoFormer \(rotary\) +│ failed", out)


def test_the_vocabulary_gives_back_every_text():
    tokenizer = train_tokenizer(["ein Haus", "a house, a house"], 280, 32)
    for text in ("Das ist ein Haus (groß), 3,5 m²!", "a  house", "房子"):
        ids = tokenizer(text)["input_ids"]
        assert ids[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.convert_tokens_to_ids("<pad>") == tokenizer.pad_token_id == 0
    with refused(TrainingError, 100, 256):
        train_tokenizer(["a"], 100, 32)
    with refused(TrainingError, "2,000,000,000"):  # it would end the process
        train_tokenizer(["a"], 2_000_000_000, 32)


@max_examples(50)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60),
    tokens=st.integers(40, 200),
    seed=st.integers(0, 2**31),
)
def test_batches_have_every_pair_once_an_epoch_and_no_more_tokens(lengths, tokens, seed):
    pairs = datasets.Dataset.from_dict(
        {"input_ids": [[1] * a for a, _ in lengths], "labels": [[1] * b for _, b in lengths]}
    )
    batches, same = (TokenBatches(pairs, tokens, 200, seed) for _ in range(2))
    same.numbers(30)  # asked for out of order
    order = [number for i in range(200) for number in batches.numbers(i)]
    epochs = len(order) // len(lengths)
    for epoch in range(min(epochs, 3)):
        assert sorted(order[epoch * len(lengths) : (epoch + 1) * len(lengths)]) == list(range(len(lengths)))
    for i in range(20):
        numbers = batches.numbers(i)
        assert same.numbers(i) == numbers
        for side in (0, 1):
            assert max(lengths[number][side] for number in numbers) * len(numbers) <= max(tokens, 40)
    assert [len(pair["labels"]) for pair in batches[0]] == [lengths[number][1] for number in batches.numbers(0)]
    once = TokenBatches.once(pairs, tokens)
    assert sorted(number for i in range(len(once)) for number in once.numbers(i)) == list(range(len(lengths)))


def test_the_order_of_batches_stays_from_version_to_version():
    """A run that an earlier version began is resumed with the batches that follow."""
    lengths = [n * 7 % 5 + 1 for n in range(9)]
    pairs = datasets.Dataset.from_dict({"input_ids": [[1] * n for n in lengths], "labels": [[1]] * 9})
    batches = TokenBatches(pairs, 9, 20, seed=3)
    first, second = [[0, 5, 3, 8], [1, 6], [2], [4], [7]], [[5, 0, 8, 3], [7], [2], [1, 6], [4]]
    expected = [*first, *second, [4], [0, 5, 8, 3]]
    for order in (range(12), reversed(range(12)), [7, 0, 11, 5]):
        for i in order:
            assert batches.numbers(i) == expected[i]


def test_batches_of_many_epochs_take_the_memory_of_one():
    pairs = datasets.Dataset.from_dict({"input_ids": [[1] * (n % 30 + 1) for n in range(5000)], "labels": [[1]] * 5000})
    batches = TokenBatches(pairs, 10_000, 1000)
    tracemalloc.start()
    try:
        batches.numbers(0)
        after_one, _ = tracemalloc.get_traced_memory()
        batches.numbers(400)
        assert len(batches.sizes) > 20
        after_many, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_many < after_one + 20_000  # bytes; a list of the 5,000 numbers takes 40,000


def test_checkpoints_are_averaged(tmp_path):
    for number, value in enumerate((1.0, 2.0, 6.0)):
        (tmp_path / str(number)).mkdir()
        weights = {"a": torch.full((2,), value), "b": torch.full((1,), value, dtype=torch.bfloat16)}
        save_file(weights, tmp_path / str(number) / "model.safetensors")
    average = average_checkpoints([tmp_path / str(number) for number in range(3)])
    assert torch.equal(average["a"], torch.full((2,), 3.0)) and average["b"].dtype == torch.bfloat16
    save_file({"a": torch.ones(3)}, tmp_path / "2" / "model.safetensors")
    with refused(TrainingError, tmp_path / "2", tmp_path / "0"):
        average_checkpoints([tmp_path / "0", tmp_path / "2"])
    (tmp_path / "2" / "model.safetensors").write_bytes(bytes(100))
    with refused(TrainingError, tmp_path / "2" / "model.safetensors"):
        average_checkpoints([tmp_path / "0", tmp_path / "2"])


def test_damaged_checkpoints_are_not_averaged(tmp_path, caplog):
    for step, value in (10, 1.0), (20, 2.0), (30, 6.0):
        with atomic_checkpoint(tmp_path / f"checkpoint-{step}") as folder:
            save_file({"a": torch.full((2,), value)}, folder / "model.safetensors")
    assert torch.equal(average_of_last(tmp_path, 2)["a"], torch.full((2,), 4.0)) and not caplog.text
    weights = tmp_path / "checkpoint-20" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"A")
    for number in 2, 3:
        with refused(TrainingError, weights, "damaged", "remove it"):
            average_of_last(tmp_path, number)
    shutil.rmtree(tmp_path / "checkpoint-20")
    assert torch.equal(average_of_last(tmp_path, 3)["a"], torch.full((2,), 3.5))
    assert_states(caplog.text, "2 of 3")


def test_pairs_that_cannot_be_read(folder):
    with gzip.open("long.en.gz", "wt", encoding="utf-8") as file:
        file.write("one\ntwo\n")
    (folder / "short.de").write_text("eins\n")
    (folder / "gap.de").write_text("eins\n\n")
    (folder / "pairs.csv").write_text("de,en\n")
    assert read_pairs("test.de", "test.en")[0] == {"source": "eins und eins.", "target": "one and one."}
    for names, facts in (
        (("short.de", "long.en.gz"), ["short.de has 1", "long.en.gz has 2"]),
        (("gap.de", "long.en.gz"), ["gap.de", "line 2"]),
        (("test.de", "test.de"), ["test.de and test.de"]),
        (("test.de", "nothing.en"), ["nothing.en"]),
        (("test.de", "pairs.csv"), ["pairs.csv", "table"]),
    ):
        with refused(TrainingError, *facts):
            read_pairs(*names)
    (folder / "broken.gz").write_bytes(b"no gzip")
    (folder / "damaged.gz").write_bytes(gzip.compress(b"one")[:10] + bytes(20 * [255]))
    for name in "broken.gz", "damaged.gz":
        with refused(TrainingError, name, "gzip"):
            read_pairs(name, "test.en")


PAIRS = [(f"{NUMBERS[a]} und {NUMBERS[b]}", f"{ENGLISH[a]} and {ENGLISH[b]}") for a in range(5) for b in range(5)]


@pytest.mark.parametrize(
    ("name", "columns", "given"),
    [
        ("pairs.csv", ("source", "target"), None),
        ("pairs.csv", ("de", "en"), ("de", "en")),
        ("pairs.tsv", None, None),
        ("pairs.tsv.gz", ("en", "note", "de"), ("de", "en")),
        ("pairs.jsonl", ("en", "note", "de"), ("de", "en")),
        ("pairs.parquet", ("source", "note", "target"), None),
        ("folder/train.jsonl", ("translation",), ("de", "en")),
    ],
)
def test_pairs_in_a_table(tmp_path, name, columns, given):
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    cells = [dict(de=a, en=b, source=a, target=b, note="x", translation={"de": a, "en": b}) for a, b in PAIRS]
    table = pandas.DataFrame(cells)[list(columns or ("de", "en"))]
    if place.suffix == ".parquet":
        table.to_parquet(place)
    elif place.suffix == ".jsonl":
        table.to_json(place, orient="records", lines=True, force_ascii=False)
    else:
        table.to_csv(place, sep="," if place.suffix == ".csv" else "\t", index=False, header=columns is not None)
    pairs = read_pairs(place if place.parent == tmp_path else place.parent, columns=given)
    assert list(zip(pairs["source"], pairs["target"], strict=True)) == PAIRS
    with refused(TrainingError, "'nothing'", "--source"):
        read_pairs(place if place.parent == tmp_path else place.parent, columns=("nothing", "en"))


@pytest.mark.parametrize("name", ["pairs.csv", "folder/train.csv"])
def test_the_first_line_of_a_csv_file_is_not_lost(tmp_path, name):
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("eins,one\nzwei,two\n", "utf-8")
    source = place if place.parent == tmp_path else place.parent
    with refused(TrainingError, source, "--source 'eins' --target 'one'", "source,target"):
        read_pairs(source)
    assert read_pairs(source, columns=("eins", "one"))[:] == {"source": ["zwei"], "target": ["two"]}
    place.write_text("source,target\neins,one\nzwei,two\n", "utf-8")
    assert read_pairs(source)["source"][:] == ["eins", "zwei"]


def test_a_column_named_translation(tmp_path):
    (tmp_path / "pairs.csv").write_text("text,translation\neins,one\n", "utf-8")
    pairs = read_pairs(tmp_path / "pairs.csv", columns=("text", "translation"))
    assert pairs[:] == {"source": ["eins"], "target": ["one"]}


def test_a_table_whose_columns_are_not_clear(tmp_path):
    (tmp_path / "pairs.csv").write_text("id,de,en\n1,eins,one\n2,,two\n", "utf-8")
    with refused(TrainingError, "pairs.csv", "id, de, en", "--source"):
        read_pairs(tmp_path / "pairs.csv")
    with refused(TrainingError, "--source, --target", "de, de"):
        read_pairs(tmp_path / "pairs.csv", columns=("de", "de"))
    with refused(TrainingError, "pairs.csv, row 3", "de"):
        read_pairs(tmp_path / "pairs.csv", columns=("de", "en"))
    (tmp_path / "pairs.jsonl").write_text(
        '{"translation": {"de": "eins", "en": "one"}}\n{"translation": null}\n', "utf-8"
    )
    with refused(TrainingError, "pairs.jsonl, line 2", "'translation'"):
        read_pairs(tmp_path / "pairs.jsonl")


def test_a_table_alone_is_split_and_gives_a_model_with_its_card(folder, monkeypatch, capfd):
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), "utf-8")
    arguments = ["setting.yaml", "--train", "pairs.tsv", "--encodings", "rotary", "--output", "runs"]
    code, out, error = run_script(SCRIPT, arguments, monkeypatch, capfd)
    assert code == 0, error
    assert_states(out, "train: 21 pairs", "validation: 2 pairs", "test: 2 pairs", "0 of the 2 test sentences")
    card = ModelCard.load(folder / "runs/rotary-0/model/README.md")
    (score,) = card.data.eval_results
    saved = json.loads((folder / "runs/results.json").read_text(encoding="utf-8"))["runs"][0]
    assert (score.metric_type, score.metric_value, score.dataset_name) == ("bleu", saved["bleu"], "pairs.tsv")
    assert_states(card.text, "21 sentence pairs of pairs.tsv", "learning rate: 0.0005", "averaged: 2", "seed: 0")
    assert score.metric_args == {"tokenize": "13a"}
    for count, options, facts in (
        (10, [], ["10 pairs", "10 different", "at least 11", "--validation and --test"]),
        (9, ["--test", "test.de", "test.en"], ["9 pairs", "at least 10", "--validation"]),
    ):
        (folder / "few.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS[:count]), "utf-8")
        words = ["--train", "few.tsv", "--output", "new", *options]
        code, _, error = run_script(SCRIPT, words, monkeypatch, capfd)
        assert code == 1
        assert_states(error, "few.tsv", *facts)


def test_pairs_that_are_held_out_are_not_learned():
    def of(sources):
        return datasets.Dataset.from_dict({"source": sources, "target": [f"{n}" for n in range(len(sources))]})

    kept, held_out = hold_out(of([str(n % 50) for n in range(200)]), 0.1, 1000)
    assert len(kept) == 180 and len(held_out) == 20 and not {*kept["source"]} & {*held_out["source"]}
    pairs = of([str(n) for n in range(200)])  # without repeats, as earlier versions split them
    for part, before in zip(hold_out(pairs, 0.1, 15), pairs.train_test_split(15, seed=0).values(), strict=True):
        assert part["source"][:] == before["source"][:]


@pytest.mark.parametrize("setting", sorted(SCRIPT.with_name("translation").glob("*.yaml")))
def test_settings_in_the_repository_name_how_many_checkpoints_they_average(setting):
    assert read_setting(setting).averaged and "\naveraged: " in setting.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ("steps: 6", "steps: 0", ["steps is 0", "integer"]),
        ("steps: 6", "stepps: 6", ["stepps", "unknown"]),
        ("longest: 24", "", ["setting.yaml", "longest"]),
        ("longest: 24", "longest: 97", ["batch_tokens", 96, 97]),
        ("averaged: 2", "averaged: 4", ["averaged", 4, "3 checkpoints"]),
        ("averaged: 2", "label_smoothing: 1.0", ["label_smoothing is 1"]),
        ("averaged: 2", "averaged: 2\nlearning_rate: 2.5", ["learning_rate", "maximum of 1"]),
        ("decoder_layers: 1", "decoder_layers: 0", ["decoder_layers"]),
        ("d_model: 16", "d_modle: 16", ["setting.yaml, line 10", "unknown field d_modle", "d_model"]),
        ("d_model: 16", "vocab_size: 300, is_encoder_decoder: false", ["vocab_size, is_encoder_decoder", "remove"]),
        ("dropout: 0.1", "dropout: 2", ["dropout", 2]),
        ("longest: 24", "longest: 5", ["train.de", "null und null.", 5]),
        ("vocabulary_size: 290", "vocabulary_size: 150", [150, 256]),
    ],
)
def test_settings_that_describe_nothing(folder, run, old, new, facts):
    (folder / "setting.yaml").write_text(SETTING.replace(old, new, 1))
    code, _, error = run()
    assert code == 1
    assert_states(error, *facts)
    assert not (folder / "runs").exists() or not any((folder / "runs").iterdir())


def test_a_test_sentence_that_is_too_long(folder, run):
    with open("test.en", "a", encoding="utf-8") as file:
        file.write("one " * 30 + "\n")
    with open("test.de", "a", encoding="utf-8") as file:
        file.write("eins\n")
    code, _, error = run()
    assert code == 1 and not (folder / "runs/results.json").exists()
    assert_states(error, "test.de and test.en", "one one", 24)


def test_chinese_is_compared_by_characters():
    bleu_of = runpy.run_path(str(SCRIPT))["bleu_of"]
    pair = ["我有一只很大的黑狗。"], [["我有一只很大的狗。"]]
    assert bleu_of("zh").corpus_score(*pair).score > 60 and bleu_of("13a").corpus_score(*pair).score < 1


def test_a_tokenization_whose_package_is_missing(folder, run, monkeypatch):
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    code, _, error = run("--bleu-tokenize", "ja-mecab")
    assert code == 1 and not (folder / "runs").exists()
    assert_states(error, "translate: --bleu-tokenize ja-mecab", "pip install 'sacrebleu[ja]'")


def test_one_beam(folder, run):
    """Is greedy search, which has no use for a length penalty."""
    (folder / "setting.yaml").write_text(SETTING.replace("beams: 2", "beams: 1"))
    code, _, error = run("--encodings", "rotary")
    assert code == 0, error
    assert AutoModelForSeq2SeqLM.from_pretrained("runs/rotary-0/model").generation_config.num_beams == 1


def test_another_setting_is_not_mixed_in(folder, run):
    code, _, error = run("--encodings", "rotary")
    assert code == 0, error
    (folder / "setting.yaml").write_text(SETTING.replace("beams: 2", "beams: 3"))
    code, _, error = run("--encodings", "rotary")
    assert code == 1
    assert_states(error, "runs/results.json", "beams")
    (folder / "setting.yaml").write_text(SETTING)
    kept = json.loads((folder / "runs/results.json").read_text(encoding="utf-8"))
    bleu = kept["settings"].pop("bleu_tokenize")
    earlier = json.dumps(kept)
    for text in json.dumps({**kept, "settings": {**kept["settings"], "bleu_tokenize": bleu}}), earlier:
        (folder / "runs/results.json").write_text(text, encoding="utf-8")
        code, _, error = run("--encodings", "rotary", "--bleu-tokenize", "zh")
        assert code == 1
        assert_states(error, "runs/results.json", "bleu_tokenize")
    for change in (
        {"encoding": "none"},
        {"seed": None},
        {"bleu": None},
        {"signature": None},
        {"log": [{"step": 1, "loss": 3.0}]},
        {"log": [{"step": 1, "eval_loss": "3"}]},
        {"failed": True},
    ):
        damaged = {**kept, "runs": [{**kept["runs"][0], **change}]}
        (folder / "runs/results.json").write_text(json.dumps(damaged), encoding="utf-8")
        code, _, error = run("--encodings", "rotary")
        assert code == 1, change
        assert_states(error, "runs/results.json", "damaged")
    assert read_setting("setting.yaml").learning_rate == 5e-4
    assert AutoTokenizer.from_pretrained("runs/tokenizer").pad_token == "<pad>"
