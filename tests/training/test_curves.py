import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread

from modeling_roformer.training.comparing.curves import LOOKS, draw_panels


@pytest.fixture
def draw(monkeypatch, tmp_path):
    """Draws panels, and gives the figure."""

    def draw(panels):
        figures, savefig = [], Figure.savefig
        with monkeypatch.context() as patch:
            patch.setattr(Figure, "savefig", lambda figure, file: figures.append(figure) or savefig(figure, file))
            picture = draw_panels(tmp_path / "x.png", panels)
        assert picture.read_bytes().startswith(b"\x89PNG") and [path.name for path in tmp_path.iterdir()] == ["x.png"]
        return figures[0]

    return draw


def panels(names, without_points=()):
    loss = {name: [] if name in without_points else [(0, 1), (1, 0)] for name in names}
    return {"loss (nats)": loss, "accuracy": {name: [(0, 0), (1, 1)] for name in names}}


def names_in(legend):
    return [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize("names", [["rotary", "learned"], list("abcdefghij"), ["x" * 20, "y" * 40, "z" * 30]])
def test_curves_are_named_once_below_the_panels(draw, names):
    figure = draw(panels(names, without_points=names[:1]))
    assert [axes.get_legend() for axes in figure.axes] == [None, None]
    assert [axes.get_ylabel() for axes in figure.axes] == ["nats", ""]
    (legend,) = figure.legends
    assert names_in(legend) == names
    place = legend.get_window_extent()
    assert place.y1 < min(axes.get_window_extent().y0 for axes in figure.axes)
    assert 0 <= place.x0 < place.x1 <= figure.bbox.width


def test_curves_of_one_panel_are_named_in_it(draw):
    figure = draw({"bound": {"S": [(0, 1), (1, 0)]}, "product": {"q = k": [(0, 1), (1, 0)], "q and k": []}, "none": {}})
    assert not figure.legends
    assert [axes.get_legend() and names_in(axes.get_legend()) for axes in figure.axes] == [["S"], ["q = k"], None]


def test_a_single_point_is_drawn_and_says_so(draw, tmp_path):
    """A line of one point is its marker alone. Its colour fills at least 9 pixels."""
    (axes,) = draw({"loss": {"held out": [(3, 1.2345)]}}).axes
    assert [text.get_text() for text in axes.texts] == ["one point: 1.23"] and axes.get_title() == "loss"
    middle = imread(tmp_path / "x.png")[100:300, 150:265, :3]  # without the text
    assert (np.abs(middle - to_rgb(LOOKS[0][0])) < 0.02).all(-1).sum() >= 9


def test_a_curve_looks_the_same_in_all_panels(draw):
    looks = [
        {line.get_label(): (line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines}
        for names in ("abcdefghij", ["none", "x", "rotary"], ["rotary", "x"])
        for axes in draw(panels(names, without_points=["c"])).axes
    ]
    assert len({color for color, _, _ in looks[1].values()}) == len({look[1:] for look in looks[1].values()}) == 10
    assert looks[0] == {name: look for name, look in looks[1].items() if name != "c"}
    assert looks[2]["rotary"] == looks[4]["rotary"] != looks[4]["x"]
