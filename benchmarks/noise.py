"""Noise of this machine: the same program against itself, five times.

    python benchmarks/noise.py [--repeats 5] [--runs 5] [--layers 12]

Each repeat starts two processes with the same program and runs them in turns, as the other scripts run two models.
Their ratio would be 1 without noise. The programs are a forward pass of 12 layers of 768 on 512 tokens, and a training
step of 2 such layers on 4 texts of 128 tokens.
"""

import inference
import measure
from rich.table import Table

import training


def main() -> None:
    parser = measure.make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5, help="runs of each process, after one warm-up")
    parser.add_argument("--layers", type=int, default=12, help="of the forward pass")
    chosen = parser.parse_args()
    programs = {
        "forward pass": ((inference.make_subject, inference.OURS, "cpu", chosen.layers, 512), ("forward", 1, 512)),
        "training step": ((training.make_step, training.OURS, "cpu", 2, 0.0), (4, 128)),
    }
    table = Table("", *(f"{name}: {column}" for name in programs for column in ("first, s", "second, s", "ratio")))
    with measure.Figures(chosen.output) as figures, figures.console.status("") as status:
        for number in range(1, chosen.repeats + 1):
            row = []
            for name, (make, arguments) in programs.items():
                status.update(f"{name}, {number} of {chosen.repeats}")
                workers = [measure.Worker(*make) for _ in range(2)]
                calls = {str(place): (worker, *arguments) for place, worker in enumerate(workers)}
                first, second = measure.alternate(calls, chosen.runs).values()
                measure.close(workers)
                row += [measure.duration(first), measure.duration(second), measure.ratio(first, second, "{:.3f}")]
            table.add_row(str(number), *row)
        figures.add("noise", table)


if __name__ == "__main__":
    main()
