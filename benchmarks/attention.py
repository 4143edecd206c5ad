"""Speed and memory of attention by text length: softmax, and linear attention with each feature map.

    python benchmarks/attention.py [--models LAYERS] [--lengths N …]

One attention layer of base width (12 heads of 64) runs on a CPU in float32. "Attention" is everything between the
projections: rotation, feature maps and sums. "forward" is the forward pass, "training" includes the backward pass. The
peers are torch's scaled dot product attention with our rotation, `performer-pytorch` (without positions; if it is
installed), and equation 19 in plain PyTorch, as one product. Each runs in its own process, in turns; the table has
medians. Whole models follow. Runs that need too much memory or time are left out.
"""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from itertools import product

import peers
import reporting
import timing
import torch
from rich.table import Table
from torch.nn import functional as F

from modeling_roformer import RoFormerConfig
from modeling_roformer.linear_attention import RoFormerLinearSelfAttention
from modeling_roformer.rotary import inverse_frequencies, rotary_position_embeddings, rotate

SDPA, PERFORMER, PLAIN = "SDPA", "performer-pytorch, 256", "elu, plain formula"
MAPS = {
    "elu": {"linear_feature_map": "elu"},
    "softmax": {"linear_feature_map": "softmax"},
    "cosine": {"linear_feature_map": "cosine"},
    "favor, 256": {"linear_feature_map": "favor"},
    "favor, 256, rotated before": {"linear_feature_map": "favor", "linear_rotation": "before"},
}
HEADS, HEAD_DIM = 12, 64
NAMES = (SDPA, *MAPS, PLAIN, PERFORMER)
LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)
LONGEST = {  # longer runs take minutes
    "bidirectional": {SDPA: 16_384},
    "causal": {SDPA: 16_384, PERFORMER: 2048, PLAIN: 2048},
}
LONGEST_TRAINING = 16_384
MODEL_LENGTHS = (512, 4096, 16_384, 65_536)
LONGEST_MODEL = {SDPA: 16_384}


def plain_elu(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, positions: tuple, causal: bool):
    """Equation 19 in plain PyTorch."""
    query, key = F.elu(query) + 1, F.elu(key) + 1
    turned, turned_key = rotate(query, *positions), rotate(key, *positions)
    if not causal:
        above = torch.einsum("bmhf,bhfe->bmhe", turned, torch.einsum("bnhf,bnhe->bhfe", turned_key, value))
        return above / torch.einsum("bmhf,bhf->bmh", query, key.sum(1))[..., None]
    sums = torch.einsum("bnhf,bnhe->bnhfe", turned_key, value).cumsum(1)  # one matrix per position
    above = torch.einsum("bmhf,bmhfe->bmhe", turned, sums)
    return above / torch.einsum("bmhf,bmhf->bmh", query, key.cumsum(1))[..., None]


def make_attention(name: str, causal: bool) -> Callable:
    """Return a function from query, key, value and positions to the attention output."""
    if name == SDPA:

        def attend(query, key, value, positions):
            query, key = rotate(query, *positions), rotate(key, *positions)
            query, key, value = (x.transpose(1, 2) for x in (query, key, value))
            return F.scaled_dot_product_attention(query, key, value, is_causal=causal)

        return attend
    if name == PLAIN:
        return lambda query, key, value, positions: plain_elu(query, key, value, positions, causal)
    if name == PERFORMER:
        from performer_pytorch import FastAttention

        fast = FastAttention(HEAD_DIM, nb_features=256, causal=causal, no_projection=False).eval()
        return lambda query, key, value, positions: fast(*(x.transpose(1, 2) for x in (query, key, value)))
    config = RoFormerConfig(hidden_size=HEADS * HEAD_DIM, is_decoder=causal, attention_type="linear", **MAPS[name])
    attention = RoFormerLinearSelfAttention(config, 0).eval()
    return lambda *tensors: attention.attend_linearly(*tensors)[0]


def make_layer(name: str, causal: bool, job: str) -> Callable:
    """Return the subject of a worker, for "forward" or "training": a function of a length and a number of runs."""
    attend = make_attention(name, causal)
    width = RoFormerConfig(attention_type="linear", **MAPS[name]).rotary_dim if name in MAPS else HEAD_DIM
    inputs = {}

    def run(s: int, times: int) -> None:
        if s not in inputs:
            inputs.clear()
            some, positions = torch.Generator().manual_seed(s), torch.arange(s)[None]
            tensors = [torch.randn(1, s, HEADS, HEAD_DIM, generator=some) for _ in range(3)]
            inputs[s] = tensors, (rotary_position_embeddings(positions, inverse_frequencies(width)),)
        tensors, positions = inputs[s]
        for _ in range(times):
            if job == "forward":
                with torch.no_grad():
                    attend(*tensors, positions)
            else:
                leaves = [x.detach().requires_grad_() for x in tensors]
                attend(*leaves, positions).sum().backward()

    return run


