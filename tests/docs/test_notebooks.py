"""The notebooks of examples/notebooks are stored as they ran, and run again with the same results."""

import json
import re

import nbformat
import pytest
from helpers.paths import REPOSITORY
from run_notebooks import METADATA, executed

NOTEBOOKS = sorted((REPOSITORY / "examples" / "notebooks").glob("*.ipynb"))
COMMAND = "run python docs/site_tools/run_notebooks.py examples/notebooks/*.ipynb"
VARIES = "varies"  # the tag of a cell whose results differ between processors


def code_cells(notebook) -> list:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def kinds(cell) -> list:
    """Return the kind of each output: its stream, or the formats in which it is stored."""
    return [output.get("name") or sorted(output["data"]) for output in cell["outputs"]]


def texts(cell) -> str:
    """Return a cell's output without numbers that have a decimal point, which may differ in the last digit."""
    joined = "".join("".join(output.get("text") or output["data"]["text/plain"]) for output in cell["outputs"])
    return " ".join(re.sub(r"\d+\.\d+", "#", joined).split())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_as_it_ran(path):
    assert path.stat().st_size < 300_000
    stored = json.loads(path.read_text(encoding="utf-8"))
    nbformat.validate(nbformat.from_dict(stored))
    assert stored["metadata"] == METADATA, COMMAND
    cells = code_cells(stored)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), COMMAND
    for cell in stored["cells"]:
        assert cell["metadata"] in ({}, {"tags": [VARIES]}), COMMAND
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", COMMAND
            shown = [output.get("text"), *(output.get("data", {}).get(kind) for kind in ("text/plain", "text/html"))]
            assert not re.search(r"(?<!\.\.)/(home|root|tmp|Users|work)/", json.dumps(shown)), cell["id"]
    assert any(cell["metadata"] == {} and cell["outputs"] for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_somewhere(path):
    links = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            links += re.findall(r"\]\(([^)#]+)", "".join(cell["source"]))
    assert len(links) >= 4
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_puts_out_what_is_stored(path, tmp_path, monkeypatch):
    """It runs in a copy of the clone, without the network, and with its caches in the copy."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("HF_HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    copy = tmp_path / "examples" / "notebooks" / path.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes())
    for place in (REPOSITORY / "examples").iterdir():
        if place.name != "notebooks":
            (tmp_path / "examples" / place.name).symlink_to(place)
    stored, run = (code_cells(notebook) for notebook in (json.loads(path.read_text(encoding="utf-8")), executed(copy)))
    assert list(map(kinds, stored)) == list(map(kinds, run)), COMMAND
    for old, new in zip(stored, run, strict=True):
        assert VARIES in old["metadata"].get("tags", []) or texts(old) == texts(new), f"{old['id']}: {COMMAND}"
