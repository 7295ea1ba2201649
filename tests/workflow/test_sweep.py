"""The sweep of regimes, at scale smoke."""

import csv
import shutil

import pytest
import yaml
from project import Project

SWEEP = {
    "scale": "smoke",
    "seed": 201,
    "runs": ["wsd-3e-3", "rainbow-172"],
    "trunk": "constant-3e-3",
    "candidates": {
        "as-it-is": {},
        "faster": {
            "regime": {"peak_lr_factor": 2, "weight_decay_factor": 2},
            "models": {"main": {"width": 16}},
        },
    },
}


def test_a_sweep_tabulates_losses_of_candidates_that_differ_as_it_says(built, tmp_path):
    project = Project.copy(tmp_path / "project")
    (project.folder / "config/sweeps/regime.yaml").write_text(yaml.safe_dump(SWEEP))
    # A candidate that changes nothing is what was built, to the identity of each result.
    for part in ("corpus", "train", "measure"):
        place = f"results/smoke/{part}"
        shutil.copytree(
            built.folder / place, project.folder / "results/sweep/regime/as-it-is" / place
        )
    done = project.ptq("dev", "sweep", "regime")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    with (project.folder / "results/sweep/regime.csv").open() as file:
        plain, faster = csv.DictReader(file)
    assert (plain["candidate"], faster["candidate"]) == tuple(SWEEP["candidates"])
    # The same run, in the table of a build of its own.
    losses = built.folder / "results/smoke/measurements.csv"
    with losses.open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["trajectory"], row["quantizer"], row["metric"]) == ("wsd-3e-3", "fp", "loss")
        ]
    last = max(rows, key=lambda row: int(row["step"]))
    assert float(plain["loss_wsd-3e-3"]) == pytest.approx(float(last["value"]), abs=5e-5)
    assert faster["loss_wsd-3e-3"] != plain["loss_wsd-3e-3"]
    again = project.ptq("dev", "sweep", "regime")
    assert again.returncode == 0 and ": done in " not in again.stderr
