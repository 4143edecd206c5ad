"""Loss and accuracy curves of runs: reading and drawing them."""

import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from modeling_roformer.files import write_whole

Points = Sequence[tuple[float, ...]]  # x, y and, for a band, its lower and upper end
LEARNING_CURVES = {"training loss": "loss", "validation loss": "eval_loss", "validation accuracy": "eval_accuracy"}
_STAGE = re.compile(r"stage-([1-9]\d*)")
_FIXED_LOOKS = ("rotary", "learned", "sinusoidal", "none")  # look the same in every picture
LOOKS = (  # colour, and marker and line, which a print without colours shows
    ("#0072B2", "o-"),
    ("#D55E00", "s--"),
    ("#009E73", "^-."),
    ("#555555", "D:"),
    ("#CC79A7", "v-"),
    ("#E69F00", "P--"),
    ("#56B4E9", ">-."),
    ("#8C564B", "<:"),
    ("#6A3D9A", "d-"),
    ("#98A000", "X--"),
)
STYLE = {"font.size": 14, "axes.titlesize": 14, "lines.linewidth": 2, "axes.grid": True, "grid.alpha": 0.4}


def draw_panels(
    picture: Path,
    panels: Mapping[str, Mapping[str, Points]],
    xlabel: str | Mapping[str, str] = "step",
    borders: Sequence[float] = (),
) -> Path:
    """Draw curves into a PNG file, written atomically.

    Args:
        picture: the file.
        panels: title of each panel, with the unit of y in parentheses at its end -> name of each curve -> its points
            (x, y), or (x, y, low, high) for a curve with a band. A curve without points is left out.
        xlabel: label of the x axis in all panels, or title -> label.
        borders: places on the x axis to mark in all panels.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = dict.fromkeys(name for curves in panels.values() for name in curves)
    order = [*(dict.fromkeys(_FIXED_LOOKS) | names if names.keys() & {*_FIXED_LOOKS} else names)]
    drawn, handles, in_common = io.BytesIO(), {}, len({tuple(curves) for curves in panels.values()}) == 1
    with rc_context(STYLE):
        figure = Figure(figsize=(4.7 * len(panels), 4.4), layout="constrained")
        for column, (title, curves) in enumerate(panels.items(), 1):
            axes = figure.add_subplot(1, len(panels), column)
            handles |= {name: _draw(axes, name, order.index(name), points) for name, points in curves.items() if points}
            for border in borders:
                axes.axvline(border, color="grey", linewidth=0.5)
            text, _, unit = title.removesuffix(")").partition(" (")
            values = [value for points in curves.values() for _, *y in points for value in y if math.isfinite(value)]
            is_line = any(len(points) > 1 for points in curves.values())
            if is_line and values and max(values) - min(values) <= 0.02 * max(map(abs, values)):
                text += f"\nflat: from {min(values):.4g} to {max(values):.4g}"
            axes.set(title=text, ylabel=unit, xlabel=xlabel if isinstance(xlabel, str) else xlabel[title])
            if not in_common and any(curves.values()):
                axes.legend()
        if in_common and handles:
            ncols = max(1, 480 * len(panels) // (10 * max(map(len, names)) + 100))  # that fit, in pixels
            figure.legend(handles=[*filter(None, map(handles.get, names))], loc="outside lower center", ncols=ncols)
        figure.savefig(drawn)
    write_whole(picture, drawn.getvalue())
    return picture


def _draw(axes: Any, name: str, number: int, points: Points) -> Any:
    """Draw a curve, with up to 15 markers, and return its handle."""
    (x, y, *band), (color, look) = zip(*points, strict=True), LOOKS[number % len(LOOKS)]
    if band:
        axes.fill_between(x, *band, color=color, alpha=0.2, linewidth=0)
    if len(points) == 1:
        note = {"textcoords": "offset points", "color": color, "bbox": {"fc": "#FFFFFFB0", "lw": 0, "pad": 0}}
        axes.annotate(f"one point: {y[0]:.3g}", (x[0], y[0]), (9, 0), va="center", **note)
    filled = "full" if number < len(LOOKS) else "none"  # the eleventh curve looks like the first, with hollow markers
    every = -(-len(points) // 15)  # each curve starts at another place, so that markers lie apart
    return axes.plot(x, y, look, color=color, label=name, fillstyle=filled, markevery=(3 * number % every, every))[0]


def stage_folders(output: str | Path) -> dict[int, Path]:
    """Return the folders of the stages of a run by their numbers, in order."""
    found = {int(name[1]): path for path in Path(output).iterdir() if (name := _STAGE.fullmatch(path.name))}
    return dict(sorted(found.items()))


def read_logs(output: str | Path) -> tuple[list[dict], list[int]]:
    """Return the log entries of all finished stages of a run, with steps counted over all stages, and each stage's last
    step."""
    entries, ends = [], []
    for path in filter(Path.exists, (folder / "log.json" for folder in stage_folders(output).values())):
        begun = ends[-1] if ends else 0
        log = json.loads(path.read_text(encoding="utf-8"))
        entries += [{**entry, "step": entry["step"] + begun} for entry in log]
        ends.append(max(entry["step"] for entry in entries))
    return entries, ends


def points(entries: Iterable[Mapping], name: str, against: str = "step") -> list[tuple[float, float]]:
    """Return the pairs (`against`, `name`) of the entries of a log that have the field `name`."""
    return [(entry[against], entry[name]) for entry in entries if name in entry]


def draw_curves(output: str | Path) -> Path:
    """Draw loss and accuracy of all finished stages of a run into `curves.png` in its folder."""
    entries, ends = read_logs(output)
    panels = {
        title: {"training": points(entries, name), "held out": points(entries, f"eval_{name}")}
        for title, name in (("loss (nats per masked token)", "loss"), ("accuracy (share of masked tokens)", "accuracy"))
    }
    return draw_panels(Path(output) / "curves.png", panels, borders=ends[:-1])


def draw_learning_curves(
    logs: Mapping[object, Sequence[dict]], picture: str | Path, names: Mapping[str, str] = LEARNING_CURVES
) -> Path:
    """Draw curves of a fine-tuning against its epochs, from Trainer's log of each seed. `names` maps the title of each
    panel to its name in the logs."""
    panels = {
        title: {f"seed {seed}": points(log, name, "epoch") for seed, log in logs.items()}
        for title, name in names.items()
    }
    return draw_panels(Path(picture), panels, xlabel="epoch")
