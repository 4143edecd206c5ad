"""README.md, CONTRIBUTING.md and docs/, as text: what they name exists. `make acceptance` runs their blocks."""

import ast
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import typer.main
from helpers import pages
from helpers.pages import CHINESE, PAGES, blocks
from helpers.paths import REPOSITORY
from released_table import with_released_table

from modeling_roformer.cli.commands import app
from modeling_roformer.model_cards.releases import RELEASES

CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
DOCS = [page for page in PAGES if page != "README.md"]
PYTHON = {page: found for page in PAGES if (found := [b for b in blocks(page) if b.language == "python"])}
# Modules that a plain installation lacks -> their names in setup.cfg.
BEYOND_PLAIN = {name: name for name in ("datasets", "onnxruntime", "peft")}
BEYOND_PLAIN["sentence_transformers"] = "sentence-transformers"


def commands_of(group, before: str = "") -> dict:
    """Return the commands of a group and of its subgroups, by the words that are typed after `roformer`."""
    found = {}
    for name, command in group.commands.items():
        found |= commands_of(command, f"{name} ") if hasattr(command, "commands") else {before + name: command}
    return found


COMMANDS = commands_of(typer.main.get_command(app))
TYPED = [line for page in PAGES for block in blocks(page) for line in block.commands]


@pytest.mark.parametrize("page", [*PAGES, *CHINESE.values(), "CHANGELOG.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    for target, _, heading in (link.partition("#") for link in re.findall(r"\]\((?!https?://)([^)]+)\)", text)):
        path = ((REPOSITORY / page).parent / target).resolve() if target else REPOSITORY / page
        assert path.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, heading


def paragraphs(page: str) -> list[str]:
    """Return the paragraphs of a text, and the items of its lists, without code, tables and headings."""
    text = re.sub(r"^```[\s\S]*?^```$|^(?: {4}|#|\||<!--).*$", "\n", page, flags=re.MULTILINE)
    return [found for found in re.split(r"\n\s*\n|\n(?=[-*] |\d+\. )", text) if found.strip()]


@pytest.mark.parametrize("page", PAGES)
def test_no_paragraph_is_long(page):
    assert [found for found in paragraphs(PAGES[page]) if len(found.split()) > 90] == []


def test_paragraphs_are_found():
    page = f"# a\n\none two\nthree\n- four\n- five\n\n```bash\na\n\nb\n```\n\n| a |\n\n    code\n{'six ' * 91}\n"
    assert [len(found.split()) for found in paragraphs(page)] == [3, 2, 2, 91]


def test_every_page_is_found():
    for page in DOCS:
        name = page.removeprefix("docs/")
        assert name == "index.md" or f"({name})" in PAGES["docs/index.md"], page


def table(text: str) -> list[str]:
    """Return the first column of the first table of a text, without its heading."""
    return re.findall(r"^\| ([^|]+?) \|", text.partition("| --- |")[2].partition("\n\n")[0], re.MULTILINE)


def test_the_first_lines_of_the_readme_say_for_which_jobs_it_is_not():
    elsewhere = table(PAGES["docs/should-i-use-this.md"].partition("**Others do this better today:**")[2])
    named = table("\n".join(PAGES["README.md"].splitlines()[:10]))
    assert len(named) == 2 and set(named) <= set(elsewhere)
    assert "(docs/should-i-use-this.md)" in "\n".join(PAGES["README.md"].splitlines()[:15])


def test_contributing_shows_every_target_of_make_on_one_screen():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))
    shown = re.findall(r"^make ([\w-]+)", CONTRIBUTING, re.MULTILINE)
    assert set(shown) == targets and len(targets) <= 16
    assert set(re.findall(r"^make ([\w-]+)", PAGES["README.md"], re.MULTILINE)) <= targets


