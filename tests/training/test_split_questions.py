"""examples/split_questions.py: groups stay together, by a hash, whatever the order; and bad files."""

import json
import random

import pytest
from helpers.messages import assert_states

SCRIPT, PARTS = "split_questions.py", ("train", "validation", "test")
OPTIONS = ("--question", "q", "--passage", "p", "--output", "split")
# Two passages for each article, and two questions for each passage.
ROWS = [
    {"q": f"问题{article}-{passage}-{number}", "p": f"段落{article}-{passage}", "article": f"文章{article}"}
    for article in range(60)
    for passage in range(2)
    for number in range(2)
]


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def read(folder, name):
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_no_group_is_in_two_parts_and_nothing_is_lost(tmp_path, run_here):
    shuffled = random.Random(0).sample(ROWS, len(ROWS))
    write(tmp_path / "one.jsonl", shuffled[:100])
    write(tmp_path / "two.jsonl", shuffled[90:])  # ten rows are in both
    code, out, err = run_here(SCRIPT, tmp_path, "one.jsonl", "two.jsonl", *OPTIONS, "--group", "article")
    assert code == 0, err
    parts = {part: read(tmp_path / "split", part) for part in PARTS}
    found = [(row["question"], row["passage"], row["group"]) for part in PARTS for row in parts[part]]
    assert sorted(found) == sorted((row["q"], row["p"], row["article"]) for row in ROWS)
    passages = [row["passage"] for row in read(tmp_path / "split", "passages")]
    assert sorted(passages) == sorted({row["p"] for row in ROWS})
    groups = [{row["group"] for row in parts[part]} for part in PARTS]
    assert sum(map(len, groups)) == len(set().union(*groups)) == 60
    assert len(groups[0]) > len(groups[2]) >= len(groups[1]) > 0
    assert_states(out, f"train: {len(parts['train'])} questions", f"{len(groups[0])} groups")
    blocks = json.loads((tmp_path / "split" / "blocks.json").read_text())["test"]
    pairs = set(zip(blocks, (row["group"] for row in parts["test"]), strict=True))
    assert len(pairs) == len({*blocks}) == len(groups[2])
    # Without --group, and with other questions, a passage decides alone.
    write(tmp_path / "some.jsonl", ROWS[:100])
    assert run_here(SCRIPT, tmp_path, "some.jsonl", *OPTIONS[:-1], "other")[0] == 0
    passages = [{row["passage"] for row in read(tmp_path / "other", part)} for part in PARTS]
    assert sum(map(len, passages)) == len(set().union(*passages)) == 50


def test_passages_of_a_group_are_joined(tmp_path, run_here):
    rows = [row | {"p": row["p"] + "长" * (int(row["article"][2:]) % 2)} for row in ROWS]
    short = [{"q": f"短{i}", "p": f"段落{i % 2}", "article": f"短{i}"} for i in range(30)]
    write(tmp_path / "all.jsonl", rows + short)
    least = len("段落10-0长\n段落10-1长")
    code, _, err = run_here(SCRIPT, tmp_path, "all.jsonl", *OPTIONS, "--group", "article", "--join", least)
    assert code == 0, err
    texts = {}
    for row in rows:
        texts.setdefault(row["article"], {})[row["p"]] = None
    kept = {"\n".join(of) for of in texts.values() if len("\n".join(of)) >= least}
    found = [row for part in PARTS for row in read(tmp_path / "split", part)]
    assert 0 < len(kept) < 60 and {row["passage"] for row in found} == kept
    assert all(row["passage"] == "\n".join(texts[row["group"]]) for row in found) and len(found) == 4 * len(kept)


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        (ROWS[:2], ["no question is for"]),
        ([row | {"p": "同一段落"} for row in ROWS], ["同一段落", "--group"]),
        ([*ROWS[:3], ROWS[3] | {"q": ""}], ["all.jsonl, line 4", "q is empty"]),
    ],
)
def test_bad_files_are_named_and_nothing_is_written(tmp_path, run_here, rows, facts):
    write(tmp_path / "all.jsonl", rows)
    code, _, err = run_here(SCRIPT, tmp_path, "all.jsonl", *OPTIONS, "--group", "article")
    assert code == 1 and not (tmp_path / "split").exists()
    assert_states(err, "split_questions: ", *facts)
