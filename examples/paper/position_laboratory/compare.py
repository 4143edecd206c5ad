"""Compare ten position encodings in one encoder: section 2 of the RoFormer paper as an experiment.

    python examples/paper/position_laboratory/compare.py TEXT --output RUNS [--encodings rotary t5 alibi] \
        [--seeds 0 1 2] [--bf16]

TEXT is any text file; its characters are the tokens. The encoders are trained on the first 90 %: 15 % of the characters
are masked and predicted. They are evaluated on the last 10 %, at the trained --length and at 2, 4 and 8 times that
length, with the same characters masked at every length. All encoders of a seed start with the same weights, except for
the parameters of an encoding, and read the same batches with the same masks.

position_encodings/ has a file for each encoding, with its equation. encoder.py has the rest of the encoder.
"""

import argparse
import math
import statistics
import sys
import time
from itertools import product
from pathlib import Path

import torch
from encoder import Encoder, Sizes
from position_encodings import ENCODINGS
from rich.console import Console
from rich.table import Table
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

from modeling_roformer.training import (
    Distinct,
    FiniteCallback,
    NotFinite,
    ScriptParser,
    TrainingError,
    draw_panels,
    exit_on_error,
    last_checkpoint,
    random_seed,
    spread,
    start_run,
)
from modeling_roformer.training.comparing.curves import points
from modeling_roformer.training.pretraining.masking import uniform

sys.path.append(str(Path(__file__).resolve().parents[1]))
from run_curves import smooth

LENGTH_FACTORS = (1, 2, 4, 8)  # lengths of the evaluation, in multiples of the trained one
MASKED = 0.15  # share of the characters
MAX_EVALUATED = 1 << 17  # characters


def read_arguments() -> argparse.Namespace:
    parser = ScriptParser(__doc__)
    parser.add_argument("text", type=Path, help="a text file")
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--resume", action="store_true", help="resume the runs in --output")
    parser.add_argument("--encodings", nargs="+", choices=ENCODINGS, default=list(ENCODINGS))
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=128, help="characters per training text")
    parser.add_argument("--batch-size", type=int, default=32, help="texts per step")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument(
        "--seeds", type=random_seed, nargs="+", default=[0], action=Distinct, help="seeds of weights, batches and masks"
    )
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast in training")
    chosen = parser.parse_args()
    if chosen.hidden_size % (2 * chosen.heads):
        parser.error(f"--hidden-size {chosen.hidden_size} is not a multiple of twice --heads {chosen.heads}")
    if chosen.length < 2:
        parser.error(
            f"--length is {chosen.length}; expected at least 2 characters: a masked one is predicted from others"
        )
    return chosen


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


def train(model: Encoder, texts: Dataset, seed: int, chosen: argparse.Namespace, folder: Path) -> dict:
    """Train, from the last checkpoint if there is one. Return the losses, and tokens/s as the median of the steps."""
    arguments = TrainingArguments(
        str(folder),
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
    )
    times = StepTimes()
    trainer = Trainer(model, arguments, train_dataset=texts, callbacks=[FiniteCallback(), times])
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
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
    for part, wanted in zip(ids, labels, strict=True):
        wanted = wanted.to(device)
        masked = wanted != -100
        logits, wanted = model(part.to(device))["logits"][masked].float(), wanted[masked]
        loss += torch.nn.functional.cross_entropy(logits, wanted, reduction="sum").item()
        right += (logits.argmax(-1) == wanted).sum().item()
        count += len(wanted)
    if not math.isfinite(loss):
        raise NotFinite(f"the loss at the length {length:,} is {loss}: use a lower learning rate")
    return {"loss": loss / count, "accuracy": right / count}


