"""Tests of README.md and the pages of docs/: commands and code print what the page shows, each page in its own folder.

Each block runs on its own: it finds the files that earlier blocks wrote, and no names. Blocks run in this process,
which saves the imports; slow tests run those of the README in processes, as a reader runs them.
"""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import torch
import typer.main
from helpers import hub_server, pages
from helpers.pages import PAGES, blocks
from helpers.paths import REPOSITORY
from readme_table import with_released_table
from transformers import set_seed

from modeling_roformer.cli.commands import app
from modeling_roformer.conversion import convert, export_tf
from modeling_roformer.conversion.folder_converter import convert_all
from modeling_roformer.model_cards.releases import RELEASES

hub = hub_server.hub  # the fixture
BERT4KERAS = os.environ.get("ROFORMER_BERT4KERAS_PYTHON")
README = PAGES["README.md"]
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
DOCS = [page for page in PAGES if page != "README.md"]


def commands_of(group, before: str = "") -> dict:
    """Return the commands of a group and of its subgroups, by the words that are typed after `roformer`."""
    found = {}
    for name, command in group.commands.items():
        found |= commands_of(command, f"{name} ") if hasattr(command, "commands") else {before + name: command}
    return found


def python_blocks(page: str) -> list[pages.Block]:
    return [block for block in blocks(page) if block.language == "python"]


