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
import logging
import time
from collections.abc import Callable
from functools import partial

import reporting
import timing
import torch
import transformers
from rich.table import Table

import modeling_roformer as ours

GPT2, THEIRS, OURS = "GPT-2", "transformers' RoFormer", "RoFormer-GPT"
SIM, LINEAR = "RoFormer-Sim", "linear attention"
NAMES = (GPT2, THEIRS, OURS, SIM, LINEAR)
WAYS = {
    "greedy": dict(do_sample=False),
    "sampling": dict(do_sample=True, top_p=0.95),
    "4 beams": dict(do_sample=False, num_beams=4),
    "static cache": dict(do_sample=False, cache_implementation="static"),
}


def make_model(
    name: str, layers: int, width: int, heads: int, words: int, longest: int
) -> transformers.PreTrainedModel:
    """Make a model with random weights that never ends a text."""
    torch.manual_seed(0)
    shared = dict(vocab_size=words, pad_token_id=0, eos_token_id=None, bos_token_id=None)
    if name == GPT2:
        sizes = dict(n_layer=layers, n_embd=width, n_head=heads, n_positions=longest, attn_implementation="sdpa")
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**shared, **sizes)).eval()
    sizes = dict(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width)
    shared |= dict(**sizes, max_position_embeddings=longest, is_decoder=True)
    if name == THEIRS:
        return transformers.RoFormerForCausalLM(transformers.RoFormerConfig(**shared, embedding_size=width)).eval()
    attention = "linear" if name == LINEAR else "softmax"
    config = ours.RoFormerConfig(**shared, prefix_lm=name == SIM, attention_type=attention)
    return ours.RoFormerForCausalLM(config).eval()


class FirstLogits(transformers.LogitsProcessor):
    """Time of the first call, when the logits after the prompt are known, by a clock."""

    time: float | None = None

    def __init__(self, clock: Callable[[], float]):
        self.clock = clock

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.time is None:
            self.time = self.clock()
        return scores


def generate(model, b: int, s: int, new_tokens: int, way: str) -> tuple[float, float]:
    """Generate after b prompts of at most s tokens; return the seconds of the prefill and of each later step."""
    clock = time.process_time if model.device.type == "cpu" else timing.timer
    ids = torch.randint(5, model.config.vocab_size, (b, s), generator=torch.Generator().manual_seed(0))
    padding = torch.arange(b)[:, None] * s // (2 * b)
    mask = (torch.arange(s) >= padding).long()
    ids, mask = (ids * mask).to(model.device), mask.to(model.device)
    first = FirstLogits(clock)
    begun = clock()
    ids_after = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=new_tokens, logits_processor=[first], **WAYS[way]
    )
    ended = clock()
    assert ids_after.shape == (b, s + new_tokens)
    return first.time - begun, (ended - first.time) / (new_tokens - 1)


def in_turn(calls: dict[str, Callable], runs: int, progress: Callable[[str], None]) -> dict[str, tuple]:
    """Return the prefill and the step of each model, as measurements. They run in turns, after one warm-up call
    each."""
    found = timing.in_rounds(calls, runs, lambda name, run: progress(f"{name}, run {run} of {runs}"))
    return {
        name: tuple(timing.Measurement([*times]) for times in zip(*turns, strict=True)) for name, turns in found.items()
    }


def measure_speed(models: dict, chosen: argparse.Namespace, progress: Callable[[str], None]) -> Table:
    """Return a table of new tokens per second, for each way to generate and each size of a batch."""
    headers = ("", "prompts", "model", "new tokens/s", f"/ {THEIRS}", f"/ {GPT2}", "prefill, ms")
    table = Table(*headers, title=f"Generation of {chosen.new_tokens} tokens")
    for way in chosen.ways:
        for s in chosen.prompts if way == "greedy" else chosen.prompts[:1]:
            for b in chosen.batches:
                case = f"{b} × {s:,}"
                takes_part = {n: m for n, m in models.items() if "static" not in way or n != LINEAR}
                calls = {n: partial(generate, m, b, s, chosen.new_tokens, way) for n, m in takes_part.items()}
                is_long = chosen.device == "cpu" and b * s >= 4096
                runs = max(1, chosen.runs // 3) if is_long else chosen.runs
                measured = in_turn(calls, runs, lambda text, case=case, way=way: progress(f"{way}, {case}: {text}"))
                for name, (prefill, step) in measured.items():
                    ratios = [reporting.ratio(measured[peer][1], step) for peer in (THEIRS, GPT2)]
                    table.add_row(
                        way, case, name, reporting.rate(b, step), *ratios, reporting.duration(prefill, "{:,.0f}", 1e-3)
                    )
                table.add_section()
    return table


def measure_lengths(models: dict, chosen: argparse.Namespace, progress: Callable[[str], None]) -> Table:
    """Return a table of the time per new token after one prompt of each length."""
    whats = ", ms/token", f", / at {chosen.lengths[0]:,}"
    headers = [f"{name}{what}" for name in (OURS, LINEAR) for what in whats]
    table = Table("prompt, tokens", *headers, title="Time per new token")
    calls = {
        (name, s): partial(generate, models[name], 1, s, chosen.new_tokens, "greedy")
        for s in chosen.lengths
        for name in (OURS, LINEAR)
    }
    measured = in_turn(calls, max(1, chosen.runs // 3), lambda text: progress(f"lengths: {text}"))
    steps = {call: step for call, (_, step) in measured.items()}
    for s in chosen.lengths:
        cells = []
        for name in (OURS, LINEAR):
            step = steps[name, s]
            cells += [reporting.duration(step, "{:.2f}", 1e-3), reporting.ratio(step, steps[name, chosen.lengths[0]])]
        table.add_row(f"{s:,}", *cells)
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
    parser.add_argument("--new-tokens", type=int, default=33, help="at least 2")
    parser.add_argument("--runs", type=int, default=9, help="per median; a third of it for long prompts on a CPU")
    parser.add_argument("--quick", action="store_true", help="small models, few and short prompts, one run")
    chosen = parser.parse_args()
    sizes = (6, 256, 4, 12_000) if chosen.device == "cpu" else (12, 768, 12, 50_000)
    if chosen.quick:
        sizes, chosen.runs, chosen.new_tokens = (2, 32, 4, 12_000), 1, 3
        chosen.prompts, chosen.batches, chosen.lengths = [8, 16], [1, 2], [16, 32] if chosen.lengths else []
    if chosen.new_tokens < 2:
        parser.error("--new-tokens must be at least 2: the first token belongs to the prefill")
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    longest = max(*chosen.prompts, *chosen.lengths, 0) + chosen.new_tokens
    dtype = torch.float32 if chosen.device == "cpu" else torch.bfloat16
    with reporting.Figures(chosen.output) as figures, figures.console.status("models are made") as status:
        with torch.device(chosen.device):  # which draws weights faster
            models = {name: make_model(name, *sizes, longest).to(dtype) for name in NAMES}
        figures.add("speed", measure_speed(models, chosen, status.update))
        if chosen.lengths:
            figures.add("lengths", measure_lengths(models, chosen, status.update))


if __name__ == "__main__":
    main()
