"""examples/train_retriever.py: it learns to find passages, records ranks that are right, and goes on where it was
stopped."""

import json
import random
import shutil

import pytest
import torch
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer import modules
from transformers import BertConfig

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer

SCRIPT = REPOSITORY / "examples" / "train_retriever.py"
VOCAB = REPOSITORY / "tests" / "fixtures" / "legacy" / "word" / "vocab.txt"
FIELDS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
# Characters that the vocabulary has: others would give equal vectors.
WORDS = [entry for entry in VOCAB.read_text(encoding="utf-8").split("\n") if len(entry) == 1 and "一" <= entry <= "鿿"]


def make_rows(count, seed):
    """Return questions of three characters of their passage of six, two for each passage."""
    some, rows = random.Random(seed), []
    for _ in range(count):
        passage = "".join(some.sample(WORDS, 6))
        rows += [{"question": "".join(some.sample(passage, 3)), "passage": passage} for _ in range(2)]
    return rows


def write(name, rows):
    with open(name, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = RoFormerTokenizer(str(VOCAB))
    torch.manual_seed(0)
    RoFormerForMaskedLM(RoFormerConfig(vocab_size=len(tokenizer), **FIELDS)).save_pretrained("start")
    tokenizer.save_pretrained("start")
    write("train.jsonl", make_rows(40, 0))
    write("test.jsonl", make_rows(12, 1))
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """Run the script with arguments. Return its exit code, stdout and the last line of stderr."""

    def run(*arguments, model="start"):
        words = [model, "--train", "train.jsonl", "--test", "test.jsonl", "--output", "run", "--batch-size", 8]
        return run_script(SCRIPT, [*words, "--learning-rate", "3e-3", "--epochs", 2, *arguments], monkeypatch, capfd)

    return run


def rows_of(folder):
    return json.loads((folder / "run" / "results.json").read_text(), parse_constant=pytest.fail)["rows"]


def test_word_search_finds_long_passages(run, folder):
    words = ["苹果", "大学", "电脑", "春天", "火车"]
    write("test.jsonl", [{"question": f"{word}好吗", "passage": f"{word}很好。" * 2000} for word in words])
    code, _, err = run("--epochs", 0, "--hard-epochs", 0, "--words")
    assert code == 0, err
    for row in rows_of(folder)[:3]:
        assert row["scores"]["test"]["mrr@10"] == 1, row["name"]


def test_it_learns_records_true_ranks_and_goes_on(run, folder, monkeypatch):
    mined, seen = [], []
    training = SentenceTransformerTrainer.train

    def seeing(self, *arguments, **options):
        seen.append(self.args.seed)
        mined.append(self.train_dataset)
        return training(self, *arguments, **options)

    monkeypatch.setattr(SentenceTransformerTrainer, "train", seeing)
    code, out, err = run("--seeds", 3, "--hard-epochs", 1, "--words")
    assert code == 0, err
    assert seen == [3, 3]
    rows = {row["name"]: row for row in rows_of(folder)}
    assert list(rows) == ["BM25, characters", "BM25, words", "TF-IDF, words", "before training", "trained"]
    assert (
        rows["trained"]["scores"]["validation"]["ndcg@10"] > rows["before training"]["scores"]["validation"]["ndcg@10"]
    )
    assert rows["BM25, characters"]["scores"]["test"]["mrr@10"] > 0.9  # all characters of a question are in its passage

    # Hard negatives are passages, and never an answer of the question.
    answers = {}
    for row in make_rows(40, 0):
        answers.setdefault(row["question"], set()).add(row["passage"])
    assert mined[0].column_names == ["question", "passage"]
    assert mined[1].column_names == ["question", "passage", "negative_1", "negative_2"]
    for row in mined[1]:
        assert not {row["negative_1"], row["negative_2"]} & answers[row["question"]]
        assert row["passage"] in answers[row["question"]]

    # The saved model gives the recorded ranks, and these the recorded scores.
    passages = list(dict.fromkeys(row["passage"] for row in [*make_rows(40, 0), *make_rows(12, 1)]))
    asked = {}
    for row in make_rows(12, 1):
        asked.setdefault(row["question"], set()).add(row["passage"])
    model = SentenceTransformer(str(folder / "run" / "model"), device="cpu")
    cosines = model.similarity(model.encode(list(asked)), model.encode(passages))
    ranks = []
    for row, correct in zip(cosines, asked.values(), strict=True):
        order = [passages[i] for i in row.argsort(descending=True)]
        ranks.append(min(order.index(passage) for passage in correct) + 1)
    assert rows["trained"]["ranks"] == ranks
    scores = rows["trained"]["scores"]["test"]
    assert scores["mrr@10"] == pytest.approx(sum(1 / rank for rank in ranks if rank <= 10) / len(ranks))
    for metric in "mrr@10", "ndcg@10", "recall@10", "recall@100":
        assert f"{scores[metric]:.3f}" in out
    card = ModelCard.load(folder / "run" / "model" / "README.md")
    assert {score.metric_type: score.metric_value for score in card.data.eval_results} == pytest.approx(scores)
    assert "test.jsonl" in card.content and str(folder) not in card.content
    assert not (folder / "run" / ".checkpoints").exists()

    # The same command trains nothing; another seed is added; a lost model is trained again.
    assert run("--seeds", 3, "--hard-epochs", 1, "--words")[0] == 0 and len(seen) == 2
    code, out, _ = run("--seeds", 3, 4, "--hard-epochs", 1)
    assert code == 0 and seen[2:] == [4, 4] and "±" in out
    assert [row["seed"] for row in rows_of(folder) if row["name"] == "trained"] == [3, 4]
    best = max(
        (3, 4),
        key=lambda seed: next(row for row in rows_of(folder) if row["seed"] == seed)["scores"]["validation"]["ndcg@10"],
    )
    assert f"seed: {best}" in (folder / "run" / "model" / "README.md").read_text()
    (folder / "run" / "model" / "model.safetensors").unlink()
    code, out, _ = run("--seeds", 7 - best, "--hard-epochs", 1)
    assert code == 0 and f"does not have the model of seed {best}," in out and "best model:" in out
    assert seen[4:] == [best, best] and (folder / "run" / "model" / "README.md").exists()
    assert_states(run("--seeds", 3, "--hard-epochs", 0)[2], "results.json", "hard_epochs")


def test_hard_negatives_that_make_the_model_worse_do_not_replace_it(run, folder, monkeypatch):
    training = SentenceTransformerTrainer.train

    def spoiling(self, *arguments, **options):
        if "negative_1" in self.train_dataset.column_names:
            self.args.learning_rate = 10.0
        return training(self, *arguments, **options)

    monkeypatch.setattr(SentenceTransformerTrainer, "train", spoiling)
    code, out, err = run("--seeds", 3, "--hard-epochs", 1)
    assert code == 0, err
    row = rows_of(folder)[-1]
    found = [
        entry["eval_validation_cosine_ndcg@10"]
        for entry in row["log"]
        if "eval_loss" in entry or "eval_runtime" in entry
    ]
    assert len(found) == 3 and found[-1] < max(found) == pytest.approx(row["scores"]["validation"]["ndcg@10"])
    (hard,) = (
        entry["questions_with_hard_negatives"] for entry in row["log"] if "questions_with_hard_negatives" in entry
    )
    assert f"hard negatives: for {hard} of " in out


def test_without_hard_negatives_the_trained_model_is_kept(run, folder):
    """No question has as many as there are passages."""
    code, out, err = run("--seeds", 3, "--hard-epochs", 1, "--negatives", 100)
    assert code == 0, err
    assert "hard negatives: for 0 of " in out and (folder / "run" / "model" / "README.md").exists()


def test_a_stopped_run_goes_on_without_training_again(run, folder, monkeypatch):
    training, stop = SentenceTransformerTrainer.train, [5]

    def stopping(self, *arguments, **options):
        if self.args.seed in stop:
            raise KeyboardInterrupt
        return training(self, *arguments, **options)

    monkeypatch.setattr(SentenceTransformerTrainer, "train", stopping)
    assert run("--seeds", 4, 5, "--hard-epochs", 0)[0] == 130
    before = rows_of(folder)
    assert [row["seed"] for row in before] == [None, 4]
    stop[0] = 4
    code, _, err = run("--seeds", 4, 5, "--hard-epochs", 0)
    assert code == 0, err
    assert rows_of(folder)[:2] == before and [row["seed"] for row in rows_of(folder)] == [None, 4, 5]


def test_without_epochs_a_model_is_only_evaluated(run, folder):
    code, out, err = run("--epochs", 0, "--hard-epochs", 0, "--words")
    assert code == 0, err
    assert {row["name"] for row in rows_of(folder)} >= {"before training", "BM25, words"}
    assert all(row["seed"] is None for row in rows_of(folder)) and "best model" not in out
    assert not (folder / "run" / "model").exists()


def test_a_failed_run_is_named(run, folder, monkeypatch):
    step = SentenceTransformerTrainer.compute_loss
    monkeypatch.setattr(
        SentenceTransformerTrainer, "compute_loss", lambda self, *a, **k: step(self, *a, **k) * float("nan")
    )
    code, out, _ = run("--seeds", 0)
    assert code == 1 and not (folder / "run" / "model").exists()
    assert_states(out, "failed: seed 0", "loss")
    assert [row.get("failed") is None for row in rows_of(folder)] == [True, False]


def test_bad_input_is_named_on_one_line(run, folder):
    def refusal(*arguments, code=1, **options):
        found, _, err = run(*arguments, **options)
        assert found == code and not (folder / "run").exists()
        return err

    assert_states(refusal("--hard-epochs", -1, code=2), "--hard-epochs", -1)
    assert_states(refusal("--epochs", -1, code=2), "--epochs", -1)
    assert_states(refusal("--question", "q"), "train.jsonl", "'q'", "--question")
    assert_states(refusal("--passages", "missing.jsonl"), "missing.jsonl")
    assert_states(refusal("--length", 1537), "--length 1537", "start", "--length 1536", "max_position_embeddings")
    assert_states(refusal("--length", 2, code=2), "--length", 2, 8)
    assert_states(refusal("--seeds", -1, code=2), "--seeds", -1)
    write("train.jsonl", make_rows(5, 0))
    assert_states(refusal(), "train.jsonl", 5, 20)
    write("train.jsonl", [{"question": "明", "passage": "明月"}, {"question": "月", "passage": "明月"}])
    assert_states(refusal("--validation", "test.jsonl"), "train.jsonl", "one passage", "two")
    shutil.copytree("start", "other")
    config = json.loads((folder / "start" / "config.json").read_text())
    for fields, words in (
        ({"is_decoder": True}, ("other", "is_decoder")),
        ({"add_pooling_layer": True, "pooler_activation": "linear"}, ("other", "add_pooling_layer")),
    ):
        (folder / "other" / "config.json").write_text(json.dumps(config | fields))
        assert_states(refusal(model="other"), *words)
    BertConfig().save_pretrained("bert")
    assert_states(refusal(model="bert"), "bert", "RoFormer")
    write("train.jsonl", [{"question": "", "passage": "明月"}])
    assert_states(refusal(), "train.jsonl", "question", 1)


def test_weights_that_are_not_finite_are_named(run, folder):
    model = RoFormerForMaskedLM.from_pretrained("start")
    with torch.no_grad():
        model.roformer.embeddings.word_embeddings.weight[5] = float("nan")
    model.save_pretrained("start")
    code, _, err = run("--epochs", 0, "--hard-epochs", 0)
    assert code == 1 and not (folder / "run").exists()
    assert_states(err, "start", "embeddings.word_embeddings.weight", "not finite")


def test_a_model_that_cannot_be_trained_here_is_named(run, folder):
    def refusal():
        code, _, err = run("--epochs", 0, "--hard-epochs", 0, model="other")
        assert code == 1 and not (folder / "run").exists()
        shutil.rmtree("other")
        return err

    parts = [modules.Transformer("start"), modules.Pooling(16, "cls")]
    SentenceTransformer(modules=parts, device="cpu").save("other")
    assert_states(refusal(), "other", "cls", "mean over tokens", "modules.json")
    parts = [modules.Transformer("start"), modules.Pooling(16, "mean"), modules.Dense(16, 8)]
    SentenceTransformer(modules=parts, device="cpu").save("other")
    assert_states(refusal(), "other", "Dense")
    parts = [modules.Transformer("start"), modules.Dense(16, 8, module_input_name="token_embeddings")]
    SentenceTransformer(modules=parts, device="cpu").save("other")
    assert_states(refusal(), "other", "Dense")
    for name, content in (("model.safetensors", b"damaged"), ("tokenizer_config.json", b"[")):
        shutil.copytree("start", "other")
        (folder / "other" / name).write_bytes(content)
        assert_states(refusal(), "other", "cannot be loaded")
    shutil.copytree("start", "other")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / "other" / name).unlink(missing_ok=True)
    assert_states(refusal(), "other", "tokenizer")


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.append("trained"),
        lambda rows: rows.append({"seed": 0}),
        lambda rows: rows[0].update(seed="0"),
        lambda rows: rows[0].pop("ranks"),
        lambda rows: rows[0].update(ranks=[0.5]),
        lambda rows: rows[0].update(scores={}),
        lambda rows: rows[0]["scores"]["test"].update({"mrr@10": None}),
        lambda rows: rows[0]["scores"].update(test=[]),
        lambda rows: rows[0]["scores"].pop("validation"),
        lambda rows: rows.append(rows[0]),
    ],
)
def test_misshapen_results_are_named_and_kept(run, folder, change):
    assert run("--epochs", 0, "--hard-epochs", 0)[0] == 0
    path = folder / "run" / "results.json"
    saved = json.loads(path.read_text())
    change(saved["rows"])
    path.write_text(json.dumps(saved))
    before = path.read_text()
    code, _, err = run("--epochs", 0, "--hard-epochs", 0, "--words")
    assert code == 1 and path.read_text() == before
    assert_states(err, path.relative_to(folder), "damaged", "another folder")


