"""Validation losses against transformers' own, block by block."""

import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.engine import manifest
from ptq_dynamics.measure.loss import block_losses
from ptq_dynamics.measure.names import LOSSES
from ptq_dynamics.train.trajectory import Trajectory
from safetensors.numpy import load_file
from support import Workspace, artifacts, copy_results, differing
from transformers import AutoModelForCausalLM


@pytest.fixture(scope="module")
def blocks(corpus):
    return tokens.blocks(corpus, "validation", 16, 32)


@pytest.fixture(scope="module")
def model(trunk):
    return models.load(trunk.folder / Trajectory([trunk]).checkpoints[-1].id)


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
    points = Trajectory([found]).checkpoints
    planned = workspace.plan.site.timeline.measured("trunk")
    assert [(point.id, point.step) for point in points] == planned
    assert losses.keys() == {point.id for point in points}
    source = trunk if method == "fp" else rtn
    for point in points:
        model = AutoModelForCausalLM.from_pretrained(source.folder / point.id)
        gap = abs(losses[point.id] - own_losses(model, blocks).numpy()).max()
        assert gap < 2e-6, (point.step, gap)
        assert found.facts["digests"][point.id] == Trajectory([source]).digest(point)
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


def test_full_precision_is_float32_and_quantized_models_keep_their_dtype(
    workspace, trunk, blocks, tmp_path
):
    """The same bfloat16 checkpoints, as a trajectory and as the result of a quantizer."""
    plan = workspace.plan
    copy_results(workspace.folder, tmp_path, [plan.corpora.corpus("main").folder])
    results = {
        "fp": plan.trajectories.train("trunk"),
        "rtn3": plan.quantization.quantize("trunk", "rtn3"),
    }
    losses, folders = {}, {}
    for name, job in results.items():
        folders[name] = tmp_path / job.folder
        halve(trunk, folders[name])
        found = Workspace(tmp_path, plan).build(plan.losses.evaluate("trunk", name))
        losses[name] = load_file(found.file(LOSSES))
    assert losses["fp"].keys() == losses["rtn3"].keys()
    for name in losses["fp"]:
        half = AutoModelForCausalLM.from_pretrained(folders["fp"] / name)
        assert half.dtype == torch.bfloat16
        in_half = block_losses(half, blocks, 8)
        in_float = block_losses(half.float(), blocks, 8)
        assert not torch.equal(in_half, in_float)
        assert torch.equal(torch.from_numpy(losses["fp"][name]), in_float), name
        assert torch.equal(torch.from_numpy(losses["rtn3"][name]), in_half), name


def halve(source, folder):
    """Write a trajectory with the weights of another in bfloat16."""
    for point in Trajectory([source]).checkpoints:
        model = AutoModelForCausalLM.from_pretrained(source.folder / point.id)
        model.bfloat16().save_pretrained(folder / point.id)
    path = folder / "manifest.json"
    path.write_text(manifest.describe(folder, path, source.facts).text())
