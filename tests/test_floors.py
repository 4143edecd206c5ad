"""The lowest versions that setup.cfg promises: tests use each of them, and `make test-floors` installs them."""

import re
from configparser import ConfigParser
from importlib.metadata import version

import pytest
from helpers.paths import REPOSITORY
from packaging.version import Version

SETTINGS = ConfigParser()
SETTINGS.read(REPOSITORY / "setup.cfg", encoding="utf-8")
EXTRAS = SETTINGS["options.extras_require"]
TESTED = re.search(r"\[(.+)\]", EXTRAS["test"])[1].split(",")
NEEDED = "\n".join([SETTINGS["options"]["install_requires"], *(EXTRAS[name] for name in TESTED)])
FLOORS = dict(re.findall(r"^([\w-]+) >=([\d.]+)", NEEDED, re.MULTILINE))


def test_every_floor_has_tests_that_use_it():
    lines = (REPOSITORY / "tests" / "floors.txt").read_text(encoding="utf-8").splitlines()
    names, tests = zip(*(line.rsplit(maxsplit=1) for line in lines if not line.startswith("#")), strict=True)
    assert {name for several in names for name in several.split()} == FLOORS.keys()
    for test in tests:
        path, _, function = test.partition("::")
        assert f"def {function}" in (REPOSITORY / path).read_text(encoding="utf-8"), test


@pytest.mark.floors
def test_the_lowest_versions_are_installed():
    pinned = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").split()
    installed = {name: Version(version(name)).public for name in FLOORS}
    higher = {name: found for name, found in installed.items() if Version(found) != Version(FLOORS[name])}
    assert [name for name, found in higher.items() if f"{name}=={found}" not in pinned] == []
