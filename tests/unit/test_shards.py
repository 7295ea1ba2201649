"""A trajectory in several shards, one job each, is the one made by a single job."""

import pytest
from ptq_dynamics.measure.names import LOSSES, MEASUREMENTS
from ptq_dynamics.train.trajectory import Trajectory
from safetensors.numpy import load_file
from support import (
    Workspace,
    artifacts,
    copy_results,
    differing,
    edit_yaml,
    figure,
    plan,
    tiny_config,
)

pytestmark = pytest.mark.slow

TRAJECTORIES = ["trunk", "lawa", "line-of-averages", "merge", "last-of-branch"]
FIGURES = {
    "of-all": figure(
        "losses", {"all": TRAJECTORIES}, ["loss", "quantization_error"], quantizers=["rtn3"]
    ),
    "probed": figure("dynamics", {"one": ["lawa"]}, ["sharpness", "hessian_trace"]),
}
SIZES = (1, 2)


def made(folder, workspace, size):
    """A workspace with shards of so many checkpoints, and all that is measured in it."""
    config = tiny_config(folder)
    edit_yaml(config / "scales/smoke.yaml", lambda scale: scale.update(shard=size))
    edit_yaml(config / "figures.yaml", lambda found: found.update(FIGURES))
    before = workspace.plan
    runs = [before.trajectories.train(name).folder for name in ("trunk", "branch")]
    copy_results(workspace.folder, folder, [before.corpora.corpus("main").folder, *runs])
    built = Workspace(folder, plan("smoke", config, figures=list(FIGURES)))
    built.make(built.plan.figures.collect())
    return built


@pytest.fixture(scope="module")
def whole(workspace, trunk, branch, tmp_path_factory):
    return made(tmp_path_factory.mktemp("whole"), workspace, None)


@pytest.fixture(scope="module", params=SIZES)
def parts(request, workspace, trunk, branch, tmp_path_factory):
    return made(tmp_path_factory.mktemp("parts"), workspace, request.param)


def manifests(built, name, quantizer):
    series = built.plan.losses.series(name, quantizer)
    (paths,) = built.plan.losses.losses(series).values()
    return [built.read(path) for path in paths]


def test_the_measurements_are_equal_bytes(whole, parts):
    tables = [built.manifest(built.plan.figures.collect()) for built in (whole, parts)]
    one, other = (table.file(MEASUREMENTS).read_bytes() for table in tables)
    assert one == other
    text = one.decode()
    assert all(name in text for name in ("sharpness", "weight_mse", "line-of-averages", "rtn3"))


@pytest.mark.parametrize("quantizer", ["fp", "rtn3"])
@pytest.mark.parametrize("name", TRAJECTORIES)
def test_losses_of_blocks_and_weights_are_equal_bytes(whole, parts, name, quantizer):
    (one,) = manifests(whole, name, quantizer)
    expected, found, digests = load_file(one.file(LOSSES)), {}, {}
    for manifest in manifests(parts, name, quantizer):
        found |= load_file(manifest.file(LOSSES))
        digests |= manifest.facts["digests"]
    assert found.keys() == expected.keys()
    for checkpoint, losses in expected.items():
        assert found[checkpoint].tobytes() == losses.tobytes(), checkpoint
    assert digests == one.facts["digests"]


@pytest.mark.parametrize("name", ["lawa-of-lawa", *TRAJECTORIES[1:]])
def test_averages_are_equal_bytes(whole, parts, name):
    sources = [
        Trajectory([built.manifest(job) for job in built.plan.trajectories.makers(name)])
        for built in (whole, parts)
    ]
    one, other = sources
    assert one.checkpoints == other.checkpoints
    for checkpoint in one.checkpoints:
        folders = [source.folder(checkpoint) for source in sources]
        assert not differing(*map(artifacts, folders)), checkpoint.id
