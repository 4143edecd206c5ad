"""Noise of this machine: the same program against itself, five times.

    python benchmarks/noise.py

Each repeat starts two processes with the same program and runs them in turns, as the other scripts run two models.
Their ratio would be 1 without noise. The programs are a forward pass of 12 layers of 768 on 512 tokens, and a training
step of 2 such layers on 4 texts of 128 tokens.
"""

import inference
import peers
import reporting
import timing
from rich.table import Table

import training

REPEATS, RUNS = 5, 5
PROGRAMS = {
    "forward pass": ((inference.make_subject, peers.OURS, "cpu", peers.Size()), ("forward", (512,))),
    "training step": ((training.make_step, peers.OURS, "cpu", peers.Size(layers=2), 0.0), (4, 128)),
}


def main() -> None:
    chosen = reporting.make_parser(__doc__).parse_args()
    table = Table("", *(f"{name}: {column}" for name in PROGRAMS for column in ("first, s", "second, s", "ratio")))
    with reporting.Figures(chosen.output) as figures:
        for number in range(1, REPEATS + 1):
            row = []
            for name, (program, arguments) in PROGRAMS.items():
                workers = [timing.Worker(*program) for _ in range(2)]
                calls = {number: (worker, *arguments) for number, worker in enumerate(workers)}
                first, second = timing.alternate(calls, RUNS, title=name).values()
                for worker in workers:
                    worker.close()
                row += [reporting.duration(first), reporting.duration(second), reporting.ratio(first, second, "{:.3f}")]
            table.add_row(str(number), *row)
        figures.add("noise", table)


if __name__ == "__main__":
    main()
