"""Trajectories that others made: checkpoints without steps or with equal ones, in several parts."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.measure.joining import join
from ptq_dynamics.measure.measurements import KEY
from ptq_dynamics.measure.names import LOSSES
from ptq_dynamics.measure.settings import Series
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.trajectory import Checkpoint, Trajectory
from safetensors.numpy import load_file
from support import Workspace, copy_results

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


def publish(folder, trunk, checkpoints):
    """A part of the trajectory, as a stage publishes it: with its checkpoints but no seed."""
    for checkpoint in checkpoints:
        source = trunk.folder / trajectory.step_id(GIVEN[checkpoint])
        shutil.copytree(source, folder / checkpoint.id)
    facts = trajectory.facts(checkpoints, parameters=trunk.facts["parameters"], seed=None)
    found = manifest.describe(folder, folder / "manifest.json", facts)
    found.path.write_text(found.text())
    return found


@pytest.fixture(scope="module")
def here(workspace, trunk, tmp_path_factory):
    folder = tmp_path_factory.mktemp("given")
    copy_results(workspace.folder, folder, [workspace.plan.corpora.corpus("main").folder])
    return Workspace(folder, workspace.plan)


@pytest.fixture(scope="module")
def parts(here, trunk):
    """The trajectory in two parts."""
    first, second = list(GIVEN)[:3], list(GIVEN)[3:]
    return [
        publish(here.folder / f"results/smoke/given/{name}", trunk, checkpoints)
        for name, checkpoints in (("a", first), ("b", second))
    ]


@pytest.fixture(scope="module")
def measured(here, parts):
    """What evaluation, quantization and probes made of it, by label."""
    plan, paths = here.plan, [str(part.path.relative_to(here.folder)) for part in parts]
    found = {}

    def build(job, label, source, **inputs):
        settings = replace(job.settings, checkpoints=IDS)
        folder = f"results/smoke/{label}"
        job = replace(job, folder=folder, settings=settings, inputs={**job.inputs, **inputs})
        found[source.label(label.split()[0])] = [here.build(job)]
        return [job.manifest]

    fp, rtn3 = SERIES["fp"], SERIES["rtn3"]
    quantize = plan.quantization.quantize("trunk", "rtn3")
    quantized = build(quantize, "layers", rtn3, trajectory=paths)
    build(plan.losses.evaluate("trunk", "fp"), "losses fp", fp, checkpoints=paths)
    build(plan.losses.evaluate("trunk", "rtn3"), "losses rtn3", rtn3, checkpoints=quantized)
    build(plan.geometry.curvature("trunk", "sharpness"), "sharpness", fp, trajectory=paths)
    return found


def test_parts_are_one_trajectory(parts, trunk):
    whole, source = Trajectory(parts), Trajectory([trunk])
    assert whole.checkpoints == list(GIVEN)
    assert whole.at(["null", "main"]) == [*list(GIVEN)[3:], *list(GIVEN)[:1]]
    assert whole.seed is None and whole.fact("parameters") == trunk.facts["parameters"]
    for checkpoint, step in GIVEN.items():
        (same,) = source.at([trajectory.step_id(step)])
        assert whole.digest(checkpoint) == source.digest(same)
        assert whole.folder(checkpoint).name == checkpoint.id
    with pytest.raises(Problem, match=r"has no checkpoint 'soup' \(it has 4, from main to null\)"):
        whole.at(["main", "soup"])


def test_a_damaged_part_is_a_problem(parts, here, tmp_path):
    copy = tmp_path / "b"
    shutil.copytree(parts[1].folder, copy)
    damaged = Trajectory([parts[0], manifest.read(copy / "manifest.json")])
    (copy / "null/model.safetensors").write_bytes(b"damaged")
    one, other = damaged.at(["main", "null"])
    assert damaged.folder(one).is_dir()
    with pytest.raises(Problem, match=r"null/model\.safetensors has 7 bytes"):
        damaged.folder(other)


def test_every_checkpoint_is_measured_whatever_its_step(measured, workspace, trunk):
    table = join(SERIES.values(), measured)
    assert not table.duplicated(KEY).any()
    assert set(table.checkpoint_id) == set(IDS)
    metrics = {name: set(rows.metric) for name, rows in table.groupby("quantizer")}
    assert metrics["fp"] == {"loss", "sharpness", "sharpness_iterations", "hessian_trace"}
    errors = {"loss_increase", "quantization_error", "weight_mse", "output_mse"}
    assert metrics["rtn3"] == {"loss"} | errors
    assert len(table) == len(IDS) * 9
    assert table.seed.isna().all()
    for checkpoint in GIVEN:
        rows = table[table.checkpoint_id == checkpoint.id]
        assert len(rows) == 9
        for column in ("step", "tokens", "lr"):
            wanted = getattr(checkpoint, column)
            assert rows[column].isna().all() if wanted is None else (rows[column] == wanted).all()
        assert set(rows.phase) == {checkpoint.phase}


def test_measurements_are_those_of_the_same_weights_in_a_run(measured, workspace, trunk, rtn):
    """Steps 12 and 24 of the trunk are measured there too."""
    plan = workspace.plan
    for quantizer, series in SERIES.items():
        run = load_file(workspace.build(plan.losses.evaluate("trunk", quantizer)).file(LOSSES))
        (given,) = measured[series.label("losses")]
        found = load_file(given.file(LOSSES))
        for name, step in (("main", 24), ("1e5", 12)):
            assert np.array_equal(found[name], run[trajectory.step_id(step)]), (quantizer, name)
        assert len({found[name].tobytes() for name in IDS}) == len(IDS)
