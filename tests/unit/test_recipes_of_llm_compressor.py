"""Recipes of llm-compressor: what is saved of a rotated, smoothed or floating-point model."""

from functools import cache

import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.quantize.methods import Calibration
from ptq_dynamics.quantize.methods.recipe import Recipe
from support import one_line, plan
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

pytestmark = pytest.mark.slow

SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SHAPE |= {"num_attention_heads": 2, "vocab_size": 96, "max_position_embeddings": 32}
# Eight bits and a rotation: without its inverse, nothing of the model is left.
ROTATE = {"QuIPModifier": {"transform_type": "random-hadamard"}}
MODIFIERS = [ROTATE, {"QuantizationModifier": {}}]
FINE = Recipe(method="recipe", bits=8, scheme="W8A16", group_size=32, modifiers=MODIFIERS)


@cache
def recipes():
    """The recipes of the configuration for this model, and FINE."""
    every = plan("smoke").site.config.quantizers
    found = {n: q.resolved((32, 64)) for n, q in every.items() if isinstance(q, Recipe)}
    return {**found, "fine": FINE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose channels differ in size, as those of a trained model do."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**SHAPE))
    for parameter in model.parameters():
        parameter.data *= (0.3 * torch.randn(parameter.shape[-1])).exp()
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def calibration():
    torch.manual_seed(1)
    return Calibration(torch.randint(96, (32, 32)), 16)


@pytest.fixture(scope="module")
def quantized(folder, calibration, tmp_path_factory):
    """A quantized model as it is loaded from its files, by recipe."""

    @cache
    def made(name):
        target = tmp_path_factory.mktemp(name) / "packed"
        recipes()[name].quantize(folder, calibration).save(folder, target)
        return models.load(target)

    return made


# The largest distance of logits from those in full precision, relative to their size.
APART = {"fine": 0.02, "smoothquant-w8a8": 0.03, "rotated-w4a4": 0.3}


# The seconds of AutoRound are spent on one of its widths.
@pytest.mark.parametrize("name", sorted(recipes().keys() - {"autoround-3bit"}))
def test_a_loaded_model_computes_what_its_bits_allow(name, folder, calibration, quantized):
    model, tokens = quantized(name), calibration.tokens
    with torch.no_grad():
        before, after = (each(tokens).logits for each in (models.load(folder), model))
    assert model.dtype == torch.float32
    assert 0 < float((after - before).norm() / before.norm()) < APART.get(name, 0.15)


def test_weights_in_fp8_are_those_that_torch_rounds(folder, quantized):
    exact, rounded = (models.linear_layers(m) for m in (models.load(folder), quantized("fp8")))
    for name, layer in exact.items():
        weight = layer.weight.detach()
        scale = weight.abs().amax(1, keepdim=True) / 448
        expected = (weight / scale).to(torch.float8_e4m3fn).float() * scale
        torch.testing.assert_close(rounded[name].weight.detach(), expected, rtol=1e-6, atol=0)


def test_weights_in_nvfp4_are_the_nearest_of_their_scales(folder, quantized):
    """A block of 16 has a scale in FP8, relative to one of the whole matrix."""
    points = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    points = torch.cat([-points.flip(0), points])
    exact, rounded = (
        models.linear_layers(each) for each in (models.load(folder), quantized("nvfp4-weights"))
    )
    for name, layer in exact.items():
        blocks = layer.weight.detach().unflatten(1, (-1, 16))
        largest = blocks.abs().amax(2, keepdim=True)
        unit = largest.max() / (6 * 448)
        scale = (largest / 6 / unit).to(torch.float8_e4m3fn).float() * unit
        nearest = (blocks[..., None] / scale[..., None] - points).abs().amin(-1)
        gap = (rounded[name].weight.detach().unflatten(1, (-1, 16)) - blocks).abs() / scale
        assert (gap - nearest).abs().max() < 1e-4, name


def test_weights_in_mxfp4_are_the_nearest_of_the_format(folder, quantized):
    """A reference in float64: the exponent of a block is that of its largest weight, less two."""
    points = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    points = torch.cat([-points.flip(0), points])
    exact, rounded = (
        models.linear_layers(each) for each in (models.load(folder), quantized("mxfp4"))
    )
    for name, layer in exact.items():
        blocks = layer.weight.detach().double().unflatten(1, (-1, 32))
        found = rounded[name].weight.detach().double().unflatten(1, (-1, 32))
        exponents = blocks.abs().amax(2, keepdim=True).log2().floor() - 2
        fits = []
        for power in (exponents, exponents + 1):  # the library may round the exponent up
            scaled = blocks / 2**power
            nearest = (scaled[..., None] - points).abs().amin(-1)
            fits.append(torch.isclose((found / 2**power - scaled).abs(), nearest).all(2))
        assert (fits[0] | fits[1]).all(), name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scheme": "W9A16"}, "Unknown preset scheme name W9A16"),
        ({"modifiers": ({"GptqModifier": {}},)}, "GptqModifier"),
        ({"modifiers": ({"GPTQModifier": {"damping": 1}},)}, "damping"),
    ],
)
def test_a_recipe_that_the_library_lacks_is_one_line(changes, words, folder, calibration):
    with one_line("llm-compressor does not take the recipe", words):
        FINE.model_copy(update=changes).quantize(folder, calibration)


def test_a_recipe_for_other_layers_is_one_line(calibration, tmp_path):
    plan("smoke").site.config.scale.models["moe"].create(96, 1).save_pretrained(tmp_path)
    with one_line("no recipe fits layers of"):
        FINE.quantize(tmp_path, calibration)
