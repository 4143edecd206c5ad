"""Speed and memory of attention by text length: softmax, and linear attention with each feature map.

    python benchmarks/attention.py [--device cpu|cuda] [--lengths N …] [--longest-training N]

One attention layer of base width (12 heads of 64) runs on a CPU in float32, or on a GPU in bfloat16. "Attention" is
everything between the projections: rotation, feature maps and sums. "forward" is the forward pass, "training" includes
the backward pass. The peers are torch's scaled dot product attention with our rotation, `performer-pytorch` (without
positions; if it is installed), and equation 19 in plain PyTorch, as one product. Each runs in its own process, in
turns; the table has medians. Whole models of 12 layers follow. Runs that need too much memory or time are left out.
"""

from collections.abc import Callable
from importlib.util import find_spec
from itertools import product

import reporting
import timing
import torch
from rich.table import Table
from torch.nn import functional as F

from modeling_roformer import RoFormerConfig, RoFormerModel
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
LONGEST = {SDPA: 16_384}  # longer runs take minutes
LONGEST_CAUSAL = {SDPA: 16_384, PERFORMER: 2048, PLAIN: 2048}
MODEL_LENGTHS = (512, 4096, 16_384, 65_536)


def make_qkv(s: int, device: str) -> list[torch.Tensor]:
    """Return query, key and value of one text, shape (1, s, h, d)."""
    some = torch.Generator().manual_seed(s)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return [torch.randn(1, s, HEADS, HEAD_DIM, generator=some).to(device, dtype) for _ in range(3)]


def turns(s: int, width: int, device: str) -> tuple[torch.Tensor]:
    inv_freq = inverse_frequencies(width, device=device)
    return (rotary_position_embeddings(torch.arange(s, device=device)[None], inv_freq),)


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


def make_attention(name: str, device: str, causal: bool) -> Callable:
    """Return a function from query, key and value to the attention output."""
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

        fast = FastAttention(HEAD_DIM, nb_features=256, causal=causal, no_projection=False).to(device).eval()
        return lambda query, key, value, positions: fast(*(x.transpose(1, 2) for x in (query, key, value)))
    config = RoFormerConfig(hidden_size=HEADS * HEAD_DIM, is_decoder=causal, attention_type="linear", **MAPS[name])
    attention = RoFormerLinearSelfAttention(config, 0).to(device).eval()
    return lambda query, key, value, positions: attention.attend_linearly(
        query.float(), key.float(), value.float(), positions
    )[0]


def make_layer(name: str, device: str, causal: bool, job: str) -> Callable:
    """Return the subject of a worker, for "forward" or "training": a function of a length and a number of runs."""
    attend = make_attention(name, device, causal)
    width = RoFormerConfig(attention_type="linear", **MAPS[name]).rotary_dim if name in MAPS else HEAD_DIM
    prepared = {}

    def run(s: int, times: int) -> None:
        if s not in prepared:
            prepared.clear()
            prepared[s] = make_qkv(s, device), turns(s, width, device)
        tensors, positions = prepared[s]
        for _ in range(times):
            if job == "forward":
                with torch.no_grad():
                    attend(*tensors, positions)
            else:
                leaves = [x.detach().requires_grad_() for x in tensors]
                attend(*leaves, positions).sum().backward()

    return run


def make_model(name: str, device: str, causal: bool, layers: int) -> Callable:
    """Return the subject of a worker: a whole model on one text."""
    fields = {} if name == SDPA else {"attention_type": "linear", **MAPS[name]}
    config = RoFormerConfig(num_hidden_layers=layers, is_decoder=causal, use_cache=False, vocab_size=12_000, **fields)
    model = RoFormerModel(config).eval().to(device, torch.bfloat16 if device == "cuda" else torch.float32)
    some = torch.Generator().manual_seed(0)

    @torch.no_grad()
    def run(s: int, times: int) -> None:
        for _ in range(times):
            model(torch.randint(5, 12_000, (1, s), generator=some).to(device))

    return run


def measure_all(workers: dict, lengths: list[int], longest: dict[str, int], runs: int, progress: Callable) -> dict:
    """Measure by length and name. Lengths ascend, so that peaks belong to them; short texts run more often."""
    results = {}
    try:
        for s in lengths:
            times = max(1, 4096 // s)
            calls = {name: (worker, s, times) for name, worker in workers.items() if s <= longest.get(name, s)}
            results[s] = timing.alternate(
                calls,
                runs if s <= 16_384 else min(runs, 2),
                lambda name, s=s: progress(f"{s:,} tokens: {name}"),
                warm_up=s < 8192,
            )
            for m in results[s].values():
                m.times = [seconds / times for seconds in m.times]
    finally:
        timing.close(workers.values())
    return results


def show(found: dict[str, dict[int, dict]], names: list[str], title: str) -> tuple[Table, Table]:
    """Return a table of microseconds per token and the speed-up over SDPA, and one of peak memory, by kind and
    length."""
    times = Table("", "tokens", *names, title=f"{title}: microseconds per token (speed-up over {SDPA})")
    memory = Table("", "tokens", *names, title=f"{title}: peak memory, MB")
    for kind, results in found.items():
        for s, measured in results.items():
            cells = []
            for name in names:
                template = "{:,.1f}"
                if name != SDPA and {SDPA, name} <= measured.keys():
                    template += f" ({reporting.ratio(measured[SDPA], measured[name], '{:.1f} ×')})"
                cells.append(reporting.duration(measured[name], template, s / 1e6) if name in measured else "")
            times.add_row(kind, f"{s:,}", *cells)
            peaks = (f"{measured[name].peak / reporting.MB:,.0f}" if name in measured else "" for name in names)
            memory.add_row(kind, f"{s:,}", *peaks)
        times.add_section()
        memory.add_section()
    return times, memory


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens per text, ascending")
    parser.add_argument("--longest-training", type=int, default=16_384, metavar="N", help="tokens with a backward pass")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--models", type=int, default=12, metavar="LAYERS", help="of whole models; 0 skips them")
    chosen = parser.parse_args()
    names = [name for name in NAMES if name != PERFORMER or find_spec("performer_pytorch")]  # of the extra bench
    found, models = {}, {}
    with reporting.Figures(chosen.output, "performer-pytorch") as figures, figures.console.status("") as status:
        for direction, job in product(("bidirectional", "causal"), ("forward", "training")):
            causal, title = direction == "causal", f"{direction}, {job}"
            found[title] = measure_all(
                {name: timing.Worker(make_layer, name, chosen.device, causal, job) for name in names},
                [s for s in chosen.lengths if job == "forward" or s <= chosen.longest_training],
                LONGEST_CAUSAL if causal else LONGEST,
                chosen.runs,
                lambda text, title=title: status.update(f"{title}, {text}"),
            )
        for direction in ("bidirectional", "causal") if chosen.models else ():
            models[direction] = measure_all(
                {
                    name: timing.Worker(make_model, name, chosen.device, direction == "causal", chosen.models)
                    for name in (SDPA, *MAPS)
                },
                [s for s in chosen.lengths if s in MODEL_LENGTHS],
                LONGEST,
                min(chosen.runs, 2),
                lambda text, direction=direction: status.update(f"{direction} model, {text}"),
            )
        title = f"One layer, {chosen.device}"
        for name, table in zip(("layer", "layer, memory"), show(found, names, title), strict=True):
            figures.add(name, table)
        if models:
            title = f"Whole model of {chosen.models} layers, forward, {chosen.device}"
            for name, table in zip(("model", "model, memory"), show(models, [SDPA, *MAPS], title), strict=True):
                figures.add(name, table)


if __name__ == "__main__":
    main()
