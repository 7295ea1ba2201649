"""AWQ, LLM.int8 and NF4: their grids, their errors beside rounding's, and what is saved of them."""

import numpy as np
import pandas as pd
import pytest
import torch
from bitsandbytes.functional import get_4bit_type
from ptq_dynamics import models
from ptq_dynamics.corpus import splits, tokens
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.measure import measure
from ptq_dynamics.measure.loss import block_losses
from ptq_dynamics.measure.names import LAYERS, LOSSES
from ptq_dynamics.measure.settings import MeasureSettings
from ptq_dynamics.quantize.calibration import Calibration, CalibrationSettings
from ptq_dynamics.quantize.layers import gram_matrices, layer_errors, round_to_nearest
from ptq_dynamics.quantize.methods.awq import Awq
from ptq_dynamics.quantize.methods.int8 import Int8
from ptq_dynamics.quantize.methods.nf4 import Nf4
from ptq_dynamics.train import trajectory
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

pytestmark = pytest.mark.slow

VOCABULARY, GROUP = 96, 32
SHAPE = {
    **{"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32},
}
AWQ = Awq(method="awq", bits=4, group_size=GROUP, symmetric=True, duo_scaling=True, grid_points=12)
SETTINGS = {
    "awq": AWQ,
    "awq-asymmetric": AWQ.model_copy(update={"symmetric": False, "duo_scaling": False}),
    "int8": Int8(method="int8", bits=8, threshold=6.0),
    "nf4": Nf4(method="nf4", bits=4, block_size=GROUP, double_quantization=False),
    "nf4-double": Nf4(method="nf4", bits=4, block_size=GROUP, double_quantization=True),
}
METHODS = sorted(SETTINGS)
CALIBRATION = CalibrationSettings(context=32, sequences=64, documents=False, batch=16, draw=1)


def roughen(model):
    """Give a fresh model the unequal channels, biases and outliers of a trained one."""
    generator = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            parameter.data = noise.exp()
        elif name.endswith("bias"):
            parameter.data = 0.1 * noise
        else:
            parameter.data = 0.1 * noise * (0.5 * noise.flip(0)).exp()
    return model.eval()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Manifest of a trajectory of one checkpoint."""
    folder = tmp_path_factory.mktemp("trajectory")
    point = trajectory.Checkpoint("step-0000001", 1, 4096, 1e-3, "constant")
    torch.manual_seed(0)
    roughen(GPTNeoXForCausalLM(GPTNeoXConfig(**SHAPE))).save_pretrained(folder / point.id)
    path = folder / "manifest.json"
    return manifest.describe(folder, path, trajectory.facts([point], seed=100, parameters=1))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Manifest of a calibration and a validation file of random tokens, some frequent."""
    folder = tmp_path_factory.mktemp("corpus")
    draw = np.random.default_rng(3)
    for name in ("calibration", "validation"):
        stream = (draw.random(64 * 32) ** 2 * VOCABULARY).astype("<u2")
        stream.tofile(folder / f"{name}.bin")
    return manifest.describe(folder, folder / "manifest.json", {splits.DTYPE: "uint16"})


@pytest.fixture(scope="module")
def folder(source):
    return source.subfolder("step-0000001")


@pytest.fixture(scope="module")
def calibration(corpus):
    return Calibration(tokens.blocks(corpus, "calibration", 32), 16)


@pytest.fixture(scope="module")
def validation(corpus):
    return tokens.blocks(corpus, "validation", 32)


@pytest.fixture(scope="module")
def results(folder, calibration):
    """Dequantized weights under every method."""
    return {name: quantize(name, folder, calibration).weights for name in METHODS}


@pytest.fixture(scope="module")
def saved(source, corpus, tmp_path_factory):
    """Folder of the quantization job of every method."""
    made = {}
    for name in METHODS:
        out = tmp_path_factory.mktemp(name)
        inputs = {"trajectory": [source], "corpus": [corpus]}
        settings = MeasureSettings(
            checkpoints=("step-0000001",),
            context=32,
            blocks=64,
            batch=16,
            quantizer=SETTINGS[name],
            calibration=CALIBRATION,
            tasks=(),
            keep=True,
        )
        scratch = tmp_path_factory.mktemp("scratch")
        measure.run(Context(name, settings, inputs, out, scratch, Progress(name)))
        made[name] = out
    return made


def quantize(name, folder, calibration, **changes):
    return SETTINGS[name].model_copy(update=changes).quantize(folder, calibration)


def originals(folder):
    return {n: layer.weight.detach() for n, layer in models.linear_layers(load(folder)).items()}


def load(folder):
    return models.load(folder).cpu()


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Folder of a Llama, in which linear layers come before others that AWQ scales."""
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = LlamaConfig(**SHAPE, num_key_value_heads=4)
    roughen(LlamaForCausalLM(config)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("architecture", ["gpt_neox", "llama"])
def test_awq_scaled_back_is_the_librarys_model_on_its_grid(
    architecture, symmetric, folder, llama, calibration
):
    path = folder if architecture == "gpt_neox" else llama
    model, original = load(path), load(path)
    smoothed = AWQ.model_copy(update={"symmetric": symmetric}).smooth(model, calibration)
    scaled = {name for name, layer in smoothed.items() if layer.columns is not None}
    assert {name.rsplit(".", 1)[1] for name in scaled} == (
        {"query_key_value", "dense_h_to_4h"}
        if architecture == "gpt_neox"
        else {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    )
    layers = models.linear_layers(model)
    for name, layer in models.linear_layers(original).items():
        assert smoothed[name].grid.codes.unique().tolist() == list(range(-8, 8)), name
        weight = smoothed[name].weight()
        scaled_weight = weight.clone()
        if smoothed[name].rows is not None:
            scaled_weight *= smoothed[name].rows[:, None]
        if smoothed[name].columns is not None:
            scaled_weight *= smoothed[name].columns
        step = layers[name].weight_scale.repeat_interleave(GROUP, dim=1)
        off = (scaled_weight - layers[name].weight.detach()).abs() / step
        assert off.max() < 0.501, name
        layer.weight.data.copy_(weight)
    with torch.no_grad():
        ours, theirs = original(calibration.tokens).logits, model(calibration.tokens).logits
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


def test_int8_weights_lie_on_the_rows_grid(folder, results):
    for name, weight in originals(folder).items():
        half = weight.half().float()
        step = half.abs().amax(dim=1, keepdim=True) / 127
        codes = results["int8"][name] / step
        assert (codes - codes.round()).abs().max() < 1e-3, name
        assert (results["int8"][name] - half).abs().le(0.51 * step).all(), name


@pytest.mark.parametrize("method", ["nf4", "nf4-double"])
def test_nf4_blocks_take_the_16_values(method, folder, results):
    grid = get_4bit_type("nf4", device="cpu")
    for name, weight in originals(folder).items():
        blocks = results[method][name].reshape(-1, GROUP)
        largest = blocks.abs().amax(dim=1, keepdim=True)
        distance = ((blocks / largest)[..., None] - grid).abs().amin(dim=2)
        assert distance.max() < 1e-6, name
        exact = weight.reshape(-1, GROUP).abs().amax(dim=1, keepdim=True)
        assert torch.equal(largest, exact) == (method == "nf4"), name


@pytest.mark.parametrize(
    ("method", "bits", "group", "tolerance"),
    [
        ("awq", 4, GROUP, 1e-4),
        ("nf4", 4, GROUP, 0),
        # Other roundings to nearly the same grid: its step is 1/127, not 1/127.5 of the largest.
        ("int8", 8, None, 0.2),
    ],
)
def test_outputs_are_no_worse_than_rounded_ones(
    method, bits, group, tolerance, folder, calibration, results
):
    weights = originals(folder)
    grams = gram_matrices(load(folder), calibration.batches())
    rounded = {}
    for name, weight in weights.items():
        codes, scales = round_to_nearest(weight, bits, group or weight.shape[1])
        rounded[name] = codes * scales.repeat_interleave(group or weight.shape[1], dim=1)
    errors = layer_errors(weights, results[method], grams)
    baseline = layer_errors(weights, rounded, grams)
    ratios = {n: e.output_mse / baseline[n].output_mse for n, e in errors.items()}
    assert max(ratios.values()) <= 1 + tolerance, ratios
    if method.startswith("awq"):
        assert min(ratios.values()) < 0.9, ratios
    if method == "int8":
        assert min(ratios.values()) > 0.8, ratios


@pytest.mark.parametrize("method", METHODS)
def test_saved_checkpoints_hold_the_weights_and_leave_the_rest(method, saved, folder, results):
    state, full = models.dequantized(saved[method] / "step-0000001"), load(folder).state_dict()
    assert state.keys() == full.keys()
    for name, value in state.items():
        layer = name.removesuffix(".weight")
        expected = results[method][layer] if layer in results[method] else full[name]
        assert value.dtype == torch.float32
        assert torch.equal(value, expected), name
    errors = pd.read_csv(saved[method] / LAYERS)
    assert set(errors["layer"]) == set(results[method])
    assert errors["output_relative"].between(0, 0.2, inclusive="neither").all()


@pytest.mark.parametrize("method", METHODS)
def test_losses_survive_saving(method, saved, folder, calibration, validation, results):
    path = saved[method] / "step-0000001"
    losses = block_losses(load(path), validation, 16)
    assert torch.equal(load_file(saved[method] / LOSSES)["step-0000001"], losses)
    model = load(folder)
    assert not torch.equal(losses, block_losses(model, validation, 16))
    if method == "int8":
        assert torch.equal(losses, block_losses(int8_model(folder), validation, 16))
        return
    for name, layer in models.linear_layers(model).items():
        layer.weight.data.copy_(results[method][name])
    expected = block_losses(model, validation, 16)
    if method.startswith("awq"):
        # What is saved is the rescaled model: the same function but for the rounding of its sums.
        torch.testing.assert_close(losses, expected, rtol=2e-6, atol=0)
    else:
        assert torch.equal(losses, expected)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "int8"])
def test_transformers_alone_loads_what_is_saved(method, saved, validation):
    path = saved[method] / "step-0000001"
    plain = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        theirs = plain(validation[:4]).logits
    ours = load(path)
    if method.startswith("nf4"):
        # Some CPUs compute bitsandbytes' layers in bfloat16, and pack the weights anew for that, so
        # that these are not read again.
        plain = AutoModelForCausalLM.from_pretrained(path).dequantize(torch.float32)
        tolerance = 0.05 * theirs.abs().max()
    else:
        tolerance = 0
    with torch.no_grad():
        assert (ours(validation[:4]).logits - theirs).abs().max() <= tolerance
    state = plain.state_dict()
    for name, value in ours.state_dict().items():
        assert torch.equal(value, state[name]), name


def int8_model(folder, threshold=6.0):
    """As transformers itself makes it."""
    options = BitsAndBytesConfig(
        load_in_8bit=True, llm_int8_threshold=threshold, llm_int8_skip_modules=["lm_head"]
    )
    return models.load(folder, quantization_config=options)
