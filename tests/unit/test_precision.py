"""Training in bfloat16 and compiled, on the CPU: near the run in float32, and whole.

In bfloat16 the factors of every matrix product keep 8 bits, a relative error of 2^-9 each, so the
loss of equal weights agrees to about 2^-9. A compiled run differs by the order of float32 sums.
"""

import os
import shutil
import sysconfig
from pathlib import Path

import pandas as pd
import pytest
import torch
from ptq_dynamics.train import train
from ptq_dynamics.trajectories.trajectory import Trajectory
from safetensors.torch import load_file
from support import Workspace, specification
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code


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


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """What torch.compile needs on a CPU; a cache of its own."""
    named = [os.environ.get("CXX"), "g++", "clang++"]
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    assert any(map(shutil.which, filter(None, named))), "a C++ compiler (g++) is not installed"
    assert header.exists(), f"Python's headers ({header}) are not installed"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


@pytest.mark.slow
def test_a_compiled_run_is_the_run(build, compiler):
    """In float32, where the two can be told apart; compiling takes nearly all of the time."""
    plain = build(folder="plain")
    compiled, codes = run_and_get_code(build, compile=True)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"], counters
    # Attention is plainly causal, as quick kernels ask: no dropout, and True instead of a mask.
    assert "0.0, True, scale=" in codes[0]
    # Logits of 64 tokens are in memory once: neither the loss nor its gradient makes a copy.
    assert sum(code.count("= empty_strided_cpu((64, 300)") for code in codes) == 1
    gap = (curve(compiled).loss - curve(plain).loss).abs()
    assert gap.loc[1] < 1e-6 and gap.max() < 1e-5, gap
    assert [*weights(compiled)] == [*weights(plain)] and [*state(compiled)] == [*state(plain)]
    for name, value in weights(plain).items():
        # A key's bias outside the rotated dimensions moves no attention, so its gradient is
        # rounding alone, which Adam scales to steps of the learning rate.
        if not name.endswith("query_key_value.bias"):
            assert (weights(compiled)[name] - value).norm() < 1e-3 * value.norm(), name
