"""The tokenizer in `datasets.map`: in batches, in several processes, with a fingerprint that finds the cache again."""

import json
import subprocess
import sys

import pytest
from helpers.tokenizer_files import FIXTURES, VOCABULARY

from modeling_roformer.tokenization import RoFormerTokenizer

datasets = pytest.importorskip("datasets", reason="datasets is not installed (the extra `train` has it)")
from datasets.fingerprint import Hasher  # noqa: E402

ROWS = [json.loads(line) for line in (FIXTURES / "texts.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def tokenizer():
    return RoFormerTokenizer(VOCABULARY)


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
    assert Hasher.hash(RoFormerTokenizer(VOCABULARY)) == fresh
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
    done = subprocess.run([sys.executable, "-c", code, VOCABULARY], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == Hasher.hash(tokenizer)