COMMANDS = commands_of(typer.main.get_command(app))


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Return the folder with the converted models of docs/index.md, with which every page starts."""
    folder = tmp_path_factory.mktemp("converted")
    convert(REPOSITORY / "examples" / "roformer-mini-zh", folder / "roformer-mini-zh")
    convert_all(REPOSITORY / "tests" / "fixtures" / "legacy", folder / "converted")
    return folder


@pytest.fixture
def clone(tmp_path, hub):
    """Yield a folder with links to the clone's, for a user of the Hub named `you`. Git must ignore what is written
    there."""
    hub.tokens[hub.token] = "you"
    folder = tmp_path / "clone"
    folder.mkdir()
    names = {"examples", "tests", "benchmarks"}
    for name in names:
        (folder / name).symlink_to(REPOSITORY / name)
    yield folder
    ignored = (REPOSITORY / ".gitignore").read_text(encoding="utf-8").split()
    assert {f"{path.name}/" for path in folder.iterdir() if path.name not in names} <= set(ignored)


@pytest.fixture
def seed():
    """Seed new heads and samples, without changing what other tests draw."""
    with torch.random.fork_rng():
        set_seed(0)
        yield


PAGES_AND_EXTRAS = [(page, None) for page in PAGES] + [
    pytest.param(page, extra, marks=getattr(pytest.mark, extra))
    for page in PAGES
    for extra in sorted(
        {block.extra for block in blocks(page)} - {None, "page", "clients"}
    )  # a page is served until it is stopped; tests/clients runs its blocks
]


@pytest.mark.parametrize(("page", "extra"), PAGES_AND_EXTRAS)
def test_commands_and_code_of_a_page_print_what_it_says(page, extra, clone, converted, seed, monkeypatch):
    """Run the blocks that need no extra, and those that need this one."""
    monkeypatch.chdir(clone)
    if page in DOCS:
        subprocess.run(blocks("docs/index.md")[0].code, shell=True, check=True)
        monkeypatch.chdir("build")
        if "roformer convert examples/roformer-mini-zh roformer-mini-zh" not in PAGES[page]:
            shutil.copytree(converted, ".", copy_function=os.link, dirs_exist_ok=True)
    monkeypatch.setenv("COLUMNS", "80")
    for block in blocks(page):
        if block.extra not in (None, extra):
            continue
        printed = ""
        for line in block.commands:
            code, out, err = pages.run_command(line, monkeypatch)
            assert bool(code) == pages.failure_is_shown(block), f"{block}: {line}\n{err}"
            printed += out + pages.complaints(err)
        if block.commands:
            pages.assert_printed(block, printed)
        elif block.language == "python":
            pages.assert_ends(block, pages.run_code(block))


def test_an_output_that_differs_is_renewed_on_request(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "REPOSITORY", tmp_path)
    page = "a\n```bash\nroformer x\n```\n```text\n...\n│ word │ 0.5 │\n...\nseconds 3\n```\nb\n"
    (tmp_path / "page.md").write_text(page)
    block = pages.Block("page.md", "bash", "roformer x\n", "...\n│ word │ 0.5 │\n...\nseconds 3\n", 2)
    printed = "first\n│ word │ 0.75 │\n│ rest │ 0.2 │\nseconds 4\n"
    monkeypatch.delenv("ROFORMER_RENEW_PAGES", raising=False)
    with pytest.raises(AssertionError):
        pages.assert_printed(block, printed)
    assert (tmp_path / "page.md").read_text() == page
    monkeypatch.setenv("ROFORMER_RENEW_PAGES", "1")
    pages.assert_printed(block, printed)
    assert (tmp_path / "page.md").read_text() == page.replace("0.5", "0.75").replace("seconds 3", "seconds 4")


def process(arguments, folder, environment) -> subprocess.CompletedProcess:
    """Run a command on a terminal of 80 columns."""
    environment = {**environment, "PYTHONPATH": str(REPOSITORY / "tests"), "PYTHONUTF8": "1", "COLUMNS": "80"}
    return subprocess.run(arguments, capture_output=True, text=True, cwd=folder, env=environment, timeout=900)


@pytest.mark.slow
def test_commands_and_code_of_the_readme_print_what_it_says_in_processes(clone, hub):
    commands = [block for block in blocks("README.md") if block.commands]
    assert commands
    for block in commands:
        printed = ""
        for line in block.commands:
            command, *arguments = shlex.split(line)
            done = process([Path(sys.executable).with_name(command), *arguments], clone, hub.environment)
            assert bool(done.returncode) == pages.failure_is_shown(block), f"{block}: {line}\n{done.stderr}"
            printed += done.stdout + pages.complaints(done.stderr)
        pages.assert_printed(block, printed)

    for block in python_blocks("README.md"):
        done = process([sys.executable, "-c", block.code], clone, hub.environment)
        assert done.returncode == 0, done.stderr
        pages.assert_ends(block, done.stdout)
        assert "MISSING" not in done.stderr, f"{block} loads another class\n{done.stderr}"


@pytest.mark.live
@pytest.mark.skipif(not BERT4KERAS, reason="name a Python that has bert4keras in ROFORMER_BERT4KERAS_PYTHON")
def test_bert4keras_prints_what_the_page_says(tmp_path):
    (block,) = (block for block in blocks("docs/converting.md") if block.language == "py")
    convert(REPOSITORY / "examples" / "roformer-mini-zh", tmp_path / "model")
    export_tf(tmp_path / "model", tmp_path / "legacy")
    keras = {**os.environ, "TF_KERAS": "1", "TF_USE_LEGACY_KERAS": "1"}
    done = process([BERT4KERAS, "-c", block.code], tmp_path / "legacy", keras)
    assert done.stdout.endswith(block.output), done.stderr


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    for target, _, heading in (link.partition("#") for link in re.findall(r"\]\((?!https?://)([^)]+)\)", text)):
        path = ((REPOSITORY / page).parent / target).resolve() if target else REPOSITORY / page
        assert path.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, heading


def test_the_readme_is_short_and_every_page_is_found():
    assert README.count("\n") <= 200
    for page in DOCS:
        name = page.removeprefix("docs/")
        assert name == "index.md" or f"({name})" in PAGES["docs/index.md"], page


def test_make_has_the_targets_that_are_shown():
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = re.findall(r"^make (\w[\w-]*)", README + CONTRIBUTING, re.MULTILINE)
    assert len(targets) >= 14
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_files_and_folders_that_contributing_names_exist():
    paths = re.findall(r"`([\w./*-]+(?:\.py|\.md|/))`", CONTRIBUTING)
    assert len(paths) > 50
    tops = [folder for folder in REPOSITORY.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    for path in paths:
        assert any(REPOSITORY.glob(path)) or any(any(top.glob(f"**/{path}")) for top in tops), path


def test_scripts_have_the_options_that_the_pages_give_them():
    scripts = re.findall(r"(?:`|^    )python (benchmarks/\w+\.py)([^`\n]*)", "".join(PAGES.values()), re.MULTILINE)
    assert len(scripts) > 15
    for script, arguments in scripts:
        source = (REPOSITORY / script).read_text(encoding="utf-8")
        for option in re.findall(r"--[\w-]+", arguments):
            assert f'"{option}"' in source, f"{script} {option}"


def test_every_command_is_shown():
    assert len(COMMANDS) > 6
    shown = "".join(block.code for page in PAGES for block in blocks(page) if block.commands)
    for name in COMMANDS:
        assert f"roformer {name} " in shown, name


def test_options_in_running_text_exist():
    commands = [typer.main.get_command(app), *COMMANDS.values()]
    options = {option for command in commands for parameter in command.params for option in parameter.opts}
    known = options | {"--help", "--editable"}  # the last is pip's
    for script in [
        path for room in ("benchmarks", "examples", "training") for path in (REPOSITORY / room).rglob("*.py")
    ]:
        known |= set(re.findall(r'"(--[\w-]+)"', script.read_text(encoding="utf-8")))
    for page, text in PAGES.items():
        for code in re.findall(r"`([^`\n]+)`", re.sub(pages.BLOCK, "", text)):
            if (
                not code.startswith("python ") and page != "docs/elsewhere.md"
            ):  # there, options are those of other tools
                assert set(re.findall(r"(?<!\S)--[\w-]+", code)) <= known, f"{page}: {code}"


# Modules that a plain installation lacks -> their names in setup.cfg.
BEYOND_PLAIN = {
    "datasets": "datasets",
    "onnxruntime": "onnxruntime",
    "peft": "peft",
    "sentence_transformers": "sentence-transformers",
}


@pytest.mark.parametrize("page", PAGES)
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
    for block in blocks(page):
        if block.language != "python":
            continue
        for module, names in imports(block.code):
            needed = "accelerate" if "Trainer" in names else BEYOND_PLAIN.get(module.partition(".")[0])
            assert needed is None or needed in installed, f"{block}: {needed}"
        if "torch.onnx" in block.code:
            assert {"onnx", "onnxscript"} <= installed, block


def imports(code: str) -> list[tuple[str, set[str]]]:
    """Return each module that the code imports, with the names imported from it."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += [(alias.name, set()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.module, {alias.name for alias in node.names}))
    return found


