"""GPTQ against a float64 reference written here, rounding against llm-compressor, layer errors."""

import pandas as pd
import pytest
import torch
from llmcompressor import oneshot, reset_session
from llmcompressor.modifiers.quantization import QuantizationModifier
from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.measure.names import LAYERS
from ptq_dynamics.quantize.methods import AtMost, Calibration, CalibrationSettings
from ptq_dynamics.quantize.methods.gptq import Gptq
from ptq_dynamics.quantize.methods.rtn import Rtn
from ptq_dynamics.trajectories.trajectory import Trajectory
from reference import TIES, block_inputs, compare

SETTINGS = {"method": "gptq", "symmetric": True, "activation_order": "static", "block_size": 128}


@pytest.fixture(scope="module")
def folder(trunk):
    return trunk.folder / Trajectory([trunk]).checkpoints[-1].id


@pytest.fixture(scope="module")
def calibration(corpus):
    return Calibration(tokens.blocks(corpus, "calibration", 16, 32), 8)


@pytest.fixture(scope="module")
def ragged(calibration):
    """Documents of all lengths: as the blocks, but cut."""
    table = calibration.tokens.clone()
    for row, sequence in enumerate(table):
        sequence[1 + row % 16 :] = tokens.FILLING
    return Calibration(table, 8)


@pytest.mark.parametrize(
    ("bits", "group", "documents", "change", "arguments"),
    [
        (3, 16, False, {}, {}),
        (4, 16, False, {}, {}),
        (3, 32, False, {}, {}),
        (3, 16, True, {}, {}),
        (3, 16, False, {"activation_order": None}, {"ordered": False}),
        (3, 16, False, {"damping": 0.01}, {"damping": 0.01}),
    ],
)
def test_gptq_gives_the_codes_of_the_reference(
    folder, calibration, ragged, bits, group, documents, change, arguments
):
    given, grid = ragged if documents else calibration, {"bits": bits, "group_size": group}
    kind = Gptq(**{**SETTINGS, "damping": 0.05, **grid, **change})
    weights = kind.quantize(folder, given).weights
    differ = compare(folder, given, weights, bits, group, **arguments)
    assert set(differ.values()) == {0.0}, differ
    if documents or change:
        usual = compare(folder, calibration, weights, bits, group)
        assert max(usual.values()) > 10 * TIES, "the setting changes nothing that is seen here"


def test_gptq_reads_the_sequences_in_the_order_of_llm_compressor(folder, calibration):
    """The last digits of a Hessian, and some codes, depend on it. The sort is not stable."""
    order = torch.full((len(calibration.tokens),), 16).argsort(descending=True)
    assert order.tolist() != [*range(len(order))], "too few sequences to see an order"
    batches = list[torch.Tensor]()

    def note(module, inputs):
        if isinstance(module, torch.nn.Embedding) and not inputs[0].is_meta:
            batches.append(inputs[0])

    with torch.nn.modules.module.register_module_forward_pre_hook(note):
        Gptq(**SETTINGS, damping=0.05, bits=4, group_size=16).quantize(folder, calibration)
    assert torch.equal(torch.cat(batches)[: len(order)], calibration.tokens[order])


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


@pytest.mark.parametrize(("bits", "group"), [(3, 16), (8, 8)])
def test_rounding_is_that_of_llm_compressor(folder, bits, group):
    found = Rtn(method="rtn", bits=bits, group_size=group).quantize(folder, None)
    model = models.load(folder)
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group"}
    weights |= {"group_size": group, "observer": "memoryless_minmax"}
    targets = list(models.linear_layers(model))
    groups = {"blocks": {"targets": targets, "weights": weights}}
    reset_session()
    recipe = QuantizationModifier(config_groups=groups)
    oneshot(model=model, recipe=recipe, pipeline="datafree", log_dir=None)
    for name, layer in models.linear_layers(model).items():
        steps = layer.weight_scale.detach().repeat_interleave(group, dim=1)
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        theirs = torch.round(layer.weight.detach() / steps).clamp(low, high) * steps
        assert torch.equal(found.weights[name], theirs), name


def test_recorded_layer_errors_are_those_of_weights_and_activations(gptq, calibration, folder):
    table = pd.read_csv(gptq.folder / LAYERS)
    point = Trajectory([gptq]).checkpoints[-1]
    before, after = models.load(folder), models.load(gptq.folder / point.id)
    rows = table[table.checkpoint_id == point.id].set_index("layer")
    layers, quantized = models.linear_layers(before), models.linear_layers(after)
    assert set(rows.index) == set(layers)
    for block in range(2):
        for name, x in block_inputs(before, block, calibration.batches()).items():
            weight, other = (each[name].weight.detach().double() for each in (layers, quantized))
            outputs, changed = x.double() @ weight.T, x.double() @ other.T
            expected = {
                "weight_mse": (weight - other).square().mean(),
                "weight_relative": (weight - other).square().sum() / weight.square().sum(),
                "output_mse": (outputs - changed).square().mean(),
                "output_relative": (outputs - changed).square().sum() / outputs.square().sum(),
            }
            for column, value in expected.items():
                found = rows.loc[name, column]
                assert found == pytest.approx(value.item(), rel=1e-4), (name, column)


@pytest.mark.parametrize(
    ("given", "widths", "expected"),
    [(AtMost(at_most=128), (96, 384), 96), (AtMost(at_most=64), (96, 128), 32), (16, (96,), 16)],
)
def test_group_sizes_are_resolved_for_the_widths_of_a_model(given, widths, expected):
    kind = Rtn(method="rtn", bits=4, group_size=given)
    assert kind.misfit(widths) is None and kind.resolved(widths).resolved_group_size == expected
    assert "does not divide" in Rtn(method="rtn", bits=4, group_size=5).misfit(widths)
