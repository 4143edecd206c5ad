"""Speed of the forward pass with padding left out, compared with padding computed, by the share of padding in the
batch.

    python benchmarks/padding.py [--sizes 6x256 12x768:4] [--lengths 64 512] [--batches 4 32] [--threads 1 2]

Lengths of the texts are drawn evenly from a range, and one text has the full length. The two run in turns in one
process per size and number of threads. The table shows from which share on leaving padding out is faster; LEAST_SAVED
of modeling_roformer/unpadding.py is that share.
"""

from collections.abc import Callable
from itertools import product

import measure
import torch
from rich.table import Table

from modeling_roformer import RoFormerConfig, RoFormerModel, unpadding
from modeling_roformer.unpadding import LEAST_SAVED

SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)


def make_model(layers: int, width: int, threads: int) -> Callable:
    """Return the subject of a worker: a forward pass of a padded batch."""
    unpadding.LEAST_SAVED = 1  # leave out any padding
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    heads = dict(num_attention_heads=width // 64, intermediate_size=4 * width)
    model = RoFormerModel(RoFormerConfig(vocab_size=8000, hidden_size=width, num_hidden_layers=layers, **heads)).eval()

    @torch.no_grad()
    def run(b: int, s: int, share: float, unpad: bool) -> float:
        """Return the share of padding."""
        mask = mask_of(b, s, share)
        model(torch.randint(5, 8000, (b, s)), attention_mask=mask, unpad_inputs=unpad)
        return 1 - mask.float().mean().item()

    return run


def mask_of(b: int, s: int, share: float) -> torch.Tensor:
    """Return the mask of texts of s tokens at most, of which about a share is padding; shape (b, s)."""
    some = torch.Generator().manual_seed(0)
    lengths = torch.randint(max(1, round(s * (1 - 2 * share))), s + 1, (b,), generator=some)
    lengths[0] = s
    return (torch.arange(s) < lengths[:, None]).long()


def main() -> None:
    parser = measure.make_parser(__doc__)
    parser.add_argument("--sizes", nargs="+", default=["6x256", "12x768:4"], metavar="LAYERSxWIDTH[:TEXTS]")
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 512], help="tokens of the longest text")
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 32], help="texts, where --sizes has none")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runs", type=int, default=5, help="runs, after one warm-up")
    chosen = parser.parse_args()
    columns = ("layers x width", "threads", "tokens", "texts", *(f"{share:.0%} padding" for share in SHARES))
    table = Table(*columns, "left out by default from", title="Speed-up of leaving padding out")
    with measure.Figures(chosen.output) as figures, figures.console.status("") as status:
        for size, threads in product(chosen.sizes, chosen.threads):
            size, _, texts = size.partition(":")
            layers, width = map(int, size.split("x"))
            with measure.Worker(make_model, layers, width, threads) as worker:
                for s, b in product(chosen.lengths, [int(texts)] if texts else chosen.batches):
                    status.update(f"{size}, {threads} threads, {b} texts of {s} tokens")
                    cells = []
                    for share in SHARES:
                        calls = {str(unpad): (worker, b, s, share, unpad) for unpad in (False, True)}
                        cells.append(measure.ratio(*measure.alternate(calls, chosen.runs).values()))
                    table.add_row(size, f"{threads}", f"{s}", f"{b}", *cells, f"{LEAST_SAVED / width**2 / s:.1%}")
        figures.add("padding", table)


if __name__ == "__main__":
    main()
