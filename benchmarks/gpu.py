"""Speed on a GPU: forward pass, training step, padding, attention kernels, and linear attention up to 65,536 tokens.

    python benchmarks/gpu.py [--output FOLDER/NAME] [--layers 12] [--runs 5] [--quick] [--device cpu]

`make figures-gpu` runs it. It has not run on a GPU yet. The models have random weights and 12 layers of 768;
ModernBERT's gated feed-forward layers have as many parameters as the others'. A batch has 16,384 tokens unless a table
says otherwise. Forward passes compute in bfloat16, training steps under autocast. Runs of all subjects alternate; the
tables have medians.

"flash" is the kernel that comes with torch (tests/helpers/torch_flash.py). "of peak" is the share of the data sheet's
dense bfloat16 FLOPS, or on other GPUs of the rate of a product of matrices of 8,192, which is also a row. FLOPS are
those of the products that the result needs: linear layers and attention of tokens, not of padding, and three times that
in training.
"""

import argparse
import gc
import logging
import sys
import time
from collections.abc import Callable
from functools import partial

import measure
import torch
import transformers
from inference import BERT, MODERN, OURS, THEIRS, make_model
from rich.table import Table

from modeling_roformer import RoFormerConfig, RoFormerModel
from training import make_step

sys.path.insert(0, str(measure.ROOT / "tests"))
from helpers import torch_flash

# Dense bfloat16, from the data sheets.
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40": 181e12, "L4": 121e12}
FLASH, FLEX, COMPILED = "RoFormer, flash", "RoFormer, flex", "RoFormer, compiled"
WIDTH, TOKENS = 768, 16_384
# The shortest and the longest texts but one, as shares of the longest.
SHARES = {"a quarter is padding": (0.5, 1.0), "three quarters are padding": (0.03, 0.47)}


