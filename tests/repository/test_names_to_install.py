"""No file tells anyone to install a package by a name that is not its owner's: it would run code on their machine."""

import re
import tomllib
from configparser import ConfigParser

import pytest
from helpers.paths import REPOSITORY

SETTINGS = ConfigParser()
SETTINGS.read(REPOSITORY / "setup.cfg", encoding="utf-8")
GROUPS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
# What the scripts that made the fixtures were run with, and what the Makefile installs by itself.
PEERS = {"bert4keras", "roformer", "tensorflow-cpu", "tf-keras", "triton", "uv"}
_SPACE = r"(?:[ \t]|\\\n)+"  # a backslash ends a line that goes on in the next
COMMAND = re.compile(
    rf"\b(?:uvx|(?:pip[x3]?|uv|conda|mamba|poetry){_SPACE}(?:-\S+ )?"
    r"(?:(?:pip|tool) )?(?:install|download|wheel|add|run))(?=\s)\n?"
    rf"(?P<words>(?:(?:{_SPACE}|(?<=\n))(?:'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"`();,&|\\#]+))+)"
)
WITH_VALUE = {
    "--constraint",
    "-c",
    "--requirement",
    "-r",
    "--target",
    "-t",
    "--index-url",
    "--wheel-dir",
    "-w",
    "--torch-backend",
}
NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names_in(requirements: str) -> set[str]:
    """Return the names in requirements, one per line."""
    lines = (line.partition("#")[0].strip() for line in requirements.splitlines())
    return {normal(NAME.match(line)[0]) for line in lines if line and "@" not in line and line[0] not in "-."}


OURS = normal(SETTINGS["metadata"]["name"])
EXTRAS = {name: names_in(lines) for name, lines in SETTINGS["options.extras_require"].items()}
OF_GROUPS = names_in("\n".join(requirement for group in GROUPS.values() for requirement in group))
KNOWN = names_in(SETTINGS["options"]["install_requires"]).union(OF_GROUPS, *EXTRAS.values()) - {OURS} | PEERS


def commands(text: str) -> list[list[str]]:
    """Return the words after each `pip install` or similar: options, names and paths."""
    found = (command["words"].replace("\\\n", " ") for command in COMMAND.finditer(text))
    return [[word.strip("'\"") for word in re.findall(r"'[^'\n]*'|\"[^\"\n]*\"|[^\s'\"]+", words)] for words in found]


def named(words: list[str]) -> set[str]:
    """Return the names that a command looks up in a registry, without paths and addresses."""
    found, words = set(), iter(words)
    for word in words:
        if word in WITH_VALUE:
            next(words, None)
        elif not word.startswith(("-", ".", "/", "$", "{")) and not re.search(r"@|\\\[|/|\.(whl|txt|gz)$", word):
            found.add(normal(NAME.match(word)[0]) if NAME.match(word) else word)
    return found


def files() -> dict[str, str]:
    """Return every text that a reader or a program may see, by its path."""
    hidden = re.compile(r"/(\.(?!ci/)[^/]*|__pycache__|[^/]*\.egg-info|build|dist|work)/")
    found = {}
    for path in sorted(REPOSITORY.rglob("*")):
        place = f"/{path.relative_to(REPOSITORY)}"
        if path.is_file() and not hidden.search(place) and path.stat().st_size < 1 << 20:
            try:
                found[place[1:]] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    del found["tests/repository/test_names_to_install.py"]
    return found


FILES = files()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`pip install 'Modeling_RoFormer[page]>=1'`, then", {"modeling-roformer"}),
        ("pip install -q --target folder . h5py", {"h5py"}),
        ("pip install '.[train,keras]' numpy \\\n    rich==13", {"numpy", "rich"}),
        ("pip install './wheels/modeling_roformer-0.1.0-py3-none-any.whl[page]'", set()),
        ("pip install 'modeling-roformer[page] @ git+https://example.org/x'", set()),
        ("what pip installs", set()),
        ("pip  --quiet install x", {"x"}),
        ("uv tool install x", {"x"}),
        ("uvx x", {"x"}),
    ],
)
def test_commands_are_read(text, expected):
    assert set().union(*map(named, commands(text))) == expected


def test_every_name_and_extra_to_install_is_known():
    shown = {place: found for place, text in FILES.items() if (found := commands(text))}
    assert len(shown) > 20 and {"README.md", "docs/index.md", "serving/page/server.py"} & shown.keys()
    for place, found in shown.items():
        assert set().union(*map(named, found)) <= KNOWN, place
        extras = [re.fullmatch(r"\.\[([\w,-]+)\]", word) for words in found for word in words]
        assert {name for match in extras if match for name in match[1].split(",")} <= EXTRAS.keys(), place


def test_no_list_of_requirements_names_this_package():
    lists = [place for place in FILES if re.search(r"(requirements|constraints)[\w-]*\.txt$", place)]
    assert "examples/space/requirements.txt" in lists
    for place in lists:
        assert OURS not in names_in(FILES[place]), place
    assert OURS not in OF_GROUPS
    # Of itself the package asks for no more than extras, which pip finds in what it is installing.
    for lines in [SETTINGS["options"]["install_requires"], *SETTINGS["options.extras_require"].values()]:
        for line in lines.splitlines():
            assert normal(line.partition("[")[0]) != OURS or re.fullmatch(r"modeling-roformer\[[\w,-]+\]", line)


def test_the_space_names_what_the_package_and_the_page_need():
    listed = [line for line in FILES["examples/space/requirements.txt"].splitlines() if not line.startswith("#")]
    needed = SETTINGS["options"]["install_requires"] + SETTINGS["options.extras_require"]["page"]
    assert sorted(listed) == sorted(filter(None, needed.split("\n")))


def test_cards_say_that_no_registry_has_the_package():
    """They are read on the Hub, far from the clone."""
    cards = [place for place in FILES if re.fullmatch(r"model_cards/[^/]+/README\.md", place)]
    assert len(cards) >= 15
    for place in [*cards, "model_cards/template.md", "serving/onnx_export/card.md"]:
        text = " ".join(FILES[place].split())
        assert re.search(r"\bno (package )?registry\b", text) and "clone" in text, place