def make_model(name: str, causal: bool, layers: int) -> Callable:
    """Return the subject of a worker: a whole model on one text."""
    fields = {} if name == SDPA else {"attention_type": "linear", **MAPS[name]}
    size = peers.Size(layers, HEADS * HEAD_DIM, 12_000)
    model = peers.make_model(peers.OURS, "Model", size, is_decoder=causal, use_cache=False, **fields)
    some = torch.Generator().manual_seed(0)

    @torch.no_grad()
    def run(s: int, times: int) -> None:
        for _ in range(times):
            model(torch.randint(5, size.words, (1, s), generator=some))

    return run


def measure(
    make: Callable, names: list[str], arguments: tuple, lengths: Iterable[int], longest: dict, runs: int, title: str
) -> dict[int, dict[str, timing.Measurement]]:
    """Measure by length and name. Lengths ascend, so that peaks belong to them; short texts run more often."""
    results = {}
    with timing.subjects("cpu", make, names, *arguments) as subjects:
        for s in lengths:
            times = max(1, 4096 // s)
            calls = {name: (subject, s, times) for name, subject in subjects.items() if s <= longest.get(name, s)}
            few = runs if s <= 16_384 else min(runs, 2)
            results[s] = timing.alternate(calls, few, s < 8192, f"{title}, {s:,} tokens")
            for m in results[s].values():
                m.times = [seconds / times for seconds in m.times]
    return results


def add_tables(
    figures: reporting.Figures, name: str, found: dict[str, dict[int, dict]], names: list[str], title: str
) -> None:
    """Add a table of microseconds per token with the speed-up over SDPA, and one of peak memory, by kind and length."""
    times = Table("", "tokens", *names, title=f"{title}: microseconds per token (speed-up over {SDPA})")
    memory = Table("", "tokens", *names, title=f"{title}: peak memory, MB")
    for kind, s, measured in ((kind, s, of) for kind, results in found.items() for s, of in results.items()):
        cells = dict.fromkeys(names, "")
        for one, m in measured.items():
            template = "{:,.1f}"
            if one != SDPA and SDPA in measured:
                template += f" ({reporting.ratio(measured[SDPA], m, '{:.1f} ×')})"
            cells[one] = reporting.duration(m, template, s / 1e6)
        times.add_row(kind, f"{s:,}", *cells.values())
        peaks = {one: f"{m.peak / reporting.MB:,.0f}" for one, m in measured.items()}
        memory.add_row(kind, f"{s:,}", *(peaks.get(one, "") for one in names))
    figures.add(name, times)
    figures.add(f"{name}, memory", memory)


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens per text, ascending")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--models", type=int, default=12, metavar="LAYERS", help="of whole models; 0 skips them")
    chosen = parser.parse_args()
    names = [name for name in NAMES if name != PERFORMER or find_spec("performer_pytorch")]
    layers, models = {}, {}
    for (direction, longest), job in product(LONGEST.items(), ("forward", "training")):
        title, arguments = f"{direction}, {job}", (direction == "causal", job)
        lengths = [s for s in chosen.lengths if job == "forward" or s <= LONGEST_TRAINING]
        layers[title] = measure(make_layer, names, arguments, lengths, longest, chosen.runs, title)
    for direction in LONGEST if chosen.models else ():
        arguments, lengths = (direction == "causal", chosen.models), [s for s in chosen.lengths if s in MODEL_LENGTHS]
        subjects = make_model, [SDPA, *MAPS], arguments
        models[direction] = measure(*subjects, lengths, LONGEST_MODEL, min(chosen.runs, 2), f"{direction} model")
    with reporting.Figures(chosen.output, "performer-pytorch") as figures:
        add_tables(figures, "layer", layers, names, "One layer, cpu")
        if models:
            title = f"Whole model of {chosen.models} layers, forward, cpu"
            add_tables(figures, "model", models, [SDPA, *MAPS], title)


if __name__ == "__main__":
    main()