def tables(runs: dict[str, dict[str, dict]], lengths: list[int]) -> tuple[Table, Table]:
    """Return tables of loss and accuracy, with a row per encoding and a column per length.

    `runs` has the result of each encoding and seed. The figures are means and standard deviations over the seeds.
    `parameters` counts those that an encoding adds.
    """
    pair = []
    for metric, form in ("loss", ".3f"), ("accuracy", ".1%"):
        table = Table(metric, "seeds", *(f"{length:,}" for length in lengths), "tokens/s", "parameters")
        table.columns[0].overflow = "fold"  # a narrow terminal would cut the names
        for column in table.columns[2:]:
            column.justify = "right"
        for name, seeds in runs.items():
            same = [*seeds.values()]
            by_length = zip(*(run["measured"] for run in same), strict=True)
            cells = [spread([one[metric] for one in found], form) if all(found) else "–" for found in by_length]
            speeds = [run["tokens_per_second"] for run in same if run["tokens_per_second"]]
            speed = f"{statistics.median(speeds):,.0f}" if speeds else ""
            table.add_row(name, str(len(same)), *cells, speed, f"{same[0]['parameters']:,}")
        pair.append(table)
    return tuple(pair)


def main() -> None:
    """Train an encoder with each encoding, evaluate it at all lengths, and show the results."""
    chosen = read_arguments()
    ids, mask_id = number_characters(chosen.text.read_text(encoding="utf-8-sig"))
    lengths = [times * chosen.length for times in LENGTH_FACTORS]
    end = len(ids) * 9 // 10
    measured = min(len(ids) - end, MAX_EVALUATED) // lengths[-1] * lengths[-1]
    if not measured:
        raise TrainingError(
            f"{chosen.text} is too short: its last tenth has {len(ids) - end:,} characters; expected at least "
            f"{LENGTH_FACTORS[-1]} times --length {chosen.length}"
        )
    pieces = ids[: end // chosen.length * chosen.length].view(-1, chosen.length)
    with start_run(chosen.output, vars(chosen), {"text": chosen.text}, chosen.resume) as run:
        sizes = Sizes(mask_id + 1, chosen.layers, chosen.hidden_size, chosen.heads, chosen.length)
        for seed, name in product(chosen.seeds, chosen.encodings):
            of_encoding = run.results.setdefault(name, {})
            if str(seed) in of_encoding:
                continue
            set_seed(seed)
            common = Encoder(sizes, ENCODINGS["none"]).state_dict()
            set_seed(seed)
            model = Encoder(sizes, ENCODINGS[name])
            model.load_state_dict(common, strict=False)  # an encoding may have parameters of its own
            parameters = sum(parameter.numel() for parameter in model.encoding.parameters())
            print(f"{name} positions, seed {seed}, {parameters:,} parameters for them, {len(pieces):,} training texts")
            texts = MaskedTexts(pieces, mask_id, seed, chosen.steps * chosen.batch_size)
            result = train(model, texts, seed, chosen, run.folder / f"{name}-{seed}")
            held_out = mask(ids[end : end + measured], mask_id, seed, 0)
            result["measured"] = [
                measure(model, held_out, length, max(1, chosen.batch_size * chosen.length // length))
                for length in lengths
            ]
            of_encoding[str(seed)] = {"parameters": parameters, **result}
            run.save_results()
        Console(markup=False).print(*tables(run.results, lengths), sep="\n")
        first = {name: seeds[str(chosen.seeds[0])] for name, seeds in run.results.items()}
        panels = {
            "training loss, smoothed": {name: smooth(result["training"]) for name, result in first.items()},
            "accuracy": {
                name: [
                    (length, found["accuracy"])
                    for length, found in zip(lengths, result["measured"], strict=True)
                    if found
                ]
                for name, result in first.items()
            },
        }
        axes = dict(zip(panels, ("step", "length in characters"), strict=True))
        picture = draw_panels(run.folder / "encodings.png", panels, xlabel=axes)
        if ended := [name for name, result in first.items() if None in result["measured"]]:
            print(f"–: {' and '.join(ended)} positions end at {chosen.length}, the trained length")
        print(f"training losses, and accuracy on longer texts, of seed {chosen.seeds[0]}: {picture}")


if __name__ == "__main__":
    with exit_on_error("compare"):
        main()
