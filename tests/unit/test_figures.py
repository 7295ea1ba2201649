"""Figures: the table is what is drawn, and words say what it was made at."""

import pytest
from drawing import Drawn, check, check_texts, legend_words
from matplotlib.lines import AxLine
from ptq_dynamics.figures.panels import COLUMNS
from support import plan

pytestmark = pytest.mark.slow

PLAN = plan("laptop")
LAYOUTS = {name: figure.layout for name, figure in PLAN.site.config.figures.items()}
FIGURES = list(LAYOUTS)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """All figures, each drawn once."""
    return Drawn(tmp_path_factory.mktemp("figures"), PLAN)


# What is drawn


@pytest.mark.parametrize("name", FIGURES)
def test_the_csv_is_exactly_what_is_drawn(drawn, name):
    table = drawn.table(name)
    check(drawn.picture(name), table, LAYOUTS[name])
    # All tables have the same columns, and name what is measured.
    assert [*table.columns] == COLUMNS
    assert table[["metric", "trajectory", "x", "y"]].notna().all(axis=None)


def test_the_strip_has_the_rates_of_the_schedule(drawn):
    table = drawn.table("fig04")
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
    check_texts(drawn.picture(name))


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


def test_the_legend_tells_errors_of_points_from_deviations_over_runs(drawn):
    """With one seed, panel (c) of figure 9 has the deviation over cooldowns."""
    assert "± 1 standard deviation or error" in legend_words(drawn.picture("fig09"))
