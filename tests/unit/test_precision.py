"""Training in bfloat16 on the CPU: near the run in float32, and whole.

In bfloat16 the factors of every matrix product keep 8 bits, a relative error of 2^-9 each, so the
loss of equal weights agrees to about 2^-9.
"""

import pandas as pd
import pytest
import torch
from ptq_dynamics.train import train
from ptq_dynamics.trajectories.trajectory import Trajectory
from safetensors.torch import load_file
from support import Workspace, specification


@pytest.fixture
def build(workspace, corpus, tmp_path):
    """Runs of the tiny workspace with one layer and other settings, in a folder of their own."""

    def do(name="trunk", folder="one", **changes):
        here = Workspace(tmp_path / folder, workspace.plan)
        if not here.folder.exists():
            workspace.beside(here.folder)
        job = workspace.plan.trajectories.train(name)
        shape = {**specification(job)["settings"]["model"], "layers": 1}
        return here.build(job, model=shape, log_every=1, **changes)

    return do


def curve(manifest):
    return pd.read_csv(manifest.file(train.CURVE)).set_index("step")


def weights(manifest):
    """Weights of the last checkpoint."""
    source = Trajectory([manifest])
    return load_file(source.folder(source.checkpoints[-1]) / "model.safetensors")


def state(manifest):
    """The training state in the middle of the trunk."""
    return load_file(manifest.file(train.state_name(12)))


def test_bfloat16_trains_near_float32_and_keeps_weights_in_float32(build, workspace):
    """And the second half of it, from the state in its middle, comes to the same bits."""
    exact, mixed = (build(folder=name, precision=name) for name in ("float32", "bfloat16"))
    found, expected = curve(mixed), curve(exact)
    gap = (found.loss - expected.loss).abs()
    assert 0 < gap.loc[1] < 2**-9 * expected.loss.loc[1], gap
    assert gap.max() < 0.05, gap
    assert found.loss.loc[24] < found.loss.loc[1] - 0.5
    kept = [*weights(mixed).items(), *state(mixed).items()]
    assert {value.dtype for _, value in kept} == {torch.float32}
    assert not [n for n, value in weights(mixed).items() if value.equal(value.bfloat16().float())]
    settings = specification(workspace.plan.trajectories.train("trunk"))["settings"]
    whole = {name: settings[name] for name in ("schedule", "last", "checkpoint_steps")}
    half = build("branch", "bfloat16", precision="bfloat16", **whole)
    assert all(value.equal(weights(half)[name]) for name, value in weights(mixed).items())
    pd.testing.assert_frame_equal(found.loc[13:], curve(half), check_exact=True)
