"""Figures: the table is what is drawn, and the words above say what it was made at."""

import re

import pytest
from drawing import Drawn, check, spoken
from ptq_dynamics.train.schedules import learning_rate
from support import plan

# Every figure is drawn in full.
pytestmark = pytest.mark.slow

PLAN = plan("laptop")
LAYOUTS = {name: figure.layout for name, figure in PLAN.site.config.figures.items()}
CENTRAL = ("fig04", "fig06", "fig07")
FIGURES = list(LAYOUTS)


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


# Words


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
    assert resolving in words, words


# Files


@pytest.mark.parametrize("name", CENTRAL)
def test_equal_input_gives_equal_bytes(drawn, name):
    drawn.picture(name)
    paths = [drawn.folder / PLAN.site.pictures / f"{name}.{kind}" for kind in ("pdf", "png", "csv")]
    before = [path.read_bytes() for path in paths]
    Drawn(drawn.folder, PLAN).picture(name)
    assert [path.read_bytes() for path in paths] == before
