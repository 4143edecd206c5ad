"""The parts of the metadata that are made when the package is built: packages, addresses, and the README.

The folders at the top are the architecture; one import name keeps site-packages clean. A room is a folder at the top
with an `__init__.py`: `tokenization/` is installed as `modeling_roformer.tokenization`.

The address of the repository is that of the GitHub workflow that builds the release; no file has to name it. Elsewhere
it is unknown, and a link that leads into the repository becomes its text.
"""

import os
import re
import tempfile
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build import build

ROOT = Path(__file__).resolve().parent
NAME = "modeling_roformer"
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^][]*)\]\((?!https?://)(?P<target>[^()]+)\)")
PAPER = {"Paper": "https://arxiv.org/abs/2104.09864"}


def address(kind: str, target: str) -> str | None:
    """Return the address of a file at the commit that is built, as a page (`blob`) or as it is (`raw`)."""
    name = os.environ.get("GITHUB_REPOSITORY")
    server, commit = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_SHA")
    return f"{server}/{name}/{kind}/{commit}/{target}" if name and server and commit else None


def with_absolute_link(found: re.Match) -> str:
    """Return a link or an image with its absolute address, or its text."""
    image, text, target = found.groups()
    place = address("raw" if image else "blob", target)
    return f"{image}[{text}]({place})" if place else text


class BuildElsewhere(build):
    """The build, in a temporary folder: setuptools packs all of build/lib, with modules that are removed since."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.temporary = tempfile.TemporaryDirectory(prefix="modeling_roformer-")  # removed when the process ends
        self.build_base = self.temporary.name


def package_folders() -> dict[str, str]:
    """Return the folder of each room, by the name of its package."""
    rooms = sorted(file.parent.name for file in ROOT.glob("*/__init__.py"))
    return {NAME if room == NAME else f"{NAME}.{room}": room for room in rooms}


def packages(name: str, folder: str) -> list[str]:
    """Return a room and the packages in it."""
    return [name, *(f"{name}.{inside}" for inside in find_packages(str(ROOT / folder)))]


changes = address("blob", "CHANGELOG.md")
setup(
    package_dir=package_folders(),
    packages=[package for name, folder in package_folders().items() for package in packages(name, folder)],
    cmdclass={"build": BuildElsewhere},
    long_description=LINK.sub(with_absolute_link, README),
    project_urls=PAPER | ({"Source": changes.partition("/blob/")[0], "Changes": changes} if changes else {}),
)
