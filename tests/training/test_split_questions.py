"""examples/split_questions.py: groups stay together, by a hash, whatever the order; and bad files."""

import json
import random

import pytest
from helpers.messages import assert_states
from helpers.paths import REPOSITORY
from helpers.scripts import run_script

SCRIPT = REPOSITORY / "examples" / "split_questions.py"
PARTS = ("train", "validation", "test")


def make_rows(groups=60):
    """Return two passages for each article, and two questions for each passage."""
    return [
        {"q": f"问题{article}-{passage}-{number}", "p": f"段落{article}-{passage}", "article": f"文章{article}"}
        for article in range(groups)
        for passage in range(2)
        for number in range(2)
    ]


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return run_script(SCRIPT, arguments, monkeypatch, capfd)

    return run


def write(name, rows):
    with open(name, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read(folder):
    return {
        part: [json.loads(line) for line in (folder / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()]
        for part in PARTS
    }


COLUMNS = ("--question", "q", "--passage", "p")


def test_no_group_is_in_two_parts_and_nothing_is_lost(run, tmp_path):
    rows = make_rows()
    write("all.jsonl", rows)
    code, out, err = run("all.jsonl", *COLUMNS, "--group", "article", "--output", "split")
    assert code == 0, err
    parts = read(tmp_path / "split")
    found = [(row["question"], row["passage"], row["group"]) for part in PARTS for row in parts[part]]
    assert sorted(found) == sorted((row["q"], row["p"], row["article"]) for row in rows)
    passages = (tmp_path / "split" / "passages.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["passage"] for line in passages) == sorted({row["p"] for row in rows})
    groups = [{row["group"] for row in parts[part]} for part in PARTS]
    assert sum(map(len, groups)) == len(set().union(*groups)) == 60
    assert len(groups[0]) > len(groups[2]) >= len(groups[1]) > 0
    for part in PARTS:
        assert f"{len(parts[part]):,}" in out
    # Another order, in two files, with repeated rows: the same split.
    shuffled = random.Random(0).sample(rows, len(rows))
    write("one.jsonl", shuffled[:100])
    write("two.jsonl", shuffled[90:])
    assert run("one.jsonl", "two.jsonl", *COLUMNS, "--group", "article", "--output", "again")[0] == 0
    again = read(tmp_path / "again")
    for part in PARTS:
        assert sorted(map(str, again[part])) == sorted(map(str, parts[part]))


def test_passages_of_a_group_are_joined(run, tmp_path):
    rows = make_rows()
    for row in rows:
        number = int(row["article"].removeprefix("文章"))
        row["p"] += "长" * (number % 2)
    write("all.jsonl", rows)
    # Short groups are left out before passages in two parts are looked for.
    short = [{"q": f"短{i}", "p": f"段落{i % 2}", "article": f"短{i}"} for i in range(30)]
    write("all.jsonl", rows + short)
    options = (*COLUMNS, "--group", "article", "--join", len("段落10-0长\n段落10-1长"), "--output", "split")
    code, _, err = run("all.jsonl", *options)
    assert code == 0, err
    expected = {}
    for row in rows:
        expected.setdefault(row["article"], {})[row["p"]] = None
    kept = {"\n".join(of) for of in expected.values() if len("\n".join(of)) >= 15}
    found = [row for part in read(tmp_path / "split").values() for row in part]
    assert 0 < len(kept) < 60 and {row["passage"] for row in found} == kept
    assert all(row["passage"] == "\n".join(expected[row["group"]]) for row in found) and len(found) == 4 * len(kept)


def test_groups_that_differ_by_a_space_are_one_and_equal_questions_are_joined_once(run, tmp_path):
    rows = make_rows()
    spaces = [" " * (place % 2) for place in range(len(rows))]
    same = [
        row | {"q": "何时？", "article": row["article"] + space, "p": row["p"] + space}
        for row, space in zip(rows, spaces, strict=True)
    ]
    write("all.jsonl", rows + same)
    assert run("all.jsonl", *COLUMNS, "--group", "article", "--join", 5, "--output", "split")[0] == 0
    found = [row for part in read(tmp_path / "split").values() for row in part]
    assert len({row["group"] for row in found}) == len({row["passage"] for row in found}) == 60
    assert sum(row["question"] == "何时？" for row in found) == 60 and len(found) == len(rows) + 60


def test_half_a_surrogate_pair_is_a_question_mark(run, tmp_path):
    rows = [row | {"q": row["q"] + "\ud83d"} for row in make_rows()]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = run("all.jsonl", *COLUMNS, "--group", "article", "--output", "split")
    assert code == 0, err
    found = [row["question"] for part in read(tmp_path / "split").values() for row in part]
    assert len(found) == len(rows) and all(question[-1] == "?" for question in found)


def test_without_groups_the_questions_of_a_passage_stay_together(run, tmp_path):
    write("all.jsonl", make_rows())
    assert run("all.jsonl", *COLUMNS, "--output", "split")[0] == 0
    passages = [{row["passage"] for row in rows} for rows in read(tmp_path / "split").values()]
    assert sum(map(len, passages)) == len(set().union(*passages)) == 120


def test_bad_files_are_named_and_nothing_is_written(run, tmp_path):
    def refusal(*arguments):
        code, _, err = run(*arguments, "--output", "split")
        assert code == 1 and not (tmp_path / "split").exists()
        return err

    write("all.jsonl", make_rows())
    assert_states(refusal("missing.jsonl"), "missing.jsonl")
    for name in ("nothing.jsonl", "nothing.csv"):
        (tmp_path / name).touch()
        assert_states(refusal(name), name, "is empty")
    assert_states(refusal("all.jsonl"), "all.jsonl", "question", "--question")
    assert_states(refusal("all.jsonl", *COLUMNS, "--group", "title"), "title", "--group")
    write("few.jsonl", make_rows(1))
    assert_states(refusal("few.jsonl", *COLUMNS, "--group", "article"), "no question is for")
    rows = make_rows()
    write("shared.jsonl", [{**row, "p": "同一段落"} for row in rows])
    assert_states(refusal("shared.jsonl", *COLUMNS, "--group", "article"), "同一段落", "--group")
    assert_states(refusal("shared.jsonl", *COLUMNS, "--group", "article", "--join", 4), "同一段落", "--group")
    rows[3]["q"] = ""
    write("empty.jsonl", rows)
    assert_states(refusal("empty.jsonl", *COLUMNS), "empty.jsonl", 4, "q")
    write("all.jsonl", make_rows())
    (tmp_path / "split").mkdir()
    (tmp_path / "split" / "mine.txt").write_text("mine")
    code, _, err = run("all.jsonl", *COLUMNS, "--output", "split")
    assert code == 1 and "--force" not in err
    assert_states(err, "split", "not empty", "new folder")
    assert [path.name for path in (tmp_path / "split").iterdir()] == ["mine.txt"]
