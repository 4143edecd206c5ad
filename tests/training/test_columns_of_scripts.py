"""A column that a file lacks: each script names the file, the column and the option that names columns."""

import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script
from helpers.small_models import TINY

from modeling_roformer import RoFormerConfig, RoFormerForMaskedLM, RoFormerTokenizer

EXAMPLES = REPOSITORY / "examples"
VOCAB = EXAMPLES / "roformer-mini-zh" / "vocab.txt"
MODEL = object()  # the saved model
SCRIPTS = {
    "--text": ["finetune_classification.py", MODEL, "--train", "rows.csv", "--text", "kind", "--label", "a"],
    "--label": ["finetune_classification.py", MODEL, "--train", "rows.csv", "--text", "a", "b", "--label", "kind"],
    "--question": ["finetune_questions.py", MODEL, "--train", "rows.csv", "--question", "kind"],
    "--columns": ["finetune_triplet.py", MODEL, "--train", "rows.csv", "--columns", "a", "b", "kind", "a"],
    "--negatives": ["train_retriever.py", MODEL, "--train", "rows.csv", "--columns", "a", "b", "--negatives", "kind"],
    "--source": ["translate.py", "--train", "rows.csv", "--source", "kind", "--target", "b"],
    "--target": ["translate.py", "--train", "rows.csv", "--source", "a", "--target", "kind"],
    "--group": ["split_questions.py", "rows.csv", "--question", "a", "--passage", "b", "--group", "kind"],
    "--field": ["pretrain_mlm.py", "--corpus", "rows.csv", "--tokenizer", VOCAB, "--field", "kind"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Save a small model; return its folder."""
    folder = tmp_path_factory.mktemp("model")
    RoFormerForMaskedLM(RoFormerConfig(vocab_size=12_000, **TINY)).save_pretrained(folder)
    RoFormerTokenizer(str(VOCAB)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("option", SCRIPTS)
def test_a_missing_column_names_its_option(option, model, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n明月,1\n", encoding="utf-8")
    script, *words = [str(model if word is MODEL else word) for word in SCRIPTS[option]]
    code, _, err = run_script(EXAMPLES / script, [*words, "--output", "out"], monkeypatch, capfd)
    assert code == 1
    assert_states(err, "rows.csv", "'kind'", option)
