"""Validation losses against transformers' own, block by block."""

import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.measure.loss import LOSSES, block_losses
from ptq_dynamics.trajectories import trajectory
from safetensors.numpy import load_file
from support import Workspace, artifacts, copy_results, differing
from transformers import AutoModelForCausalLM


@pytest.fixture(scope="module")
def blocks(corpus):
    return tokens.blocks(corpus, "validation", 16, 32)


@pytest.fixture(scope="module")
def model(trunk):
    return models.load(trunk.folder / trajectory.checkpoints(trunk)[-1].folder)


def own_losses(model, blocks):
    with torch.no_grad():
        found = [model(block[None], labels=block[None]).loss.item() for block in blocks]
    return torch.tensor(found)


def test_block_losses_are_those_of_transformers(model, blocks):
    found = block_losses(model, blocks, 8)
    expected = own_losses(model, blocks)
    assert (found - expected).abs().max() < 2e-6
    assert found.dtype == torch.float32
    assert found.shape == (32,)
    assert found.std() > 0.01, "blocks do not differ, so that their order would not matter"


@pytest.mark.parametrize("batch", [1, 5, 32, 64])
def test_block_losses_do_not_depend_on_the_batch(model, blocks, batch):
    assert (block_losses(model, blocks, batch) - block_losses(model, blocks, 8)).abs().max() < 2e-6


@pytest.fixture(scope="module")
def evaluate(workspace, trunk, rtn):
    def do(method, **changes):
        return workspace.build(workspace.plan.losses.evaluate("trunk", method, "all"), **changes)

    return do


@pytest.mark.parametrize("method", ["fp", "rtn3"])
def test_a_job_keeps_the_losses_of_every_measured_checkpoint(
    workspace, evaluate, trunk, rtn, blocks, method
):
    found = evaluate(method)
    losses = load_file(found.file(LOSSES))
    points = trajectory.checkpoints(found)
    assert [p.step for p in points] == workspace.plan.site.timeline.measured_steps("trunk")
    assert losses.keys() == {point.folder for point in points}
    source = trunk if method == "fp" else rtn
    for point in points:
        model = AutoModelForCausalLM.from_pretrained(source.folder / point.folder)
        gap = abs(losses[point.folder] - own_losses(model, blocks).numpy()).max()
        assert gap < 2e-6, (point.step, gap)
        digest = trajectory.digest(source, point)
        assert found.facts["digests"][point.folder] == digest
    assert len(set(found.facts["digests"].values())) == len(points)


def test_two_evaluations_give_equal_bytes(workspace, trunk, evaluate, tmp_path):
    plan = workspace.plan
    job = plan.losses.evaluate("trunk", "fp", "all")
    first = artifacts(evaluate("fp").folder)
    copy_results(
        workspace.folder,
        tmp_path,
        [plan.corpora.corpus("main").folder, plan.trajectories.train("trunk").folder],
    )
    assert not differing(first, artifacts(Workspace(tmp_path, plan).build(job).folder))


def test_full_precision_is_float32_and_quantized_models_keep_their_dtype(model, tmp_path, blocks):
    """What is saved in bfloat16 is evaluated in float32 when told so, and as it is when not."""
    half = AutoModelForCausalLM.from_pretrained(model.name_or_path).bfloat16()
    half.save_pretrained(tmp_path)
    assert models.load(tmp_path, torch.float32).dtype == torch.float32
    assert models.load(tmp_path).dtype == torch.bfloat16
    exact = own_losses(models.load(tmp_path, torch.float32), blocks)
    assert (
        block_losses(models.load(tmp_path, torch.float32), blocks, 8) - exact
    ).abs().max() < 2e-6
