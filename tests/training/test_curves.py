import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from modeling_roformer.training.comparing.curves import draw_panels


@pytest.fixture
def draw(monkeypatch, tmp_path):
    """Draws panels of a loss and an accuracy, and gives the figure."""

    def draw(names, without_points=()):
        figures = []
        print_png = FigureCanvasAgg.print_png

        def keep(canvas, path):
            figures.append(canvas.figure)
            print_png(canvas, path)

        with monkeypatch.context() as patch:
            patch.setattr(FigureCanvasAgg, "print_png", keep)
            loss = {name: [] if name in without_points else [(0, 1), (1, 0)] for name in names}
            accuracy = {name: [(0, 0), (1, 1)] for name in names}
            picture = draw_panels(tmp_path / "x.png", {"loss": loss, "accuracy": accuracy})
        assert picture.read_bytes().startswith(b"\x89PNG") and [path.name for path in tmp_path.iterdir()] == ["x.png"]
        return figures[0]

    return draw


def names_in(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_few_curves_are_named_in_each_panel(draw):
    figure = draw(["rotary", "learned"], without_points=["rotary"])
    assert [names_in(axes.get_legend()) for axes in figure.axes] == [["learned"], ["rotary", "learned"]]
    assert not figure.legends


def test_many_curves_are_named_once_beside_the_panels(draw):
    names = list("abcdefghij")
    figure = draw(names, without_points=["c"])
    assert [axes.get_legend() for axes in figure.axes] == [None, None]
    (legend,) = figure.legends
    assert names_in(legend) == names
    right_edge = max(axes.get_window_extent().x1 for axes in figure.axes)
    assert legend.get_window_extent().x0 > right_edge


def test_a_single_point_is_drawn(tmp_path):
    """A line of one point is its marker alone. Its colour fills at least 9 pixels."""
    picture = imread(draw_panels(tmp_path / "x.png", {"loss": {"held out": [(3, 1)]}}))
    middle = picture[100:300, 150:350, :3]  # without the legend
    assert (np.abs(middle - to_rgb("C0")) < 0.02).all(-1).sum() >= 9


def test_a_curve_has_one_colour_in_all_panels(draw):
    colours = [
        {line.get_label(): line.get_color() for line in axes.lines}
        for axes in draw(list("abcdefgh"), without_points=["c"]).axes
    ]
    assert len(set(colours[1].values())) == 8
    assert colours[0] == {name: colour for name, colour in colours[1].items() if name != "c"}
