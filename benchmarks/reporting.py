"""Tables of a script: cells that keep what was measured, Markdown, and the files that have all of it.

A script prints its tables through `Figures`. With `--output FOLDER/NAME`, these are also written to NAME.json, which
says on which machine, with which versions and at which commit they were measured.
"""

import html
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from timing import Measurement

from modeling_roformer.training import ScriptParser

MB = 1e6
ROOT = Path(__file__).resolve().parent.parent
# Instruction sets that decide how fast float32, bfloat16 and int8 are.
INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16")
INSTRUCTIONS += ("asimddp", "bf16", "i8mm")


class Cell(str):
    """Cell of a table, with the values of the runs whose median it shows.

    ```python
    >>> Cell("{:.1f} ms", [2.04, 2.61, 2.13])
    '2.1 ms'
    ```
    """

    values: list[float]

    def __new__(cls, template: str, values: Iterable[float]):
        values = [*values]
        cell = super().__new__(cls, template.format(statistics.median(values)))
        cell.values = values
        return cell


def rate(amount: float, measurement: Measurement, template: str = "{:,.0f}") -> Cell:
    """Return a cell of an amount per second."""
    return Cell(template, [amount / seconds for seconds in measurement.times])


def duration(measurement: Measurement, template: str = "{:.3g}", unit: float = 1.0) -> Cell:
    """Return a cell of the seconds, or of another unit: 1e-3 for milliseconds."""
    return Cell(template, [seconds / unit for seconds in measurement.times])


def ratio(theirs: Measurement, ours: Measurement, template: str = "{:.2f} ×") -> Cell:
    """Return a cell with the speed-up of ours: the median over rounds; in each round both ran once."""
    return Cell(template, [a / b for a, b in zip(theirs.times, ours.times, strict=True)])


def make_parser(doc: str) -> ScriptParser:
    """Return a parser with a script's docstring as its help, and the option --output."""
    parser = ScriptParser(doc)
    parser.add_argument("--output", type=Path, metavar="FOLDER/NAME", help="write the tables to NAME.json")
    return parser


class Figures:
    """Tables of a script: printed when added, and written at the end of the block if an output was given.

    Args:
        output: folder and name of the file, without a suffix, or None.
        peers: packages whose versions matter besides torch, transformers and this one.
        measured: whether this process measures. False for results that were kept, which may be of other machines.

    ```python
    >>> with Figures(chosen.output, "onnxruntime") as figures:
    ...     figures.add("vectors", table)
    ```
    """

    def __init__(self, output: Path | None, *peers: str, measured: bool = True):
        self.output = output
        self.tables: dict[str, dict] = {}
        self.circumstances = circumstances(*peers)
        if not measured:
            self.circumstances["machine"] = None

    def add(self, name: str, table: Table) -> None:
        """Print a table and keep it. Its cells are strings; those that were measured are a `Cell`."""
        Console(width=130, highlight=False, markup=False).print(table)
        self.tables[name] = to_json(table)

    def __enter__(self):
        return self

    def __exit__(self, kind, *exception) -> None:
        if kind is None and self.output:
            results = {"name": self.output.name, **self.circumstances, "tables": self.tables}
            text = json.dumps(results, indent=1, ensure_ascii=False)
            one_row_a_line = re.sub(r"\n(?: {5,}| {4}(?=[\]\"]))", " ", text)
            self.output.parent.mkdir(parents=True, exist_ok=True)
            self.output.with_name(f"{self.output.name}.json").write_text(one_row_a_line + "\n", encoding="utf-8")


def to_json(table: Table) -> dict:
    """Return columns and rows of a table; a measured cell has its median, quartiles and number of runs."""

    def cell(value: str) -> str | dict:
        if not isinstance(value, Cell):
            return value
        values = value.values if len(value.values) > 1 else value.values * 2
        # Five digits are more than a measurement has.
        low, middle, high = (float(f"{x:.5g}") for x in statistics.quantiles(values, method="inclusive"))
        return {"text": str(value), "median": middle, "quartiles": [low, high], "runs": len(value.values)}

    rows = zip(*(column.cells for column in table.columns), strict=True)
    return {
        "columns": [column.header for column in table.columns],
        "rows": [[cell(value) for value in row] for row in rows],
    }


def texts_of(table: dict) -> list[list[str]]:
    """Return the texts of the rows of a table of a NAME.json."""
    return [[cell if isinstance(cell, str) else cell["text"] for cell in row] for row in table["rows"]]


def escaped(text: str) -> str:
    """Return a text on one line of Markdown that cannot end a cell, a table or a comment."""
    return " ".join(html.escape(text, quote=False).replace("|", "\\|").split())


def to_markdown(table: dict) -> str:
    """Return a table of a NAME.json as Markdown."""
    lines = [[escaped(text) for text in line] for line in (table["columns"], *texts_of(table))]
    lines.insert(1, ["---"] * len(table["columns"]))
    return "\n".join("|" + "".join(f" {text} |" if text else " |" for text in line) for line in lines)


def origin(results: dict) -> str:
    """Return the line below the tables of a NAME.json: machine, versions, commit and date. Kept results have no
    machine."""
    machine, torch_version = results["machine"], f"torch {results['versions']['torch']}"
    when = f"commit {results['commit']}, {results['date']}"
    if machine is None:
        return escaped(f"Printed from kept results at {when}, with {torch_version}.")
    processor = f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['instructions'][-3:])}"
    return escaped(f"{machine.get('gpu', processor)}; {torch_version}; {when}.")


def circumstances(*peers: str) -> dict:
    """Return the command, the date, the commit, the machine and the versions."""
    # Folders are those of this machine.
    words = [Path(word).name if os.sep in word and Path(word).exists() else word for word in sys.argv[1:]]
    if "--output" in words:
        place = words.index("--output")
        del words[place : place + 2]
    packages = ("torch", "transformers", "modeling_roformer", *peers)
    return {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words]),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": {"python": platform.python_version()} | {name: of for name in packages if (of := installed(name))},
    }


def installed(package: str) -> str | None:
    """Return the version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str:
    """Return the commit, with a plus sign if code has changed since; "unknown" outside a clone and without git."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "*.py")
        return (git("rev-parse", "--short=7", "HEAD") or "unknown") + "+" * bool(changed)
    except FileNotFoundError:
        return "unknown"


def machine() -> dict:
    """Return the processor, its number of cores for this process, its relevant instructions, and the load before."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    described = {
        "cpu": facts.get("model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "instructions": [name for name in INSTRUCTIONS if name in flags],
        "load": round(os.getloadavg()[0], 2),
    }
    if torch.cuda.is_available():
        described["gpu"] = torch.cuda.get_device_name()
    return described
