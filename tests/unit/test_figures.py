"""Figures: the table is what is drawn, in words and lines that a reader can tell apart."""

import re
import zlib
from itertools import combinations
from string import ascii_lowercase

import matplotlib.colors
import numpy as np
import pytest
from drawing import Drawn, check, data_lines, split, spoken
from ptq_dynamics.figures.layout import MOST_CURVES
from ptq_dynamics.figures.layouts.stages import CHANCE
from ptq_dynamics.figures.style import FIXED, LINES, OTHERS, ROLES, SEQUENTIAL, lines
from ptq_dynamics.train.schedules import learning_rate
from support import plan

# Every figure is drawn in full.
pytestmark = pytest.mark.slow

PLAN = plan("laptop")
LAYOUTS = {name: figure.layout for name, figure in PLAN.site.config.figures.items()}
RATE = "learning rate (right axis)"
CENTRAL = ("fig04", "fig06", "fig07")
FIGURES = list(LAYOUTS)
# Of a line between checkpoints, and of one average or eigenvalues, nothing is told.
UNRESOLVED = ()
LINED = [
    name for name, layout in LAYOUTS.items() if layout not in ("landscapes", "flatness", "stages")
]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """All figures, each drawn once."""
    return Drawn(tmp_path_factory.mktemp("figures"), PLAN)


# What is drawn


@pytest.mark.parametrize("name", FIGURES)
def test_the_csv_is_exactly_what_is_drawn(drawn, name):
    check(drawn.picture(name), drawn.table(name), LAYOUTS[name])


def test_points_are_the_measurements(drawn):
    table, measured = drawn.table("fig04"), drawn.measurements("fig04")
    assert table[table.axis == "left"].low.notna().all()
    errors = measured[measured.metric == "quantization_error"]
    errors = errors[errors.trajectory == "rainbow-036"].sort_values("step")
    draws = errors.groupby("step").value
    assert set(draws.size()) == {3}, "calibration draws"
    points = table[(table.panel == "a") & (table.segment == "rainbow-036") & (table.axis == "left")]
    assert points.x.tolist() == errors.tokens.drop_duplicates().tolist()
    assert points.y.to_numpy() == pytest.approx(draws.mean().to_numpy(), rel=1e-12)
    assert (points.y - points.low >= (draws.std() / 3**0.5).to_numpy()).all()
    rates = table[(table.panel == "a") & (table.segment == "rainbow-036") & (table.axis == "right")]
    steps = [point.step for point in PLAN.site.timeline.checkpoints("rainbow-036")]
    schedule = PLAN.trajectories.train("rainbow-036").settings.schedule
    assert rates.y.tolist() == [learning_rate(schedule, step) for step in steps]


def test_the_line_of_a_curve_goes_on_where_a_cooldown_takes_over(drawn):
    table = drawn.table("fig06")
    errors = table[(table.panel == "a") & (table.axis == "left")]
    for rate in ("3e-4", "1e-3", "3e-3", "1e-2"):
        trunk, cooldown = (errors[errors.segment == f"{k}-{rate}"] for k in ("constant", "wsd"))
        assert trunk.x.max() == cooldown.x.min() and not trunk.x.duplicated().any(), rate


def test_parametric_panels_show_where_all_curves_have_points(drawn):
    table = drawn.table("fig06")
    for letter, (left, _) in zip("abc", split(drawn.picture("fig06")), strict=True):
        points = table[(table.panel == letter) & (table.axis == "left")]
        measured = {"tokens", "loss"} if letter == "a" else {"loss"}
        low, high = left.get_xlim()
        seen = points[(points.x >= low) & (points.x <= high)]
        assert set(seen.curve) == set(points.curve), measured
        if letter in "bc":
            assert high == points.groupby("curve").x.quantile(0.25).max()
            assert (seen.y >= left.get_ylim()[0]).all() and (seen.y <= left.get_ylim()[1]).all()


def test_a_phase_goes_from_its_beginning_to_its_end(drawn):
    table, measured = drawn.table("fig02"), drawn.measurements("fig02")
    shown = table[table.panel != "a"]
    families = shown.curve.str.replace("^(Soup|Base) of ", "", regex=True)
    assert (families.groupby(shown.panel).nunique() == 1).all() and families.nunique() == 4
    assert (
        not table[(table.panel == "a") & (table.axis == "left")].segment.isin(shown.segment).any()
    )
    timeline = PLAN.site.timeline
    stage_2 = {
        f"olmo2-{size}-ingredient-{n}" for size in ("1b", "7b", "13b", "32b") for n in (1, 2, 3)
    }
    means = {f"olmo2-{size}-soup" for size in ("7b", "13b", "32b")}
    assert {*shown.segment} == {*stage_2, "olmo2-13b-ingredient-4", "olmo2-1b-base", *means}
    errors = measured[measured.metric == "quantization_error"]
    for name, part in shown.groupby("segment"):
        theirs = errors[errors.trajectory == name]
        if name.endswith(("-base", "-soup")):
            assert part.x.tolist() == [1.0], name
            assert part.y.tolist() == theirs.value.tolist()[-1:], name
            continue
        first, last = timeline.run(name).ends(timeline)
        wanted = [(step - first) / (last - first) for step in sorted(theirs.step)]
        assert part.x.tolist() == pytest.approx(wanted, rel=1e-12), name
        assert part.y.tolist() == theirs.sort_values("step").value.tolist(), name


