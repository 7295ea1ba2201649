"""AWQ and LLM.int8: their grids, their errors beside rounding's, and what is saved of them."""

import numpy as np
import pandas as pd
import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.corpus import splits, tokens
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.measure import measure
from ptq_dynamics.measure.names import LAYERS, LOSSES
from ptq_dynamics.measure.series import MeasureSettings
from ptq_dynamics.models.packed import unscaled_weight
from ptq_dynamics.quantize.methods import Calibration, CalibrationSettings
from ptq_dynamics.quantize.methods.awq import Awq
from ptq_dynamics.quantize.methods.int8 import Int8
from ptq_dynamics.trajectories import trajectory
from safetensors.torch import load_file
from transformers import (
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
}
METHODS = sorted(SETTINGS)
NAME = "step-0000001"
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
    point = trajectory.Checkpoint(NAME, 1, 4096, 1e-3, "constant")
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
    return source.subfolder(NAME)


@pytest.fixture(scope="module")
def calibration(corpus):
    return Calibration(tokens.blocks(corpus, "calibration", 32), 16)


@pytest.fixture(scope="module")
def validation(corpus):
    return tokens.blocks(corpus, "validation", 32)


@pytest.fixture(scope="module")
def results(folder, calibration):
    """Dequantized weights under every method."""
    return {name: SETTINGS[name].quantize(folder, calibration).weights for name in METHODS}


@pytest.fixture(scope="module")
def saved(source, corpus, tmp_path_factory):
    """Folder of the job of every method."""
    made, inputs = {}, {"trajectory": [source], "corpus": [corpus]}
    plain = {"checkpoints": (NAME,), "context": 32, "blocks": 64, "batch": 16}
    plain |= {"tasks": (), "carried": 0}
    for name in METHODS:
        made[name], scratch = (tmp_path_factory.mktemp(each) for each in (name, "scratch"))
        kind = {"quantizer": SETTINGS[name], "calibration": CALIBRATION, "keep": True}
        settings = MeasureSettings(**plain, **kind)
        measure.run(Context(name, settings, inputs, made[name], scratch, Progress(name)))
    return made


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


@pytest.mark.parametrize(
    ("architecture", "symmetric", "layers"),
    [
        ("folder", True, {"query_key_value", "dense_h_to_4h"}),
        ("llama", True, {f"{each}_proj" for each in ("q", "k", "v", "o", "gate", "up", "down")}),
        ("llama", False, {f"{each}_proj" for each in ("q", "k", "v", "o", "gate", "up", "down")}),
    ],
)
def test_awq_scaled_back_is_the_librarys_model_on_its_grid(
    architecture, symmetric, layers, calibration, request
):
    path = request.getfixturevalue(architecture)
    model, original = load(path), load(path)
    grids, scaling = AWQ.model_copy(update={"symmetric": symmetric}).smooth(model, calibration)
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
        ours, theirs = original(calibration.tokens).logits, model(calibration.tokens).logits
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("method", METHODS)
def test_saved_checkpoints_hold_the_weights_and_their_losses(
    method, saved, folder, validation, results
):
    model, path = load(folder), saved[method] / NAME
    state, full = models.dequantized(path), dict(model.state_dict())
    expected = full | {f"{name}.weight": value for name, value in results[method].items()}
    assert state.keys() == full.keys()
    assert all(torch.equal(value, expected[name]) for name, value in state.items())
    errors = pd.read_csv(saved[method] / LAYERS)
    assert set(errors["layer"]) == set(results[method])
    assert errors["output_relative"].between(0, 0.2, inclusive="neither").all()
    losses = models.block_losses(load(path), validation, 16)
    assert torch.equal(load_file(saved[method] / LOSSES)[NAME], losses)
    assert not torch.equal(losses, models.block_losses(model, validation, 16))
    if method == "int8":  # as transformers itself makes it
        options = {"load_in_8bit": True, "llm_int8_threshold": 6.0}
        options["llm_int8_skip_modules"] = ["lm_head"]
        model = models.load(folder, quantization_config=BitsAndBytesConfig(**options))
    else:
        for name, layer in models.linear_layers(model).items():
            layer.weight.data.copy_(results[method][name])
    # AWQ saves the rescaled model: the same function but for the rounding of its sums.
    tolerance = 2e-6 if method.startswith("awq") else 0
    torch.testing.assert_close(
        losses, models.block_losses(model, validation, 16), rtol=tolerance, atol=0
    )
