"""Weight averages against numpy, alone and as kinds of averages of trained trajectories."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import exp

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.measure.names import MEASUREMENTS
from ptq_dynamics.trajectories.average import weighted_mean, write_mean
from ptq_dynamics.trajectories.trajectory import Trajectory, step_id
from safetensors.torch import load_file
from support import figure, plan, tiny_config
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

pytestmark = pytest.mark.slow

AGES = range(0, 24, 4)  # of the checkpoints that fading averages weigh
weights = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=8)


def exact(states, shares=None):
    """The weighted mean of state dicts, by numpy in float64, of each tensor."""
    shares = shares or [1.0] * len(states)
    return {
        name: sum(s * state[name].double().numpy() for s, state in zip(shares, states, strict=True))
        / sum(shares)
        for name in states[0]
    }


def require_mean(found, states, shares=None):
    """That tensors are the mean, but for the last bit of float32."""
    expected = exact(states, shares)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        gap = np.abs(found[name].numpy() - value.astype(np.float32)).max()
        assert gap <= np.spacing(np.abs(value).max().astype(np.float32)), (name, gap)


@given(weights, st.integers(0, 2**31))
def test_a_weighted_mean_is_that_of_numpy_in_float64(shares, seed):
    generator = torch.Generator().manual_seed(seed)
    for shape in ((3, 5), (7,), ()):
        values = [torch.randn(shape, generator=generator) for _ in shares]
        mean = weighted_mean(iter(values), shares)
        assert mean.dtype == torch.float32
        require_mean({"a": mean}, [{"a": value} for value in values], shares)


# Files


def test_models_that_the_library_splits_are_averaged_in_files_like_the_last_ones(tmp_path):
    shape = {"vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    models = [GPTNeoXForCausalLM(GPTNeoXConfig(**shape, intermediate_size=20)) for _ in range(3)]
    folders = [tmp_path / str(number) for number in range(3)]
    for model, folder, size in zip(models, folders, ["1GB", "4KB", "2KB"], strict=True):
        model.save_pretrained(folder, max_shard_size=size)
    assert [len(list(each.glob("*.safetensors"))) > 1 for each in folders] == [False, True, True]
    write_mean(tmp_path / "mean", folders, [1.0, 2.0, 3.0])
    names = [{path.name for path in each.iterdir()} for each in (folders[-1], tmp_path / "mean")]
    assert names[0] == names[1]
    mean = GPTNeoXForCausalLM.from_pretrained(tmp_path / "mean").state_dict()
    require_mean(mean, [model.state_dict() for model in models], [1.0, 2.0, 3.0])


# Kinds


@pytest.fixture
def made(workspace):
    """A trajectory by its name."""

    def do(name):
        (job,) = workspace.plan.trajectories.jobs(name)
        return Trajectory([workspace.make(job)])

    return do


def of(run, *steps):
    """As many shares of checkpoints of a run."""
    return {(run, step): 1 for step in steps}


def along(number):
    return {("lawa-of-lawa", 24): 3 - number, ("lawa-of-branch", 20): number}


# By id and step, the checkpoints that each is made of, and their shares. Three checkpoints 12 steps
# apart do not fit into 24 steps.
MEANS = {
    "lawa": {(step_id(s), s): of("trunk", s - 4, s - 2, s) for s in (12, 24)},
    "windows": {(f"every-{n}", 24): of("trunk", 24 - 2 * n, 24 - n, 24) for n in (2, 6)},
    "fading": {
        (f"memory-{memory}", 24): {("trunk", 24 - age): exp(-age / memory) for age in AGES}
        for memory in (2, 8)
    },
    "line-of-averages": {(step_id(number), number): along(number) for number in range(4)},
    "merge": {("merged", None): {("branch", 20): 3, ("trunk", 24): 1}},
    # The last measured checkpoints, whatever their steps.
    "last-of-branch": {(step_id(s), s): of("branch", s - 4, s) for s in (16, 20)},
}


@pytest.mark.parametrize("name", MEANS)
def test_an_average_is_the_mean_of_its_checkpoints(workspace, made, name):
    found, planned = made(name), workspace.plan.site.planned[name]
    assert [(point.id, point.step) for point in found.checkpoints] == [*MEANS[name]]
    assert planned.measured == [*MEANS[name]]
    assert found.fact("parameters") == made("trunk").fact("parameters")
    for point, shares in zip(found.checkpoints, MEANS[name].values(), strict=True):
        states, tokens = [], []
        for run, step in shares:
            source = made(run)
            (member,) = (each for each in source.checkpoints if each.step == step)
            tokens.append(member.tokens)
            states.append(load_file(source.folder(member) / "model.safetensors"))
        mean = load_file(found.folder(point) / "model.safetensors")
        require_mean(mean, states, [float(share) for share in shares.values()])
        phase = "interpolation" if name.startswith("line") else "average"
        assert (point.tokens, point.lr, point.phase) == (max(tokens), None, phase)


def test_averages_know_the_mean_age_of_what_they_are_made_of(workspace):
    planned = workspace.plan.site.planned
    assert planned["windows"].ages == {"every-2": 2, "every-6": 6}
    for memory in (2, 8):
        age = np.average(AGES, weights=np.exp(-np.array(AGES) / memory))
        assert planned["fading"].ages[f"memory-{memory}"] == pytest.approx(age)
    sparse = planned["fading"].entry.model_copy(update={"every": Fraction(3, 190)})
    assert replace(planned["fading"], entry=sparse).means == []


def test_a_greedy_soup_takes_what_lowers_its_loss(workspace, made):
    """Its loss on the text that chooses is that of some members' mean, not above any member's."""
    found = made("soup")
    corpus = workspace.build(workspace.plan.trajectories.corpus("main"))
    settings = workspace.plan.trajectories.average("soup").settings.choice
    blocks = tokens.blocks(corpus, "probe", settings.context, settings.blocks)
    ends = [*map(made, ("branch", "trunk", "lawa"))]
    folders = [each.folder(each.checkpoints[-1]) for each in ends]

    def loss(folder):
        return float(models.block_losses(models.load(folder), blocks, settings.batch).mean())

    means = {}
    for size in (1, 2, 3):
        for taken in combinations(range(3), size):
            folder = workspace.folder / "subsets" / "-".join(map(str, taken))
            write_mean(folder, [folders[at] for at in taken], [1.0] * size)
            means[taken] = loss(folder)
    soup = loss(found.folder(*found.checkpoints))
    assert any(each == pytest.approx(soup, abs=1e-6) for each in means.values())
    assert soup <= min(means[at,] for at in range(3)) + 1e-6


# Shards, one job each


TRAJECTORIES = ["trunk", "line-of-averages", "last-of-branch"]
SHOWN = {
    "of-all": figure(
        "over_tokens", {"all": TRAJECTORIES}, ["loss", "quantization_error"], quantizers=["rtn3"]
    ),
    "probed": figure("over_tokens", {"one": ["lawa-of-lawa"]}, ["sharpness"]),
}


def test_shards_are_the_whole_to_the_byte(workspace, trunk, branch, tmp_path):
    """Of all that is measured, so that weights of averages are the same, too."""
    found = {}
    for size in (None, 2):
        config = tiny_config(tmp_path / str(size), {"shard": size}, figures=SHOWN)
        sharded = plan("smoke", config, figures=list(SHOWN))
        found[size] = workspace.beside(config.parent, sharded, "trunk", "branch")
        found[size].make(found[size].plan.measurements.collect())
    one, other = (
        each.manifest(each.plan.measurements.collect()).file(MEASUREMENTS).read_bytes()
        for each in found.values()
    )
    assert one == other
    assert all(name in one.decode() for name in ("sharpness", "weight_mse", *TRAJECTORIES, "rtn3"))
