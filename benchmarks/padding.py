"""Speed of the forward pass with padding left out, compared with padding computed, by the share of padding in the
batch.

    python benchmarks/padding.py [--device cpu|cuda]

Lengths of the texts are spread evenly over a range, and one text has the full length. The two run in turns in one
process per size and number of threads: on a CPU in float32, on a GPU in bfloat16. The table shows the least share
of padding that makes leaving it out faster, and the share from where the model does so by default (`is_faster_packed`
in modeling_roformer/unpadding.py; LEAST_SAVED is the bound of a CPU).
"""

import statistics
from collections.abc import Callable
from functools import cache
from itertools import product

import peers
import reporting
import timing
import torch
from rich.table import Table

from modeling_roformer import call as source
from modeling_roformer.unpadding import LEAST_SAVED, is_faster_packed

SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
# Layers and width, with the numbers of texts; numbers of threads; lengths of the longest text.
CASES = {
    "cpu": ({(6, 256): (4, 32), (12, 768): (4,)}, (1, 2), (64, 512)),
    "cuda": ({(6, 256): (8, 64), (12, 768): (8, 64)}, (1,), (128, 512)),
    "quick": ({(2, 64): (4,)}, (1,), (16,)),
}


def make_forward(threads: int, layers: int, width: int, device: str) -> Callable:
    """Return the subject of a worker: a forward pass of a padded batch."""
    torch.set_num_threads(threads)
    model = peers.make_model(peers.OURS, "Model", peers.Size(layers, width, 8000))
    model = model.to(device, torch.float32 if device == "cpu" else torch.bfloat16)
    source.is_faster_packed = lambda *_: True  # so that `unpad_inputs` alone decides

    @torch.no_grad()
    def run(b: int, s: int, share: float, unpad: bool) -> bool:
        """Return whether the model leaves this padding out by default."""
        mask = mask_of(b, s, share, device)
        model(torch.randint(5, 8000, (b, s), device=device), attention_mask=mask, unpad_inputs=unpad)
        weight = model.embeddings.word_embeddings.weight
        return is_faster_packed(model.config, mask, int((mask == 0).sum()), weight, 0.0)

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


def from_share(found: list[bool]) -> str:
    """Return the least of SHARES such that it and all larger ones are true."""
    return next((f"{share:.0%}" for i, share in enumerate(SHARES) if all(found[i:])), "none")


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a small model, short texts, one run")
    chosen = parser.parse_args()
    sizes, threads, lengths = CASES["quick" if chosen.quick else chosen.device]
    on_gpu = chosen.device == "cuda"
    columns = ("layers x width", "threads", "tokens", "texts", *(f"{share:.0%} padding" for share in SHARES))
    columns += ("faster from", "left out by default from") if on_gpu else ("left out by default from",)
    table = Table(*columns, title="Speed-up of leaving padding out")
    with reporting.Figures(chosen.output) as figures:
        for (layers, width), number in product(sizes, threads):
            with timing.subjects(chosen.device, make_forward, (number,), layers, width, chosen.device) as models:
                for s, b in product(lengths, sizes[layers, width]):
                    batch, cells, by_default = (f"{layers}x{width}", f"{number}", f"{s}", f"{b}"), [], []
                    for share in SHARES:
                        calls = {unpad: (models[number], b, s, share, unpad) for unpad in (False, True)}
                        padded, packed = timing.alternate(calls, 1 if chosen.quick else 5, title=str(batch)).values()
                        cells.append(reporting.ratio(padded, packed))
                        by_default.append(packed.results[-1])
                    is_faster = [statistics.median(cell.values) > 1 for cell in cells]
                    bounds = [from_share(is_faster), from_share(by_default)]
                    table.add_row(*batch, *cells, *(bounds if on_gpu else [f"{LEAST_SAVED / width**2 / s:.1%}"]))
        figures.add("padding", table)


if __name__ == "__main__":
    main()
