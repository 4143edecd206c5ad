"""Draw the pictures of the documentation.

    python benchmarks/pictures.py [NAME …] [--output FOLDER]

draws docs/NAME.png, or all. Curves are those of the runs that keep.py kept in docs/figures/runs. For
"attention-distance", examples/roformer-mini-zh reads a document, in half a minute. The same runs give the same picture.
in-a-browser.png is a screenshot, by tests/serving/test_page_browser.py.
"""

import io
import math
import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import reporting
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Wedge
from PIL import Image
from trained import blocks_beside, saved_in

from modeling_roformer.files import write_whole
from modeling_roformer.training import ScriptParser, TrainingError, draw_panels, exit_on_error, paired_bootstrap
from modeling_roformer.training.comparing.curves import LOOKS, STYLE, points

DOCS, EXAMPLES = reporting.ROOT / "docs", reporting.ROOT / "examples"
RUNS = DOCS / "figures" / "runs"
BLUE, RED, GREEN, GREY = (color for color, _ in LOOKS[:4])
TOKENS = 2048  # of the document


def shrink(picture: Path) -> None:
    """Write a PNG file again with 128 colours, in a third of the bytes."""
    small = io.BytesIO()
    Image.open(picture).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    write_whole(picture, small.getvalue())


class Sheet:
    """A drawing of boxes, arrows and words, 1,200 pixels wide. Places are in pixels from the upper left corner; the
    place of a box or of words is its middle."""

    def __init__(self, height: int):
        self.figure = Figure(figsize=(12, height / 100), dpi=100)
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, 1200), ylim=(height, 0))
        self.axes.axis("off")

    def write(self, x: float, y: float, text: str, size: float = 36, **options: Any) -> None:
        self.axes.text(x, y, text, fontsize=0.72 * size, **{"ha": "center", "va": "center"} | options)

    def box(self, x: float, y: float, width: float, height: float, text: str = "", color: str = GREY, **options: Any):
        look = {"boxstyle": "round,pad=0,rounding_size=20", "facecolor": (color, 0.12), "edgecolor": color}
        self.axes.add_patch(FancyBboxPatch((x - width / 2, y - height / 2), width, height, linewidth=3, **look))
        self.write(x, y, text, **options)

    def arrow(self, start: tuple, end: tuple, color: str = "black", line: str = "-") -> None:
        neck = 0.3 * np.array(start) + 0.7 * np.array(end)
        self.axes.plot(*zip(start, neck, strict=True), line, color=color, linewidth=4)
        look = {"arrowstyle": "-|>", "color": color, "linewidth": 4, "mutation_scale": 30, "shrinkA": 0, "shrinkB": 0}
        self.axes.annotate("", end, neck, arrowprops=look)


def encoder(picture: Path) -> None:
    """Draw the encoder, and below it the rotation of a query and a key in its attention."""
    sheet = Sheet(1000)
    sheet.box(600, 135, 740, 230)
    sheet.write(600, 58, "N layers")
    for x, width, text in ((105, 180, "words"), (790, 300, "feed-forward"), (1093, 190, "vectors")):
        sheet.box(x, 158, width, 110, text)
    sheet.box(430, 158, 280, 110, "attention", BLUE)
    for start, end in ((197, 288), (572, 638), (942, 996)):
        sheet.arrow((start, 158), (end, 158))
    for top, bottom in ((292, 30), (568, 1170)):
        sheet.axes.plot((top, bottom), (216, 320), ":", color=BLUE, linewidth=3)
    sheet.box(600, 653, 1180, 666, color=BLUE)
    sheet.write(600, 375, "Positions turn queries and keys.", 42)
    looks = {0: ("#999999", "-"), 2: (BLUE, "-"), 5: (RED, ":")}  # position -> its arrow, turned by as many θ
    parts = (210, "query", (0, 2), BLUE), (600, "key", (0, 5), RED), (990, "score", (2, 5), GREEN)
    for x, title, positions, title_color in parts:
        sheet.axes.add_patch(Circle((x, 635), 150, fill=False, color="#999999", linewidth=2))
        angles = [10 + 20 * position for position in positions]
        sheet.axes.add_patch(Wedge((x, 635), 75, *(-angle for angle in reversed(angles)), color=GREEN, alpha=0.35))
        for position, angle in zip(positions, map(math.radians, angles), strict=True):
            sheet.arrow((x, 635), (x + 150 * math.cos(angle), 635 - 150 * math.sin(angle)), *looks[position])
        sheet.write(x, 447, title, 42, weight="bold", color=title_color)
        turn = positions[1] - positions[0]
        sheet.write(x, 845, f"{'distance' if title == 'score' else 'position'} {turn}\nangle {turn}θ", linespacing=1.3)
    sheet.write(405, 635, "·", 90)
    sheet.write(795, 635, "→", 70)
    sheet.write(600, 945, "The score depends on the distance, not on the positions.")
    sheet.figure.savefig(picture)


