"""Curvature, landscape and components of real checkpoints, and correlations with curvature."""

import numpy as np
import pandas as pd
import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.curvature.components import column_blocks
from ptq_dynamics.curvature.hessian import LossHessian
from ptq_dynamics.curvature.landscape import flatten
from ptq_dynamics.curvature.sharpness import hutchinson_trace
from ptq_dynamics.curvature.spectrum import top_spectrum
from ptq_dynamics.figures.layouts.flatness import correlate, interval, values_at_equal_loss
from ptq_dynamics.measure.names import VALUES
from ptq_dynamics.models import dequantized
from ptq_dynamics.trajectories.trajectory import Trajectory
from scipy.stats import rankdata, spearmanr
from tiny import create, uneven

pytestmark = pytest.mark.slow


def last(manifest):
    return manifest.subfolder(Trajectory([manifest]).checkpoints[-1].id)


@pytest.fixture(scope="module")
def sharpness(workspace, branch):
    return workspace.build(workspace.plan.measurements.curvature("branch", "sharpness", "all", 100))


def test_sharpness_is_the_top_eigenvalue_and_the_trace_its_sum(
    workspace, corpus, branch, sharpness
):
    table = pd.read_csv(sharpness.file(VALUES))
    final = table[table.checkpoint_id == last(branch).name].set_index("metric")
    settings = workspace.plan.measurements.curvature("branch", "sharpness", "all", 100).settings
    model = models.load(last(branch), attn_implementation="eager")
    probes = tokens.blocks(corpus, "probe", settings.context, settings.sequences)
    hessian = LossHessian(model, probes, len(probes))
    exact = {"tolerance": 1e-3, "max_iterations": 300}
    leading = top_spectrum(hessian, hessian.like, 1, torch.Generator().manual_seed(7), **exact)
    top, value, vector = float(leading.values[0]), final.value["sharpness"], leading.top
    assert abs(value - top) <= settings.tolerance * abs(top), (value, top)
    assert final.value["sharpness_iterations"] >= 16
    # Its error has that of the text.
    batches = [LossHessian(model, part, len(part)) for part in probes.split(settings.batch)]
    parts = [float(vector @ each(vector)) for each in batches]
    error = np.std(parts, ddof=1) / len(parts) ** 0.5
    assert error * 0.9 <= final.stderr["sharpness"] <= np.hypot(error * 1.1, 0.05 * abs(top))
    generator = torch.Generator().manual_seed(7)
    trace, error = hutchinson_trace(hessian.form, hessian.like, 60, generator)
    spread = np.hypot(error, final.stderr["hessian_trace"])
    assert abs(final.value["hessian_trace"] - trace) <= 5 * spread


def test_the_spectrum_begins_with_the_sharpness(workspace, branch, sharpness):
    built = workspace.build(workspace.plan.measurements.curvature("branch", "spectrum", "all", 100))
    spectrum, ours = (pd.read_csv(manifest.file(VALUES)) for manifest in (built, sharpness))
    points = sorted(set(spectrum.checkpoint_id))
    assert points
    for point in points:
        values = spectrum[spectrum.checkpoint_id == point].set_index("metric").value
        top = ours[(ours.checkpoint_id == point) & (ours.metric == "sharpness")].value.item()
        assert abs(values["eigenvalue_01"] - top) <= 0.1 * abs(top), (point, values, top)
        assert (values.abs().diff().dropna() <= 1e-6 * abs(top)).all(), values


def test_a_landscape_has_the_losses_of_its_checkpoints(workspace, corpus, branch):
    measuring = workspace.plan.measurements
    quantized = workspace.build(measuring.measure("branch", "gptq3", "all", 100), keep=True)
    job = workspace.plan.figures.landscape("branch", "gptq3", 2)
    built = workspace.build(job)
    points = pd.read_csv(built.file("points.csv")).set_index("point")
    context, count = job.settings.context, job.settings.blocks
    blocks = tokens.blocks(corpus, "validation", context, count)
    previous = branch.subfolder(job.settings.previous)
    final = models.block_losses(models.load(last(branch)), blocks, 8)
    folders = {"final": last(branch), "previous": previous, "quantized": last(quantized)}
    for name, folder in folders.items():
        found = models.block_losses(models.load(folder), blocks, 8)
        assert points.loss[name] == pytest.approx(float(found.mean()), abs=1e-5), name
        error = np.std((found - final).numpy(), ddof=1) / len(blocks) ** 0.5
        assert points.stderr[name] == pytest.approx(error, rel=0.01, abs=1e-7), name
    grid = pd.read_csv(built.file("grid.csv"))
    assert len(grid) == job.settings.side**2 and grid.loss.notna().all()
    states = {name: dequantized(folder) for name, folder in folders.items()}
    start = states.pop("final")
    for name, state in states.items():
        squares = sum((start[n] - state[n]).double().square().sum() for n in start)
        expected = pytest.approx(float(squares) ** 0.5, rel=1e-5)
        assert built.facts[f"distance_{name}"] == expected, name


