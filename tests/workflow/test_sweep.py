"""The sweep of regimes, at scale smoke."""

import csv
import re
import sys
from statistics import fmean

import pytest
import yaml
from project import Project
from support import copy_results

PARTS = ("corpus", "train", "measure")
SWEEP = {
    "scale": "smoke",
    "seed": 201,
    "runs": ["constant-3e-3", "wsd-3e-3"],
    "candidates": {
        "as-it-is": {},
        "faster": {
            "regime": {"peak_lr_factor": 2, "weight_decay_factor": 2},
            "models": {"main": {"width": 16}},
        },
    },
}


COMPARE = [sys.executable, "config/sweeps/compare.py", "config/sweeps/regime.yaml"]


@pytest.fixture
def project(built, tmp_path):
    """A candidate that changes nothing is what was built, to the identity of each result."""
    copy = Project.copy(tmp_path / "project")
    copy_results(built.folder, copy.folder, [f"results/smoke/{part}" for part in PARTS])
    return copy


def test_a_sweep_tabulates_losses_of_candidates_that_differ_as_it_says(built, project):
    (project.folder / "config/sweeps/regime.yaml").write_text(yaml.safe_dump(SWEEP))
    done = project.process(COMPARE)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    made = re.findall(r"^(\S+) .*: done in ", done.stderr, re.M)
    assert "train.train" in made and "corpus.corpus" not in made, done.stderr[-3000:]
    with (project.folder / "results/sweep/regime.csv").open() as file:
        rows = [*csv.DictReader(file)]
    losses = {(row["candidate"], row["trajectory"], row["metric"]): row for row in rows}
    # The same run, in the table of a build of its own.
    with (built.folder / "results/smoke/measurements.csv").open() as file:
        measured = [
            row
            for row in csv.DictReader(file)
            if (row["trajectory"], row["quantizer"], row["metric"]) == ("wsd-3e-3", "fp", "loss")
        ]
    measured.sort(key=lambda row: int(row["step"]))
    plain, faster = (losses[name, "wsd-3e-3", "loss"] for name in SWEEP["candidates"])
    assert float(plain["last"]) == pytest.approx(float(measured[-1]["value"]), abs=5e-5)
    steps = int(measured[-1]["step"])
    late = [float(row["value"]) for row in measured if int(row["step"]) >= 0.75 * steps]
    assert float(plain["last_quarter"]) == pytest.approx(fmean(late), abs=5e-5)
    assert faster["last"] != plain["last"]
    assert losses["as-it-is", "wsd-3e-3", "carried"]["last"]
    again = project.process(COMPARE)
    assert again.returncode == 0 and ": done in " not in again.stderr


def test_a_candidate_that_fails_ends_no_other_and_a_mistake_is_seen_before_any_is_trained(project):
    file = project.folder / "config/sweeps/regime.yaml"
    good, bad = {}, {"regime": {"peak_lr_factor": 1e9}}
    candidates = {"bad": bad, "good": good, "typo": {"regime": {"peak_lr_facto": 2}}}
    sweep = {**SWEEP, "runs": ["constant-3e-3"], "candidates": candidates}
    file.write_text(yaml.safe_dump(sweep, sort_keys=False))
    done = project.process(COMPARE)
    assert "regime.peak_lr_facto: unknown key" in done.stderr and "Traceback" not in done.stderr
    assert done.returncode == 1 and ": done in " not in done.stderr
    del candidates["typo"]
    file.write_text(yaml.safe_dump(sweep, sort_keys=False))
    done = project.process(COMPARE)
    assert done.returncode == 1 and done.stderr.endswith("error: bad failed (see above)\n")
    assert {line.split(",")[0] for line in done.stdout.split("\n\n")[0].splitlines()[1:]} == {
        "good"
    }
