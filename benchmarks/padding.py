"""Speed of the forward pass with padding left out, compared with padding computed, by the share of padding in the
batch.

    python benchmarks/padding.py [--sizes 6x256 12x768:4] [--lengths 64 512] [--batches 4 32] [--threads 1 2]
    python benchmarks/padding.py --device cuda

Lengths of the texts are spread evenly over a range, and one text has the full length. The two run in turns in one
process per size and number of threads: on a CPU in float32, on a GPU in bfloat16. The table shows the least share
of padding that makes leaving it out faster, and the share from where the model does so by default (`is_faster_packed`
in modeling_roformer/unpadding.py; LEAST_SAVED is the bound of a CPU).
"""

import statistics
from collections.abc import Callable
from contextlib import closing
from functools import cache
from itertools import product

import reporting
import timing
import torch
from rich.table import Table

from modeling_roformer import RoFormerConfig, RoFormerModel
from modeling_roformer import call as source
from modeling_roformer.unpadding import LEAST_SAVED, is_faster_packed

SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
# Sizes, lengths of the longest text, and texts.
CASES = {
    "cpu": (["6x256", "12x768:4"], [64, 512], [4, 32]),
    "cuda": (["6x256", "12x768"], [128, 512], [8, 64]),
    "quick": (["2x64"], [16], [4]),
}


def make_model(layers: int, width: int, device: str, threads: int) -> Callable:
    """Return the subject of a worker: a forward pass of a padded batch."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    heads = dict(num_attention_heads=width // 64, intermediate_size=4 * width)
    model = RoFormerModel(RoFormerConfig(vocab_size=8000, hidden_size=width, num_hidden_layers=layers, **heads)).eval()
    model = model.to(device, torch.float32 if device == "cpu" else torch.bfloat16)

    @torch.no_grad()
    def run(b: int, s: int, share: float, unpad: bool) -> bool:
        """Return whether the model leaves this padding out by default."""
        answers = []

        def answer_true(*arguments, **named) -> bool:
            answers.append(is_faster_packed(*arguments, **named))
            return True

        source.is_faster_packed = answer_true
        ids = torch.randint(5, 8000, (b, s), device=device)
        model(ids, attention_mask=mask_of(b, s, share, device), unpad_inputs=unpad)
        return any(answers)

    return run


@cache
def mask_of(b: int, s: int, share: float, device: str) -> torch.Tensor:
    """Return the mask of texts of at most s tokens, shape (b, s). A share of it, rounded up to a token, is padding."""
    others = b - 1  # the first text has no padding
    mean = share * b * s / max(1, others)
    widths = (torch.arange(others, dtype=torch.float64) * 2 + 1) / max(1, others) - 1
    ends = (mean + min(mean, s - 1 - mean) * widths).cumsum(0).ceil()
    padding = torch.cat((torch.zeros(1), ends.diff(prepend=torch.zeros(1))))
    return (torch.arange(s) < s - padding[:, None]).long().to(device)


def speed_up(subject: timing.Worker | timing.Resident, batch: tuple, runs: int) -> reporting.Cell:
    """Return the speed-up of a batch without its padding."""
    calls = {str(unpad): (subject, *batch, unpad) for unpad in (False, True)}
    return reporting.ratio(*timing.alternate(calls, runs).values())


def from_share(found: list[bool]) -> str:
    """Return the least of SHARES such that it and all larger ones are true."""
    return next((f"{share:.0%}" for i, share in enumerate(SHARES) if all(found[i:])), "none")


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", nargs="+", metavar="LAYERSxWIDTH[:TEXTS]")
    parser.add_argument("--lengths", type=int, nargs="+", help="tokens of the longest text")
    parser.add_argument("--batches", type=int, nargs="+", help="texts, where --sizes has none")
    parser.add_argument("--threads", type=int, nargs="+", help="default: 1 and 2 on a CPU")
    parser.add_argument("--runs", type=int, default=5, help="runs, after one warm-up")
    parser.add_argument("--quick", action="store_true", help="a small model, short texts, one run")
    chosen = parser.parse_args()
    sizes, lengths, batches = CASES["quick" if chosen.quick else chosen.device]
    chosen.threads = chosen.threads or ([1, 2] if chosen.device == "cpu" and not chosen.quick else [1])
    runs = 1 if chosen.quick else chosen.runs
    on_gpu = chosen.device == "cuda"
    columns = ("layers x width", "threads", "tokens", "texts", *(f"{share:.0%} padding" for share in SHARES))
    columns += ("faster from", "left out by default from") if on_gpu else ("left out by default from",)
    table = Table(*columns, title="Speed-up of leaving padding out")
    with reporting.Figures(chosen.output) as figures, figures.console.status("") as status:
        for size, threads in product(chosen.sizes or sizes, chosen.threads):
            size, _, texts = size.partition(":")
            layers, width = map(int, size.split("x"))
            with closing(timing.on(chosen.device)(make_model, layers, width, chosen.device, threads)) as subject:
                for s, b in product(chosen.lengths or lengths, [int(texts)] if texts else chosen.batches or batches):
                    status.update(f"{size}, {threads} threads, {b} texts of {s} tokens")
                    cells = [speed_up(subject, (b, s, share), runs) for share in SHARES]
                    if on_gpu:
                        is_faster = [statistics.median(cell.values) > 1 for cell in cells]
                        by_default = [subject.run(b, s, share, True)[2] for share in SHARES]
                        bounds = [from_share(is_faster), from_share(by_default)]
                    else:
                        bounds = [f"{LEAST_SAVED / width**2 / s:.1%}"]
                    table.add_row(size, f"{threads}", f"{s}", f"{b}", *cells, *bounds)
        figures.add("padding", table)


if __name__ == "__main__":
    main()
