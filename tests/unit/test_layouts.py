"""Layouts draw any number of curves, quantizers and seeds, or are refused in one line."""

import numpy as np
import pandas as pd
import pytest
from drawing import LAYOUTS, Drawn, check, figure, planned, random, spoken
from matplotlib.collections import PathCollection
from ptq_dynamics.engine.context import Context
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.layouts.onset import described
from ptq_dynamics.figures.panels import draw_panel, subplots
from ptq_dynamics.figures.resolution import scatter
from ptq_dynamics.figures.settings import Shown
from ptq_dynamics.figures.style import lines
from ptq_dynamics.figures.words import Panel, call
from ptq_dynamics.measure.joining import block_losses
from ptq_dynamics.measure.pairing import errors_of_comparison

pytestmark = pytest.mark.slow

ERROR, LOSS = "quantization_error", "loss"
RUNS = ["constant-3e-3", "rainbow-036", "rainbow-070", "rainbow-104", "rainbow-138"]
QUANTIZERS = ["gptq-4bit", "gptq-3bit", "awq-4bit", "int8", "rtn-4bit"]


COUNTS = [(1, 5), (3, 3), (5, 1)]
# Every curve has a landscape of its own under every quantizer.
FEWER = [(1, 3), (2, 2), (5, 1)]
CASES = [
    (f"{layout}-{curves}-{quantizers}", layout, curves, quantizers)
    for layout in LAYOUTS
    for curves, quantizers in (FEWER if layout == "landscapes" else COUNTS)
]
# What is drawn against its age, and levels.
AVERAGES = ["lawa-windows-5", "constant-3e-3", "exponential", "wsd-3e-3", "lawa-windows-50"]
COUNTED = {
    name: figure(
        layout,
        {f"Curve {n}": [(AVERAGES if layout == "windows" else RUNS)[n]] for n in range(curves)},
        QUANTIZERS[:quantizers],
    )
    for name, layout, curves, quantizers in CASES
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layouts")
    return Drawn(folder, planned(folder, COUNTED), coarse=True)


@pytest.mark.parametrize(("name", "layout", "curves", "quantizers"), CASES)
def test_a_layout_draws_any_number_of_curves_and_quantizers(
    drawn, name, layout, curves, quantizers
):
    picture, table = drawn.picture(name), drawn.table(name)
    check(picture, table, layout)
    if layout == "landscapes":
        assert table.panel.nunique() == curves * quantizers
    else:
        assert set(table.curve) == {f"Curve {number}" for number in range(curves)}
    for legend in picture.legends:
        box = legend.get_window_extent()
        assert box.x0 >= -1 and box.x1 <= picture.bbox.width + 1, "the legend is cut off"
    assert picture._suptitle.get_window_extent().x0 >= -1, "the footer is cut off"


def test_quantizers_are_called_by_what_tells_them_apart():
    four, three = Shown("a", ("a",), "gptq", 4, True), Shown("b", ("b",), "gptq", 3, True)
    assert call([four, three]) == {"a": "4-bit", "b": "3-bit"}
    assert call([four, Shown("c", ("c",), "awq", 4, True)]) == {"a": "4-bit GPTQ", "c": "4-bit AWQ"}
    assert call([four, Shown("d", ("d",), "gptqmodel", 4, True)]) == {"a": "a", "d": "d"}


SEEDS = [1, 2, 3]


def several(runs):
    runs["runs"]["constant-3e-3"]["seeds"] = SEEDS


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    """The same figures of one run at one seed and at three."""
    curves, quantizers = {"Stable": ["constant-3e-3"]}, ["gptq-3bit"]
    figures = {"over_tokens": figure("over_tokens", curves, quantizers)}
    figures["dynamics"] = figure("dynamics", curves, [], metrics=["gradient_norm"])
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "three")]
    changes = [{}, {"runs": several}]
    plans = [planned(f, figures, **c) for f, c in zip(folders, changes, strict=True)]
    return [Drawn(f, plan, coarse=True) for f, plan in zip(folders, plans, strict=True)]


