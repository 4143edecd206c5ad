"""The table of released checkpoints in docs/converting.md.

`python docs/site_tools/released_table.py docs/converting.md` writes it from `model_cards/releases.py`, between two
comments.
"""

import sys
from pathlib import Path

from modeling_roformer.model_cards.releases import RELEASES

START, END = "<!-- released checkpoints -->", "<!-- /released checkpoints -->"


def released_table() -> str:
    """Return the table in Markdown: card, archive, name on the Hub and class, with links relative to docs/."""
    lines = ["| checkpoint | archive | on the Hub | class |", "| --- | --- | --- | --- |"]
    for name, release in RELEASES.items():
        archive = f"[open.zhuiyi.ai](https://open.zhuiyi.ai/releases/nlp/models/zhuiyi/{name}.zip)"
        if release.baidu:
            archive = "[Baidu](https://pan.baidu.com/s/{}), code {}".format(*release.baidu)
        hub = f"`junnyu/{release.hub}`{'' if release.loads_from_hub else ' *'}" if release.hub else ""
        lines.append(f"| [{name}](../model_cards/{name}/README.md) | {archive} | {hub} | `{release.architecture}` |")
    return "\n".join(lines)


def with_released_table(page: str) -> str:
    """Return a page with a new table between its two comments; raise ValueError if it lacks them."""
    before, _, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no {START} with its end, {END}")
    return f"{before}{START}\n{released_table()}\n{END}{after}"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(with_released_table(path.read_text(encoding="utf-8")), encoding="utf-8")
