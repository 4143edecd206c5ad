"""Brings transformers' own common tests, of the version that is installed, to this machine.

They are part of transformers' source release and not of what pip installs. Nothing of them is kept in the repository:
the five files needed are unpacked, once, into a folder that git ignores, as a package `transformers_tests`.

```python
>>> sys.path.insert(0, str(fetch()))
>>> from transformers_tests.test_modeling_common import ModelTesterMixin
```
"""

import importlib.metadata
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# transformers' tests look for a folder above them whose name ends so.
PACKAGE = "transformers_tests"

UNPACKED = (
    "test_configuration_common.py",
    "test_modeling_common.py",
    "test_sentencepiece_backend_mixin.py",
    "test_tokenization_common.py",
    "test_tokenizers_backend_mixin.py",
)

# What these files import or read, and the source release lacks: tests of exporters and of generation, which are not
# run here, the fields that every config has, and a text to train a tokenizer on.
STAND_INS = {
    "__init__.py": "",
    "exporters/__init__.py": "",
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/__init__.py": "",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "utils/__init__.py": "",
    "utils/test_configuration_utils.py": "config_common_kwargs = {}\n",
    "fixtures/sample_text.txt": "This text stands in for another.\n\nIt has three sentences. 它也有中文。\n",
}


def fetch() -> Path:
    """Return the folder to put on `sys.path`; download and unpack it if it does not exist yet.

    The folder lies in `.cache/transformers-tests` of the repository, or where ROFORMER_TESTS_CACHE says.

    Raises:
        RuntimeError: naming what could not be downloaded, or what the source release lacks.
    """
    version = importlib.metadata.version("transformers")
    cache = Path(os.environ.get("ROFORMER_TESTS_CACHE") or REPOSITORY / ".cache" / "transformers-tests")
    place = cache / version
    if place.is_dir():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    (cache / ".gitignore").write_text("*\n", encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=cache) as work:
        unpacked = Path(work) / "unpacked"
        _unpack(_download(version, Path(work)), unpacked / PACKAGE)
        for name, text in STAND_INS.items():
            path = unpacked / PACKAGE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        try:
            unpacked.rename(place)
        except OSError:  # another process was quicker
            if not place.is_dir():
                raise
    return place


def _download(version: str, folder: Path) -> Path:
    """Return the archive of transformers' source release."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", "transformers", "--dest", str(folder), f"transformers=={version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    archive = next(folder.glob("*.tar.gz"), None)
    if done.returncode != 0 or archive is None:
        reason = (done.stderr.strip() or "no archive came").splitlines()[-1]
        raise RuntimeError(
            f"the source release of transformers {version}, which holds its tests, was not had: {reason}"
        )
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    """Write the files of `tests/` that are needed, and no others, into the folder."""
    folder.mkdir(parents=True)
    with tarfile.open(archive) as release:
        for member in release:
            path = PurePosixPath(member.name)
            if member.isfile() and path.parts[1:-1] == ("tests",) and path.name in UNPACKED:
                (folder / path.name).write_bytes(release.extractfile(member).read())
    if missing := [name for name in UNPACKED if not (folder / name).is_file()]:
        raise RuntimeError(
            f"{archive.name} has no tests/{missing[0]}: transformers keeps its common tests elsewhere now"
        )


if __name__ == "__main__":
    print(fetch())