def test_a_landscape_reads_the_first_seed_alone(tmp_path):
    figures = {"one": figure("landscapes", {"Stable": ["constant-3e-3"]}, ["gptq-3bit"])}
    plan = planned(tmp_path, figures, runs=several)
    job = plan.figures.figure("one")
    assert [run.seed for run in job.settings.runs] == SEEDS[:1]
    assert not [path for path in job.needs if f"seed-{SEEDS[1]}" in path]


def errors_of(drawn, name):
    """The measured errors of a figure's job, by seed and tokens."""
    table = drawn.measurements(name)
    return table[table.metric == ERROR].pivot(index="tokens", columns="seed", values="value")


def test_several_seeds_are_their_mean_and_spread(seeded):
    _, three = seeded
    errors = errors_of(three, "over_tokens")
    assert list(errors.columns) == SEEDS
    table = three.table("over_tokens")
    left = table[table.axis == "left"]
    assert left.x.tolist() == errors.index.tolist()
    assert np.allclose(left.y, errors.to_numpy().mean(axis=1), rtol=1e-12)
    spread = errors.to_numpy().std(axis=1, ddof=1)
    assert np.allclose(left.y - left.low, spread) and np.allclose(left.high - left.y, spread)
    words = spoken(three.picture("over_tokens"))
    assert "3 seeds, 1 calibration set; GPTQ by llm-compressor; resolves" in words
    rates = table[table.axis == "right"]
    assert not rates.x.duplicated().any(), "the learning rate is drawn once"


def test_training_curves_of_several_seeds_are_their_mean_and_spread(seeded):
    one, three = (drawn.table("dynamics") for drawn in seeded)
    assert one[one.axis == "left"].low.isna().all()
    left = three[three.axis == "left"]
    found = sorted(seeded[1].folder.glob("results/*/train/constant-3e-3/seed-*/curve.csv"))
    values = np.array([pd.read_csv(path).gradient_norm for path in found])
    assert len(values) == len(SEEDS)
    assert np.allclose(left.y, values.mean(axis=0), rtol=1e-12)
    assert np.allclose(left.high - left.y, values.std(axis=0, ddof=1))


def test_what_blocks_have_in_common_is_in_no_band_of_one_seed(seeded):
    """Written apart from the code: the errors of blocks at all points, less each block's median."""
    one, _ = seeded
    table, job = one.table("over_tokens"), one.job("over_tokens")
    (full,) = [s for s in job.settings.series if s.quantizer == "fp"]
    (rounded,) = [s for s in job.settings.series if s.quantizer == "gptq-3bit"]
    inputs = one.manifests("over_tokens")
    before, after = (block_losses(s, inputs) for s in (full, rounded))
    rows = []
    for point in one.plan.site.timeline.measured("constant-3e-3"):
        w, q = (found[point.id].astype(np.float64) for found in (before, after))
        rows.append((q - q.mean() / w.mean() * w) / w.mean())
    count, blocks = np.shape(rows)
    expected = []
    rows = [row - row.mean() for row in rows]
    for row in rows:
        rest = row - np.median(rows, axis=0)
        # Of all residuals one in `count` is spent on the blocks' medians.
        variance = ((rest - rest.mean()) ** 2).sum() / (blocks - 1) * count / (count - 1)
        expected.append(min(variance, row.var(ddof=1)) / blocks)
    left = table[table.axis == "left"]
    assert np.allclose(left.y - left.low, np.sqrt(expected), rtol=1e-6)


def test_a_wild_point_is_in_no_band_but_its_own():
    rng = np.random.default_rng(2)
    common = rng.normal(size=400)
    calm = {n: common + rng.normal(0, 0.1, 400) for n in range(9)}
    before = errors_of_comparison(calm)
    assert all(error == pytest.approx(0.1 / 20, rel=0.2) for error in before.values())
    wild = {**calm, "wild": 5 * common + rng.normal(0, 10, 400), "broken": np.full(400, np.nan)}
    after = errors_of_comparison(wild)
    assert all(after[n] == pytest.approx(before[n], rel=0.2) for n in calm)
    assert after["wild"] == pytest.approx(0.5, rel=0.25) and np.isnan(after["broken"])


