"""Keep finished training runs in the repository, as small as their tables and pictures allow.

    python benchmarks/keep.py FOLDER [FOLDER …] --output docs/figures/runs/NAME

FOLDER is the output of a script of examples/, or has several of them. The output gets a folder of its name, which must
be new, with settings.json, results.json and the stages' log.json of each run. results.json has the scores.
Ranks, translations, other long lists, and logs are in results.json.gz beside it. trained.py reads both forms.
"""

import gzip
import json
import sys
from pathlib import Path

import trained

from modeling_roformer.files.atomic_folder import output_folder
from modeling_roformer.training import ScriptParser, exit_on_error

LONG = 8  # entries; shorter lists, such as scores at four lengths, stay in results.json
NOT_KEPT = ("grad_norm", "learning_rate", "passes", "total_flos", "eval_runtime")  # of a log, with all speeds


def thinned(log: list[dict]) -> list[dict]:
    return [
        {name: value for name, value in entry.items() if name not in NOT_KEPT and not name.endswith("_per_second")}
        for entry in log
    ]


def split(results: dict) -> tuple[dict, dict]:
    """Return the scores of results, and their long lists under the same names."""
    scores, lists = {}, {}
    for name, value in results.items():
        if isinstance(value, dict):
            scores[name], below = split(value)
            lists |= {name: below} if below else {}
        elif isinstance(value, list) and (name == "log" or len(value) > LONG):
            lists[name] = thinned(value) if name == "log" else value
        else:
            scores[name] = value
    return scores, lists


def keep(folder: Path, kept: Path) -> None:
    """Write the files of the runs in `folder` that are kept into the new folder `kept`."""
    names = ("settings.json", "results.json")
    paths = [path for path in sorted(folder.rglob("*.json")) if path.name in names or path.match("stage-*/log.json")]
    if not paths:
        sys.exit(f"{folder} has no run: name the output folder of a training")
    with output_folder(kept) as new:
        for path in paths:
            place = new / path.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.name == "log.json":
                lines = map(json.dumps, thinned(json.loads(path.read_text(encoding="utf-8"))))
                place.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
                continue
            scores, lists = split(trained.saved_in(path.parent, path.name))
            place.write_text(json.dumps(scores, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            if lists:
                text = json.dumps(lists, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
                place.with_name(f"{place.name}.gz").write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))


if __name__ == "__main__":
    parser = ScriptParser(__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--output", type=Path, required=True)
    chosen = parser.parse_args()
    with exit_on_error("keep"):
        for name, folder in trained.by_name(chosen.folders).items():
            keep(folder, chosen.output / name)
