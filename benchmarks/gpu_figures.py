"""Figures of a GPU: run the scripts that measure them, and print the section of docs/figures.md and the row of README.

    python benchmarks/gpu_figures.py [--output FOLDER]
    python benchmarks/gpu_figures.py --device cpu --quick     try every script with small models, without a GPU

The scripts are the parts of benchmarks/figures.py that need a GPU. Their results are in FOLDER/NAME.json: copied into
docs/figures/, they are printed into the pages by `python benchmarks/figures.py --render`. A part that fails leaves its
earlier results there, which are not printed here. FOLDER is build/figures-gpu, or build/figures-gpu-trial on a CPU and
with --quick.
"""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures
import measure

from modeling_roformer.files import write_whole
from modeling_roformer.training import ScriptParser

SECTION = "## On a GPU\n"


def run(name: str, device: str, quick: bool, folder: Path) -> bool:
    """Run the script of a part, and return whether there are results of it."""
    script, *options = figures.PARTS[name].command.replace("--device cuda", f"--device {device}").split()
    options += [*["--quick"] * quick, "--output", str(folder / name)]
    begun = time.monotonic()
    done = subprocess.run([sys.executable, figures.BENCHMARKS / script, *options])
    print(f"{name}: {time.monotonic() - begun:.0f} s\n", flush=True)
    return done.returncode == 0 and (folder / f"{name}.json").exists()


def section(folder: Path) -> str:
    """Return the section of docs/figures.md with the tables of a folder."""
    page = (measure.ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    return figures.rendered(re.split(r"\n(?=## )", page[page.index(SECTION) :], maxsplit=1)[0], folder)


def rows(folder: Path) -> str:
    """Return the rows of README that show figures of a GPU."""
    found = [(row, figures.read(row[1], folder)) for row in figures.SUMMARY if figures.PARTS[row[1]].gpu]
    return "\n".join(f"| {' | '.join(figures.summary_row(row, results))} |" for row, results in found if results)


def main() -> None:
    parser = ScriptParser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="small models, few texts, one run")
    parser.add_argument("--output", type=Path, metavar="FOLDER")
    chosen = parser.parse_args()
    trial = "-trial" if chosen.quick or chosen.device == "cpu" else ""
    output = chosen.output or measure.ROOT / "build" / f"figures-gpu{trial}"
    output.mkdir(parents=True, exist_ok=True)
    failed = []
    with tempfile.TemporaryDirectory(prefix="running-", dir=output) as folder:
        for name in [name for name, part in figures.PARTS.items() if part.gpu]:
            if run(name, chosen.device, chosen.quick, Path(folder)):
                write_whole(output / f"{name}.json", (Path(folder) / f"{name}.json").read_text(encoding="utf-8"))
            else:
                failed.append(name)
        print(f"docs/figures.md:\n\n{section(Path(folder))}\nREADME.md:\n\n{rows(Path(folder))}\n")
    if failed:
        sys.exit(f"these parts failed, as their output above says: {', '.join(failed)}")


if __name__ == "__main__":
    main()