def from_checkpoint_to_pipeline(picture: Path) -> None:
    """Draw the conversion of a checkpoint of bert4keras into a folder, and the uses of the folder."""
    sheet, code = Sheet(920), {"family": "monospace", "linespacing": 1.5}
    sheet.box(600, 110, 1160, 180)
    sheet.write(600, 70, "bert4keras checkpoint", 44, weight="bold")
    sheet.write(600, 143, "bert_config.json  vocab.txt  bert_model.ckpt.*", 36, **code)
    sheet.arrow((400, 203), (400, 325))
    sheet.write(440, 262, "roformer convert", 42, ha="left", **code)
    sheet.box(400, 435, 760, 210, color=BLUE)
    sheet.write(400, 375, "Hugging Face folder", 44, weight="bold")
    sheet.write(400, 468, "config.json  tokenizer.json\nmodel.safetensors", 36, **code)
    sheet.arrow((782, 435), (984, 435))
    sheet.write(880, 385, "roformer\npush", 32, **code)
    sheet.box(1085, 435, 190, 120, "Hub", GREEN, size=44, weight="bold")
    sheet.arrow((400, 543), (400, 665))
    sheet.write(440, 602, "pipeline(task, model=folder)", 42, ha="left", **code)
    sheet.box(600, 785, 1160, 230, color=RED)
    sheet.write(600, 730, "tasks", 44, weight="bold")
    sheet.write(600, 822, "fill-mask  text-classification\ntriplet-matching  …", 36, **code)
    sheet.figure.savefig(picture)


def scorers(picture: Path) -> None:
    """Draw the inputs of the two scorers of triplets: pairs, or texts."""
    sheet = Sheet(940)
    bi = (898, "bi", "reads each text alone", "can rank thousands of texts")
    for x, title, reads, below in ((302, "cross", "reads pairs", "default, as in the paper"), bi):
        sheet.box(x, 470, 584, 920)
        sheet.write(x, 70, title, 50, weight="bold")
        sheet.write(x, 138, reads)
        sheet.box(x, 400, 510, 110, "encoder", BLUE)
        sheet.write(x, 865, below)
    for x, other in ((170, "B"), (434, "C")):
        for place, text, color in ((x - 56, "A", RED), (x + 56, other, GREEN)):
            sheet.box(place, 235, 108, 100, text, color, size=44)
        sheet.arrow((x, 287), (x, 343))
        sheet.arrow((x, 457), (x, 673))
        sheet.box(x, 730, 230, 110, f"score of {other}")
    for x, text, color in ((718, "B", GREEN), (898, "A", RED), (1078, "C", GREEN)):
        sheet.box(x, 235, 108, 100, text, color, size=44)
        sheet.arrow((x, 287), (x, 343))
        sheet.arrow((x, 457), (x, 510))
        sheet.box(x, 550, 160, 76, "vector", color, size=34)
    for x, other, start in ((770, "B", 718), (1026, "C", 1078)):
        sheet.arrow((start, 590), (x, 673))
        sheet.arrow((898, 590), (x, 673))
        sheet.box(x, 730, 240, 110, f"cosine of {other}")
    sheet.figure.savefig(picture)