def test_a_trunk_goes_through_the_points_where_its_branches_begin(drawn):
    table = drawn.table("fig04")
    for panel in "ab":
        errors = table[(table.panel == panel) & (table.axis == "left")]
        trunk = errors[errors.segment == "constant-3e-3"]
        assert trunk.x.is_monotonic_increasing and not trunk.x.duplicated().any()
        measured = {point.step for point in PLAN.site.timeline.measured("constant-3e-3")}
        for name, branch in errors[errors.curve == "Decay"].groupby("segment"):
            if PLAN.site.timeline.measured(name)[0].step in measured:
                continue  # Made-up values differ from those of the trunk.
            (at,) = trunk[trunk.x == branch.x.min()].y
            assert at == branch.sort_values("x").y.iloc[0], name


# Words


@pytest.mark.parametrize("name", FIGURES)
def test_every_axis_has_a_label_and_losses_have_their_unit(drawn, name):
    for letter, (left, right) in zip(ascii_lowercase, split(drawn.picture(name)), strict=False):
        if LAYOUTS[name] not in ("landscapes", "pca"):
            assert left.get_title().startswith(f"({letter}) "), left.get_title()
        assert left.get_xlabel() and left.get_ylabel(), letter
        for label in (left.get_xlabel(), left.get_ylabel()):
            if "loss" in label.lower() and "increase" not in label.lower():
                assert "nats/token" in label, label
            if "error" in label.lower():
                assert re.search(r"\(%\)|MSE|squared|nats", label), label
        if right is not None:
            assert right.get_ylim()[0] == 0
    rights = [right for _, right in split(drawn.picture(name)) if right is not None]
    doubt = "\n(uncertain of OLMo-2 13B)" if name == "fig02" else ""
    assert not rights or rights[-1].get_ylabel() == f"Learning rate{doubt}"


@pytest.mark.parametrize("name", ["fig03", "fig17", "fig18"])
def test_what_chance_gives_does_not_set_the_scale(drawn, name):
    table = drawn.table(name)
    for letter, (ax, _) in zip(ascii_lowercase, split(drawn.picture(name)), strict=False):
        part = table[table.panel == letter]
        points, level = part[part.axis == "left"], part[part.axis == "level"]
        if level.empty:
            continue
        ends = [min(0, points.low.min()), max(0, points.high.max())]
        low, high = ax.get_ylim()
        assert low <= ends[0] and ends[1] <= high
        assert high - low <= 1.3 * (ends[1] - ends[0]), letter
        told = [text.get_text() for text in ax.texts]
        assert bool(told) == bool((level.y > ends[1]).any()), told
        assert all(text.startswith("↑ chance: ") for text in told)


@pytest.mark.parametrize("name", [n for n in FIGURES if LAYOUTS[n] != "landscapes"])
def test_the_legend_names_every_curve_once(drawn, name):
    table = drawn.table(name)
    legends = drawn.picture(name).legends
    if table.curve.nunique() == 1 and not (table.axis == "right").any():
        assert not legends, "one curve needs no name"
        return
    (legend,) = legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert len(labels) == len(set(labels))
    guessed = {CHANCE} if "axis" in table and (table.axis == "level").any() else set()
    guessed &= {CHANCE} if LAYOUTS[name] == "stages" else set()
    assert set(labels) - {RATE} == set(table.curve) | guessed
    has_rates = "axis" in table and bool((table.axis == "right").any())
    assert (RATE in labels) == has_rates


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_states_its_scale(drawn, name):
    query, words = PLAN.site.config.figures[name], spoken(drawn.picture(name))
    settings = PLAN.figures.figure(name).settings
    number = 3 if query.draws else 1
    sets = f", {number} calibration set{'s' * (number > 1)}" * bool({*query.quantizers} - {"int8"})
    sizes = {run.stands_for for run in settings.runs}
    size = r"0\.17M parameters" if sizes == {None} else r"miniatures? of .*0\.17M.* parameters\)"
    tool = "; GPTQ by llm-compressor" if query.quantizers else ""
    assert re.search(rf"laptop scale: {size}, [\d.]+M tokens, 1 seed{sets}{tool}", words), words
    gone = PLAN.site.left_out[name]
    assert ("left out: " in words) == bool(gone) and all(each in words for each in gone)
    assert ("uncertain of " in words) == bool(settings.uncertain)
    assert ("≙ marks the paper's value" in words) == ("≙" in str(settings.curves))
    resolving = {"pca": "places are exact", "flatness": "laptop"}.get(LAYOUTS[name], "differences")
    assert resolving in words or name in UNRESOLVED, words


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_as_wide_as_in_a_paper_and_its_letters_are_legible_there(drawn, name):
    drawn.picture(name)
    content = (drawn.folder / PLAN.site.pictures / f"{name}.pdf").read_bytes()
    (box,) = re.findall(rb"/MediaBox \[([^\]]*)\]", content)
    width = float(box.split()[2]) / 72
    assert width == pytest.approx(5.5) or width == pytest.approx(2.75), width
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, flags=re.S)
    text = b"".join(zlib.decompress(each) for each in streams if each[:1] == b"x")
    sizes = [float(size) for size in re.findall(rb"/\S+ ([\d.]+) Tf", text)]
    assert len(sizes) > 10 and min(sizes) >= 6, sorted(set(sizes))