# Checked in the text, since the blocks of docs/ run in a process that has imported the package.
@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)])
def test_a_block_imports_what_it_uses(page, tmp_path):
    for block in python_blocks(page):
        (tmp_path / f"line_{block.line}.py").write_text(block.code, encoding="utf-8")
        uses = re.search(r"from_pretrained\(|pipeline\(|SentenceTransformer\(", block.code)
        imported = re.search(r"^(import|from) modeling_roformer\b", block.code, re.MULTILINE)
        assert uses is None or (imported is not None and imported.start() < uses.start()), block
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff comes with the extra lint, which the environment of the lowest versions lacks")
    check = [ruff, "check", "--isolated", "--no-cache", "--select", "F821", tmp_path]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# A form in PyTorch of each kind of release that loads without a conversion.
DIRECT = {"roformer": "v1", "v2": "v2"}


@pytest.mark.parametrize("page", ["README.md", "docs/checkpoints.md"])
def test_the_tables_of_released_checkpoints_are_the_generated_ones(page):
    assert with_released_table(PAGES[page]) == PAGES[page], f"python site_tools/readme_table.py {page}"
    assert all(name in PAGES[page] for name in RELEASES)


def test_the_kinds_without_a_star_are_those_tested_below():
    assert {release.kind for release in RELEASES.values() if release.loads_from_hub} == set(DIRECT)


@pytest.mark.parametrize("form", DIRECT.values())
def test_what_is_on_the_hub_without_a_star_loads_directly(form):
    """Load folders that were saved by the same package as those on the Hub."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    folder = REPOSITORY / "tests" / "fixtures" / "pytorch" / form
    model, loading = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert model.__module__.startswith("modeling_roformer") and not any(loading.values())
    assert AutoTokenizer.from_pretrained(folder).tokenize("明月旋转") == ["明月", "旋转"]