def attention_by_distance() -> np.ndarray:
    """Return the mean probability that the small model's heads give to a token, shape (layers, tokens): by its
    distance, without [CLS] and [SEP]."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    from modeling_roformer.conversion import convert

    with tempfile.TemporaryDirectory() as folder:
        convert(EXAMPLES / "roformer-mini-zh", f"{folder}/mini")
        model, tokenizer = (of.from_pretrained(f"{folder}/mini") for of in (AutoModel, AutoTokenizer))
    document = (EXAMPLES / "long_document.txt").read_text(encoding="utf-8")
    inputs = tokenizer(document, return_tensors="pt", truncation=True, max_length=TOKENS)
    with torch.no_grad():
        layers = model(**inputs, output_attentions=True).attentions
    places = torch.arange(TOKENS - 2)
    distances = (places[:, None] - places).abs().flatten()
    sums = [torch.bincount(distances, layer[0, :, 1:-1, 1:-1].double().mean(0).flatten()) for layer in layers]
    return (torch.stack(sums) / torch.bincount(distances)).numpy()


def attention_distance(picture: Path) -> None:
    """Draw the means by distance, up to half of the text, in bins that grow with the distance."""
    ends = np.unique(np.geomspace(1, TOKENS // 2, 40).round().astype(int))
    with rc_context(STYLE):
        figure = Figure(figsize=(9.4, 5.4), layout="constrained")
        axes = figure.add_subplot(xscale="log", yscale="log")
        for number, (layer, (color, look)) in enumerate(zip(attention_by_distance(), LOOKS, strict=False), 1):
            bins = [(math.sqrt(low * (high - 1)), layer[low:high].mean()) for low, high in pairwise(ends)]
            axes.plot(*zip(*bins, strict=True), look, color=color, label=f"layer {number}", markevery=(number % 3, 3))
        axes.axhline(1 / TOKENS, color="black", linewidth=1, label="equal to all")
        axes.set(title=f"attention of roformer-mini-zh in {TOKENS:,} tokens", xlabel="distance in tokens")
        axes.set(ylabel="mean probability", xticks=(ticks := (1, 10, 100, 1000)), xticklabels=map("{:,}".format, ticks))
        figure.legend(loc="outside right center")
        figure.savefig(picture)


def retrieval_by_length(picture: Path) -> None:
    """Draw mrr@10 of each method, and of each article by the number of tokens that the retriever reads."""
    words, retriever, folders = {}, {}, sorted(filter(Path.is_dir, (RUNS / "articles").iterdir()))
    articles = np.array(blocks_beside(folders))
    for folder in folders:
        for name, seeds in saved_in(folder).items():
            ranks = np.array(seeds[""]["ranks"])  # 0: not found
            found = np.where((ranks > 0) & (ranks <= 10), 1 / np.maximum(ranks, 1), 0)
            if name == "before training":
                retriever[saved_in(folder, "settings.json")["settings"]["max_length"]] = found
            else:
                words[name] = found
    retriever = {f"{length:,}": found for length, found in sorted(retriever.items())}
    rows = words | {f"retriever,\n{length} tokens": found for length, found in retriever.items()}
    with rc_context(STYLE):
        figure = Figure(figsize=(9.4, 5), layout="constrained")
        bars, lines = figure.subplots(1, 2)
        for place, (name, found) in enumerate(rows.items()):
            interval = paired_bootstrap(found, np.zeros(len(found)), articles)
            look = {"color": "#DDDDDD", "hatch": "/", "edgecolor": GREY} if name in words else {"color": BLUE}
            error = [[interval.mean - interval.low], [interval.high - interval.mean]]
            bars.barh(place, interval.mean, xerr=error, capsize=5, **look)
            bars.text(1.03, place, f"{interval.mean:.3f}", va="center")
        bars.set(title="mrr@10, with 95 % intervals", xlim=(0, 1), yticks=range(len(rows)), yticklabels=rows)
        bars.set_xlabel("BM25 and TF-IDF read whole articles")
        bars.invert_yaxis()
        scores = np.array([np.bincount(articles, found) / np.bincount(articles) for found in retriever.values()])
        loses = scores[-1] < scores[0]
        for chosen, (color, look), does in ((~loses, LOOKS[0], "gain or stay"), (loses, LOOKS[1], "lose")):
            first, *_ = lines.plot(scores[:, chosen], look, color=color, linewidth=1)
            first.set_label(f"{chosen.sum()} articles {does}")
        lines.plot([found.mean() for found in retriever.values()], "kD-", linewidth=4, label="all questions")
        lines.set(title="the retriever, by article", ylabel="mrr@10", xlabel="tokens read of an article", ylim=(0, 1.5))
        lines.set(xticks=range(len(retriever)), xticklabels=retriever, yticks=np.linspace(0, 1, 6))
        lines.legend(loc="upper center")
        figure.savefig(picture)


def means(picture: Path, runs: Mapping[str, Collection], curves: Mapping[str, Callable], *xlabels: str) -> None:
    """Draw mean curves with bands, of the runs of each condition. `curves` maps a title to a function of a run."""
    from run_curves import mean_curve

    if len({*map(len, runs.values())}) > 1:
        raise TrainingError(f"{picture.stem}: kept runs of some seeds are missing in {RUNS}: restore them")
    panels = {
        title: {name: mean_curve(map(curve, found)) for name, found in runs.items()} for title, curve in curves.items()
    }
    seeds = max(map(len, runs.values()))
    steps = f"step (bands: range of {seeds} seeds)" if seeds > 1 else "step (one seed)"
    draw_panels(picture, panels, xlabel=dict(zip(panels, (steps, *(xlabels or [steps])), strict=True)))


def characters(picture: Path) -> None:
    from char_lm import TITLES, VARIANTS
    from run_curves import smooth

    folders = {name: sorted((RUNS / "characters").glob(f"seed-*/{name}")) for name in VARIANTS}
    runs = {TITLES.get(name, name): [saved_in(folder)["log"] for folder in found] for name, found in folders.items()}
    curves = {
        "training loss, smoothed (nats per token)": lambda log: smooth(points(log, "loss")),
        "validation loss (nats per token)": lambda log: points(log, "eval_loss"),
    }
    means(picture, runs, curves)


def pre_training(name: str, picture: Path) -> None:
    from run_curves import run_curves

    folders, runs = [*(RUNS / name).glob("seed-*/*")], {}
    for folder in sorted(folders, key=lambda folder: (folder.name != "rotary", folder)):
        runs.setdefault(folder.name, []).append(run_curves(folder))
    titles = {"training loss, smoothed": "training", "held-out loss": "held_out"}
    means(picture, runs, {f"{title} (nats per masked token)": attrgetter(curve) for title, curve in titles.items()})


def laboratory(picture: Path) -> None:
    from run_curves import smooth

    length = saved_in(RUNS / "laboratory", "settings.json")["settings"]["length"]
    curves = {
        "training loss, smoothed (nats per masked character)": lambda run: smooth(run["training"]),
        "accuracy (share of masked characters)": lambda run: [
            (length << number, found["accuracy"]) for number, found in enumerate(run["measured"]) if found
        ],
    }
    runs = {name: seeds.values() for name, seeds in saved_in(RUNS / "laboratory").items()}
    means(picture, runs, curves, "length in characters")


_DRAWINGS = (encoder, from_checkpoint_to_pipeline, scorers, attention_distance, retrieval_by_length)
PICTURES = {draw.__name__.replace("_", "-"): draw for draw in (*_DRAWINGS, characters, laboratory)}
PICTURES["position-encodings"] = partial(pre_training, "positions")
PICTURES["english-positions"] = partial(pre_training, "english")


def main() -> None:
    parser = ScriptParser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"pictures to draw: {', '.join(PICTURES)}")
    parser.add_argument("--output", type=Path, default=DOCS, help="folder of the pictures; default: docs")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(PICTURES):
        parser.error(f"no picture is named {', '.join(sorted(unknown))}; expected {', '.join(PICTURES)}")
    for name in chosen.names or PICTURES:
        picture = chosen.output / f"{name}.png"
        PICTURES[name](picture)
        shrink(picture)
        print(picture, flush=True)


if __name__ == "__main__":
    with exit_on_error("pictures"):
        main()
