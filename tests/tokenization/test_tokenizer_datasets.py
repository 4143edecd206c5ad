"""The tokenizer in `datasets.map`: in batches, in several processes, with a fingerprint that finds the cache again."""

import json
import subprocess
import sys

import pytest
from helpers.paths import REPOSITORY

from modeling_roformer.tokenization import RoFormerTokenizer

datasets = pytest.importorskip("datasets", reason="datasets is not installed (the extra `train` has it)")
from datasets.fingerprint import Hasher  # noqa: E402

FIXTURES = REPOSITORY / "tests" / "fixtures" / "tokenization"
ROWS = [json.loads(line) for line in (FIXTURES / "texts.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def tokenizer():
    return RoFormerTokenizer(str(FIXTURES / "vocab.txt"))


@pytest.mark.parametrize("num_proc", [None, 2])
def test_map_in_processes(tokenizer, num_proc):
    data = datasets.Dataset.from_dict({"text": [row["text"] for row in ROWS]})
    mapped = data.map(lambda batch: tokenizer(batch["text"]), batched=True, batch_size=50, num_proc=num_proc)
    assert mapped["input_ids"][:] == [row["word_ids"] for row in ROWS]


def test_use_does_not_change_the_fingerprint(tokenizer):
    fresh = Hasher.hash(tokenizer)
    tokenizer([row["text"] for row in ROWS], truncation=True, max_length=9, padding="max_length")
    tokenizer("今天[MASK]的天气", return_offsets_mapping=True, truncation=True, max_length=4)
    tokenizer.decode([4, 5])
    assert Hasher.hash(tokenizer) == fresh
    assert Hasher.hash(RoFormerTokenizer(str(FIXTURES / "vocab.txt"))) == fresh
    tokenizer.add_tokens(["新词"])
    assert Hasher.hash(tokenizer) != fresh


@pytest.mark.slow
def test_fingerprint_is_that_of_the_next_process(tokenizer):
    code = (
        "import sys\n"
        "from datasets.fingerprint import Hasher\n"
        "from modeling_roformer.tokenization import RoFormerTokenizer\n"
        "print(Hasher.hash(RoFormerTokenizer(sys.argv[1])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(FIXTURES / "vocab.txt")], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == Hasher.hash(tokenizer)


def test_second_map_finds_the_cache(tmp_path, tokenizer):
    with open(tmp_path / "texts.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": row["text"]}) + "\n" for row in ROWS)

    def load():
        files = str(tmp_path / "texts.jsonl")
        return datasets.load_dataset("json", data_files=files, cache_dir=str(tmp_path / "cache"), split="train")

    calls = []

    def encode(batch, tokenizer):
        calls.append(len(batch["text"]))
        return tokenizer(batch["text"], truncation=True, max_length=16)

    for round_ in range(2):
        again = RoFormerTokenizer(str(FIXTURES / "vocab.txt"))
        if round_:
            again("今天", padding="max_length", max_length=5)
        fingerprint = Hasher.hash(["encode", again])
        load().map(
            lambda batch, tokenizer: encode(batch, tokenizer),
            batched=True,
            fn_kwargs={"tokenizer": again},
            new_fingerprint=fingerprint,
        )
    assert sum(calls) == len(ROWS)
