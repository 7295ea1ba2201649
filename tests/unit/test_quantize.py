"""GPTQ against a float64 reference written here, rounding against llm-compressor, layer errors."""

import copy

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from llmcompressor import oneshot, reset_session
from llmcompressor.modifiers.quantization import QuantizationModifier
from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.measure.names import LAYERS
from ptq_dynamics.quantize.calibration import Calibration, CalibrationSettings
from ptq_dynamics.quantize.layers import (
    gram_matrices,
    model_errors,
    round_to_nearest,
)
from ptq_dynamics.quantize.methods import AtMost
from ptq_dynamics.quantize.methods.gptq import Gptq
from ptq_dynamics.quantize.methods.rtn import Rtn
from ptq_dynamics.train.trajectory import Trajectory
from reference import TIES, block_inputs, compare
from safetensors.torch import load_file
from support import Workspace, artifacts, copy_results, differing

SETTINGS = Gptq(
    method="gptq",
    bits=4,
    group_size=16,
    symmetric=True,
    activation_order="static",
    damping=0.05,
    block_size=128,
)


@pytest.fixture(scope="module")
def folder(trunk):
    return trunk.folder / Trajectory([trunk]).checkpoints[-1].id


@pytest.fixture(scope="module")
def calibration(corpus):
    return Calibration(tokens.blocks(corpus, "calibration", 16, 32), 8)


@pytest.fixture(scope="module")
def original(folder):
    return models.linear_layers(models.load(folder))


def quantized(folder, calibration, bits, group, **changes):
    settings = SETTINGS.model_copy(update={"bits": bits, "group_size": group, **changes})
    return settings.quantize(folder, calibration).weights


def rounded_to(bits, group):
    return Rtn(method="rtn", bits=bits, group_size=group)


@pytest.mark.parametrize(("bits", "group"), [(3, 16), (4, 16), (4, 8), (3, 32)])
def test_gptq_gives_the_codes_of_the_reference(folder, calibration, bits, group):
    weights = quantized(folder, calibration, bits, group)
    differ = compare(folder, calibration, weights, bits, group)
    assert set(differ.values()) == {0.0}, differ


@pytest.fixture(scope="module")
def ragged(calibration):
    """Documents of all lengths: as the blocks, but cut."""
    table = calibration.tokens.clone()
    for row, sequence in enumerate(table):
        sequence[1 + row % 16 :] = tokens.FILLING
    return Calibration(table, 8)


@pytest.mark.parametrize("draw", [1, 2, 3])
def test_draws_are_the_sets_that_follow_each_other(corpus, draw):
    settings = CalibrationSettings(context=16, sequences=8, documents=False, batch=4, draw=draw)
    every = tokens.blocks(corpus, "calibration", 16)
    assert torch.equal(settings.read(corpus).tokens, every[8 * (draw - 1) : 8 * draw])


def test_documents_go_one_by_one_and_without_filling(ragged, calibration):
    lengths = [batch.shape for batch in ragged.batches()]
    assert lengths == [(1, 1 + row % 16) for row in range(32)]
    for batch, whole in zip(ragged.batches(), calibration.tokens, strict=True):
        assert torch.equal(batch[0], whole[: batch.shape[1]])
    assert (ragged.together, calibration.together) == (1, 8)
    assert torch.equal(torch.cat(calibration.batches()), calibration.tokens)


def test_gptq_on_documents_gives_the_codes_of_the_reference(folder, ragged, calibration):
    weights = quantized(folder, ragged, 3, 16)
    differ = compare(folder, ragged, weights, 3, 16)
    assert set(differ.values()) == {0.0}, differ
    with_blocks = compare(folder, calibration, weights, 3, 16)
    assert max(with_blocks.values()) > 10 * TIES, "the calibration set changes nothing here"


@pytest.mark.parametrize(
    ("change", "arguments"),
    [({"activation_order": None}, {"ordered": False}), ({"damping": 0.01}, {"damping": 0.01})],
    ids=["unordered", "damping"],
)
def test_settings_of_gptq_mean_what_the_reference_means(folder, calibration, change, arguments):
    weights = quantized(folder, calibration, 3, 16, **change)
    differ = compare(folder, calibration, weights, 3, 16, **arguments)
    assert set(differ.values()) == {0.0}, differ
    with_usual = compare(folder, calibration, weights, 3, 16)
    assert max(with_usual.values()) > 10 * TIES, "the setting changes nothing that is seen here"


# Rounding


@pytest.mark.parametrize(("bits", "group"), [(3, 16), (4, 32), (8, 8)])
def test_rounding_is_that_of_llm_compressor(folder, bits, group):
    unused = Calibration(torch.zeros(1, 1), 1)
    found = rounded_to(bits, group).quantize(folder, unused)
    model = models.load(folder)
    names = list(models.linear_layers(model))
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group"}
    weights |= {"group_size": group, "observer": "memoryless_minmax"}
    reset_session()
    oneshot(
        model=model,
        recipe=QuantizationModifier(
            config_groups={"blocks": {"targets": names, "weights": weights}}
        ),
        pipeline="datafree",
        log_dir=None,
    )
    for name, layer in models.linear_layers(model).items():
        steps = layer.weight_scale.detach().repeat_interleave(group, dim=1)
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        theirs = torch.round(layer.weight.detach() / steps).clamp(low, high) * steps
        assert torch.equal(found.weights[name], theirs), name


