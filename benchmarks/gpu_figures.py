"""Figures of a GPU: run the scripts that measure them, and print the section of docs/figures.md and the row of README.

    python benchmarks/gpu_figures.py [--output FOLDER]
    python benchmarks/gpu_figures.py --device cpu --quick     try every script with small models, without a GPU

The scripts are the parts of benchmarks/figures.py that need a GPU. Their results are in FOLDER/NAME.json: copied into
docs/figures/, they are printed into the pages by `python benchmarks/figures.py --render`.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

import figures
import measure

SECTION = "## On a GPU\n"


def run(name: str, device: str, quick: bool, folder: Path) -> bool:
    """Run the script of a part, and return whether it succeeded."""
    script, *options = figures.PARTS[name].command.replace("--device cuda", f"--device {device}").split()
    options += [*["--quick"] * quick, "--output", str(folder / name)]
    begun = time.monotonic()
    done = subprocess.run([sys.executable, figures.BENCHMARKS / script, *options])
    print(f"{name}: {time.monotonic() - begun:.0f} s\n", flush=True)
    return done.returncode == 0


def section(folder: Path) -> str:
    """Return the section of docs/figures.md with the tables of a folder."""
    page = (measure.ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    return figures.rendered(re.split(r"\n(?=## )", page[page.index(SECTION) :], maxsplit=1)[0], folder)


def rows(folder: Path) -> str:
    """Return the rows of README that show figures of a GPU."""
    found = [(row, figures.read(row[1], folder)) for row in figures.SUMMARY if figures.PARTS[row[1]].gpu]
    return "\n".join(f"| {' | '.join(figures.summary_row(row, results))} |" for row, results in found if results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="small models, few texts, one run")
    parser.add_argument("--output", type=Path, default=measure.ROOT / "build" / "figures-gpu", metavar="FOLDER")
    chosen = parser.parse_args()
    parts = [name for name, part in figures.PARTS.items() if part.gpu]
    for name in parts:
        (chosen.output / f"{name}.json").unlink(missing_ok=True)  # so that no earlier result is printed as this one's
    failed = [name for name in parts if not run(name, chosen.device, chosen.quick, chosen.output)]
    print(f"docs/figures.md:\n\n{section(chosen.output)}\nREADME.md:\n\n{rows(chosen.output)}\n")
    if failed:
        sys.exit(f"these parts failed, as their output above says: {', '.join(failed)}")


if __name__ == "__main__":
    main()
