"""Curves of trajectories that are no ordinary runs, and names that look like numbers."""

import pytest
from drawing import Drawn, check, figure, planned
from ptq_dynamics.figures.layout import BEFORE

pytestmark = pytest.mark.slow


def drawn(folder, figures, **changes):
    return Drawn(folder, planned(folder, figures, **changes), coarse=True)


# Merged models, which have no step


def merged(runs):
    runs["averages"]["soup"] = {"merge": {"wsd-3e-3": 2, "decay-080": 1}}


DECAYS = {"Runs": ["constant-3e-3", "wsd-3e-3"], "Other": ["decay-080"]}
WITH = {**DECAYS, "Soup": ["soup"]}
BUDGET = {"options": {"x": "budget"}}
DRAWN = {"over_tokens": {}, "parametric": {}, "over_tokens-budgets": BUDGET}


@pytest.fixture(scope="module")
def soups(tmp_path_factory):
    figures = {
        name: figure(name.split("-")[0], WITH, ["gptq-3bit"], **more)
        for name, more in DRAWN.items()
    }
    return drawn(tmp_path_factory.mktemp("soups"), figures, runs=merged)


@pytest.mark.parametrize("layout", DRAWN)
def test_a_merged_model_is_drawn_at_the_end_of_its_ingredients(soups, layout):
    found = soups
    table, measured = found.table(layout), found.measurements(layout)
    soup = measured[measured.trajectory == "soup"]
    assert len(soup) and soup.step.isna().all() and set(soup.checkpoint_id) == {"merged"}
    points = table[table.curve == "Soup"]
    assert set(points.panel) == set(table[table.axis == "left"].panel) and len(points)
    values = {metric: set(rows.value) for metric, rows in soup.groupby("metric")}
    losses = set(soup[(soup.metric == "loss") & (soup.quantizer == "fp")].value)
    for point in points.itertuples():
        against_loss = point.x_axis == BEFORE
        end = losses if against_loss else {found.inputs.last_tokens("wsd-3e-3")}
        share = 100 if point.y_axis.endswith("(%)") else 1
        assert point.x in end
        assert point.y in {share * each for each in set().union(*values.values())}
    check(found.picture(layout), table, layout.split("-")[0])