def test_whole_vectors_are_compared_by_cosines_whatever_the_model_states(run, folder):
    parts = [modules.Transformer("start"), modules.Pooling(16, "mean")]
    model = SentenceTransformer(modules=parts, device="cpu", truncate_dim=2, similarity_fn_name="dot")
    model.prompts, model.default_prompt_name = {"query": WORDS[0] * 9}, "query"
    model.save("other")
    scores = []
    for name in ("start", "other"):
        assert run("--epochs", 0, "--hard-epochs", 0, model=name)[0] == 0
        scores.append(rows_of(folder)[0]["scores"])
        shutil.rmtree("run")
    assert scores[0] == scores[1]


def test_passages_with_line_breaks_are_not_two(run, folder):
    """The results of one set of passages are not taken for those of another."""
    write("more.jsonl", [{"passage": "明月\n光"}])
    assert run("--epochs", 0, "--hard-epochs", 0, "--passages", "more.jsonl")[0] == 0
    write("more.jsonl", [{"passage": "明月"}, {"passage": "光"}])
    code, _, err = run("--epochs", 0, "--hard-epochs", 0, "--passages", "more.jsonl")
    assert code == 1
    assert_states(err, "different passages")


def test_a_folder_that_is_no_model_is_kept(run, folder):
    assert run("--seeds", 3, "--hard-epochs", 0)[0] == 0
    shutil.rmtree(folder / "run" / "model")
    (folder / "run" / "model").mkdir()
    (folder / "run" / "model" / "mine.txt").write_text("mine")
    code, _, err = run("--seeds", 3, 4, "--hard-epochs", 0)
    assert code == 1 and (folder / "run" / "model" / "mine.txt").read_text() == "mine"
    assert_states(err, "not a saved model", "--output")


def test_without_a_package_of_word_search_it_is_named(run, folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bm25s", None)
    code, _, err = run("--words")
    assert code == 1 and not (folder / "run").exists()
    assert_states(err, "bm25s", "pip install")
