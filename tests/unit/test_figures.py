"""Figures: the table is what is drawn, and words say what it was made at."""

from itertools import combinations

import pytest
from drawing import Drawn, check, legend_words
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import AxLine
from matplotlib.text import Text
from ptq_dynamics.figures.panels import COLUMNS
from ptq_dynamics.figures.style import SMALLEST
from support import plan

pytestmark = pytest.mark.slow

PLAN = plan("laptop")
LAYOUTS = {name: figure.layout for name, figure in PLAN.site.config.figures.items()}
CENTRAL = ("fig04", "fig06", "fig07")
FIGURES = list(LAYOUTS)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """All figures, each drawn once."""
    return Drawn(tmp_path_factory.mktemp("figures"), PLAN, coarse=True)


# What is drawn


@pytest.mark.parametrize("name", FIGURES)
def test_the_csv_is_exactly_what_is_drawn(drawn, name):
    table = drawn.table(name)
    check(drawn.picture(name), table, LAYOUTS[name])
    # All tables have the same columns, and name what is measured.
    assert [*table.columns] == COLUMNS
    assert table[["metric", "trajectory", "x", "y"]].notna().all(axis=None)


def test_points_are_the_measurements(drawn):
    table, measured = drawn.table("fig04"), drawn.measurements("fig04")
    assert table[table.axis != "rate"].low.notna().all()
    errors = measured[measured.metric == "quantization_error"]
    errors = errors[errors.trajectory == "rainbow-036"].sort_values("step")
    draws = errors.groupby("step").value
    assert set(draws.size()) == {3}, "calibration draws"
    points = table[(table.panel == "a") & (table.segment == "rainbow-036") & (table.axis == "left")]
    assert points.x.tolist() == errors.tokens.drop_duplicates().tolist()
    assert points.y.to_numpy() == pytest.approx(100 * draws.mean().to_numpy(), rel=1e-12)
    assert (points.y - points.low >= (100 * draws.std() / 3**0.5).to_numpy()).all()
    rates = table[(table.panel == "a") & (table.segment == "rainbow-036") & (table.axis == "rate")]
    steps = [point.step for point in PLAN.site.planned["rainbow-036"].checkpoints]
    schedule = PLAN.trajectories.train("rainbow-036").settings.schedule
    assert rates.y.tolist() == [schedule.learning_rate(step) for step in steps]


def test_a_decay_begins_where_the_learning_rate_begins_to_fall(drawn):
    table, measured = drawn.table("fig13"), drawn.measurements("fig13")
    left = table[(table.panel == "c") & (table.axis == "left")]
    losses = measured[(measured.metric == "loss") & (measured.quantizer == "fp")]
    # The decay's first point is the last one of the run before, which has its tokens.
    held = losses[losses.phase != "cooldown"].drop_duplicates("step").tokens
    assert len(held) > losses[losses.trajectory == "apertus"].tokens.nunique(), "a doubled batch"
    assert {*left[left.curve == "Stable"].x} == {*held}
    assert left[left.curve == "Decay"].x.min() == held.max()


def test_quantized_loss_is_drawn_against_that_in_full_precision(drawn):
    table, measured = drawn.table("fig06"), drawn.measurements("fig06")
    losses = measured[measured.metric == "loss"]
    losses = losses.pivot_table("value", ["trajectory", "step"], "quantizer")
    for panel, quantizer in (("b", "gptq-4bit"), ("e", "gptq-3bit")):
        points = table[(table.panel == panel) & (table.segment == "wsd-1e-2")]
        draws = [name for name in losses.columns if name.startswith(quantizer)]
        wanted = losses.loc["wsd-1e-2", ["fp", *draws]]
        assert points.x.to_numpy() == pytest.approx(wanted.fp.to_numpy())
        assert points.y.to_numpy() == pytest.approx(wanted[draws].mean(axis=1).to_numpy())
    titles = [ax.get_title() for ax in drawn.picture("fig06").axes if has_diagonal(ax)]
    titles = [" ".join(title.split()) for title in titles]
    assert titles == ["(b) FP to 4-bit loss", "(e) FP to 3-bit loss"]


def has_diagonal(ax):
    return any(isinstance(line, AxLine) for line in ax.get_lines())


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_hides_another_and_none_is_cut_off(drawn, name):
    picture = drawn.picture(name)
    canvas = FigureCanvasAgg(picture)
    canvas.draw()
    boxes = {}
    for text in picture.findobj(Text):
        box = text.get_window_extent(canvas.get_renderer())
        if text.get_visible() and text.get_text().strip() and not is_beyond(text, picture):
            assert text.get_fontsize() >= SMALLEST
            boxes[text] = box.padded(-0.5)
    for one, other in combinations(boxes, 2):
        assert not boxes[one].overlaps(boxes[other]), (one.get_text(), other.get_text())
    for text, box in boxes.items():
        assert box.x0 > -2 and box.x1 < picture.bbox.width + 2, text.get_text()


def is_beyond(text, picture):
    """Whether a text labels a tick outside the limits of its axis, where it is not drawn."""
    for ax in picture.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if text in (tick.label1, tick.label2):
                    room = 1e-6 * (high - low)
                    return not low - room <= tick.get_loc() <= high + room
    return False


# Words


@pytest.mark.parametrize("name", FIGURES)
def test_how_a_figure_came_about_stands_below_its_caption(drawn, name):
    query, words = PLAN.site.config.figures[name], drawn.said(name)
    settings = PLAN.figures.figure(name).settings
    number = 3 if query.draws else 1
    sets = f"{number} calibration set{'s' * (number > 1)}."
    assert (f"GPTQ by llm-compressor, {sets}" in words) == bool(query.quantizers), words
    gone = PLAN.site.left_out(name)
    assert ("Left out at this scale: " in words) == bool(gone)
    assert all(each in words for each in [*gone, *settings.notes])


def test_the_legend_says_that_rates_are_multiples_of_those_in_labels(drawn):
    factor = PLAN.site.config.scale.regime.peak_lr_factor
    assert f"LR of the paper; here × {factor:g}" in legend_words(drawn.picture("fig06"))


# Files


@pytest.mark.parametrize("name", CENTRAL)
def test_equal_input_gives_equal_bytes(drawn, name):
    paths = [drawn.folder / PLAN.site.pictures / f"{name}.{kind}" for kind in ("pdf", "png", "csv")]
    contents = []
    for _ in range(2):
        Drawn(drawn.folder, PLAN).picture(name)
        contents.append([path.read_bytes() for path in paths])
    assert contents[0] == contents[1]
