"""Training in bfloat16 and compiled, on the CPU: near the run in float32, and whole.

What is near: in bfloat16 the factors of every matrix product keep 8
bits, a relative error of 2^-9 each, so that the loss of equal weights agrees to about 2^-9; weights
then part, for AdamW makes steps of full size from gradients that are all but rounding. A compiled
run differs by the order of float32 sums.
"""

import os
import shutil
import sysconfig
from pathlib import Path

import pandas as pd
import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.train import train
from ptq_dynamics.train.trajectory import Trajectory
from safetensors.torch import load_file
from support import Workspace, copy_results, specification
from torch._dynamo.utils import counters


@pytest.fixture
def build(workspace, corpus, tmp_path):
    """Runs of the tiny workspace with one layer and other settings, in a folder of their own."""

    def do(name="trunk", folder="one", **changes):
        here = Workspace(tmp_path / folder, workspace.plan)
        if not here.folder.exists():
            copy_results(
                workspace.folder, here.folder, [workspace.plan.corpora.corpus("main").folder]
            )
        job = workspace.plan.trajectories.train(name)
        shape = {**specification(job)["settings"]["model"], "layers": 1}
        return here.build(job, model=shape, log_every=1, **changes)

    return do


@pytest.fixture
def go_on(workspace, build):
    """The second half of the trunk, from the state in its middle, as a run of its own."""
    settings = specification(workspace.plan.trajectories.train("trunk"))["settings"]
    whole = {name: settings[name] for name in ("schedule", "last", "checkpoint_steps")}
    return lambda **changes: build("branch", **whole, **changes)


def curve(manifest):
    return pd.read_csv(manifest.file(train.CURVE)).set_index("step")


def last(manifest):
    """Folder of the last checkpoint."""
    source = Trajectory([manifest])
    return source.folder(source.checkpoints[-1])


def weights(manifest):
    """Weights of the last checkpoint."""
    return load_file(last(manifest) / "model.safetensors")


def state(manifest):
    """The training state in the middle of the trunk."""
    return load_file(manifest.file(train.state_name(12)))


def assert_equal(one, other):
    assert one.keys() == other.keys()
    assert not [name for name, value in one.items() if not value.equal(other[name])]


def assert_goes_on_to_the_same_bits(whole, half):
    assert_equal(weights(whole), weights(half))
    after = curve(whole).loc[13:]
    pd.testing.assert_frame_equal(after, curve(half), check_exact=True)


def test_bfloat16_trains_near_float32_and_keeps_weights_in_float32(build):
    exact, mixed = (build(folder=name, precision=name) for name in ("float32", "bfloat16"))
    found, expected = curve(mixed), curve(exact)
    gap = (found.loss - expected.loss).abs()
    assert 0 < gap.loc[1] < 2**-9 * expected.loss.loc[1], gap
    assert gap.max() < 0.05, gap
    assert found.loss.loc[24] < found.loss.loc[1] - 0.5
    kept = [*weights(mixed).items(), *state(mixed).items()]
    assert {value.dtype for _, value in kept} == {torch.float32}
    rounded = [n for n, value in weights(mixed).items() if value.equal(value.bfloat16().float())]
    assert not rounded


def test_bfloat16_goes_on_to_the_same_bits(build, go_on):
    assert_goes_on_to_the_same_bits(build(precision="bfloat16"), go_on(precision="bfloat16"))


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """What torch.compile needs on a CPU; a cache of its own."""
    named = [os.environ.get("CXX"), "g++", "clang++"]
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    lacking = [] if any(map(shutil.which, filter(None, named))) else ["a C++ compiler (g++)"]
    lacking += [] if header.exists() else [f"Python's headers ({header})"]
    if lacking:
        pytest.fail(f"compiled training cannot be tested: {' and '.join(lacking)} is not installed")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


@pytest.mark.slow
def test_a_compiled_run_is_the_run(build, go_on, compiler):
    """In float32, where the two can be told apart; compiling takes nearly all of the time."""
    plain, compiled = build(folder="plain"), build(compile=True)
    assert counters["stats"]["unique_graphs"] == 1, counters
    assert not counters["graph_break"]
    found, expected = curve(compiled), curve(plain)
    gap = (found.loss - expected.loss).abs()
    assert gap.loc[1] < 1e-6 and gap.max() < 1e-5, gap
    assert [*weights(compiled)] == [*weights(plain)]
    assert [*state(compiled)] == [*state(plain)]
    loaded = models.load(last(compiled)).state_dict()
    loaded["embed_out.weight"] = loaded.pop("lm_head.weight")
    assert_equal(loaded, weights(compiled))
    # Not to the same bits on every processor: sums of the math library depend on where compiled
    # code lays its buffers.
    half = go_on(compile=True)
    gap = (curve(compiled).loss.loc[13:] - curve(half).loss).abs()
    assert gap.max() < 1e-6, gap
    far = {
        name: float((value - weights(half)[name]).abs().max())
        for name, value in weights(compiled).items()
        # A key's bias outside the rotated dimensions moves no attention, so its gradient is
        # rounding alone, which Adam scales to steps of the learning rate.
        if not name.endswith("query_key_value.bias")
    }
    assert max(far.values()) < 1e-5, {name: value for name, value in far.items() if value > 1e-6}
