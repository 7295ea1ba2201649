"""Curves of trajectories that are no ordinary runs, and names that look like numbers."""

import pytest
from drawing import Drawn, figure, planned

pytestmark = pytest.mark.slow

ERROR = "quantization_error"


def drawn(folder, figures, **changes):
    return Drawn(folder, planned(folder, figures, **changes), coarse=True)


def test_averages_alone_are_drawn(tmp_path):
    layouts = ("over_tokens", "losses", "parametric", "dynamics")
    curves = {"Five": ["lawa-5"], "Twenty": ["lawa-20"]}
    found = drawn(tmp_path, {name: figure(name, curves, ["gptq-3bit"]) for name in layouts})
    for name in layouts:
        assert set(found.table(name).curve) == {"Five", "Twenty"}, name


def test_every_line_ends_at_the_whole_way(tmp_path):
    def another(runs):
        runs["averages"]["short"] = {"start": "lawa-20", "end": "wsd-3e-3", "points": 5}

    curves = {"Long": ["lawa-to-decay"], "Short": ["short"]}
    figures = {"both": figure("losses", curves, ["gptq-3bit"], options={"against": "share"})}
    table = drawn(tmp_path, figures, runs=another).table("both")
    shares = table.groupby("curve").x.agg(["min", "max"])
    assert (shares["min"] == 0).all() and (shares["max"] == 1).all(), shares


def test_a_trunk_ends_where_its_own_branch_begins(tmp_path):
    """Not on an average of the same step, which is in the same curve."""
    curves = {"All": ["constant-3e-3", "lawa-5", "wsd-3e-3"]}
    options = {"lineage": True}
    found = drawn(tmp_path, {"one": figure("dynamics", curves, ["gptq-3bit"], options=options)})
    table, measured = found.table("one"), found.measurements("one")
    trunk = table[(table.segment == "constant-3e-3") & (table.axis == "left")]
    last = trunk.sort_values("x").y.iloc[-1]
    own = measured[measured.trajectory.isin(["constant-3e-3", "wsd-3e-3"])]
    assert last in set(own[own.metric == ERROR].value), last


def test_names_that_look_like_numbers_or_nothing_keep_their_points(tmp_path):
    def rename(runs):
        for name, other in {"007": "constant-3e-3", "null": "constant-1e-3"}.items():
            runs["runs"][name] = dict(runs["runs"][other])

    figures = {"one": figure("pca", {"A": ["007"], "B": ["null"], "C": ["wsd-3e-3"]}, [])}
    table = drawn(tmp_path, figures, runs=rename).table("one")
    assert set(table.segment) == {"007", "null", "wsd-3e-3"}