def test_draws_are_averaged_and_their_error_is_added(tmp_path):
    curves, quantizers = {"Stable": ["constant-3e-3"]}, ["gptq-4bit"]
    draws = {"gptq-4bit": ["gptq-4bit-draw-2", "gptq-4bit-draw-3"]}
    figures = {
        "one": figure("over_tokens", curves, quantizers),
        "three": figure("over_tokens", curves, quantizers, draws=draws),
    }
    drawn = Drawn(tmp_path, planned(tmp_path, figures), coarse=True)
    tables = {name: drawn.table(name) for name in figures}
    one, three = (table[table.axis == "left"] for table in tables.values())
    found = drawn.measurements("three")
    found = found[found.metric == ERROR].pivot(index="tokens", columns="quantizer", values="value")
    assert found.shape[1] == 3 and np.allclose(one.y, found["gptq-4bit"])
    assert np.allclose(three.y, found.mean(axis=1), rtol=1e-12)
    spread = found.std(axis=1) / 3**0.5
    assert (three.y - three.low >= spread.to_numpy() * (1 - 1e-9)).all()


def rows(curve, segment, x, y):
    """Points of the left axis, as they stand in a figure's table."""
    points = {"panel": "a", "curve": curve, "segment": segment, "axis": "left", "x": x, "y": y}
    return pd.DataFrame(points | {"low": np.nan, "high": np.nan})


def painted(table, **form):
    """The left axes of one panel of a table."""
    _, (ax,) = subplots(1, 1, 2.0)
    panel = Panel("Norm", "Training tokens", "Norm", thin=True, **form)
    draw_panel(ax, panel, table, lines([*dict.fromkeys(table.curve)]))
    return ax


@pytest.mark.parametrize("log_y", [False, True])
def test_one_spike_does_not_set_the_scale(log_y):
    steps = np.arange(1.0, 201)
    calm = 1 + steps / 200 + 0.1 * (-1) ** steps
    wild = np.where(steps == 150, 40, calm)
    for spikes, shown in ((True, calm), (False, wild)):
        ax = painted(rows("One", "one", steps, wild), log_y=log_y, spikes=spikes)
        low, high = ax.get_ylim()
        assert low <= shown.min() and shown.max() <= high < 2 * shown.max(), spikes
    (line,) = ax.get_lines()
    assert line.get_ydata().max() == 40, "the spike is left out of the line"


@pytest.mark.parametrize("relative", [False, True])
def test_what_a_line_without_bands_resolves_is_its_scatter(relative):
    steps = np.arange(1.0, 4001)
    course = 5 + np.sin(steps / 500)
    noise = random("scatter").normal(0, 0.02, len(steps))
    wild = np.where(steps % 500 == 250, 5, 0)
    line = course * np.exp(noise + wild) if relative else course + noise + wild
    found = scatter(rows("One", "one", steps, line), relative=relative)
    assert found == pytest.approx(2 * 2**0.5 * 0.02, rel=0.1)
    assert scatter(rows("One", "one", [1.0, 2.0], [1.0, 2.0])) is None


def test_a_run_that_another_curve_goes_on_from_has_no_end_of_its_own(tmp_path):
    """But for one that goes on itself, beside its branches."""
    curves = {
        "taken": {"Stable": ["smollm3"], "Decay": ["smollm3-decay"]},
        "beside": {"Stable": ["constant-3e-3"], "Decay": ["rainbow-036"]},
    }
    figures = {name: figure("over_tokens", found, ["gptq-4bit"]) for name, found in curves.items()}
    made = Drawn(tmp_path, planned(tmp_path, figures))
    for name, outlined in (("taken", 1), ("beside", 2)):
        found = made.picture(name).axes[0].collections
        marks = [each for each in found if isinstance(each, PathCollection)]
        assert len(marks) == outlined, name


