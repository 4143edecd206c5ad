"""Loss and accuracy curves of runs: reading, comparing and drawing them."""

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ...files import write_whole
from ..errors import TrainingError

Points = Sequence[tuple[float, ...]]  # x, y and, for a band, its lower and upper end
_PANELS = {
    "loss": {"training": "loss", "held out": "eval_loss"},
    "accuracy": {"training": "accuracy", "held out": "eval_accuracy"},
}
LEARNING = {"training loss": "loss", "validation loss": "eval_loss", "validation accuracy": "eval_accuracy"}
_STAGE = re.compile(r"stage-([1-9]\d*)")
_FEW = 40  # points; curves with fewer get a marker at each
_MANY = 7  # curves; a legend of as many would hide some of them
_STYLES = ("-", "--", "-.", ":")  # which a print without colours shows


def draw_panels(
    picture: Path,
    panels: Mapping[str, Mapping[str, Points]],
    xlabel: str | Mapping[str, str] = "step",
    borders: Sequence[float] = (),
) -> Path:
    """Draw curves into a PNG file, written atomically.

    Args:
        picture: the file.
        panels: title of each panel -> name of each curve -> its points (x, y), or (x, y, low, high) for a curve with a
            band. A curve without points is left out.
        xlabel: label of the x axis in all panels, or title -> label.
        borders: places on the x axis to mark in all panels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(panels), 4), layout="constrained")
    handles = {}  # name of a curve that all panels have -> its handle
    common = len({tuple(curves) for curves in panels.values()}) == 1
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for number, (name, points) in enumerate(curves.items()):
            if points:
                x, y, *band = zip(*points, strict=True)
                marker, style = "." if len(points) < _FEW else None, _STYLES[number % len(_STYLES)]
                axes.plot(x, y, label=name, color=f"C{number}", marker=marker, linestyle=style)
                if band:
                    axes.fill_between(x, *band, color=f"C{number}", alpha=0.2, linewidth=0)
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
    FigureCanvasAgg(figure).print_png(drawn := io.BytesIO())
    write_whole(picture, drawn.getvalue())
    return picture


def stage_folders(output: str | Path) -> dict[int, Path]:
    """Return the folders of the stages of a run by their numbers, in order."""
    found = {int(name[1]): path for path in Path(output).iterdir() if (name := _STAGE.fullmatch(path.name))}
    return dict(sorted(found.items()))


def read_logs(output: str | Path) -> tuple[list[dict], list[int]]:
    """Return the log entries of all finished stages of a run, with steps counted over all stages, and each stage's last
    step.

    Raises a TrainingError if a log is damaged.
    """
    entries, ends = [], []
    for path in (folder / "log.json" for folder in stage_folders(output).values()):
        if not path.exists():  # the stage is not finished
            continue
        begun = ends[-1] if ends else 0
        try:
            log = json.loads(path.read_text(encoding="utf-8"))
            entries += [{**entry, "step": entry["step"] + begun} for entry in log]
            ends.append(max(entry["step"] for entry in entries))
        except (ValueError, LookupError, TypeError, RecursionError):
            raise TrainingError(f"{path} is damaged: restore it, or train in another folder") from None
    return entries, ends


def points(entries: Iterable[Mapping], name: str, against: str = "step") -> list[tuple[float, float]]:
    """Return the pairs (`against`, `name`) of the entries of a log that have the field `name`."""
    return [(entry[against], entry[name]) for entry in entries if name in entry]


def draw_curves(output: str | Path) -> Path:
    """Draw loss and accuracy of all finished stages, in training and held out, into `curves.png` in the folder of a
    run."""
    entries, ends = read_logs(output)
    panels = {
        title: {curve: points(entries, name) for curve, name in names.items()} for title, names in _PANELS.items()
    }
    return draw_panels(Path(output) / "curves.png", panels, borders=ends[:-1])


def draw_learning_curves(
    logs: Mapping[object, Sequence[dict]], picture: str | Path, names: Mapping[str, str] = LEARNING
) -> Path:
    """Draw curves of a fine-tuning against its epochs, from Trainer's log of each seed. `names` maps the title of each
    panel to its name in the logs."""
    panels = {
        title: {f"seed {seed}": points(log, name, "epoch") for seed, log in logs.items()}
        for title, name in names.items()
    }
    return draw_panels(Path(picture), panels, xlabel="epoch")


@dataclass(frozen=True)
class RunCurves:
    """Curves of a run of `pretrain`. Steps are counted over all stages.

    training: smoothed training losses.
    held_out: losses on held-out documents.
    compared: those of the last stage: losses of stages with other lengths and masks are not comparable.
    accuracy: the last held-out accuracy.
    """

    training: Points
    held_out: Points
    compared: Points
    accuracy: float

    @property
    def loss(self) -> float:
        """The last loss of `compared`."""
        return self.compared[-1][1]


def run_curves(output: str | Path) -> RunCurves:
    """Return the curves of a finished run from its folder.

    Raises a TrainingError if the run had no held-out documents.
    """
    entries, ends = read_logs(output)
    if not ends:
        raise TrainingError(f"{output} has no log.json of a finished stage: restore it, or train in another folder")
    stages = [[entry for entry in entries if first < entry["step"] <= last] for first, last in pairwise([0, *ends])]
    compared, accuracies = (points(stages[-1], name) for name in ("eval_loss", "eval_accuracy"))
    if not compared:
        raise TrainingError(f"{output} was trained without held-out documents: use another folder")
    training = [point for stage in stages for point in smooth(points(stage, "loss"))]
    return RunCurves(training, points(entries, "eval_loss"), compared, accuracies[-1][1])


def smooth(curve: Points, share: float = 0.05) -> Points:
    """Return the moving average of a curve. The window ends at each point and has a `share` of the points, fewer at the
    start."""
    window = max(1, round(share * len(curve)))
    parts = [curve[max(0, end - window) : end] for end in range(1, len(curve) + 1)]
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]


def steps_to(curve: Points, loss: float) -> float | None:
    """Return the first step at which a curve is at most `loss`, or None if it never is.

    The curve is linear between two points. If the first point is already below, return its step, an upper bound.

    >>> steps_to([(10, 4.0), (20, 3.0), (30, 2.0)], 2.5)
    25.0
    """
    before: tuple[float, float] | None = None
    for step, value in curve:
        if value <= loss:
            if before is None:
                return float(step)
            return before[0] + (step - before[0]) * (before[1] - loss) / (before[1] - value)
        before = step, value
    return None


def mean_curve(curves: Iterable[Points]) -> Points:
    """Return the mean of several curves, and the band from their lowest to their highest value, where all have a point.

    >>> mean_curve([[(10, 4.0), (20, 2.0)], [(10, 6.0)]])
    [(10, 5.0, 4.0, 6.0)]
    """
    first, *others = (dict(curve) for curve in curves)
    values = {x: [y, *(other[x] for other in others)] for x, y in first.items() if all(x in of for of in others)}
    return [(x, sum(of) / len(of), min(of), max(of)) for x, of in values.items()]
