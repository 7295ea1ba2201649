"""Figures: the table is what is drawn, in words and lines that a reader can tell apart."""

import json
import re
from contextlib import chdir
from itertools import combinations
from zlib import crc32

import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from ptq_dynamics.content import write_atomically
from ptq_dynamics.figures import panels
from ptq_dynamics.figures.style import LINES
from ptq_dynamics.jobs import manifest
from ptq_dynamics.jobs.execute import execute
from ptq_dynamics.measure import measurements
from ptq_dynamics.trajectories import trajectory
from ptq_dynamics.trajectories.schedules import learning_rate, phase
from support import artifacts, differing, plan, specification

PLAN = plan("laptop")


CENTRAL = ("fig04", "fig06", "fig07")
FIGURES = (*CENTRAL, "fig05")  # and the one with the most curves


# Inputs in the real formats, as plausible as results at scale laptop


def publish(path, facts):
    path.parent.mkdir(parents=True, exist_ok=True)
    found = manifest.describe(path.parent, path, facts)
    write_atomically(path, found.text())


def write_run(folder, name):
    job = PLAN.train(name)
    schedule, config = job.settings["schedule"], job.settings
    per_step = config["batch"] * config["model"]["context"]
    points = [
        trajectory.Checkpoint(
            trajectory.folder_name(step),
            step,
            step * per_step,
            learning_rate(schedule, step),
            phase(schedule, step),
        )
        for step in PLAN.timeline.grid(name)
    ]
    path = folder / job.manifest
    path.parent.mkdir(parents=True, exist_ok=True)
    steps = np.arange(config["first"] + 10, config["last"] + 1, 10)
    curve = {"step": steps, "tokens": steps * per_step, "loss": 3 + 1 / np.sqrt(steps)}
    curve |= {"lr": [learning_rate(schedule, int(step)) for step in steps]}
    curve |= {"gradient_norm": 1 / np.sqrt(steps), "weight_norm": np.sqrt(steps)}
    pd.DataFrame(curve).to_csv(path.parent / "curve.csv", index=False)
    publish(path, trajectory.facts(points, parameters=168_000, seed=100))


