"""The sweep of regimes, at scale smoke."""

import csv
import re
import sys
from statistics import fmean

import pytest
import yaml
from project import Project
from support import copy_results

SWEEP = {
    "scale": "smoke",
    "seed": 201,
    "runs": ["constant-3e-3", "wsd-3e-3"],
    "candidates": {
        "bad": {"regime": {"peak_lr_factor": 1e9}},
        "as-it-is": {},
        "faster": {
            "regime": {"peak_lr_factor": 2, "weight_decay_factor": 2},
            "models": {"main": {"width": 16}},
        },
    },
}
FILE = "config/sweeps/regime.yaml"
COMPARE = [sys.executable, "config/sweeps/compare.py", FILE]


def test_a_sweep_tabulates_losses_of_candidates_and_one_that_fails_ends_no_other(built, tmp_path):
    """A candidate that changes nothing is what was built, to the identity of each result."""
    project = Project.copy(tmp_path / "project")
    places = [f"results/smoke/{part}" for part in ("corpus", "train", "measure")]
    copy_results(built.folder, project.folder, places)
    file = project.folder / FILE
    # A mistake is seen before any candidate is trained.
    typo = {"typo": {"regime": {"peak_lr_facto": 2}}}
    file.write_text(yaml.safe_dump(SWEEP | {"candidates": SWEEP["candidates"] | typo}))
    done = project.process(COMPARE)
    assert "regime.peak_lr_facto: unknown key" in done.stderr and "Traceback" not in done.stderr
    assert done.returncode == 1 and ": done in " not in done.stderr
    file.write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    done = project.process(COMPARE)
    assert done.returncode == 1 and done.stderr.endswith("error: bad failed (see above)\n")
    made = re.findall(r"^(\S+) .*: done in ", done.stderr, re.M)
    assert "train.train" in made and "corpus.corpus" not in made, done.stderr[-3000:]
    with (project.folder / "results/sweep/regime.csv").open() as table:
        rows = [*csv.DictReader(table)]
    losses = {(row["candidate"], row["trajectory"], row["metric"]): row for row in rows}
    # The same run, in the table of a build of its own.
    with (built.folder / "results/smoke/measurements.csv").open() as table:
        measured = [
            row
            for row in csv.DictReader(table)
            if (row["trajectory"], row["quantizer"], row["metric"]) == ("wsd-3e-3", "fp", "loss")
        ]
    measured.sort(key=lambda row: int(row["step"]))
    plain, faster = (losses[name, "wsd-3e-3", "loss"] for name in ("as-it-is", "faster"))
    assert float(plain["last"]) == pytest.approx(float(measured[-1]["value"]), abs=5e-5)
    steps = int(measured[-1]["step"])
    late = [float(row["value"]) for row in measured if int(row["step"]) >= 0.75 * steps]
    assert float(plain["last_quarter"]) == pytest.approx(fmean(late), abs=5e-5)
    assert faster["last"] != plain["last"]
    assert losses["as-it-is", "wsd-3e-3", "carried"]["last"]
    assert {row["candidate"] for row in rows} == {"as-it-is", "faster"}
