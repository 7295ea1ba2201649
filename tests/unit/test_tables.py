"""Tables of numbers: how they are written, and that theirs are the claims' numbers."""

import csv
import json
from contextlib import chdir

import pytest
from drawing import Inputs
from ptq_dynamics.claims.definitions import CLAIMS
from ptq_dynamics.claims.formats import Number, Table, as_latex
from ptq_dynamics.config import load
from ptq_dynamics.engine.execute import execute
from ptq_dynamics.plan import Plan
from support import ROOT, specification
from support import plan as planned

pytestmark = pytest.mark.slow

TABLE = Table(
    "A title",
    ("Run", "Loss", "Error (%)"),
    [("wsd-3e-4", Number(3.25, 0.015), Number(1.17, 0.07)), ("LR = 1e-2, 50 %", Number(3.5), None)],
)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (3.24561, 0.0153, "3.246 ± 0.015"),
        (-4.1e-5, 2.3e-6, "(-4.10 ± 0.23)e-5"),
        (0.0117, None, "0.0117"),
        (float("nan"), 1.0, ""),
    ],
)
def test_an_error_has_two_digits_and_its_value_as_many_places(value, error, text):
    assert str(Number(value, error)) == text


def test_latex_has_the_rules_of_booktabs_and_escapes_what_it_means_something_by():
    lines = as_latex(TABLE).splitlines()
    assert lines[1:3] == [r"\begin{tabular}{lrr}", r"\toprule"]
    assert lines[3] == r"Run & Loss & Error (\%) \\"
    assert lines[5] == r"wsd-3e-4 & 3.250 ± 0.015 & 1.170 ± 0.070 \\"
    assert lines[6] == r"LR = 1e-2, 50 \% & 3.5 &  \\"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]


# Their numbers


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The tables of two figures and of one with tasks, over made-up results at scale laptop."""
    folder = tmp_path_factory.mktemp("tables")
    plan = planned("laptop", figures=["fig04", "fig06", "fig03", "fig01"])
    jobs = [plan.claims.judge(), plan.claims.tabulate()]
    for job in jobs:
        Inputs(folder, plan).write(job)
        with chdir(folder):
            assert execute(specification(job)) == 0
    place = folder / "results/laptop/tables"

    def rows(name):
        with (place / f"{name}.csv").open() as file:
            return list(csv.DictReader(file))

    return plan, place, rows


def test_runs_have_a_row_each_with_what_was_before(built):
    plan, _, rows = built
    found = {row["Trajectory"]: row for row in rows("headline")}
    figures = [plan.site.config.figures[name] for name in ("fig04", "fig06")]
    branches = {n for f in figures for n in f.trajectories if n.startswith(("rainbow", "wsd"))}
    assert set(found) == branches
    row = found["wsd-3e-4"]
    assert float(row["Loss, where it branches off"]) > float(row["Loss, end"])
    assert row["3-bit error (%), end"] and row["4-bit error (%), end"]
    assert not found["rainbow-036"]["3-bit error (%), end"]
    assert rows("averaging") == []


def test_numbers_are_those_of_claims(built):
    """An error at the end of a decay, over that where it begins, is a claim's ratio."""
    _, place, rows = built
    (row,) = (row for row in rows("families") if row["Trajectory"] == "smollm3-decay")
    content = json.loads((place.parent / CLAIMS).read_text())
    (claim,) = (each for each in content["claims"] if each["name"] == "smollm3")
    end, before = (float(row[f"3-bit error (%), {at}"]) for at in ("end", "where it branches off"))
    assert claim["rows"][0]["value"] == pytest.approx(end / before)
    assert float(row["3-bit error (%), end (error)"]) > 0


def test_a_scale_may_show_fewer_seeds_in_a_figure():
    choice = {"scale": "workstation", "seed": 201, "more_seeds": [202, 203], "figures": "all"}
    plan = Plan(load(choice, ROOT / "config"), ROOT)
    figures, run = plan.site.config.figures, plan.site.planned["wsd-3e-3"]
    seeds = [run.seeds_shown(figures[name].headline) for name in ("fig04", "fig09", "fig22")]
    assert [*map(len, seeds)] == [3, 2, 1] and len(run.seeds_shown(1)) == 1