class Gpu:
    """The device, its rate in FLOPS and the sizes of a run."""

    def __init__(self, chosen):
        self.device, self.layers, self.runs = chosen.device, chosen.layers, chosen.runs
        self.tokens = 256 if chosen.quick else TOKENS
        self.is_cuda = self.device == "cuda"
        self.dtype = torch.bfloat16 if self.is_cuda else torch.float32
        x = torch.randn(8192 if self.is_cuda else 512, 8192 if self.is_cuda else 512, device=self.device).to(self.dtype)
        self.product = 2 * len(x) ** 3 / self.compare({"": lambda: x @ x})[""].seconds
        name = torch.cuda.get_device_name() if self.is_cuda else ""
        self.peak = next((peak for part, peak in PEAKS.items() if part in name), self.product)

    def synchronize(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()

    def peak_memory(self, read: Callable) -> float:
        return read() if self.is_cuda else 0.0

    def timed(self, run: Callable, peaks: dict, name: str) -> float:
        if self.is_cuda:
            torch.cuda.reset_peak_memory_stats()
        before = self.peak_memory(torch.cuda.memory_allocated)
        self.synchronize()
        start = time.perf_counter()
        run()
        self.synchronize()
        seconds = time.perf_counter() - start
        peaks[name] = self.peak_memory(torch.cuda.max_memory_allocated) - before
        return seconds

    def compare(self, runs: dict[str, Callable]) -> dict[str, measure.Measurement]:
        """Measure functions in turns, after three warm-up calls each, in which kernels are compiled. One that the
        machine cannot run is left out, with its error."""
        peaks, fit = {}, {}
        for name, run in runs.items():
            try:
                for _ in range(3):
                    run()
                fit[name] = run
            except (RuntimeError, ValueError, ImportError) as error:  # out of memory is a RuntimeError
                lines = str(error).strip().splitlines() or [""]
                print(f"{name} is left out: {type(error).__name__}: {lines[0]}", file=sys.stderr)
                gc.collect()
                torch.cuda.empty_cache()
        functions = {name: partial(self.timed, run, peaks, name) for name, run in fit.items()}
        measured = measure.in_turn(functions, self.runs)
        for name, m in measured.items():
            m.peak = peaks[name]
        return measured

    def flops(self, lengths: list[int]) -> float:
        """Return the operations of one forward pass over texts of these lengths."""
        return sum(s * self.layers * (24 * WIDTH**2 + 4 * s * WIDTH) for s in lengths)

    def share(self, flops: float, m: measure.Measurement) -> measure.Cell:
        return measure.Cell("{:.0%}", [flops / seconds / self.peak for seconds in m.times])


def make_encoder(name: str, gpu: Gpu, longest: int) -> Callable:
    """Return the forward pass of a model, as a function of `input_ids` and other arguments."""
    model = make_model(name if name in (THEIRS, BERT, MODERN) else OURS, gpu.device, gpu.layers, longest)
    if name == FLASH:
        model.set_attn_implementation(torch_flash.register())
    elif name == FLEX:
        model.set_attn_implementation("flex_attention")
    return torch.no_grad()(torch.compile(model, dynamic=False) if name == COMPILED else model)


def forward_table(gpu: Gpu, lengths: tuple[int, ...]) -> Table:
    table = Table("tokens per text", "", "tokens/s", "times BERT", "of peak", "MB besides weights")
    table.add_row("", "product of matrices", "", "", f"{gpu.product / gpu.peak:.0%}", "")
    for s in lengths:
        names = [THEIRS, BERT, MODERN, OURS, COMPILED, *((FLASH, FLEX) if gpu.is_cuda else ())]
        ids = torch.randint(5, 50_000, (max(1, gpu.tokens // s), s), device=gpu.device)
        models = {name: make_encoder(name, gpu, s) for name in names}
        measured = gpu.compare({name: partial(model, ids) for name, model in models.items()})
        for name, m in measured.items():
            row = measure.rate(ids.numel(), m), measure.ratio(measured[BERT], m)
            row += gpu.share(gpu.flops([s] * len(ids)), m), f"{m.peak / measure.MB:,.0f}"
            table.add_row(f"{s:,}", name, *row)
        del models
        torch.compiler.reset()
    return table


def training_table(gpu: Gpu, lengths: tuple[int, ...]) -> Table:
    table = Table("tokens per text", "", "tokens/s", "times transformers'", "of peak", "MB besides weights")
    for s in lengths:
        b = max(1, gpu.tokens // s)
        steps = {name: make_step(name, gpu.device, gpu.layers, 0.0) for name in (THEIRS, MODERN, OURS)}
        measured = gpu.compare({name: partial(step, b, s) for name, step in steps.items()})
        for name, m in measured.items():
            theirs = measure.ratio(measured[THEIRS], m) if THEIRS in measured else "does not fit"
            row = measure.rate(b * s, m), theirs, gpu.share(3 * gpu.flops([s] * b), m)
            table.add_row(f"{s:,}", name, *row, f"{m.peak / measure.MB:,.0f}")
        del steps
    return table


def padding_table(gpu: Gpu, longest: int) -> Table:
    """Return a table of batches of mixed length, and of the same tokens computed without padding, as the flash kernel
    does by default."""
    table = Table("batch", "", "tokens/s", "times BERT", "of peak")
    for title, (shortest, most) in SHARES.items():
        some = torch.Generator().manual_seed(0)
        shares = shortest + (most - shortest) * torch.rand(max(2, gpu.tokens // longest), generator=some)
        lengths = (longest * shares).long()
        lengths[0] = longest
        mask = (torch.arange(longest) < lengths[:, None]).long().to(gpu.device)
        ids = torch.randint(5, 50_000, mask.shape, device=gpu.device) * mask
        names = (BERT, MODERN, OURS, *((FLASH,) if gpu.is_cuda else ()))
        models = {name: make_encoder(name, gpu, longest) for name in names}
        runs = {name: partial(model, ids, attention_mask=mask) for name, model in models.items()}
        runs["RoFormer, unpadded"] = partial(runs[OURS], unpad_inputs=True)
        measured = gpu.compare(runs)
        tokens = lengths.tolist()
        for name, m in measured.items():
            row = measure.rate(sum(tokens), m), measure.ratio(measured[BERT], m), gpu.share(gpu.flops(tokens), m)
            table.add_row(title, name, *row)
    return table


def linear_table(gpu: Gpu, lengths: tuple[int, ...]) -> Table:
    """Return a table of one text by its length, with softmax attention and with each map of linear attention."""
    table = Table("tokens", "attention", "ms", "times softmax", "MB besides weights")
    kinds = {"softmax": {}} | {
        f"linear, {feature_map}": {"attention_type": "linear", "linear_feature_map": feature_map}
        for feature_map in ("elu", "softmax", "favor")
    }
    models = {}
    for name, fields in kinds.items():
        torch.manual_seed(0)
        config = RoFormerConfig(num_hidden_layers=gpu.layers, vocab_size=12_000, **fields)
        models[name] = torch.no_grad()(RoFormerModel(config).eval().to(gpu.device, gpu.dtype))
    models["linear, elu, compiled"] = torch.compile(models["linear, elu"], dynamic=False)
    for s in lengths:
        ids = torch.randint(5, 12_000, (1, s), device=gpu.device)
        measured = gpu.compare({name: partial(model, ids) for name, model in models.items()})
        for name, m in measured.items():
            softmax = measure.ratio(measured["softmax"], m) if "softmax" in measured else "does not fit"
            row = measure.duration(m, "{:.1f}", 1e-3), softmax, f"{m.peak / measure.MB:,.0f}"
            table.add_row(f"{s:,}", name, *row)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu only tries the script")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--runs", type=int, default=5, help="runs, after four warm-up calls")
    parser.add_argument("--quick", action="store_true", help="one layer, 256 tokens a batch, short texts")
    measure.add_output(parser)
    chosen = parser.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no GPU on this machine")
    if chosen.quick:
        chosen.layers, chosen.runs = 1, 1
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.set_verbosity_error()
    gpu = Gpu(chosen)
    short, long = ((64,), (64, 128)) if chosen.quick else ((512, 8192), (4096, 16_384, 65_536))
    with measure.Figures(chosen.output, "triton") as figures:
        figures.add("forward", forward_table(gpu, short))
        figures.add("training", training_table(gpu, short))
        figures.add("padding", padding_table(gpu, 64 if chosen.quick else 512))
        figures.add("linear", linear_table(gpu, long))


if __name__ == "__main__":
    main()
