"""Compare ten position encodings in one encoder: section 2 of the RoFormer paper as an experiment.

    python examples/paper/position_laboratory/compare.py TEXT --output RUNS [--encodings rotary t5 alibi] \
        [--seeds 0 1 2] [--bf16]

TEXT is any text file; its characters are the tokens. The encoders are trained on the first 90 %: 15 % of the characters
are masked and predicted. They are evaluated on the last 10 %, at the trained --length and at 2, 4 and 8 times that
length, with the same characters masked at every length. All encoders of a seed start with the same weights, except for
the parameters of an encoding, and read the same batches with the same masks. The same command resumes a stopped run;
more encodings and seeds are added to the results.

position_encodings/ has a file for each encoding, with its equation. encoder.py has the rest of the encoder.
"""

import argparse
import math
import statistics
import time
from itertools import product
from pathlib import Path

import roformer_command  # noqa: F401, first: the package then imports models where they are used
from modeling_roformer.training.errors import TrainingError, exit_on_error
from modeling_roformer.training.runs.arguments import positive_integer, positive_rate, require_files, seed_number

# The names of ENCODINGS, which needs torch.
NAMES = ("none", "sinusoidal", "learned", "shaw", "transformer_xl", "t5", "tupe", "deberta", "alibi", "rotary")
TIMES = (1, 2, 4, 8)  # lengths of the evaluation, in multiples of the trained one
MASKED = 0.15  # share of the characters
MEASURED = 1 << 17  # maximum number of characters to evaluate


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="a text file")
    parser.add_argument("--output", type=Path, required=True, help="folder of the runs, one per encoding")
    parser.add_argument("--encodings", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--layers", type=positive_integer, default=4)
    parser.add_argument("--hidden-size", type=positive_integer, default=128)
    parser.add_argument("--heads", type=positive_integer, default=4)
    parser.add_argument("--length", type=positive_integer, default=128, help="characters per training text")
    parser.add_argument("--batch-size", type=positive_integer, default=32, help="texts per step")
    parser.add_argument("--steps", type=positive_integer, default=2000)
    parser.add_argument("--learning-rate", type=positive_rate, default=1e-3)
    parser.add_argument("--seeds", type=seed_number, nargs="+", default=[0], help="seeds of weights, batches and masks")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast in training")
    chosen = parser.parse_args()
    if chosen.hidden_size % (2 * chosen.heads):
        parser.error(f"--hidden-size {chosen.hidden_size} is not a multiple of twice --heads {chosen.heads}")
    # A run named twice would count twice in the means.
    chosen.encodings, chosen.seeds = list(dict.fromkeys(chosen.encodings)), list(dict.fromkeys(chosen.seeds))
    require_files([chosen.text])
    return chosen


with exit_on_error("compare"):
    if __name__ == "__main__":
        read_arguments()  # before the imports, which take seconds
    import torch
    from encoder import Encoder, Sizes
    from position_encodings import ENCODINGS
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table
    from torch.utils.data import Dataset
    from transformers import TrainerCallback, TrainingArguments, set_seed

    from modeling_roformer.training.comparing.curves import draw_panels, points, smooth
    from modeling_roformer.training.pretraining.masking import uniform
    from modeling_roformer.training.runs.checkpointing import CheckpointingTrainer
    from modeling_roformer.training.runs.device import ON_CPU
    from modeling_roformer.training.runs.digests import digest_of_text
    from modeling_roformer.training.runs.finite import NotFinite, show_failed
    from modeling_roformer.training.runs.resuming import ResultsFile, require_values, run_lock
    from modeling_roformer.training.runs.spread import number_of_seeds, spread
    from modeling_roformer.training.runs.text_file import read_text


def number_characters(text: str) -> tuple[torch.Tensor, int]:
    """Return the ids of a text's characters, in the order of Unicode, and the number of distinct ones: the id of
    [MASK]."""
    kinds = sorted(set(text))
    numbers = {character: number for number, character in enumerate(kinds)}
    return torch.tensor([numbers[character] for character in text], dtype=torch.long), len(kinds)


def mask(ids: torch.Tensor, mask_id: int, seed: int, number: int) -> dict[str, torch.Tensor]:
    """Mask a text with masks from `seed` and `number`. Return the inputs and the labels."""
    masked = torch.from_numpy(uniform((seed, 0), (number, 0, 0), len(ids))) < MASKED
    return {"input_ids": ids.masked_fill(masked, mask_id), "labels": ids.masked_fill(~masked, -100)}


class MaskedTexts(Dataset):
    """All examples of a run: the texts again and again, with other masks each time. A resumed run has the same."""

    def __init__(self, texts: torch.Tensor, mask_id: int, seed: int, count: int):
        self.texts, self.mask_id, self.seed, self.count = texts, mask_id, seed, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return mask(self.texts[number % len(self.texts)], self.mask_id, self.seed, number + 1)


class StepTimes(TrainerCallback):
    """Callback that records the seconds of each step in this process."""

    def __init__(self):
        self.seconds: list[float] = []

    def on_step_begin(self, *_, **__):
        self.begun = time.perf_counter()

    def on_step_end(self, *_, **__):
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        self.seconds.append(time.perf_counter() - self.begun)


def train(model: Encoder, texts: Dataset, seed: int, chosen: argparse.Namespace, folder: Path, run: dict) -> dict:
    """Train, from the last checkpoint of this run if there is one. Return the losses, and tokens/s as the median of the
    steps.

    Raises NotFinite if the run fails.
    """
    arguments = TrainingArguments(
        folder,
        seed=seed,
        max_steps=chosen.steps,
        per_device_train_batch_size=chosen.batch_size,
        learning_rate=chosen.learning_rate,
        warmup_steps=min(100, chosen.steps // 10),
        bf16=chosen.bf16,
        save_steps=max(1, chosen.steps // 10),
        save_total_limit=2,
        logging_steps=max(1, chosen.steps // 200),
        report_to=[],
        use_cpu=ON_CPU,
    )
    times = StepTimes()
    trainer = CheckpointingTrainer(model, arguments, train_dataset=texts, callbacks=[times], run=run)
    trainer.train_or_resume()
    speed = chosen.batch_size * chosen.length / statistics.median(times.seconds) if times.seconds else None
    return {"training": points(trainer.state.log_history, "loss"), "tokens_per_second": speed}


@torch.no_grad()
def measure(model: Encoder, held_out: dict[str, torch.Tensor], length: int, batch: int) -> dict[str, float] | None:
    """Return loss and accuracy on the masked characters of texts of a length, or None if the encoding has no such
    positions.

    Args:
        held_out: one text with its labels, to cut into texts of this length.
        batch: texts per batch.
    """
    longest = model.encoding.longest
    if longest is not None and length > longest:
        return None
    model.eval()
    device = next(model.parameters()).device
    loss, right, count = 0.0, 0, 0
    ids, labels = (held_out[name].view(-1, length).split(batch) for name in ("input_ids", "labels"))
    parts, console = list(zip(ids, labels, strict=True)), Console(stderr=True)
    shown = {"console": console, "transient": True, "disable": not console.is_terminal}
    for part, wanted in track(parts, f"measuring at {length:,}", **shown):
        wanted = wanted.to(device)
        masked = wanted != -100
        logits, wanted = model(part.to(device))["logits"][masked].float(), wanted[masked]
        loss += torch.nn.functional.cross_entropy(logits, wanted, reduction="sum").item()
        right += (logits.argmax(-1) == wanted).sum().item()
        count += len(wanted)
    if not math.isfinite(loss):
        raise NotFinite(f"the loss at the length {length:,} is {loss}: a lower learning rate may help")
    return {"loss": loss / count, "accuracy": right / count}


def read_runs(saved: dict) -> list[dict]:
    """Return the runs of a results.json. Raise an error if one of them is misshapen."""
    runs = list(saved["runs"])
    if len({(run["encoding"], run["seed"]) for run in runs}) < len(runs):
        raise ValueError("a run twice")
    for run in runs:
        texts, numbers = [run["encoding"]], [run["seed"]]
        if run.get("failed"):
            texts.append(run["failed"])
        else:
            numbers += [run["parameters"], run["tokens_per_second"] or 0]
            numbers += [number for step, loss in run["training"] for number in (step, loss)]
            numbers += [found[name] for found in run["measured"] if found is not None for name in ("loss", "accuracy")]
            if len(run["measured"]) != len(TIMES):
                raise ValueError("other lengths")
        require_values(texts, numbers)
    return runs


def tables(runs: list[dict], lengths: list[int]) -> tuple[Table, Table]:
    """Return tables of loss and accuracy, with a row per encoding and a column per length.

    The figures are means and standard deviations over the seeds that have not failed. `parameters` counts those that an
    encoding adds.
    """
    pair = []
    for metric, form in ("loss", ".3f"), ("accuracy", ".1%"):
        table = Table(metric, "seeds", *(f"{length:,}" for length in lengths), "tokens/s", "parameters")
        table.columns[0].overflow = "fold"  # a narrow terminal would cut the names
        for column in table.columns[2:]:
            column.justify = "right"
        for name in dict.fromkeys(run["encoding"] for run in runs):
            every = [run for run in runs if run["encoding"] == name]
            same = [run for run in every if not run.get("failed")]
            seeds = number_of_seeds(len(same), len(every) - len(same))
            if not same:
                table.add_row(name, seeds, "failed")
                continue
            by_length = zip(*(run["measured"] for run in same), strict=True)
            cells = [spread([of[metric] for of in found], form) if all(found) else "–" for found in by_length]
            speeds = [run["tokens_per_second"] for run in same if run["tokens_per_second"]]
            speed = f"{statistics.median(speeds):,.0f}" if speeds else ""
            table.add_row(name, seeds, *cells, speed, f"{same[0]['parameters']:,}")
        pair.append(table)
    return tuple(pair)


def main() -> None:
    chosen = read_arguments()
    with run_lock(chosen.output):
        compare(chosen)


def compare(chosen: argparse.Namespace) -> None:
    """Train an encoder with each encoding, evaluate it at all lengths, and show the results."""
    text = read_text(chosen.text)
    ids, mask_id = number_characters(text)
    lengths = [times * chosen.length for times in TIMES]
    end = len(ids) * 9 // 10
    measured = min(len(ids) - end, MEASURED) // lengths[-1] * lengths[-1]
    if not measured:
        raise TrainingError(
            f"{chosen.text} is too short: its last tenth has {len(ids) - end:,} characters; expected at least "
            f"{TIMES[-1]} times --length {chosen.length}"
        )
    pieces = ids[: end // chosen.length * chosen.length].view(-1, chosen.length)
    held_out = {seed: mask(ids[end : end + measured], mask_id, seed, 0) for seed in chosen.seeds}
    for seed, masked in held_out.items():
        if (masked["labels"] == -100).all():
            raise TrainingError(f"{chosen.text} is too short: seed {seed} masks no character of its last tenth")

    settings = {name: value for name, value in vars(chosen).items() if name not in ("output", "encodings", "seeds")}
    settings["text"] = digest_of_text(text)
    file = ResultsFile("compare.py", chosen.output, settings)
    runs = file.read(read_runs) or []
    file.write(runs=runs)

    sizes = Sizes(mask_id + 1, chosen.layers, chosen.hidden_size, chosen.heads, chosen.length)
    for seed, name in product(chosen.seeds, chosen.encodings):
        if any((run["encoding"], run["seed"]) == (name, seed) for run in runs):
            continue
        set_seed(seed)
        common = Encoder(sizes, ENCODINGS["none"]).state_dict()
        set_seed(seed)
        model = Encoder(sizes, ENCODINGS[name])
        model.load_state_dict(common, strict=False)  # an encoding may have parameters of its own
        parameters = sum(parameter.numel() for parameter in model.encoding.parameters())
        print(f"{name} positions, seed {seed}, {parameters:,} parameters for them, {len(pieces):,} training texts")
        texts = MaskedTexts(pieces, mask_id, seed, chosen.steps * chosen.batch_size)
        run = {"encoding": name, "seed": seed, "parameters": parameters}
        try:
            own = settings | {"encoding": name, "seed": seed}
            run |= train(model, texts, seed, chosen, chosen.output / f"{name}-{seed}", own)
            run["measured"] = [
                measure(model, held_out[seed], length, max(1, chosen.batch_size * chosen.length // length))
                for length in lengths
            ]
        except NotFinite as error:
            run = {"encoding": name, "seed": seed, "failed": str(error)}
        runs.append(run)
        file.write(runs=runs)

    shown = [
        run for name in chosen.encodings for run in runs if run["encoding"] == name and run["seed"] in chosen.seeds
    ]
    Console(markup=False).print(*tables(shown, lengths), sep="\n")
    show_failed({f"{run['encoding']}, seed {run['seed']}": run.get("failed") for run in shown})
    done = {(run["encoding"], run["seed"]): run for run in shown if not run.get("failed")}
    drawn = {}  # of each encoding, the first seed that has not failed
    for name in chosen.encodings:
        if seeds := [seed for seed in chosen.seeds if (name, seed) in done]:
            other = f", seed {seeds[0]}" if seeds[0] != chosen.seeds[0] else ""
            drawn[f"{name}{other}"] = done[name, seeds[0]]
    panels = {
        "training loss, smoothed": {name: smooth(run["training"]) for name, run in drawn.items()},
        "accuracy": {
            name: [(length, found["accuracy"]) for length, found in zip(lengths, run["measured"], strict=True) if found]
            for name, run in drawn.items()
        },
    }
    axes = dict(zip(panels, ("step", "length in characters"), strict=True))
    picture = draw_panels(chosen.output / "encodings.png", panels, xlabel=axes)
    if ended := list(dict.fromkeys(name for (name, _), run in done.items() if None in run["measured"])):
        print(f"–: {' and '.join(ended)} positions end at {chosen.length}, the trained length")
    seeds = " or ".join(str(seed) for seed in chosen.seeds if any(run["seed"] == seed for run in drawn.values()))
    print(f"training losses, and accuracy on longer texts, of seed {seeds}: {picture}")


if __name__ == "__main__":
    with exit_on_error("compare"):
        main()
