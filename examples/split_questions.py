"""Split questions and passages into training, validation and test, so that no article is in two parts.

    python examples/split_questions.py questions/*.jsonl.gz --passage paragraph --group article --output split

Each file has a question, its passage and the article of the passage in each line or row (.csv, .tsv, .jsonl or
.parquet). `--group` names the column whose values stay together; default: the passages. A hash of its value decides:
70 % of the values go to train.jsonl, 10 % to validation.jsonl and 20 % to test.jsonl. So the split does not depend on
the order, nor on the other questions. The files have the fields `question`, `passage` and `group`, for
train_retriever.py. passages.jsonl has each passage once. With `--join 1600`, the passages of a group are one, and
groups with fewer than 1,600 characters are left out.
"""

import argparse
import hashlib
import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.table import Table

import roformer_command  # noqa: F401, first: the package then imports no models, which takes seconds
from modeling_roformer.files.atomic_folder import output_folder
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.runs.arguments import positive_integer
from modeling_roformer.training.runs.tables import read_table, require_columns, texts_in

SHARES = {"train": 70, "validation": 10, "test": 20}  # per cent


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="files with questions")
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--question", default="question", metavar="COLUMN", help="default: question")
    parser.add_argument("--passage", default="passage", metavar="COLUMN", help="default: passage")
    parser.add_argument("--group", metavar="COLUMN", help="column whose values stay together; default: the passages")
    parser.add_argument(
        "--join",
        type=positive_integer,
        metavar="N",
        help="join the passages of a group; keep groups of N characters and more",
    )
    return parser.parse_args()


def part_of(group: str) -> str:
    """Return the part of a group, by a hash of its name.

    >>> part_of("梵文")
    'test'
    """
    number = int.from_bytes(hashlib.sha256(group.encode("utf-8", "replace")).digest()[:8], "big") % 100
    for part, share in SHARES.items():
        if number < share:
            return part
        number -= share
    raise AssertionError("the shares add up to 100")


def whole_groups(rows: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return the passages of each group, each once, as one text."""
    passages: dict[str, dict[str, None]] = {}
    for row in rows:
        passages.setdefault(row["group"], {})[row["passage"]] = None
    return {group: "\n".join(of) for group, of in passages.items()}


def joined(rows: list[dict[str, str]], texts: dict[str, str]) -> list[dict[str, str]]:
    """Return the questions, each once for a group, with the text of the group as the passage."""
    different = {(row["question"], row["group"]): row for row in rows}
    return [row | {"passage": texts[row["group"]]} for row in different.values()]


def main() -> None:
    chosen = read_arguments()
    parts, seen, spelled = {part: [] for part in SHARES}, set(), {}
    for source in chosen.files:
        table = read_table(source)
        require_columns(table, {"--question": chosen.question, "--passage": chosen.passage}, source)
        group = chosen.group or chosen.passage
        require_columns(table, {"--group": group}, source)
        columns = (texts_in(table, column, source) for column in (chosen.question, chosen.passage, group))
        for question, passage, name in zip(*columns, strict=True):
            passage = spelled.setdefault(passage.strip(), passage)  # one passage, whatever the spaces at its ends
            row = question, passage, name.strip()
            if row not in seen:
                seen.add(row)
                parts[part_of(row[2])].append(dict(zip(("question", "passage", "group"), row, strict=True)))
    if chosen.join:
        texts = whole_groups(chain(*parts.values()))
        parts = {part: [row for row in rows if len(texts[row["group"]]) >= chosen.join] for part, rows in parts.items()}
    where = {}
    for part, rows in parts.items():
        for row in rows:
            if (other := where.setdefault(row["passage"], part)) != part:
                raise TrainingError(
                    f"the passage {row['passage'][:40]!r} is in {other} and in {part}, with different groups: "
                    "leave out --group to keep the questions of a passage together"
                )
    if chosen.join:
        parts = {part: joined(rows, texts) for part, rows in parts.items()}
    if empty := [part for part, rows in parts.items() if not rows]:
        raise TrainingError(f"no question is for {' and '.join(empty)}: give more questions, or smaller groups")
    with output_folder(chosen.output) as folder:
        for part, rows in parts.items():
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (folder / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")

        passages = dict.fromkeys(row["passage"] for rows in parts.values() for row in rows)
        lines = (json.dumps({"passage": passage}, ensure_ascii=False) + "\n" for passage in passages)
        (folder / "passages.jsonl").write_text("".join(lines), encoding="utf-8")

    table = Table("")
    for title in ("questions", "passages", "groups"):
        table.add_column(title, justify="right")
    for part, rows in parts.items():
        table.add_row(part, f"{len(rows):,}", *(f"{len({row[of] for row in rows}):,}" for of in ("passage", "group")))
    Console(markup=False).print(table)


if __name__ == "__main__":
    with exit_on_error("split_questions"):
        main()
