"""Run notebooks in their folders, and write their outputs into them.

    python docs/site_tools/run_notebooks.py examples/notebooks/*.ipynb

Warnings, times and the version of Python are left out, so that a file changes only where a result does.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def executed(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with its outputs. Raises CellExecutionError if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources=folder, record_timing=False, coalesce_streams=True
    ).execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({name: cell.metadata[name] for name in cell.metadata if name == "tags"})
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        nbformat.write(executed(Path(argument)), argument)
