"""The tables of released checkpoints in README.md and docs/checkpoints.md.

`python site_tools/readme_table.py README.md docs/checkpoints.md` writes each from `model_cards/releases.py`, between
two comments.
"""

import sys
from pathlib import Path

from modeling_roformer.model_cards.releases import RELEASES


def released_table() -> str:
    """Return the README's table in Markdown: card, source and class, with links relative to the repository's root."""
    lines = ["| checkpoint | published at | class |", "| --- | --- | --- |"]
    for name, release in RELEASES.items():
        place = f"[open.zhuiyi.ai](https://open.zhuiyi.ai/releases/nlp/models/zhuiyi/{name}.zip)"
        if release.baidu:
            place = "[Baidu](https://pan.baidu.com/s/{}), code {}".format(*release.baidu)
        lines.append(f"| [{name}](model_cards/{name}/README.md) | {place} | `{release.architecture}` |")
    return "\n".join(lines)


def conversions_table() -> str:
    """Return the table of docs/checkpoints.md in Markdown: how each checkpoint is converted, and its name on the
    Hub."""
    lines = ["| converts with | on the Hub as |", "| --- | --- |"]
    for name, release in RELEASES.items():
        hub = f"`junnyu/{release.hub}`{'' if release.loads_from_hub else ' *'}" if release.hub else ""
        lines.append(f"| `roformer convert {name}.zip {name}` | {hub} |")
    return "\n".join(lines)


# The comment above a table; the one below it begins with a slash.
TABLES = {"released checkpoints": released_table, "conversions of released checkpoints": conversions_table}


def with_released_table(page: str) -> str:
    """Return a page with a new table between its two comments; raise ValueError if it lacks them."""
    for name, table in TABLES.items():
        before, start, rest = page.partition(f"<!-- {name} -->")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        if end:
            return f"{before}{start}\n{table()}\n{end}{after}"
    raise ValueError(
        f"the page has none of the comments {', '.join(f'<!-- {name} -->' for name in TABLES)} with its end"
    )


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(with_released_table(path.read_text(encoding="utf-8")), encoding="utf-8")