def write_measurements(folder, path, columns):
    name = columns["trajectory"]
    base = PLAN.timeline.base(name)
    schedule = PLAN.train(base).settings["schedule"]
    per_step = PLAN.train(base).settings["batch"] * PLAN.train(base).settings["model"]["context"]
    offset = crc32(name.encode()) % 100 / 1000
    rows = []
    for step in PLAN.timeline.measured_steps(name):
        rate = learning_rate(schedule, step) / schedule["peak"]
        loss = 2.6 + offset + 6 / (step + 20) ** 0.5 + 0.2 * rate
        error = 0.0 if columns["method"] == "fp" else (0.02 + offset / 10) * (2 - rate)
        values = {"loss": (loss * (1 + error), 0.02)}
        if error:
            values |= {"loss_increase": (loss * error, 0.002)}
            values |= {"quantization_error": (error, 0.001)}
            values |= {"weight_mse": (error / 10, None), "output_mse": (error / 5, None)}
        for metric, (value, stderr) in values.items():
            rows.append(
                {
                    **columns,
                    "phase": phase(schedule, step),
                    "step": step,
                    "tokens": step * per_step,
                    "lr": rate * schedule["peak"],
                    "seed": 100,
                    "metric": metric,
                    "value": value,
                    "stderr": stderr,
                    "checkpoint": f"{crc32(f'{name}{step}'.encode()):016x}",
                }
            )
    path = folder / path
    path.parent.mkdir(parents=True, exist_ok=True)
    measurements.write(measurements.table(rows), path.parent / "measurements.csv")
    publish(path, {"rows": len(rows)})


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with the inputs of all these figures."""
    folder = tmp_path_factory.mktemp("figures")
    names = {
        name
        for figure in FIGURES
        for members in PLAN.config.figures[figure].curves.values()
        for name in members
    }
    for run in {PLAN.timeline.base(name) for name in names}:
        write_run(folder, run)
    methods = {q for figure in FIGURES for q in PLAN.config.figures[figure].quantizers}
    wanted = {path for figure in FIGURES for path in PLAN.figure(figure).inputs["measurements"]}
    for job in (PLAN.measure(name, method) for name in names for method in ("fp", *methods)):
        if job.manifest in wanted:
            write_measurements(folder, job.manifest, job.settings["columns"])
    return folder


@pytest.fixture(scope="module")
def drawn(inputs):
    """Figures by name, each drawn once: the picture as matplotlib holds it, and its folder."""
    kept = {}

    def do(name):
        if name not in kept:
            with pytest.MonkeyPatch.context() as patch, chdir(inputs):
                seen = []
                patch.setattr(panels.plt, "close", seen.append)
                job = PLAN.figure(name)
                assert execute(specification(job)) == 0, (
                    inputs / job.folder / f".{name}.log"
                ).read_text()[-2000:]
                (picture,) = seen
                picture.canvas.draw()
                kept[name] = picture, inputs / job.folder
        return kept[name]

    return do


def split(picture):
    """Axes by panel: the left one of each and the right one where there is one."""
    lefts = [ax for ax in picture.axes if ax.yaxis.get_label_position() == "left"]
    rights = [ax for ax in picture.axes if ax not in lefts]
    pairs = {}
    for letter, left in zip("abcdefgh", lefts, strict=False):
        same = [ax for ax in rights if np.allclose(ax.bbox.bounds, left.bbox.bounds)]
        pairs[letter] = left, (same[0] if same else None)
    return pairs


def data_lines(ax):
    return [line for line in ax.get_lines() if line.get_label() != "x = y"]


def read_table(folder, name):
    return pd.read_csv(folder / f"{name}.csv", dtype={"curve": str, "segment": str})


# What is drawn


@pytest.mark.parametrize("name", FIGURES)
def test_the_csv_is_exactly_what_is_drawn(drawn, name):
    picture, folder = drawn(name)
    table = read_table(folder, name)
    assert list(table.columns) == panels.COLUMNS
    pairs = split(picture)
    assert set(table.panel) == set(pairs)
    count = 0
    for letter, (left, right) in pairs.items():
        for axis, ax in (("left", left), ("right", right)):
            part = table[(table.panel == letter) & (table.axis == axis)]
            groups = [group for _, group in part.groupby(["curve", "segment"], sort=False)]
            lines = data_lines(ax) if ax else []
            assert len(lines) == len(groups), (letter, axis)
            for line, group in zip(lines, groups, strict=True):
                assert np.array_equal(line.get_xdata(), group.x), (letter, axis, group.segment)
                assert np.array_equal(line.get_ydata(), group.y), (letter, axis, group.segment)
                count += len(group)
                if axis == "left":
                    assert line.get_label() == group.curve.iloc[0]
    assert count == len(table) > 0


@pytest.mark.parametrize("name", FIGURES)
def test_bands_are_the_errors_of_the_table(drawn, name):
    picture, folder = drawn(name)
    table = read_table(folder, name)
    for letter, (left, _) in split(picture).items():
        part = table[(table.panel == letter) & (table.axis == "left")]
        groups = [g for _, g in part.groupby(["curve", "segment"], sort=False)]
        groups = [group for group in groups if group.low.notna().any()]
        bands = [item for item in left.collections if isinstance(item, PolyCollection)]
        assert len(bands) == len(groups), letter
        for band, group in zip(bands, groups, strict=True):
            corners = band.get_paths()[0].vertices
            lows, highs = ({*zip(group.x, group[c], strict=True)} for c in ("low", "high"))
            assert lows | highs <= {tuple(corner) for corner in corners.tolist()}
            assert (group.low <= group.y).all() and (group.y <= group.high).all()
    if name in CENTRAL:
        assert table[table.axis == "left"].low.notna().all()


def test_points_are_the_measurements(drawn, inputs):
    _, folder = drawn("fig04")
    table = read_table(folder, "fig04")
    job = PLAN.measure("rainbow-036", "gptq-4bit")
    measured = measurements.read([(inputs / job.manifest).parent / "measurements.csv"])
    errors = measured[measured.metric == "quantization_error"].sort_values("step")
    points = table[(table.panel == "a") & (table.segment == "rainbow-036") & (table.axis == "left")]
    assert points.x.tolist() == errors.tokens.tolist()
    assert points.y.tolist() == errors.value.tolist()
    assert points.low.to_numpy() == pytest.approx((errors.value - errors.stderr).to_numpy())
    rates = table[(table.panel == "a") & (table.segment == "rainbow-036") & (table.axis == "right")]
    steps = PLAN.timeline.grid("rainbow-036")
    assert rates.y.tolist() == [
        learning_rate(PLAN.train("rainbow-036").settings["schedule"], step) for step in steps
    ]


def test_the_line_of_a_curve_goes_on_where_a_cooldown_takes_over(drawn):
    _, folder = drawn("fig06")
    table = pd.read_csv(folder / "fig06.csv")
    errors = table[(table.panel == table.panel.iloc[0]) & (table.axis == "left")]
    for rate in ("3e-4", "1e-3", "3e-3", "1e-2"):
        trunk, cooldown = (errors[errors.segment == f"{k}-{rate}"] for k in ("constant", "wsd"))
        assert trunk.x.max() == cooldown.x.min(), rate
        assert not trunk.x.duplicated().any(), rate


def test_parametric_panels_hold_the_line_x_equals_y(drawn):
    picture, _ = drawn("fig06")
    for letter, (left, _) in split(picture).items():
        diagonals = [line for line in left.get_lines() if line.get_label() == "x = y"]
        assert len(diagonals) == (letter in "bc"), letter
        for line in diagonals:
            assert list(line.get_xdata()) == list(line.get_ydata())
            shown = np.concatenate([other.get_xdata() for other in data_lines(left)])
            assert (min(shown), max(shown)) == tuple(line.get_xdata())


# Words


@pytest.mark.parametrize("name", FIGURES)
def test_every_axis_has_a_label_and_losses_have_their_unit(drawn, name):
    picture, _ = drawn(name)
    for letter, (left, right) in split(picture).items():
        assert left.get_title().startswith(f"({letter}) "), left.get_title()
        assert left.get_xlabel() and left.get_ylabel(), letter
        for label in (left.get_xlabel(), left.get_ylabel()):
            if "loss" in label.lower() and "increase" not in label.lower():
                assert "nats/token" in label, label
            if "error" in label.lower():
                assert re.search(r"\(%\)|MSE|squared|nats", label), label
        if right is not None:
            assert right.get_ylabel() == "Learning rate"
            assert right.get_ylim()[0] == 0


@pytest.mark.parametrize("name", FIGURES)
def test_the_legend_names_every_curve_once(drawn, name):
    picture, folder = drawn(name)
    (legend,) = picture.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert len(labels) == len(set(labels))
    table = read_table(folder, name)
    assert set(labels) - {"x = y"} == set(table[table.axis == "left"].curve)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_states_its_scale(drawn, name):
    picture, _ = drawn(name)
    assert re.fullmatch(
        r"laptop scale: 0\.17M( and [\d.]+[MBk])* parameters, [\d.]+[MBT] tokens",
        picture.get_suptitle(),
    )


def shown_texts(picture):
    """Every text that is seen, with its box in pixels."""
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
    picture, _ = drawn(name)
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
    styles = [(line.color, line.dash, line.marker) for line in LINES]
    assert not [pair for pair in combinations(styles, 2) if alike(*pair)]
    assert max(luminance(line.color) for line in LINES) < 0.55, "too light on white"


@pytest.mark.parametrize("name", FIGURES)
def test_curves_can_be_told_apart_in_greyscale(drawn, name):
    picture, _ = drawn(name)
    for letter, (left, _) in split(picture).items():
        styles = {
            line.get_label(): (line.get_color(), line.get_linestyle(), line.get_marker())
            for line in data_lines(left)
        }
        assert styles, letter
        same = [
            (one, other)
            for one, other in combinations(styles, 2)
            if alike(styles[one], styles[other])
        ]
        assert not same, (letter, same)


@pytest.mark.parametrize("name", FIGURES)
def test_the_learning_rate_is_dotted_in_the_colour_of_its_curve(drawn, name):
    picture, folder = drawn(name)
    table = read_table(folder, name)
    for letter, (left, right) in split(picture).items():
        if right is None:
            continue
        colors = {line.get_label(): line.get_color() for line in data_lines(left)}
        part = table[(table.panel == letter) & (table.axis == "right")]
        curves = [curve for (curve, _), _ in part.groupby(["curve", "segment"], sort=False)]
        for line, curve in zip(right.get_lines(), curves, strict=True):
            assert line.get_linestyle() == ":"
            assert line.get_color() == colors.get(curve, line.get_color())


# Files


@pytest.mark.slow
@pytest.mark.parametrize("name", CENTRAL)
def test_equal_input_gives_equal_bytes_and_leaves_other_figures_alone(drawn, inputs, name):
    for figure in CENTRAL:
        drawn(figure)
    folder = inputs / PLAN.pictures
    before = artifacts(folder)
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    with chdir(inputs):
        assert execute(specification(PLAN.figure(name))) == 0
    assert not differing(before, artifacts(folder))
    kinds = ("pdf", "png", "csv", "manifest.json", "record.json")
    touched = {path.name for path, when in written.items() if path.stat().st_mtime_ns != when}
    assert touched == {f"{name}.{kind}" for kind in kinds} | {f".{name}.log"}
    assert before[f"{name}.pdf"].startswith(b"%PDF-")
    assert before[f"{name}.png"].startswith(b"\x89PNG")
    listed = json.loads(before[f"{name}.manifest.json"])["files"]
    assert set(listed) == {f"{name}.{kind}" for kind in ("pdf", "png", "csv")}