def test_what_follows_the_loss_alone_does_not_correlate_given_the_loss():
    rng = np.random.default_rng(7)
    loss = rng.normal(size=3200)
    follows, noise = loss + 0.3 * rng.normal(size=3200), 0.3 * rng.normal(size=3200)
    table = pd.DataFrame({"x": follows, "y": loss + noise, "loss": loss})
    found = correlate(table)
    assert found[""] == pytest.approx(spearmanr(table.x, table.y).statistic)
    assert found[""] > 0.7 and abs(found["given the loss "]) < 0.1
    # Another way to the same: the correlation of what regressions on the ranks of the loss leave.
    x, y, z = (rankdata(table[column]) for column in ("x", "y", "loss"))
    rest = [ranks - np.polyval(np.polyfit(z, ranks, 1), z) for ranks in (x, y)]
    assert found["given the loss "] == pytest.approx(np.corrcoef(*rest)[0, 1])


def test_runs_are_compared_where_their_losses_last_are_equal():
    first = {"loss": [3.0, 2.0, 3.0, 2.0, 1.0], "x": [9, 9, 10, 20, 30], "y": [9, 9, 1.0, 3, 4]}
    last = {"loss": [3.0, 1.5], "x": [5, 7], "y": [6.0, 8]}
    never = {"loss": [1.4, 1.2], "x": [1, 1], "y": [1.0, 1]}
    parts = []
    for segment, run in (("first", first), ("last", last), ("never", never)):
        names = [f"{segment}-{n}" for n in range(len(run["x"]))]
        for seed, factor in (("1", 1), ("2", 2)):
            own = pd.DataFrame(run).assign(segment=segment, seeds=seed, checkpoint_id=names)
            parts.append(own.assign(x=factor * own.x, low=own.y - 1, high=own.y + 1))
    found = values_at_equal_loss(pd.concat(parts))
    assert found.checkpoint_id.tolist() == 2 * ["first-3 first-4", "last-1"]
    assert np.allclose(found.x, [25, 7, 50, 14]) and np.allclose(found.y, [3.5, 8, 3.5, 8])
    assert np.allclose(found.high - found.low, 2) and np.allclose(found.loss, 1.5)


def test_the_interval_of_a_rank_correlation_resamples_runs_and_seeds():
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"segment": np.repeat([*"abcdefgh"], 3), "seeds": [*"123"] * 8})
    table["x"] = table.segment.map(ord) + 0.1 * rng.normal(size=24)
    table["y"] = table.x + 3 * rng.normal(size=24)
    rho, low, high = interval(table)
    assert rho == pytest.approx(spearmanr(table.x, table.y).statistic)
    assert low < rho < high and high - low > 0.3
    assert np.allclose(interval(table.assign(y=table.x)), 1)


# Components, read in blocks of columns


def save(folder, seed, shard="1GB", dtype=torch.float32, **changes):
    """A saved model whose every parameter is random; its parameters as one vector."""
    shape = {"vocab_size": 40, "hidden_size": 12, "intermediate_size": 20, "num_attention_heads": 2}
    model = uneven(create("GPTNeoX", seed, **shape, **changes))
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    return flatten(dict(models.load(folder).named_parameters()))


@pytest.mark.parametrize(
    "changes",
    [{}, {"shard": "2KB"}, {"tie_word_embeddings": True}, {"dtype": torch.bfloat16}],
    ids=["plain", "sharded", "tied", "bfloat16"],
)
def test_blocks_are_the_parameters_that_the_library_loads(tmp_path, changes):
    folders = [tmp_path / name for name in "ab"]
    matrix = torch.stack([save(folder, seed, **changes) for seed, folder in enumerate(folders)])
    parts = list(column_blocks(folders, 64))
    assert len(parts) > 1 and all(part.shape[1] == 64 for part in parts[:-1])
    assert torch.cat(parts, dim=1).equal(matrix)
    assert parts[0].dtype == changes.get("dtype", torch.float32)
