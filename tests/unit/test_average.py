"""Weight averages against numpy, alone and as LAWA on a trained trajectory."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics import models
from ptq_dynamics.trajectories.average import weighted_mean
from ptq_dynamics.trajectories.trajectory import Trajectory
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

weights = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=8)


def states(seed, count, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (3, 5), "b": (7,), "c": ()}
    return [
        {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}
        for _ in range(count)
    ]


def float64_mean(found, shares):
    return {
        name: sum(
            share * state[name].double().numpy() for share, state in zip(shares, found, strict=True)
        )
        / sum(shares)
        for name in found[0]
    }


@given(weights, st.integers(0, 2**31))
def test_weighted_mean_is_that_of_numpy_in_float64(shares, seed):
    found = states(seed, len(shares))
    mean = weighted_mean(iter(found), shares)
    for name, expected in float64_mean(found, shares).items():
        assert mean[name].dtype == torch.float32
        worst = np.abs(mean[name].numpy() - expected.astype(np.float32)).max()
        assert worst <= np.spacing(np.abs(expected).max().astype(np.float32)), (name, worst)


def test_the_mean_is_summed_in_float64():
    large, small = {"x": torch.tensor([2.0**24])}, {"x": torch.tensor([1.0])}
    mean = weighted_mean([large, small, small, small, small], [1.0] * 5)
    assert mean["x"].item() == np.float32((2.0**24 + 4) / 5)


def test_the_mean_has_the_dtype_of_its_members_and_leaves_them_alone():
    found = states(1, 3, torch.bfloat16)
    before = [{name: value.clone() for name, value in state.items()} for state in found]
    mean = weighted_mean(found, [1.0, 1.0, 1.0])
    assert {value.dtype for value in mean.values()} == {torch.bfloat16}
    assert all(
        torch.equal(a[n], b[n]) for a, b in zip(before, found, strict=True) for n in before[0]
    )


@pytest.mark.parametrize("shares", [[1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
def test_members_and_weights_must_be_equally_many(shares):
    with pytest.raises(ValueError, match="zip"):
        weighted_mean(states(0, 3), shares)


def test_lawa_is_the_uniform_mean_of_the_last_checkpoints(workspace, trunk, average):
    source = {point.step: point for point in Trajectory([trunk]).checkpoints}
    results = Trajectory([average]).checkpoints
    planned = workspace.plan.site.timeline.measured("lawa")
    assert [(point.id, point.step) for point in results] == planned
    assert len(planned) > 1
    for point in results:
        members = [point.step - 4, point.step - 2, point.step]
        files = [trunk.folder / source[step].id / "model.safetensors" for step in members]
        expected = [load_file(file) for file in files]
        found = load_file(average.folder / point.id / "model.safetensors")
        assert found.keys() == expected[0].keys()
        for name, value in found.items():
            mean = np.mean([state[name].astype(np.float64) for state in expected], axis=0)
            assert np.array_equal(value, mean.astype(np.float32)), (point.step, name)
        assert (point.tokens, point.lr, point.phase) == (source[point.step].tokens, None, "average")


def test_an_average_is_a_checkpoint_like_any_other(average, trunk):
    folder = average.subfolder(Trajectory([average]).checkpoints[-1].id)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    losses = models.token_losses(model, *[torch.tensor([tokenizer.encode("a word")])] * 2)
    assert torch.isfinite(losses).all()
    assert average.facts["parameters"] == trunk.facts["parameters"] == model.num_parameters()
