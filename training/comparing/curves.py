"""Curves of a run, as a picture."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Points = Sequence[tuple[float, float]]
_PANELS = {
    "loss": {"training": "loss", "held out": "eval_loss"},
    "accuracy": {"training": "accuracy", "held out": "eval_accuracy"},
}
_LEARNING = {"training loss": "loss", "validation loss": "eval_loss", "validation accuracy": "eval_accuracy"}
_FEW = 40  # points that are marked one by one
_MANY = 7  # curves whose names would hide some of them


def draw_panels(
    picture: Path,
    panels: Mapping[str, Mapping[str, Points]],
    xlabel: str | Mapping[str, str] = "step",
    borders: Iterable[float] = (),
) -> Path:
    """Draw curves into a PNG, which appears whole.

    Args:
        picture: the file.
        panels: title of each panel -> name of each curve in it -> its points (x, y); without points it is left out.
        xlabel: what x is in all panels, or title of each -> what it is there.
        borders: places on the x axis to mark in all of them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(panels), 4), layout="constrained")
    borders = list(borders)
    handles = {}  # of curves that all panels have, by name
    common = len({tuple(curves) for curves in panels.values()}) == 1
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for number, (name, points) in enumerate(curves.items()):
            if points:
                marker = "." if len(points) < _FEW else None
                axes.plot(*zip(*points, strict=True), label=name, color=f"C{number}", marker=marker)
        for border in borders:
            axes.axvline(border, color="grey", linewidth=0.5)
        axes.set(title=title, xlabel=xlabel if isinstance(xlabel, str) else xlabel[title])
        if common and len(curves) >= _MANY:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        elif any(curves.values()):
            axes.legend()
    if handles:
        names = [name for name in curves if name in handles]
        figure.legend([handles[name] for name in names], names, loc="outside right center")
    new = picture.with_name(f".{picture.name}")
    FigureCanvasAgg(figure).print_png(new)
    os.replace(new, picture)
    return picture


def read_logs(output: str | Path) -> tuple[list[dict], list[int]]:
    """What a run has logged in all stages that are done, with steps counted through, and the last step of each stage."""
    entries, ends = [], []
    for path in sorted(Path(output).glob("stage-*/log.json"), key=lambda path: int(path.parent.name.partition("-")[2])):
        begun = ends[-1] if ends else 0
        entries += [{**entry, "step": entry["step"] + begun} for entry in json.loads(path.read_text(encoding="utf-8"))]
        ends.append(max(entry["step"] for entry in entries))
    return entries, ends


def points(entries: Iterable[Mapping], name: str, against: str = "step") -> list[tuple[float, float]]:
    """Step, or what is named in its place, and value of those entries of a log that have it."""
    return [(entry[against], entry[name]) for entry in entries if name in entry]


def draw_curves(output: str | Path) -> Path:
    """Draw loss and accuracy against the steps of all stages that are done, in training and held out.

    Args:
        output: folder of a run.

    Returns:
        The picture, `curves.png` in it.
    """
    entries, ends = read_logs(output)
    panels = {
        title: {curve: points(entries, name) for curve, name in names.items()} for title, names in _PANELS.items()
    }
    return draw_panels(Path(output) / "curves.png", panels, borders=ends[:-1])


def draw_learning_curves(logs: Mapping[object, Sequence[dict]], picture: str | Path) -> Path:
    """Draw losses and validation accuracy of a fine-tuning against its epochs, with a curve for each seed.

    Args:
        logs: seed -> Trainer's log, with entries of its training and, for each epoch, of its validation.
        picture: file to write, a PNG.
    """
    panels = {
        title: {f"seed {seed}": points(log, name, "epoch") for seed, log in logs.items()}
        for title, name in _LEARNING.items()
    }
    return draw_panels(Path(picture), panels, xlabel="epoch")
