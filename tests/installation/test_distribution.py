"""The sdist and the wheel hold the package and nothing else, and the version is the same wherever it is written."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest
import yaml
from helpers.paths import REPOSITORY, ROOMS

from modeling_roformer import __version__

NAME = f"modeling_roformer-{__version__}"
SETTINGS = ConfigParser()
SETTINGS.read(REPOSITORY / "setup.cfg", encoding="utf-8")
BESIDE = {
    "setup.py",
    "setup.cfg",
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
}
# What a build frontend calls.
HOOK = "import sys, setuptools.build_meta as backend; getattr(backend, sys.argv[1])(sys.argv[2])"


# What a workflow of GitHub sets.
ON_GITHUB = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "some/name", "GITHUB_SHA": "0" * 40}
PAPER = "Paper, https://arxiv.org/abs/2104.09864"


def build(kind: str, tree: Path, target: Path, environment: dict) -> Path:
    target.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ON_GITHUB} | environment
    done = subprocess.run(
        [sys.executable, "-c", HOOK, f"build_{kind}", target], cwd=tree, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """The repository as git would fetch it, without what is large and never packaged."""
    tree = tmp_path_factory.mktemp("clone") / "clone"
    left_out = (".*", "__pycache__", "*.egg-info", "build", "dist", "work", "fixtures", "examples", "benchmarks")
    return Path(shutil.copytree(REPOSITORY, tree, ignore=shutil.ignore_patterns(*left_out)))


@pytest.fixture(scope="module")
def sdist(tree, tmp_path_factory) -> Path:
    return build("sdist", tree, tmp_path_factory.mktemp("sdist") / "dist", {})


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    """The wheel that is built from the sdist, by a workflow of GitHub."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return build("wheel", folder / NAME, folder / "dist", ON_GITHUB)


def package_files(tree: Path) -> set[tuple[str, str]]:
    """Return the place of each file of the package in the tree, and where an installation has it."""
    found = {(f"{module}.py",) * 2 for module in SETTINGS["options"]["py_modules"].split()}
    for package, folder in ROOMS.items():
        for file in (tree / folder).rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                inside = file.relative_to(tree / folder)
                found.add((f"{folder}/{inside}", str(PurePosixPath(package.replace(".", "/"), inside))))
    return found


def test_the_sdist_holds_what_the_wheel_is_built_from(tree, sdist):
    assert sdist.name == f"{NAME}.tar.gz"
    with tarfile.open(sdist) as archive:
        names = {member.name.removeprefix(f"{NAME}/") for member in archive.getmembers() if member.isfile()}
    generated = {name for name in names if name == "PKG-INFO" or ".egg-info/" in name}
    assert names - generated == {place for place, _ in package_files(tree)} | BESIDE


def test_the_wheel_holds_the_package_and_its_metadata(tree, wheel):
    assert wheel.name == f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = Parser().parsestr(archive.read(f"{NAME}.dist-info/METADATA").decode())
    files = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE"]
    assert names == {name for _, name in package_files(tree)} | {f"{NAME}.dist-info/{name}" for name in files}
    assert len(names) > 150 and "modeling_roformer/py.typed" in names
    assert metadata["Version"] == __version__
    assert metadata["License"] == "Apache-2.0"
    assert metadata["Author"] == "The modeling_roformer developers"  # as the citation
    assert PAPER in metadata.get_all("Project-URL")
    assert "Source, https://github.com/some/name" in metadata.get_all("Project-URL")
    assert metadata["Requires-Python"] == SETTINGS["options"]["python_requires"]
    assert set(metadata.get_all("Provides-Extra")) == set(SETTINGS["options.extras_require"])


def links_of(page: str) -> list[tuple[str, str]]:
    """Return text and target of each link and image of a page in Markdown, without its blocks of code."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\[([^][]*)\]\(([^()]*)\)", text)


def test_the_links_of_the_long_description_are_absolute(wheel):
    with zipfile.ZipFile(wheel) as archive:
        description = Parser().parsestr(archive.read(f"{NAME}.dist-info/METADATA").decode()).get_payload()
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    links, expected = links_of(description), links_of(readme)
    assert len(links) == len(expected) > 15
    for (text, target), (known, original) in zip(links, expected, strict=True):
        kind = "raw" if original.endswith(".png") else "blob"
        prefix = "" if original.startswith("https://") else f"https://github.com/some/name/{kind}/{'0' * 40}/"
        assert (text, target) == (known, prefix + original)
    blocks = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
    assert blocks.findall(description) == blocks.findall(readme)


def test_without_an_address_links_into_the_repository_become_their_text(sdist):
    with tarfile.open(sdist) as archive:
        metadata = Parser().parsestr(archive.extractfile(f"{NAME}/PKG-INFO").read().decode())
    assert metadata.get_all("Project-URL") == [PAPER]
    assert links_of(metadata.get_payload()) == [("arXiv:2104.09864", PAPER.removeprefix("Paper, "))]
    assert "[Should I use this?]" not in metadata.get_payload() and "![" not in metadata.get_payload()
    assert "Should I use this?" in metadata.get_payload()


def test_the_version_is_written_once_and_agrees_with_the_citation_and_the_changelog():
    assert SETTINGS["metadata"]["version"] == "attr: modeling_roformer.__version__"
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == __version__
    assert citation["license"] == SETTINGS["metadata"]["license"]
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    assert released[0] == __version__


def test_the_citation_names_the_paper():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    (paper,) = citation["references"]
    assert paper["doi"] == "10.1016/j.neucom.2023.127063"
    assert {"type": "other", "value": "arXiv:2104.09864"}.items() <= paper["identifiers"][0].items()
    assert citation["authors"] == [{"name": "The modeling_roformer developers"}]
