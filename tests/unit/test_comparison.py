"""Two tables side by side, value by value; and the first job that differs."""

from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.measure import measurements
from ptq_dynamics.provenance.comparison import compare, parting
from recorded import RUN, build
from support import ROOT

NAN = float("nan")
RELEASED = ROOT / "results/reference/laptop/measurements.csv"


def table(folder, change=None):
    """A folder with the released table of scale laptop, in part, changed."""
    frame = measurements.read_table(RELEASED).head(50)
    if change is not None:
        frame = change(frame)
    folder.mkdir(parents=True)
    frame.to_csv(folder / "measurements.csv", index=False)
    return folder


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
        (lambda frame: frame.assign(value=NAN), {"different": 50}),
        (lambda frame: moved(1)(frame).assign(stderr=NAN), {"equal": 49, "not judged": 1}),
    ],
)
def test_tables_are_compared_value_by_value(tmp_path, change, verdicts):
    one, other = table(tmp_path / "a"), table(tmp_path / "b", change)
    for found in (compare(one, other), compare(other, one)):
        assert found.verdict.value_counts().to_dict() == verdicts


def test_builds_part_at_the_first_job_that_differs(tmp_path):
    for name, rate in (("one", 0.003), ("other", 0.005)):
        (tmp_path / name).mkdir()
        with chdir(tmp_path / name):
            build(rate)
            Path("results/smoke/measurements.csv").write_text("value\n")
    one, other = (tmp_path / name / "results/smoke" for name in ("one", "other"))
    assert f"{RUN}/manifest.json: schedule.peak_lr 0.005 → 0.003" in parting(one, other)
    assert parting(one, one) is None
    with pytest.raises(Problem, match="is no table of measurements"):
        compare(one, other)
    assert "has no records of jobs" in parting(table(tmp_path / "a"), one)


def test_builds_part_where_the_arithmetic_of_their_machines_does(tmp_path):
    folders = []
    for rate, capability in ((0.003, "AVX512"), (0.005, "AVX2"), (0.004, None)):
        folders.append(tmp_path / str(rate) / "results/smoke")
        (tmp_path / str(rate)).mkdir()
        with chdir(tmp_path / str(rate)):
            build(rate)
        path = folders[-1] / "train/a/seed-1/record.json"
        made, variables = record.read(path), capability and {"MKL_CBWR": capability}
        machine = replace(made.machine, capability=capability, variables=variables)
        same = {**made.job, "settings": {}}
        path.write_text(replace(made, job=same, machine=machine).text())
    one, other, old = folders
    words = "capability AVX2 → AVX512; variables.MKL_CBWR AVX2 → AVX512"
    assert parting(one, other).endswith(words)
    assert parting(one, old).endswith("the machine or nondeterminism differs")
