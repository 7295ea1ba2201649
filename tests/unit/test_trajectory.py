"""Trajectories that others made: checkpoints without steps or with equal ones, in several parts."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.measure.measurements import KEY, join
from ptq_dynamics.measure.names import LOSSES
from ptq_dynamics.measure.series import Series
from ptq_dynamics.trajectories import trajectory
from ptq_dynamics.trajectories.trajectory import Checkpoint, Trajectory
from safetensors.numpy import load_file

pytestmark = pytest.mark.slow

# Of every checkpoint, the step of the trunk's that has its weights. Two have the same step, two
# have none; ids of digits alone are no numbers, and a word that pandas reads as nothing is an id.
GIVEN = {
    Checkpoint("main", None, None, None, "merged"): 24,
    Checkpoint("0360", 7, 1000, 0.5, "ingredient"): 10,
    Checkpoint("1e5", 7, 1000, 0.5, "ingredient"): 12,
    Checkpoint("null", None, None, None, "merged"): 18,
}
IDS = tuple(checkpoint.id for checkpoint in GIVEN)
SERIES = {
    "fp": Series("given", None, "others", "fp", "fp", None, None),
    "rtn3": Series("given", None, "others", "rtn3", "rtn", 3, 16),
}


@pytest.fixture(scope="module")
def here(workspace, trunk, tmp_path_factory):
    return workspace.beside(tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="module")
def parts(here, trunk):
    """The trajectory in two parts, as a stage publishes them: with checkpoints but no seed."""
    found = []
    for name, checkpoints in (("a", list(GIVEN)[:3]), ("b", list(GIVEN)[3:])):
        folder = here.folder / f"results/smoke/given/{name}"
        for each in checkpoints:
            shutil.copytree(trunk.folder / trajectory.step_id(GIVEN[each]), folder / each.id)
        facts = trajectory.facts(checkpoints, parameters=trunk.facts["parameters"], seed=None)
        found.append(manifest.describe(folder, folder / "manifest.json", facts))
        found[-1].path.write_text(found[-1].text())
    return found


def test_parts_are_one_trajectory(parts, trunk):
    whole, source = Trajectory(parts), Trajectory([trunk])
    assert whole.checkpoints == list(GIVEN)
    assert whole.at(["null", "main"]) == [*list(GIVEN)[3:], *list(GIVEN)[:1]]
    assert whole.fact("seed") is None and whole.fact("parameters") == trunk.facts["parameters"]
    for checkpoint, step in GIVEN.items():
        (same,) = source.at([trajectory.step_id(step)])
        assert whole.digest(checkpoint) == source.digest(same)
        assert whole.folder(checkpoint).name == checkpoint.id
    with pytest.raises(Problem, match="has no 'soup', but main, 0360"):
        whole.at(["main", "soup"])


def test_every_checkpoint_is_measured_whatever_its_step(here, parts, workspace, trunk, rtn):
    """As the same weights in a run are: steps 12 and 24 of the trunk are measured there too."""
    paths, found = [str(part.path.relative_to(here.folder)) for part in parts], {}
    fp, rtn3 = SERIES.values()
    measuring = workspace.plan.measurements
    for job, label in (
        (measuring.measure("trunk", "fp", "all", 100), fp.label("measure")),
        (measuring.measure("trunk", "rtn3", "all", 100), rtn3.label("measure")),
        (measuring.curvature("trunk", "sharpness", "all", 100), fp.label("sharpness")),
    ):
        changed = job.settings.model_copy(update={"checkpoints": IDS})
        inputs = {**job.inputs, "trajectory": paths}
        folder = f"results/smoke/{label.replace(' ', '-')}"
        found[label] = [here.build(replace(job, folder=folder, settings=changed, inputs=inputs))]
    table = join([fp, rtn3], found)
    assert not table.duplicated(KEY).any() and set(table.checkpoint_id) == set(IDS)
    metrics = {name: set(rows.metric) for name, rows in table.groupby("quantizer")}
    assert metrics["fp"] == {
        *("loss", "sharpness", "sharpness_iterations", "hessian_trace"),
        *("carried", "carried_by_one", "gain"),
    }
    errors = {"loss_increase", "quantization_error", "weight_mse", "output_mse"}
    assert metrics["rtn3"] == {"loss"} | errors
    assert len(table) == len(IDS) * 9 + 3 and table.seed.isna().all()
    for checkpoint in GIVEN:
        rows = table[table.checkpoint_id == checkpoint.id]
        assert set(rows.phase) == {checkpoint.phase}
        for column in ("step", "tokens", "lr"):
            wanted = getattr(checkpoint, column)
            assert rows[column].isna().all() if wanted is None else (rows[column] == wanted).all()
    for quantizer, series in SERIES.items():
        run = workspace.build(workspace.plan.measurements.measure("trunk", quantizer, "all", 100))
        theirs = load_file(run.file(LOSSES))
        mine = load_file(found[series.label("measure")][0].file(LOSSES))
        for name, step in (("main", 24), ("1e5", 12)):
            assert np.array_equal(mine[name], theirs[trajectory.step_id(step)]), (quantizer, name)
