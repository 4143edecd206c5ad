"""The README and the pages of docs/: their blocks of code, and the comparison of what they show with what is printed.

With ROFORMER_RENEW_PAGES=1 an output that differs is written into the page instead of failing.
"""

import difflib
import io
import os
import re
from contextlib import redirect_stdout
from dataclasses import dataclass

from helpers.paths import REPOSITORY

PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8")
    for path in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
}
# English page -> Chinese page.
CHINESE = {"README.md": "README.zh.md"}
CHINESE |= {f"docs/{path.name}": f"docs/zh/{path.name}" for path in sorted((REPOSITORY / "docs" / "zh").glob("*.md"))}
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: extra=(?P<extra>[\w-]+))?\n(?P<code>.*?)^```(?:\n```text\n(?P<output>.*?)^```)?",
    re.DOTALL | re.MULTILINE,
)
# Output that differs between runs and machines, and its replacement.
CHANGES = {
    r"[│┃┌┐└┘├┤┬┴┼─━┏┓┗┛┡┩╇┳┻\s]+": " ",  # lines of tables break at other places
    r"\d{4}-\d\d-\d\d": "DATE",
    r"seconds [\d.]+": "seconds N",
    r"\d+\.\d s\b": "N s",
    r"\d+ files, ": "N files, ",
    r"[\d.,]+ (bytes|kB|MB)": r"N \1",
    r"\b[0-9a-f]{8,64}\b": "SUM",
    r"http://127\.0\.0\.1:\d+": "https://huggingface.co",
}


@dataclass(frozen=True)
class Block:
    """A block of a page. `output` is the output that the page shows, None if it shows none.

    ```bash extra=ray begins a block that needs an extra which most tests do without. It runs in the tests with
    that marker.
    """

    page: str
    language: str
    code: str
    output: str | None
    line: int
    extra: str | None = None

    def __str__(self) -> str:
        return f"{self.page}, line {self.line}"

    @property
    def commands(self) -> list[str]:
        """Lines that begin with `roformer `, `python examples/`, or a program that shows or writes a file, joined with
        their continuation after a backslash.

        A loop, from `for` to `done`, is one command.
        """
        code = self.code.replace("\\\n", "") if self.language == "bash" else ""
        return re.findall(
            r"^for [\s\S]*?^done$|^(?:roformer |python examples/|\(?echo |printf |head |tail |grep ).*$",
            code,
            re.MULTILINE,
        )


def blocks(page: str) -> list[Block]:
    text = PAGES[page]
    return [
        Block(
            page,
            found["language"],
            found["code"],
            found["output"],
            text.count("\n", 0, found.start()) + 1,
            found["extra"],
        )
        for found in BLOCK.finditer(text)
    ]


def steady(text: str) -> str:
    for pattern, replacement in CHANGES.items():
        text = re.sub(pattern, replacement, text)
    return text.strip()


def assert_printed(block: Block, printed: str) -> None:
    """Assert that a command printed the block's output, in which a line of three dots stands for any lines."""
    at, text = 0, steady(printed)
    for part in re.split(r"^\.\.\.$", block.output or "", flags=re.MULTILINE):
        found = text.find(steady(part), at)
        if found < 0:
            differ(block, printed)
            return
        at = found + len(steady(part))


def assert_ends(block: Block, printed: str) -> None:
    """Assert that the block's output is the end of what its code printed: Trainer, for one, prints its losses first."""
    if not (block.output and printed.endswith(block.output)):
        differ(block, printed)


def differ(block: Block, printed: str) -> None:
    """Fail with a diff, or write what was printed into the page."""
    shown = block.output or ""
    diff = difflib.unified_diff(shown.splitlines(), printed.splitlines(), "the page", "printed", lineterm="")
    assert block.output and os.environ.get("ROFORMER_RENEW_PAGES"), "\n".join([f"{block}:", block.code, *diff])
    path, before = REPOSITORY / block.page, f"{block.code}```\n```text\n"
    old, new = (f"{before}{output}```" for output in (block.output, renewed(block.output, printed)))
    page = path.read_text(encoding="utf-8")
    assert page.count(old) == 1, block
    path.write_text(page.replace(old, new), encoding="utf-8")


def renewed(output: str, printed: str) -> str:
    """Return an output whose parts between lines of three dots are replaced by the printed lines most like them."""
    at, lines, parts = 0, printed.splitlines(keepends=True), []
    for part in re.split(r"^\.\.\.\n", output, flags=re.MULTILINE):
        length = part.count("\n")
        starts = range(at, max(len(lines) - length, at) + 1)
        likeness = {
            start: difflib.SequenceMatcher(None, part, "".join(lines[start : start + length])).ratio()
            for start in starts
        }
        best = max(reversed(starts), key=likeness.__getitem__)  # the last of equal ones: a page shows the end
        parts.append("".join(lines[best : best + length]) if length else "")
        at = best + length if length else at
    return "...\n".join(parts)


def run_code(block: Block, names: dict) -> str:
    """Run a block in this process with the given `names`; return what it prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile("\n" * block.line + block.code, block.page, "exec"), names)
    return out.getvalue()
