"""Split questions and passages into training, validation and test, so that no article is in two parts.

    python examples/split_questions.py questions/*.jsonl.gz --passage paragraph --group article --output split

Each file has a question, its passage and the article of the passage in each line or row (.csv, .tsv, .jsonl or
.parquet). A list of passages stands for a row with each.
`--group` names the column whose values stay together; default: the passages. A hash of its value decides:
70 % of the values go to train.jsonl, 10 % to validation.jsonl and 20 % to test.jsonl. So the split does not depend on
the order, nor on the other questions. The files have the fields `question`, `passage` and `group`, for
train_retriever.py. passages.jsonl has each passage once. blocks.json has the number of each test question's group, for
intervals, since questions of one group are not independent. With `--join 1600`, the passages of a group are one, and
groups with fewer than 1,600 characters are left out.
"""

import hashlib
import json
from pathlib import Path

from modeling_roformer.files import output_folder
from modeling_roformer.training import ScriptParser, TrainingError, exit_on_error, load_questions

ENDS = {"train": 70, "validation": 80, "test": 100}  # per cent, of the hashes


def part_of(group: str) -> str:
    """Return the part of a group, by a hash of its name.

    >>> part_of("梵文")
    'test'
    """
    number = int.from_bytes(hashlib.sha256(group.encode()).digest()[:8], "big") % 100
    return next(part for part, end in ENDS.items() if number < end)


def join_passages(rows: list[dict[str, str]], least: int) -> list[dict[str, str]]:
    """Return the questions, each once for a group, with all passages of the group as one, of at least `least`
    characters."""
    passages: dict[str, dict[str, None]] = {}
    for row in rows:
        passages.setdefault(row["group"], {})[row["passage"]] = None
    texts = {group: "\n".join(found) for group, found in passages.items()}
    different = {(row["question"], row["group"]): row | {"passage": texts[row["group"]]} for row in rows}
    return [row for row in different.values() if len(row["passage"]) >= least]


def main() -> None:
    parser = ScriptParser(__doc__)
    parser.add_argument("files", nargs="+", help="files with questions")
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--question", default="question", metavar="COLUMN", help="default: question")
    parser.add_argument("--passage", default="passage", metavar="COLUMN", help="default: passage")
    parser.add_argument("--group", metavar="COLUMN", help="column whose values stay together; default: the passages")
    parser.add_argument("--join", type=int, metavar="N", help="join the passages of a group, if they have N characters")
    chosen = parser.parse_args()

    columns = {"question": chosen.question, "passage": chosen.passage}
    columns |= {"group": chosen.group} if chosen.group else {}
    rows = [
        {name: text.strip() for name, text in row.items()}
        for file in chosen.files
        for row in load_questions(file, columns, named_by=["--question", "--passage", "--group"])
    ]
    rows = [{"group": row["passage"], **row} for row in rows]
    rows = list({tuple(row.values()): row for row in rows}.values())
    if chosen.join:
        rows = join_passages(rows, chosen.join)
    where: dict[str, str] = {}
    for row in rows:
        part = part_of(row["group"])
        if where.setdefault(row["passage"], part) != part:
            raise TrainingError(
                f"the passage {row['passage'][:40]!r} is in {where[row['passage']]} and in {part}, with different "
                "groups: leave out --group to keep the questions of a passage together"
            )
    parts = {part: [row for row in rows if part_of(row["group"]) == part] for part in ENDS}
    if empty := [part for part, rows_of_part in parts.items() if not rows_of_part]:
        raise TrainingError(f"no question is for {' and '.join(empty)}: give more questions, or smaller groups")
    passages = [{"passage": passage} for passage in dict.fromkeys(row["passage"] for row in rows)]
    with output_folder(chosen.output) as folder:
        for name, rows_of_part in {**parts, "passages": passages}.items():
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows_of_part)
            (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        groups: dict[str, str] = {}  # of each different question, as train_retriever.py rates them
        for row in parts["test"]:
            groups.setdefault(row["question"], row["group"])
        numbers = {group: number for number, group in enumerate(dict.fromkeys(groups.values()))}
        blocks = {"test": [numbers[group] for group in groups.values()]}
        (folder / "blocks.json").write_text(json.dumps(blocks) + "\n")
    for part, rows_of_part in parts.items():
        different = ", ".join(f"{len({row[name] for row in rows_of_part}):,} {name}s" for name in ("passage", "group"))
        print(f"{part}: {len(rows_of_part):,} questions, {different}")


if __name__ == "__main__":
    with exit_on_error("split_questions"):
        main()
