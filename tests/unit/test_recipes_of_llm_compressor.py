"""Recipes of llm-compressor: what is saved of a rotated, smoothed or floating-point model."""

from functools import cache

import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.quantize.methods.recipe import Recipe
from support import one_line, plan
from tiny import TEXT, create, save

pytestmark = pytest.mark.slow

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
    model = create("GPTNeoX")
    for parameter in model.parameters():
        parameter.data *= (0.3 * torch.randn(parameter.shape[-1])).exp()
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def quantized(folder, tmp_path_factory):
    """A quantized model as it is loaded from its files, by recipe."""

    @cache
    def made(name):
        target = tmp_path_factory.mktemp(name) / "packed"
        recipes()[name].quantize(folder, TEXT).save(folder, target)
        return models.load(target)

    return made


# The largest distance of logits from those in full precision, relative to their size.
APART = {"fine": 0.02, "smoothquant-w8a8": 0.03, "rotated-w4a4": 0.3}


# The seconds of AutoRound are spent on one of its widths.
@pytest.mark.parametrize("name", sorted(recipes().keys() - {"autoround-3bit"}))
def test_a_loaded_model_computes_what_its_bits_allow(name, folder, quantized):
    model, tokens = quantized(name), TEXT.tokens
    with torch.no_grad():
        before, after = (each(tokens).logits for each in (models.load(folder), model))
    assert model.dtype == torch.float32
    assert 0 < float((after - before).norm() / before.norm()) < APART.get(name, 0.15)


def test_autoround_takes_models_whose_mask_is_lost_while_tracing(tmp_path):
    made = recipes()["autoround-4bit"].quantize(save(tmp_path / "model", "Mistral"), TEXT)
    assert len(made.weights) == 14


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
FP8 = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double()


def scales_of_fp8(largest):
    yield largest / 448


def scales_of_nvfp4(largest):
    """The scale of a block in FP8, relative to one of the whole matrix."""
    unit = largest.max() / (6 * 448)
    yield (largest / 6 / unit).to(torch.float8_e4m3fn).double() * unit


def scales_of_mxfp4(largest):
    """The exponent of the largest weight, less two; the library may round it up."""
    exponent = largest.log2().floor()
    yield from (2 ** (exponent - 2), 2 ** (exponent - 1))


@pytest.mark.parametrize(
    ("recipe", "size", "points", "scales_of"),
    [
        ("fp8", None, FP8, scales_of_fp8),
        ("nvfp4-weights", 16, FP4, scales_of_nvfp4),
        ("mxfp4", 32, FP4, scales_of_mxfp4),
    ],
)
def test_weights_in_floats_are_the_nearest_of_their_scales(
    folder, quantized, recipe, size, points, scales_of
):
    """By a reference in float64; scales of FP8 are those of rows."""
    exact, rounded = (models.linear_layers(m) for m in (models.load(folder), quantized(recipe)))
    for name, layer in exact.items():
        blocks, found = (
            each.weight.detach().double().unflatten(1, (-1, size or each.in_features))
            for each in (layer, rounded[name])
        )
        fits = []
        for scale in scales_of(blocks.abs().amax(2, keepdim=True)):
            nearest = ((blocks / scale).abs()[..., None] - points).abs().amin(-1)
            fits.append(((found - blocks).abs() / scale - nearest).abs().amax(2) < 1e-4)
        assert torch.stack(fits).any(0).all(), name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scheme": "W9A16"}, "Unknown preset scheme name W9A16"),
        ({"modifiers": ({"GptqModifier": {}},)}, "GptqModifier"),
        ({"modifiers": ({"GPTQModifier": {"damping": 1}},)}, "damping"),
    ],
)
def test_a_recipe_that_the_library_lacks_is_one_line(changes, words, folder):
    with one_line("llm-compressor does not take the recipe", words):
        FINE.model_copy(update=changes).quantize(folder, TEXT)


def test_a_recipe_for_other_layers_is_one_line(tmp_path):
    plan("smoke").site.config.scale.models["moe"].create(96, 1).save_pretrained(tmp_path)
    with one_line("no recipe fits layers of"):
        FINE.quantize(tmp_path, TEXT)
