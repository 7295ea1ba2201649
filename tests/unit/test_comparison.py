"""Two tables side by side, value by value and block by block; and the first job that differs."""

from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.measure import measurements
from ptq_dynamics.provenance.comparison import KEY, Build, compare, parting
from recorded import RUN, build
from support import ROOT

RELEASED = ROOT / "results/reference/laptop/measurements.csv"


def table(folder, change=None):
    """A folder with the released table of scale laptop, in part, changed."""
    frame = measurements.read(RELEASED).head(50)
    if change is not None:
        frame = change(frame)
    folder.mkdir(parents=True)
    measurements.write(frame, folder / "measurements.csv")
    return Build(folder)


def moved(by):
    """The first measurement, moved by so many of its standard errors."""

    def change(frame):
        frame.loc[0, "value"] += by * frame.loc[0, "stderr"]
        return frame

    return change


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        (None, {"equal": 50}),
        # Of two such errors: 2√2 = 2.83.
        (moved(2.7), {"equal": 49, "within tolerance": 1}),
        (moved(-2.9), {"equal": 49, "different": 1}),
        (lambda frame: frame.drop(index=3), {"equal": 49, "only in one": 1}),
        (lambda frame: frame.assign(value=float("nan")), {"different": 50}),
    ],
)
def test_tables_are_compared_value_by_value(tmp_path, change, verdicts):
    one, other = table(tmp_path / "a"), table(tmp_path / "b", change)
    for found in (compare(one, other), compare(other, one)):
        assert found.verdict.value_counts().to_dict() == verdicts
        assert not found.paired.any()


def test_an_unknown_error_is_not_judged(tmp_path):
    change = moved(1)
    one = table(tmp_path / "a")
    other = table(tmp_path / "b", lambda frame: change(frame).assign(stderr=float("nan")))
    found = compare(one, other)
    assert found.verdict.value_counts().to_dict() == {"equal": 49, "not judged": 1}


def test_errors_are_paired_by_block_where_the_losses_are_there(tmp_path, monkeypatch):
    chance = np.random.default_rng(7)
    losses = {name: chance.normal(3, 1, 64) for name in ("a", "b")}
    shift = chance.normal(0.01, 0.02, 64)
    frame = measurements.read(RELEASED)
    row = frame.index[(frame.metric == "loss") & frame.seed.notna()][0]
    part = frame.loc[[row]].reset_index(drop=True)
    builds = []
    for name, values in (("a", losses["a"]), ("b", losses["a"] + shift)):
        (tmp_path / name).mkdir()
        part.loc[0, "value"] = values.mean()
        measurements.write(part, tmp_path / name / "measurements.csv")
        found = Build(tmp_path / name)
        checkpoint = part.checkpoint_id[0]
        monkeypatch.setattr(found, "blocks", lambda *_, v=values, c=checkpoint: {c: v})
        builds.append(found)
    (found,) = compare(*builds).itertuples()
    assert found.paired and found.error == pytest.approx(shift.std(ddof=1) / 8)
    distance = abs(shift.mean()) / found.error
    assert found.verdict == ("within tolerance" if distance <= 2 else "different")
    assert compare(*builds).index.nlevels == len(KEY)


def test_builds_part_at_the_first_job_that_differs(tmp_path):
    for name, rate in (("one", 0.003), ("other", 0.005)):
        (tmp_path / name).mkdir()
        with chdir(tmp_path / name):
            build(rate)
            Path("results/smoke/measurements.csv").write_text("value\n")
    one, other = (Build(tmp_path / name / "results/smoke") for name in ("one", "other"))
    found = parting(one, other)
    assert found is not None and found.result == f"{RUN}/manifest.json"
    assert found.reasons == ("schedule.peak_lr 0.005 → 0.003",)
    assert parting(one, one) is None
    with pytest.raises(Problem, match="is no table of measurements"):
        compare(one, other)


def test_without_records_it_is_unknown_where_builds_part(tmp_path):
    with pytest.raises(Problem, match="has no records of jobs"):
        parting(table(tmp_path / "a"), table(tmp_path / "b"))
