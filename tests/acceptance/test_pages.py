"""README.md and docs/ as a user types them: `make acceptance` installs the wheel into .venv-acceptance, and runs this.

Each page has an empty folder outside the clone, with copies of the files that its blocks name. Each command runs in a
process of its own; the Python blocks of a page run one after the other in one process, in which names persist.
Blocks marked with an extra belong to other targets of the Makefile; those of Ray run here, in `make test-slow`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import pages
from helpers.paths import REPOSITORY

ENVIRONMENT = REPOSITORY / ".venv-acceptance"
FILES = ("examples", "benchmarks", "tests/fixtures")  # those of the clone that blocks name
HERE = Path(sys.prefix)  # the environment of the tests, whose installation is editable
BLOCKS = {page: [block for block in pages.blocks(page) if block.extra is None] for page in pages.PAGES}
WITH_RAY = {page: [block for block in pages.blocks(page) if block.extra == "ray"] for page in pages.PAGES}
# Every page of docs/ starts in the folder to which the first of these blocks leads.
(GO_TO_WORK,) = (block for block in BLOCKS["docs/index.md"] if " cd work " in block.code)
CONVERT, CONVERT_KINDS = (block for block in BLOCKS["docs/index.md"] if "roformer convert " in block.code)

INTERPRETER = """
import json, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    where, code = json.loads(line)
    exec(compile(code, where, "exec"), names)
    print("\\0", flush=True)
"""


class Terminal:
    """A terminal of 80 columns in a folder, in which an environment is active and the Hub is the tests'."""

    def __init__(self, folder: Path, settings: dict[str, str], environment: Path):
        kept = {name: os.environ[name] for name in ("LANG", "OMP_NUM_THREADS", "TMPDIR") if name in os.environ}
        path = f"{environment / 'bin'}{os.pathsep}{os.defpath}"
        here = {"PATH": path, "HOME": str(folder), "PYTHONUTF8": "1", "COLUMNS": "80"}
        self.folder, self.environment, self.interpreter = folder, {**settings, **kept, **here}, None
        self.said = folder.parent / f"{folder.name}.stderr"

    def type(self, line: str) -> tuple[str, str, int]:
        """Run a command; return what it prints on stdout and stderr, and its exit code."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=900
        )
        assert "embed_positions" not in done.stderr, f"{line}: transformers' own class\n{done.stderr}"
        return done.stdout, done.stderr, done.returncode

    def run(self, block: pages.Block) -> str:
        """Run a block in the interpreter, which is started for the first one; return what it prints."""
        if self.interpreter is None:
            self.interpreter = subprocess.Popen(
                ["python", "-c", INTERPRETER],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.said.open("w"),
                text=True,
            )
        code = "\n" * block.line + block.code
        print(json.dumps([block.page, code]), file=self.interpreter.stdin, flush=True)
        lines = []
        for line in self.interpreter.stdout:
            if line == "\0\n":
                break
            lines.append(line)
        else:
            pytest.fail(f"{block}:\n{block.code}\n{self.said.read_text()}")
        return "".join(lines)

    def close(self) -> None:
        if self.interpreter is not None:
            self.interpreter.communicate()


@pytest.fixture(scope="session")
def clone(tmp_path_factory) -> Path:
    """Return a folder with a copy of the files that blocks name, and in work/ the models of docs/index.md."""
    clone = tmp_path_factory.mktemp("files")
    for name in FILES:
        shutil.copytree(REPOSITORY / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    return clone


@pytest.fixture(scope="session")
def converted(clone) -> Path:
    terminal = Terminal(clone, {}, HERE)
    terminal.type(GO_TO_WORK.code)
    terminal.folder = clone / "work"
    for block in (CONVERT, CONVERT_KINDS):
        terminal.type(block.code)
    return terminal.folder


@pytest.fixture
def terminal(clone, hub, tmp_path, request):
    """Yield a terminal in a folder with links to the clone's, for a user of the Hub named `you`."""
    hub.tokens[hub.token] = "you"
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in {Path(name).parts[0] for name in FILES}:
        (folder / name).symlink_to(clone / name)
    settings = {name: hub.environment[name] for name in hub.environment if name.startswith(("HF_", "NO_PROXY"))}
    terminal = Terminal(folder, settings, HERE if request.node.get_closest_marker("ray") else ENVIRONMENT)
    yield terminal
    terminal.close()


@pytest.mark.acceptance
def test_the_wheel_is_found(terminal):
    """And neither the clone nor an editable installation."""
    code = "import modeling_roformer as m, sys; print(m.__file__, *sys.path, sep='\\n')"
    found, _, _ = terminal.type(f'python -c "{code}"; which roformer; head -1 "$(which roformer)"')
    package, *path, command, shebang = found.splitlines()
    assert Path(package).is_relative_to(ENVIRONMENT) and Path(command) == ENVIRONMENT / "bin" / "roformer"
    assert shebang == f"#!{ENVIRONMENT / 'bin' / 'python'}"
    assert not any(Path(terminal.folder, place, "tokenization").exists() for place in path)


def check(page: str, blocks: list[pages.Block], terminal: Terminal, converted: Path) -> None:
    """Run blocks of a page in order, and compare what they print with what the page shows."""
    if page != "README.md":
        if any(CONVERT.commands[0] in block.code for block in blocks):
            terminal.type(GO_TO_WORK.code)
        else:
            shutil.copytree(converted, terminal.folder / "work", symlinks=True)
        terminal.folder /= "work"
    for block in blocks:
        printed = ""
        for line in block.commands:
            out, err, code = terminal.type(line)
            fails = "roformer: " in (block.output or "")
            assert bool(code) == fails, f"{block}: {line}\n{err}"
            printed += out + "".join(said for said in err.splitlines(True) if "roformer: " in said)
        if block.commands:
            pages.assert_printed(block, printed)
        elif block.language == "python":
            pages.assert_ends(block, terminal.run(block))


@pytest.mark.acceptance
@pytest.mark.parametrize("page", [page for page in BLOCKS if any(block.output for block in BLOCKS[page])])
def test_a_page_shows_what_is_printed(page, terminal, converted):
    check(page, BLOCKS[page], terminal, converted)


@pytest.mark.ray
@pytest.mark.parametrize("page", [page for page in WITH_RAY if WITH_RAY[page]])
def test_commands_with_ray_show_what_is_printed(page, terminal, converted):
    check(page, WITH_RAY[page], terminal, converted)