def test_weights_of_a_branch_and_its_trunk_count_once(tmp_path):
    curves = {"Both": ["constant-1e-3", "wsd-1e-3"]}
    drawn = Drawn(
        tmp_path, planned(tmp_path, {"one": figure("flatness", curves, ["gptq-3bit"])}), coarse=True
    )
    table, measured = drawn.table("one"), drawn.measurements("one")
    sharp = measured[measured.metric == "sharpness"]
    shared = sharp[sharp.checkpoint.duplicated(keep=False)]
    assert set(shared.trajectory) == {"constant-1e-3", "wsd-1e-3"}, "the branch point is measured"
    assert len(table) == sharp.checkpoint.nunique() == len(sharp) - 1
    assert (table.segment == "constant-1e-3").sum() == (sharp.trajectory == "constant-1e-3").sum()


def test_paired_differences_are_those_of_the_blocks(tmp_path):
    curves = {"One": ["constant-3e-3"], "Other": ["wsd-3e-3", "lawa-20"]}
    figures = {"one": figure("losses", curves, ["gptq-3bit"])}
    drawn = Drawn(tmp_path, planned(tmp_path, figures), coarse=True)
    drawn.picture("one")
    job = drawn.job("one")
    data = Curves(Context("one", job.settings, drawn.manifests("one"), tmp_path, tmp_path, None))
    for metric in ("loss", "loss_increase", "quantization_error"):
        found = data.paired(metric, "lawa-20", "constant-3e-3", "gptq-3bit")
        ids = {p.step: p.id for p in drawn.plan.site.timeline.measured("lawa-20")}
        assert found.step.tolist() == sorted(ids)
        # To first order: of few blocks, the ratio's own bias is no part of the value.
        tolerance = {"rel": 0.02, "abs": 1e-4} if metric == ERROR else {"rel": 1e-9}
        for row in found.itertuples():
            names = ("lawa-20", "constant-3e-3")
            one, other = (contributions(drawn, metric, name, ids[row.step]) for name in names)
            assert row.value == pytest.approx(one.mean() - other.mean(), **tolerance)
            error = (one - other).std(ddof=1) / len(one) ** 0.5
            assert row.stderr == pytest.approx(error, **tolerance)
    loss = data.paired("loss", "lawa-20", "constant-3e-3", None)
    apart = drawn.measurements("one")
    apart = apart[(apart.quantizer == "fp") & (apart.metric == "loss")]
    assert (loss.stderr < apart.stderr.min() / 3).all(), "blocks go up and down together"


def contributions(drawn, metric, name, checkpoint):
    """A metric of every block: leave-one-out for the ratio, whose mean is not that of blocks."""
    series = {s.quantizer: s for s in drawn.job("one").settings.series if s.trajectory == name}
    inputs = drawn.manifests("one")
    full, found = (
        block_losses(series[quantizer], inputs)[checkpoint].astype(np.float64)
        for quantizer in ("fp", "gptq-3bit")
    )
    match metric:
        case "loss":
            return found
        case "loss_increase":
            return found - full
    count = len(full)
    ratio = found.sum() / full.sum() - 1
    without = (found.sum() - found) / (full.sum() - full) - 1
    return count * ratio - (count - 1) * without


@pytest.mark.parametrize("follows", ["loss", "rate"])
def test_the_share_of_variance_is_that_of_a_linear_fit(follows):
    rng = np.random.default_rng(3)
    loss, rate = rng.normal(size=(2, 60))
    error = {"loss": loss, "rate": rate}[follows] + 0.3 * rng.normal(size=60)
    found = described(loss, rate, error)
    for axis, x in (("loss", loss), ("rate", rate)):
        residuals = error - np.polyval(np.polyfit(x, error, 1), x)
        value, low, high = found[axis]
        assert value == pytest.approx(1 - residuals.var() / error.var(), abs=1e-12)
        assert low <= value <= high
    assert found[follows][0] > 0.8 and found["certain"] > 0.99
    assert described(loss[:4], rate[:4], error[:4]) is None
    assert described(np.ones(9), rate[:9], error[:9])["loss"][0] == 0
