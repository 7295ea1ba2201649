"""GPTQ and rounding against a float64 reference, AWQ against its library, layer errors."""

import pandas as pd
import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.measure.names import LAYERS
from ptq_dynamics.models.packed import unscaled_weight
from ptq_dynamics.quantize.methods import AtMost, Calibration, CalibrationSettings
from ptq_dynamics.quantize.methods.awq import Awq
from ptq_dynamics.quantize.methods.gptq import Gptq
from ptq_dynamics.quantize.methods.rtn import Rtn
from ptq_dynamics.trajectories.trajectory import Trajectory
from reference import TIES, block_inputs, compare, grid_steps, nearest
from support import GPTQ
from tiny import create, uneven


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
    kind = Gptq(**GPTQ | grid | change)
    weights = kind.quantize(folder, given).weights
    differ = compare(folder, given, weights, bits, group, **arguments)
    assert set(differ.values()) == {0.0}, differ
    if documents or change:
        usual = compare(folder, calibration, weights, bits, group)
        assert max(usual.values()) > 10 * TIES, "the setting changes nothing that is seen here"


@pytest.mark.parametrize("kind", ["calibration", "ragged"])
def test_gptq_reads_whole_sequences_in_the_order_of_llm_compressor(folder, kind, request):
    """The last digits of a Hessian, and some codes, depend on it. The sort is not stable. Sequences
    of several lengths go one by one, without filling."""
    given = request.getfixturevalue(kind)
    lengths = (given.tokens >= 0).sum(1)
    order = lengths.argsort(descending=True).tolist()
    assert order != [*range(len(order))], "too few sequences to see an order"
    read = list[torch.Tensor]()

    def note(module, inputs):
        if isinstance(module, torch.nn.Embedding) and not inputs[0].is_meta:
            read.extend(inputs[0])

    with torch.nn.modules.module.register_module_forward_pre_hook(note):
        Gptq(**GPTQ | {"bits": 4, "group_size": 16}).quantize(folder, given)
    # The first pass has one sequence, for the masks.
    for row, place in zip(read[1 : len(order) + 1], order, strict=True):
        assert torch.equal(row, given.tokens[place, : lengths[place]])


@pytest.mark.parametrize("draw", [1, 2, 3])
def test_draws_are_the_sets_that_follow_each_other(corpus, draw):
    settings = CalibrationSettings(context=16, sequences=8, documents=False, batch=4, draw=draw)
    every = tokens.blocks(corpus, "calibration", 16)
    assert torch.equal(settings.read(corpus).tokens, every[8 * (draw - 1) : 8 * draw])


@pytest.mark.parametrize(("bits", "group"), [(3, 16), (8, 8)])
def test_rounding_is_to_the_nearest_point_of_the_same_grid(folder, bits, group):
    found = Rtn(method="rtn", bits=bits, group_size=group).quantize(folder, None).weights
    for name, layer in models.linear_layers(models.load(folder)).items():
        weight = layer.weight.detach()
        steps = grid_steps(weight, bits, group)
        assert torch.equal(found[name], nearest(weight, steps, bits) * steps), name


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


# AWQ

GROUP = 32
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_key_value_heads": 4}
AWQ = Awq(method="awq", bits=4, group_size=GROUP, symmetric=True, duo_scaling=True, grid_points=12)
# In a Llama, linear layers come before others that AWQ scales.
LLAMA = {f"{each}_proj" for each in ("q", "k", "v", "o", "gate", "up", "down")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "symmetric", "layers"),
    [
        ("GPTNeoX", True, {"query_key_value", "dense_h_to_4h"}),
        ("Llama", True, LLAMA),
        ("Llama", False, LLAMA),
    ],
)
def test_awq_scaled_back_is_the_librarys_model_on_its_grid(kind, symmetric, layers, tmp_path):
    uneven(create(kind, **SHAPE)).save_pretrained(tmp_path)
    # Some tokens are frequent.
    text = (torch.rand(64, 32, generator=torch.manual_seed(3)) ** 2 * 96).long()
    model, original = models.load(tmp_path), models.load(tmp_path)
    method = AWQ.model_copy(update={"symmetric": symmetric})
    grids, scaling = method.smooth(model, Calibration(text, 16))
    scaled = {name.split(".")[-2] for name in scaling if name.endswith(".columns")}
    assert scaled == layers
    theirs = models.linear_layers(model)
    for name, layer in models.linear_layers(original).items():
        assert grids[name].codes.unique().tolist() == list(range(-8, 8)), name
        found = unscaled_weight(name, grids[name].weight(), scaling)
        again = found * scaling.get(f"{name}.rows", torch.ones(1))[:, None]
        again *= scaling.get(f"{name}.columns", 1)
        step = theirs[name].weight_scale.repeat_interleave(GROUP, dim=1)
        assert ((again - theirs[name].weight.detach()).abs() / step).max() < 0.501, name
        layer.weight.data.copy_(found)
    with torch.no_grad():
        ours, theirs = original(text).logits, model(text).logits
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()
