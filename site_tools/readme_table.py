"""The README's table of released checkpoints.

`python site_tools/readme_table.py README.md` writes it from `model_cards/releases.py`, between two comments.
"""

import sys
from pathlib import Path

from modeling_roformer.model_cards.releases import RELEASES

START = "<!-- released checkpoints -->"
END = "<!-- /released checkpoints -->"


def released_table() -> str:
    """Return the table in Markdown, with links relative to the repository's root."""
    lines = ["| checkpoint | published at | converts with | on the Hub as | class |", "| --- | --- | --- | --- | --- |"]
    for name, release in RELEASES.items():
        place = f"[open.zhuiyi.ai](https://open.zhuiyi.ai/releases/nlp/models/zhuiyi/{name}.zip)"
        if release.baidu:
            place = "[Baidu](https://pan.baidu.com/s/{}), code {}".format(*release.baidu)
        hub = f"`junnyu/{release.hub}`{'' if release.loads_from_hub else ' *'}" if release.hub else ""
        lines.append(
            f"| [{name}](model_cards/{name}/README.md) | {place} | `roformer convert {name}.zip {name}` | {hub} "
            f"| `{release.architecture}` |"
        )
    return "\n".join(lines)


def with_released_table(page: str) -> str:
    """Return a page with a new table between its two comments; raise ValueError if it lacks them."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no {START} followed by {END}")
    return f"{before}{start}\n{released_table()}\n{end}{after}"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(with_released_table(path.read_text(encoding="utf-8")), encoding="utf-8")
