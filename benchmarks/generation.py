"""New tokens per second of `generate`: RoFormer-GPT, RoFormer-Sim and linear attention beside transformers' models.

    python benchmarks/generation.py [--device cuda] [--quick] [--output FOLDER/NAME]

All models have 6 layers of 256, 4 heads, 12,000 words and random weights, on a GPU 12 layers of 768, 12 heads and
50,000 words in bfloat16. Prompts of a batch have different lengths, half to all of --prompts, with padding on the left.
The models run in turns in one process. On a CPU they have one core, and times are the processor's, since other load
changes these less; on a GPU, times are the clock's. A call of `generate` gives two figures: the prefill, up to the
first logits, and the decoding of the tokens after it. Beams, sampling and static caches are measured for the first
length of --prompts. The second table has one prompt of each length in --lengths: softmax attention reads the keys of
all tokens for each new one, linear attention a state of constant size.
"""

import argparse
import time
from collections.abc import Callable

import peers
import reporting
import timing
import torch
import transformers
from peers import GPT2, THEIRS
from rich.table import Table

OURS, SIM, LINEAR = "RoFormer-GPT", "RoFormer-Sim", "linear attention"
FIELDS = {OURS: {}, SIM: {"prefix_lm": True}, LINEAR: {"attention_type": "linear"}}
WAYS = {
    "greedy": dict(do_sample=False),
    "sampling": dict(do_sample=True, top_p=0.95),
    "4 beams": dict(do_sample=False, num_beams=4),
    "static cache": dict(do_sample=False, cache_implementation="static"),
}


class FirstLogits(transformers.LogitsProcessor):
    """Time of the first call, when the logits after the prompt are known, by a clock."""

    time: float | None = None

    def __init__(self, clock: Callable[[], float]):
        self.clock = clock

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.time is None:
            self.time = self.clock()
        return scores


def make_generation(name: str, device: str, size: peers.Size) -> Callable:
    """Return a subject: the generation of texts that never end."""
    with torch.device(device):  # which draws weights faster
        if name == GPT2:
            model = peers.make_model(GPT2, "LMHeadModel", size, eos_token_id=None, bos_token_id=None)
        else:
            fields = dict(eos_token_id=None, bos_token_id=None, is_decoder=True) | FIELDS.get(name, {})
            model = peers.make_model(THEIRS if name == THEIRS else peers.OURS, "ForCausalLM", size, **fields)
    model.to(torch.float32 if device == "cpu" else torch.bfloat16)
    clock = time.process_time if device == "cpu" else timing.timer

    def generate(b: int, s: int, new_tokens: int, way: str) -> tuple[float, float]:
        """Return the seconds of the prefill after b prompts of at most s tokens, and of each later step."""
        ids = torch.randint(5, size.words, (b, s), generator=torch.Generator().manual_seed(0))
        mask = (torch.arange(s) >= torch.arange(b)[:, None] * s // (2 * b)).long()
        inputs = {"input_ids": (ids * mask).to(device), "attention_mask": mask.to(device)}
        first = FirstLogits(clock)
        begun = clock()
        ids_after = model.generate(**inputs, max_new_tokens=new_tokens, logits_processor=[first], **WAYS[way])
        ended = clock()
        assert ids_after.shape == (b, s + new_tokens)
        return first.time - begun, (ended - first.time) / (new_tokens - 1)

    return generate


def measure(calls: dict, runs: int, title: str) -> dict[str, list[timing.Measurement]]:
    """Return the prefill and the step of each call, as measurements."""
    measured = timing.alternate(calls, runs, title=title)
    return {
        name: [timing.Measurement([*times]) for times in zip(*m.results, strict=True)] for name, m in measured.items()
    }


def measure_speed(models: dict, chosen: argparse.Namespace) -> Table:
    """Return a table of new tokens per second, for each way to generate and each size of a batch."""
    headers = ("", "prompts", "model", "new tokens/s", f"/ {THEIRS}", f"/ {GPT2}", "prefill, ms")
    table = Table(*headers, title=f"Generation of {chosen.new_tokens} tokens")
    cases = [(way, s, b) for way in chosen.ways for s in chosen.prompts for b in chosen.batches]
    for way, s, b in cases:
        if way != "greedy" and s != chosen.prompts[0]:
            continue
        taking_part = [name for name in models if name != LINEAR or way != "static cache"]
        calls = {name: (models[name], b, s, chosen.new_tokens, way) for name in taking_part}
        runs = max(1, chosen.runs // 3) if chosen.device == "cpu" and b * s >= 4096 else chosen.runs
        measured = measure(calls, runs, f"{way}, {b} × {s:,}")
        for name, (prefill, step) in measured.items():
            ratios = [reporting.ratio(measured[peer][1], step) for peer in (THEIRS, GPT2)]
            cells = reporting.rate(b, step), *ratios, reporting.duration(prefill, "{:,.0f}", 1e-3)
            table.add_row(way, f"{b} × {s:,}", name, *cells)
        table.add_section()
    return table


def measure_lengths(models: dict, chosen: argparse.Namespace) -> Table:
    """Return a table of the time per new token after one prompt of each length."""
    names, shortest = (OURS, LINEAR), chosen.lengths[0]
    whats = ", ms/token", f", / at {shortest:,}"
    table = Table("prompt, tokens", *(f"{name}{what}" for name in names for what in whats), title="Time per new token")
    calls = {(name, s): (models[name], 1, s, chosen.new_tokens, "greedy") for s in chosen.lengths for name in names}
    steps = {call: step for call, (_, step) in measure(calls, max(1, chosen.runs // 3), "lengths").items()}
    for s in chosen.lengths:
        times = ((steps[name, s], steps[name, shortest]) for name in names)
        cells = ((reporting.duration(step, "{:.2f}", 1e-3), reporting.ratio(step, first)) for step, first in times)
        table.add_row(f"{s:,}", *(cell for pair in cells for cell in pair))
    return table


def main() -> None:
    parser = reporting.make_parser(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--prompts", type=int, nargs="+", default=[32, 1024], help="tokens of the longest prompt")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16], help="prompts per batch")
    parser.add_argument(
        "--lengths", type=int, nargs="*", default=[1024, 4096, 16384], help="of the second table; none leaves it out"
    )
    parser.add_argument("--runs", type=int, default=9, help="per median; a third of it for long prompts on a CPU")
    parser.add_argument("--quick", action="store_true", help="small models, few and short prompts, one run")
    chosen = parser.parse_args()
    sizes, chosen.new_tokens = (6, 256, 12_000) if chosen.device == "cpu" else (12, 768, 50_000), 33
    if chosen.quick:
        sizes, chosen.runs, chosen.new_tokens = (2, 64, 12_000), 1, 3
        chosen.prompts, chosen.batches, chosen.lengths = [8, 16], [1, 2], [16, 32] if chosen.lengths else []
    torch.set_num_threads(1)
    size = peers.Size(*sizes, max(*chosen.prompts, *chosen.lengths, 0) + chosen.new_tokens)
    with reporting.Figures(chosen.output) as figures:
        names = (GPT2, THEIRS, OURS, SIM, LINEAR)
        models = {name: timing.Resident(make_generation, name, chosen.device, size) for name in names}
        figures.add("speed", measure_speed(models, chosen))
        if chosen.lengths:
            figures.add("lengths", measure_lengths(models, chosen))


if __name__ == "__main__":
    main()
