"""Curves of a run, as a picture."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

_PANELS = {"loss": ("loss", "eval_loss"), "accuracy": ("accuracy", "eval_accuracy")}


def draw_curves(output: str | Path) -> Path:
    """Draw loss and accuracy against the steps of all stages that are done, in training and held out.

    Args:
        output: folder of a run.

    Returns:
        The picture, `curves.png` in it.
    """
    from matplotlib.figure import Figure

    logs, ends = [], [0]
    for path in sorted(Path(output).glob("stage-*/log.json"), key=lambda path: int(path.parent.name.partition("-")[2])):
        entries = json.loads(path.read_text(encoding="utf-8"))
        logs += [{**entry, "step": entry["step"] + ends[-1]} for entry in entries]
        ends.append(max(entry["step"] for entry in logs))
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, (title, names) in zip(figure.subplots(1, 2), _PANELS.items(), strict=True):
        for name, label in zip(names, ("training", "held out"), strict=True):
            points = [(entry["step"], entry[name]) for entry in logs if name in entry]
            if points:
                axes.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < 40 else None)
        for end in ends[1:-1]:
            axes.axvline(end, color="grey", linewidth=0.5)
        axes.set(title=title, xlabel="step")
        axes.legend()
    return _save(figure, Path(output) / "curves.png")


def draw_learning_curves(logs: Mapping[int, Sequence[dict]], picture: str | Path) -> Path:
    """Draw loss and validation accuracy of a fine-tuning against its epochs, a colour for each seed.

    Args:
        logs: seed -> Trainer's log, with an entry for each epoch's training and for its validation.
        picture: file to write, a PNG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    loss, accuracy = figure.subplots(1, 2)
    for number, (seed, log) in enumerate(logs.items()):
        for axes, name, label, line in (
            (loss, "loss", f"training, seed {seed}", ":"),
            (loss, "eval_loss", f"validation, seed {seed}", "-"),
            (accuracy, "eval_accuracy", f"validation, seed {seed}", "-"),
        ):
            points = [(entry["epoch"], entry[name]) for entry in log if name in entry]
            if points:
                axes.plot(*zip(*points, strict=True), line, label=label, marker=".", color=f"C{number}")
    for axes, title in (loss, "loss"), (accuracy, "accuracy"):
        axes.set(title=title, xlabel="epoch")
        axes.legend(fontsize="small")
    return _save(figure, Path(picture))


def _save(figure, picture: Path) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    new = picture.with_name(f".{picture.name}")
    FigureCanvasAgg(figure).print_png(new)
    os.replace(new, picture)
    return picture