@given(
    st.integers(0, 2**31),
    st.sampled_from([2, 3, 4, 8]),
    st.sampled_from([1, 2, 4, 8]),
    st.floats(-6, 6),
)
def test_rounding_goes_to_the_nearest_point_of_the_grid(seed, bits, group, power):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(5, 8, generator=generator) * 10**power
    codes, scales = round_to_nearest(weight, bits, group)
    step = scales.repeat_interleave(group, dim=1).double()
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    points = torch.arange(low, high + 1)[None, None, :] * step[:, :, None]
    best = (points - weight.double()[:, :, None]).abs().amin(dim=2)
    gap = (codes * step - weight.double()).abs()
    assert ((gap - best) <= 1e-4 * step).all(), (gap - best).max()
    assert ((gap / step) <= 0.5 + 1e-4).all(), (gap / step).max()


# Jobs


@pytest.mark.parametrize("name", ["gptq3", "rtn3"])
def test_two_runs_of_a_job_give_equal_bytes(workspace, trunk, gptq, rtn, tmp_path, name):
    planned = workspace.plan
    sources = [planned.corpora.corpus("main").folder, planned.trajectories.train("trunk").folder]
    copy_results(workspace.folder, tmp_path, sources)
    again = Workspace(tmp_path, planned).build(planned.measuring.measure("trunk", name))
    first = {"gptq3": gptq, "rtn3": rtn}[name]
    assert again.text() == first.text()
    assert not differing(artifacts(first.folder), artifacts(again.folder))


@pytest.mark.parametrize("name", ["gptq3", "rtn3"])
def test_quantized_checkpoints_differ_in_the_blocks_linear_weights_alone(
    trunk, gptq, rtn, original, name
):
    found = {"gptq3": gptq, "rtn3": rtn}[name]
    assert found.facts["quantized_layers"] == sorted(original)
    assert len(original) == 8  # four of each block (section 3)
    for point in Trajectory([found]).checkpoints:
        before = load_file(trunk.folder / point.id / "model.safetensors")
        after = models.dequantized(found.folder / point.id)
        after["embed_out.weight"] = after.pop("lm_head.weight")
        assert before.keys() == after.keys()
        changed = {key for key in before if not torch.equal(before[key], after[key])}
        assert changed == {f"{layer}.weight" for layer in original}, point.step
        assert models.load(found.folder / point.id).num_parameters() > 0


def test_recorded_layer_errors_are_those_of_weights_and_activations(
    trunk, gptq, calibration, folder
):
    table = pd.read_csv(gptq.folder / LAYERS)
    point = Trajectory([gptq]).checkpoints[-1]
    before, after = models.load(folder), models.load(gptq.folder / point.id)
    rows = table[table.checkpoint_id == point.id].set_index("layer")
    layers = models.linear_layers(after)
    assert set(rows.index) == set(layers)
    for block in range(2):
        for name, x in block_inputs(before, block, calibration.batches()).items():
            weight = models.linear_layers(before)[name].weight.detach().double()
            other = layers[name].weight.detach().double()
            outputs, changed = x.double() @ weight.T, x.double() @ other.T
            expected = {
                "weight_mse": (weight - other).square().mean(),
                "weight_relative": (weight - other).square().sum() / weight.square().sum(),
                "output_mse": (outputs - changed).square().mean(),
                "output_relative": (outputs - changed).square().sum() / outputs.square().sum(),
            }
            for column, value in expected.items():
                assert rows.loc[name, column] == pytest.approx(value.item(), rel=1e-4), (
                    name,
                    column,
                )


def test_gram_matrices_are_means_over_tokens_whatever_the_batch(folder, calibration):
    model = models.load(folder)
    one = gram_matrices(model, calibration.tokens.split(1))
    all_ = gram_matrices(copy.deepcopy(model), [calibration.tokens])
    for name, x in block_inputs(model, 0, calibration.batches()).items():
        expected = (x.double().T @ x.double() / len(x)).float()
        for found in (one[name], all_[name]):
            assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5), name
    assert not any(module._forward_hooks for module in model.modules())


# Settings


@pytest.mark.parametrize(
    ("given", "widths", "expected"),
    [(AtMost(at_most=128), (96, 384), 96), (AtMost(at_most=64), (96, 128), 32), (16, (96,), 16)],
)
def test_group_sizes_are_resolved_for_the_widths_of_a_model(given, widths, expected):
    kind = Rtn(method="rtn", bits=4, group_size=given)
    assert kind.misfit(widths) is None
    assert kind.resolved(widths).columns == expected
    assert kind.columns == (given if isinstance(given, int) else None)


def test_errors_do_not_depend_on_how_many_layers_are_measured_at_once(
    folder, calibration, original
):
    model, batches = models.load(folder), calibration.batches()
    weights = {name: layer.weight for name, layer in original.items()}
    rounded = rounded_to(3, 16).quantize(folder, calibration).weights
    sizes = [4 * layer.in_features**2 for layer in models.linear_layers(model).values()]
    found = [
        model_errors(model, weights, rounded, batches, memory)
        for memory in (0, sum(sizes[:3]), sum(sizes))
    ]
    assert found[0] == found[1] == found[2]
    assert list(found[0]) == list(models.linear_layers(model))
