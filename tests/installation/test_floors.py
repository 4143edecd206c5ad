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
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
TESTED = re.search(r"^EXTRAS := (.+)$", MAKEFILE, re.MULTILINE)[1].split(",")
LINES = (REPOSITORY / "tests" / "floors.txt").read_text(encoding="utf-8").splitlines()


def floors(extras: list[str]) -> dict[str, str]:
    """Return the lowest version of each dependency of the package with these extras."""
    needed = "\n".join([SETTINGS["options"]["install_requires"], *(EXTRAS[name] for name in extras)])
    return dict(re.findall(r"^([\w-]+) >=([\d.]+)", needed, re.MULTILINE))


FLOORS = floors(TESTED)


def test_every_floor_has_tests_that_use_it():
    names, tests = zip(*(line.rsplit(maxsplit=1) for line in LINES if not line.startswith("#")), strict=True)
    assert {name for several in names for name in several.split()} == FLOORS.keys()
    for test in tests:
        path, _, function = test.partition("::")
        assert not function or f"def {function}(" in (REPOSITORY / path).read_text(encoding="utf-8"), test


def test_tests_that_need_train_come_last():
    """`make test-newest` installs other extras, and ends where it begins."""
    installed = floors(re.search(r"NEWEST\): WITH := '\.\[(.+?)\]'", MAKEFILE)[1].split(","))
    heading = LINES.index("# These need the extra `train`:")
    needs_train = [not installed.keys() >= set(line.split()[:-1]) for line in LINES if not line.startswith("#")]
    before = sum(not line.startswith("#") for line in LINES[:heading])
    assert needs_train == [False] * before + [True] * (len(needs_train) - before)


@pytest.mark.floors
def test_the_lowest_versions_are_installed():
    pinned = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").split()
    installed = {name: Version(version(name)).public for name in FLOORS}
    higher = {name: found for name, found in installed.items() if Version(found) != Version(FLOORS[name])}
    assert [name for name, found in higher.items() if f"{name}=={found}" not in pinned] == []