def shown_texts(picture):
    """Every text that is seen, with its box in pixels."""
    picture.canvas.draw()
    renderer = picture.canvas.get_renderer()
    texts = [picture._suptitle, *(t for legend in picture.legends for t in legend.get_texts())]
    for ax in picture.axes:
        # A panel's title may stand in the middle, on the left or on the right.
        texts += [ax.title, ax._left_title, ax._right_title, *ax.texts]
        for axis in (ax.xaxis, ax.yaxis):
            if not axis.get_visible():
                continue
            texts += [axis.label, axis.get_offset_text()]
            for tick in axis._update_ticks():
                texts += [t for t in (tick.label1, tick.label2) if t.get_visible()]
    seen = [text for text in texts if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in seen]


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_overlaps_another_or_the_edge(drawn, name):
    picture = drawn.picture(name)
    texts = shown_texts(picture)
    assert len(texts) > 10
    clashes = [
        (one, other)
        for (one, box), (other, second) in combinations(texts, 2)
        if box.padded(-1).overlaps(second.padded(-1))
    ]
    assert not clashes
    width, height = picture.bbox.width, picture.bbox.height
    outside = [
        text
        for text, box in texts
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1
    ]
    assert not outside


# Lines


def luminance(color):
    """Relative luminance (WCAG) of a colour, 0 black to 1 white."""
    channels = np.asarray(matplotlib.colors.to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def alike(one, other):
    close = abs(luminance(one[0]) - luminance(other[0])) < 0.08
    return close and one[1:] == other[1:]


def test_no_two_styles_are_alike_in_greyscale():
    assert len(LINES) == MOST_CURVES
    styles = [(line.color, line.dash, line.marker) for line in (*LINES, *OTHERS)]
    assert not [pair for pair in combinations(styles, 2) if alike(*pair)]
    assert max(luminance(color) for color, *_ in styles) < 0.55, "too light on white"


def test_a_colour_that_means_something_is_not_taken_by_what_means_something_else():
    taken = {line.color: role for role, line in ROLES.items()}
    for name, figure in PLAN.site.config.figures.items():
        for label, line in lines(list(figure.curves)).items():
            role = re.split(r"[\s,]", label.split(": ")[-1])[0]
            wrong = line.color in taken and role not in ROLES
            of_another = label.startswith(("Soup of ", "Base of ")) or ":" in label
            assert not wrong or of_another, (name, label, taken.get(line.color))


@pytest.mark.parametrize("quantity", [*SEQUENTIAL, "σ"])
def test_ordered_values_go_from_dark_to_light_in_colours_of_their_own(quantity):
    labels = [f"{quantity} = {value}" for value in (8, 0.5, 1, 2, 4, 0)]
    found = lines(labels)
    shades = [luminance(found[f"{quantity} = {value}"].color) for value in (0, 0.5, 1, 2, 4, 8)]
    assert shades == sorted(shades) and shades[0] < 0.05 and 0.4 < shades[-1] < 0.55
    # Lightness as it is seen, near the cube root: every step can be told.
    steps = np.diff(np.cbrt(shades))
    assert steps.min() > 0.4 * steps.max() or quantity in FIXED
    others = lines([f"{other} = 1e-3" for other in (*SEQUENTIAL, "σ") if other != quantity])
    colors = {line.color for line in found.values()}
    assert not colors & {line.color for line in others.values()}


@pytest.mark.parametrize("name", LINED)
def test_curves_can_be_told_apart_in_greyscale(drawn, name):
    for left, _ in split(drawn.picture(name)):
        styles = {
            line.get_label(): (
                line.get_color(),
                line.get_linestyle(),
                line.get_marker(),
                line.get_linewidth(),
            )
            for line in data_lines(left)
            if not line.get_label().startswith("_")
        }
        assert styles
        same = [
            (one, other)
            for one, other in combinations(styles, 2)
            if alike(styles[one], styles[other])
        ]
        assert not same


# Files


@pytest.mark.parametrize("name", CENTRAL)
def test_equal_input_gives_equal_bytes(drawn, name):
    drawn.picture(name)
    paths = [drawn.folder / PLAN.site.pictures / f"{name}.{kind}" for kind in ("pdf", "png", "csv")]
    before = [path.read_bytes() for path in paths]
    Drawn(drawn.folder, PLAN).picture(name)
    assert [path.read_bytes() for path in paths] == before
