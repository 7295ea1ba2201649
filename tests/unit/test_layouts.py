"""Layouts draw one curve, several quantizers and seeds, and what has no step or two runs."""

import numpy as np
import pytest
from drawing import LAYOUTS, Drawn, check, figure, legend_words, planned, spoken
from ptq_dynamics.figures.layouts.parametric import described
from ptq_dynamics.measure import measurements

pytestmark = pytest.mark.slow

ERROR = "quantization_error"
RUNS = ["constant-3e-3", "rainbow-036", "rainbow-070", "rainbow-104", "rainbow-138"]
QUANTIZERS = ["gptq-4bit", "gptq-3bit", "awq-4bit"]
ALONE = {layout: figure(layout, {"A curve": RUNS[:1]}, QUANTIZERS) for layout in LAYOUTS}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layouts")
    return Drawn(folder, planned(folder, ALONE))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_draws_a_curve_alone_under_several_quantizers(drawn, layout):
    """Figures of the configuration have several curves (test_figures)."""
    picture, table = drawn.picture(layout), drawn.table(layout)
    check(picture, table, layout)
    if layout == "landscapes":
        assert table.panel.nunique() == len(QUANTIZERS)
    else:
        assert set(table.curve) == {"A curve"}
    for legend in picture.legends:
        box = legend.get_window_extent()
        assert box.x0 >= -1 and box.x1 <= picture.bbox.width + 1, "the legend is cut off"
    assert picture._suptitle.get_window_extent().x0 >= -1, "the line above is cut off"


SEEDS = [1, 2, 3]


def several(runs):
    runs["runs"]["constant-3e-3"]["seeds"] = SEEDS


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    """The same figure of one run at one seed and at three."""
    curves, quantizers = {"Stable": ["constant-3e-3"]}, ["gptq-3bit"]
    figures = {"over_tokens": figure("over_tokens", curves, quantizers)}
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "three")]
    changes = [{}, {"runs": several}]
    plans = [planned(f, figures, **c) for f, c in zip(folders, changes, strict=True)]
    return [Drawn(f, plan) for f, plan in zip(folders, plans, strict=True)]


def errors_of(drawn, name):
    """The measured errors of a figure's job in per cent, by seed and tokens."""
    table = drawn.measurements(name)
    return 100 * table[table.metric == ERROR].pivot(index="tokens", columns="seed", values="value")


def test_several_seeds_are_their_mean_and_spread(seeded):
    for drawn, spread in zip(seeded, ("error", "deviation"), strict=True):
        assert f"± 1 standard {spread}" in legend_words(drawn.picture("over_tokens"))
    _, three = seeded
    errors = errors_of(three, "over_tokens")
    assert list(errors.columns) == SEEDS
    table = three.table("over_tokens")
    left = table[table.axis == "left"]
    assert left.x.tolist() == errors.index.tolist()
    assert np.allclose(left.y, errors.to_numpy().mean(axis=1), rtol=1e-12)
    spread = errors.to_numpy().std(axis=1, ddof=1)
    assert np.allclose(left.y - left.low, spread) and np.allclose(left.high - left.y, spread)
    assert spoken(three.picture("over_tokens")).endswith("3 seeds")
    assert "GPTQ by llm-compressor, 1 calibration set." in three.said("over_tokens")
    rates = table[table.axis == "rate"]
    assert not rates.x.duplicated().any(), "the learning rate is drawn once"


def test_a_compared_constant_run_counts_with_its_last_third_and_its_cooldown_with_the_end(tmp_path):
    curves = {"Stable": RUNS[:1], "Both": RUNS[:2]}
    query = figure("compared", curves, ["gptq-3bit"])
    drawn = Drawn(tmp_path, planned(tmp_path, {"one": query}, runs=several))
    measured = drawn.measurements("one")
    errors = 100 * measured[measured.metric == ERROR].set_index(["trajectory", "step"]).value
    stable, both = drawn.table("one").set_index("curve").x[["Stable", "Both"]]
    run, branch = errors[RUNS[0]], errors[RUNS[1]]
    last = run[run.index >= run.index.max() * 2 / 3]
    assert stable == pytest.approx(last.mean()) and len(last) > len(SEEDS)
    assert both == pytest.approx(branch[branch.index == branch.index.max()].mean())


def test_what_blocks_have_in_common_is_in_no_band_of_one_seed(seeded):
    """Written apart from the code: the errors of blocks at all points, less each block's median."""
    one, _ = seeded
    table, job = one.table("over_tokens"), one.job("over_tokens")
    (full,) = [s for s in job.settings.series if s.quantizer == "fp"]
    (rounded,) = [s for s in job.settings.series if s.quantizer == "gptq-3bit"]
    inputs = one.manifests("over_tokens")
    before, after = (measurements.losses_of_blocks(s, inputs) for s in (full, rounded))
    rows = []
    for point in one.plan.site.planned["constant-3e-3"].measured:
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
    assert np.allclose(left.y - left.low, 100 * np.sqrt(expected), rtol=1e-6)


@pytest.mark.parametrize("follows", ["loss", "rate"])
def test_the_share_of_variance_is_that_of_a_linear_fit(follows):
    rng = np.random.default_rng(3)
    loss, rate = rng.normal(size=(2, 60))
    error = {"loss": loss, "rate": rate}[follows] + 0.3 * rng.normal(size=60)
    found = described(loss, rate, error)
    for axis, x in (("loss", loss), ("rate", rate)):
        residuals = error - np.polyval(np.polyfit(x, error, 1), x)
        assert found[axis] == pytest.approx(1 - residuals.var() / error.var(), abs=1e-12)
    assert found[follows] > 0.8
    assert described(loss[:4], rate[:4], error[:4]) is None
    assert described(np.ones(9), rate[:9], error[:9]) is None


def test_weights_of_a_branch_and_its_trunk_count_once(tmp_path):
    curves = {"Both": ["constant-1e-3", "wsd-1e-3"]}
    drawn = Drawn(tmp_path, planned(tmp_path, {"one": figure("flatness", curves, ["gptq-3bit"])}))
    table, measured = drawn.table("one"), drawn.measurements("one")
    sharp = measured[measured.metric == "sharpness"]
    shared = sharp[sharp.checkpoint.duplicated(keep=False)]
    assert set(shared.trajectory) == {"constant-1e-3", "wsd-1e-3"}, "the branch point is measured"
    assert len(table) == sharp.checkpoint.nunique() == len(sharp) - 1
    assert (table.segment == "constant-1e-3").sum() == (sharp.trajectory == "constant-1e-3").sum()


# Merged models, which have no step


def merged(runs):
    runs["averages"]["soup"] = {"merge": {"wsd-3e-3": 2, "decay-080": 1}}


def test_a_merged_model_is_drawn_at_the_end_of_its_ingredients(tmp_path):
    curves = {"Runs": ["constant-3e-3", "wsd-3e-3"], "Other": ["decay-080"], "Soup": ["soup"]}
    query = figure("over_tokens", curves, ["gptq-3bit"])
    drawn = Drawn(tmp_path, planned(tmp_path, {"one": query}, runs=merged))
    table, measured = drawn.table("one"), drawn.measurements("one")
    soup = measured[measured.trajectory == "soup"]
    assert soup.step.isna().all() and set(soup.checkpoint_id) == {"merged"}
    points = table[table.curve == "Soup"]
    assert {*points.x} == {drawn.inputs.last_tokens("wsd-3e-3")}
    assert {*points.y} == {100 * value for value in soup.value[soup.metric == ERROR]}
    check(drawn.picture("one"), table, "over_tokens")
