"""A trajectory in several shards, one job each, is the one made by a single job."""

import pytest
from ptq_dynamics.measure.names import MEASUREMENTS
from ptq_dynamics.trajectories.trajectory import Trajectory
from support import artifacts, differing, figure, plan, tiny_config

pytestmark = pytest.mark.slow

TRAJECTORIES = ["trunk", "line-of-averages", "last-of-branch"]
FIGURES = {
    "of-all": figure(
        "over_tokens", {"all": TRAJECTORIES}, ["loss", "quantization_error"], quantizers=["rtn3"]
    ),
    "probed": figure("over_tokens", {"one": ["lawa-of-lawa"]}, ["sharpness"]),
}


def test_shards_are_the_whole_to_the_byte(workspace, trunk, branch, tmp_path):
    """Weights of averages, and all that is measured."""
    found = {}
    for size in (None, 2):
        config = tiny_config(tmp_path / str(size), {"shard": size}, figures=FIGURES)
        sharded = plan("smoke", config, figures=list(FIGURES))
        found[size] = workspace.beside(config.parent, sharded, "trunk", "branch")
        found[size].make(found[size].plan.measurements.collect())
    one, other = (
        each.manifest(each.plan.measurements.collect()).file(MEASUREMENTS).read_bytes()
        for each in found.values()
    )
    assert one == other
    assert all(name in one.decode() for name in ("sharpness", "weight_mse", *TRAJECTORIES, "rtn3"))
    for name in ("lawa-of-lawa", *TRAJECTORIES[1:]):
        whole, parts = (
            Trajectory([each.manifest(job) for job in each.plan.trajectories.jobs(name)])
            for each in found.values()
        )
        assert whole.checkpoints == parts.checkpoints
        for checkpoint in whole.checkpoints:
            folders = [source.folder(checkpoint) for source in (whole, parts)]
            assert not differing(*map(artifacts, folders)), checkpoint.id