def test_the_files_and_folders_that_contributing_names_exist():
    paths = re.findall(r"`([\w./*-]+(?:\.py|\.md|/))`", CONTRIBUTING)
    assert len(paths) > 50
    tops = [folder for folder in REPOSITORY.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    for path in paths:
        assert any(REPOSITORY.glob(path)) or any(any(top.glob(f"**/{path}")) for top in tops), path


def test_commands_and_scripts_have_the_options_that_are_shown():
    """And every command is shown."""
    for name, command in COMMANDS.items():
        lines = [line for line in TYPED if line.startswith(f"roformer {name} ")]
        assert lines, name
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for line in lines:
            assert set(re.findall(r" (--[\w-]+)", line)) <= known, line
    text = "".join(PAGES.values()).replace("\\\n", "")
    scripts = re.findall(r"(?:`|^    )python (benchmarks/\w+\.py)([^`\n]*)", text, re.MULTILINE)
    assert len(scripts) > 15
    for script, arguments in scripts:
        source = (REPOSITORY / script).read_text(encoding="utf-8")
        for option in re.findall(r"--[\w-]+", arguments):
            assert f'"{option}"' in source, f"{script} {option}"


def test_no_two_pages_write_the_same_file():
    """A reader of several pages runs all blocks in one folder, and a command refuses an output that exists."""
    second = r"roformer (?:convert|export-onnx|export-nomic-bert|export-tf|bundle|embed) (?:--\S+ )*\S+ ([\w./-]+)"
    names = rf"{second}|--output ([\w./-]+)|save_(?:pretrained|model)\(\"([\w./-]+)\""
    written = {}
    for page in DOCS:
        text = "\n".join(block.code.replace("\\\n", "") for block in blocks(page))
        for name in {name for found in re.findall(names, text) for name in found if name}:
            written.setdefault(name, []).append(page)
    assert len(written) > 30
    assert {name: of for name, of in written.items() if len(of) > 1} == {}


def test_options_in_running_text_exist():
    commands = [typer.main.get_command(app), *COMMANDS.values()]
    known = {option for command in commands for parameter in command.params for option in parameter.opts}
    known |= {"--help", "--editable"}  # the last is pip's
    for folder in ("benchmarks", "examples", "training"):
        for script in (REPOSITORY / folder).rglob("*.py"):
            known |= set(re.findall(r'"(--[\w-]+)"', script.read_text(encoding="utf-8")))
    others = ("python ", "accelerate ", "lm_eval ", "mlflow ", "transformers ")
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", re.sub(pages.BLOCK, "", PAGES[page])):
            assert code.startswith(others) or set(re.findall(r"(?<!\S)--[\w-]+", code)) <= known, f"{page}: {code}"


def imports(code: str) -> list[tuple[str, set[str]]]:
    """Return each module that the code imports, with the names imported from it."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [(alias.name, set()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.module, {alias.name for alias in node.names}))
    return found


@pytest.mark.parametrize("page", PYTHON)
def test_a_page_names_the_extra_that_its_code_needs(page):
    settings = ConfigParser()
    settings.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    extras = {
        name: set(re.findall(r"^[\w-]+", requirements, re.MULTILINE))
        for name, requirements in settings["options.extras_require"].items()
    }
    named = {name for names in re.findall(r"pip install '\.\[([\w,-]+)\]'", PAGES[page]) for name in names.split(",")}
    assert named <= set(extras)
    installed = set().union(*(extras[name] for name in named))
    for block in PYTHON[page]:
        for module, names in imports(block.code):
            needed = "accelerate" if "Trainer" in names else BEYOND_PLAIN.get(module.partition(".")[0])
            assert needed is None or needed in installed, f"{block}: {needed}"
        assert "torch.onnx" not in block.code or {"onnx", "onnxscript"} <= installed, block


@pytest.mark.parametrize("page", PYTHON)
def test_a_block_imports_what_it_uses(page, tmp_path):
    """Each can be copied alone, although `make acceptance` runs those of a page in one process."""
    for block in PYTHON[page]:
        (tmp_path / f"line_{block.line}.py").write_text(block.code, encoding="utf-8")
        uses = re.search(r"from_pretrained\(|pipeline\(|SentenceTransformer\(", block.code)
        imported = re.search(r"^(import|from) modeling_roformer\b", block.code, re.MULTILINE)
        assert uses is None or (imported is not None and imported.start() < uses.start()), block
    check = [Path(sys.executable).with_name("ruff"), "check", "--isolated", "--no-cache", "--select", "F821", tmp_path]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_table_of_released_checkpoints_is_the_generated_one():
    page = PAGES["docs/converting.md"]
    assert with_released_table(page) == page, "python docs/site_tools/released_table.py docs/converting.md"
    assert all(name in page for name in RELEASES)


def test_an_output_that_differs_is_renewed_on_request(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "REPOSITORY", tmp_path)
    page = "a\n```bash\nroformer x\n```\n```text\n...\n│ word │ 0.5 │\n...\nseconds 3\n```\nb\n"
    (tmp_path / "page.md").write_text(page)
    block = pages.Block("page.md", "bash", "roformer x\n", "...\n│ word │ 0.5 │\n...\nseconds 3\n", 2)
    printed = "first\n│ word │ 0.75 │\n│ rest │ 0.2 │\nseconds 4\n"
    monkeypatch.delenv("ROFORMER_RENEW_PAGES", raising=False)
    with pytest.raises(AssertionError):
        pages.assert_printed(block, printed)
    monkeypatch.setenv("ROFORMER_RENEW_PAGES", "1")
    pages.assert_printed(block, printed)
    assert (tmp_path / "page.md").read_text() == page.replace("0.5", "0.75").replace("seconds 3", "seconds 4")
