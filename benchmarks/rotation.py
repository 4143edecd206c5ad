"""Speed of the rotation of one layer's query and key: the complex form, the real form, and on a GPU the Triton kernel.

    python benchmarks/rotation.py [--device cpu|cuda] [--shapes B,S,H,D …]

"forward" is without gradients, "training" with the gradients of query and key. Each form runs in its own process, in
turns; times are medians, for both tensors. The complex form is what models use; the real one multiplies even and odd
dimensions by cosines and sines.
"""

from collections.abc import Callable
from itertools import product

import reporting
import timing
import torch
from rich.table import Table

from modeling_roformer.rotary import inverse_frequencies, rotary_position_embeddings, rotate_query_and_key
from modeling_roformer.rotary_kernel import rotate_by_kernel

COMPLEX, REAL, KERNEL = "complex form", "real form", "kernel"
FORMS = {"cpu": (COMPLEX, REAL), "cuda": (COMPLEX, REAL, KERNEL)}
SHAPES = {"cpu": ["1,128,12,64", "1,512,12,64", "8,512,12,64"], "cuda": ["1,128,12,64", "32,512,12,64", "2,8192,16,64"]}
TOGETHER = {"cpu": 2**21, "cuda": 2**30}  # elements of one run, in as many calls as that takes


def real_form(query: torch.Tensor, key: torch.Tensor, rotation: torch.Tensor) -> list[torch.Tensor]:
    """Rotate query and key by equation 34 as it is written."""
    cos, sin = rotation.unbind(-1)
    rotated = []
    for x in (query, key):
        even, odd = x.unflatten(-1, (-1, 2)).float().unbind(-1)
        rotated.append(torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2).to(x.dtype))
    return rotated


def make_subject(name: str, device: str) -> Callable:
    """Return the subject of a worker: a function of a job, a dtype, a shape (b, s, h, d) and a number of calls."""
    rotate = {COMPLEX: rotate_query_and_key, REAL: real_form, KERNEL: rotate_by_kernel}[name]
    prepared = {}

    def run(job: str, dtype: torch.dtype, shape: tuple[int, ...], times: int) -> None:
        if (dtype, shape) not in prepared:
            prepared.clear()
            tensors = [torch.randn(shape).to(device, dtype) for _ in range(4)]
            positions = torch.arange(shape[1], device=device)[None]
            rotation = rotary_position_embeddings(positions, inverse_frequencies(shape[3], device=device))
            if rotate(*tensors[:2], rotation) is None:
                raise RuntimeError("Triton cannot compile or launch the kernel on this machine")
            prepared[dtype, shape] = tensors, rotation
        (*leaves, query_gradient, key_gradient), rotation = prepared[dtype, shape]
        for _ in range(times):
            if job == "forward":
                with torch.no_grad():
                    rotate(*leaves, rotation)
            else:
                leaves = [x.detach().requires_grad_() for x in leaves]
                torch.autograd.backward(rotate(*leaves, rotation), (query_gradient, key_gradient))

    return run


def read_shape(text: str) -> tuple[int, ...]:
    """Read "B,S,H,D"."""
    b, s, h, d = map(int, text.split(","))
    return b, s, h, d


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shapes", nargs="+", metavar="B,S,H,D", help="texts, tokens, heads and their width")
    parser.add_argument("--runs", type=int, default=7, help="runs of each form, after one warm-up")
    chosen = parser.parse_args()
    first, *others = FORMS[chosen.device]
    columns = (column for name in others for column in (f"{name}, µs", "times as fast"))
    table = Table("", "dtype", "b, s, h, d", f"{first}, µs", *columns)
    shapes = [read_shape(text) for text in chosen.shapes or SHAPES[chosen.device]]
    with reporting.Figures(chosen.output, "triton") as figures, figures.console.status("") as status:
        workers = {name: timing.Worker(make_subject, name, chosen.device) for name in (first, *others)}
        for job, dtype, shape in product(("forward", "training"), (torch.float32, torch.bfloat16), shapes):
            status.update(f"{job}, {dtype}, {shape}")
            b, s, h, d = shape
            times = max(1, TOGETHER[chosen.device] // (b * s * h * d))
            calls = {name: (worker, job, dtype, shape, times) for name, worker in workers.items()}
            found = timing.alternate(calls, chosen.runs)
            cells = [reporting.duration(found[first], "{:,.0f}", times / 1e6)]
            for name in others:
                cells.append(reporting.duration(found[name], "{:,.0f}", times / 1e6))
                cells.append(reporting.ratio(found[first], found[name]))
            table.add_row(job, str(dtype).removeprefix("torch."), ", ".join(map(str, shape)), *cells)
        timing.close(workers.values())
        figures.add("rotation", table)


if __name__ == "__main__":
    main()
