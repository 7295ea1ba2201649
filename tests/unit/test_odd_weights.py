"""Weights as they are loaded, as they were measured, and as codes and scales on disk say, whatever
the dtypes and widths of the checkpoint; and values that are not finite, or all zero."""

import numpy as np
import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.quantize.layers import model_errors
from ptq_dynamics.quantize.methods.awq import Awq
from ptq_dynamics.quantize.methods.gptq import Gptq
from ptq_dynamics.quantize.methods.int8 import Int8
from ptq_dynamics.quantize.methods.rtn import Rtn
from ptq_dynamics.quantize.storage import original as originals
from safetensors.torch import load_file, save_file
from support import one_line
from tiny import TEXT, create, uneven
from transformers import BitsAndBytesConfig

pytestmark = pytest.mark.slow

WIDE = {"at_most": 128}
GPTQ = {"symmetric": True, "activation_order": None, "damping": 0.01, "block_size": 128}
AWQ = {"symmetric": False, "duo_scaling": True, "grid_points": 4}
METHODS = {
    "rtn": Rtn(method="rtn", bits=8, group_size=WIDE),
    "gptq": Gptq(method="gptq", bits=3, group_size=WIDE, **GPTQ),
    "awq": Awq(method="awq", bits=4, group_size=WIDE, **AWQ),
    "int8": Int8(method="int8", bits=8, threshold=6.0),
}
# Width and inner width.
SHAPES = {"even": (64, 256), "odd": (40, 104)}
LAYER = "gpt_neox.layers.1.mlp.dense_h_to_4h"


def checkpoint(folder, shape, dtype):
    """A checkpoint whose first block is in bfloat16 and all else in float32, where `mixed`."""
    width, inner = SHAPES[shape]
    model = uneven(create("GPTNeoX", 1, hidden_size=width, intermediate_size=inner))
    model.to(getattr(torch, "float32" if dtype == "mixed" else dtype)).save_pretrained(folder)
    if dtype == "mixed":
        tensors = models.load(folder, torch.float32).state_dict()
        first = [name for name in tensors if ".layers.0." in name]
        tensors |= {name: tensors[name].bfloat16() for name in first}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        config = (folder / "config.json").read_text()
        (folder / "config.json").write_text(config.replace("float32", "bfloat16"))
    return folder


def quantize(method, shape, folder):
    return METHODS[method].resolved(SHAPES[shape]).quantize(folder, TEXT)


def with_layer(folder, change):
    """The checkpoint with other weights of one layer."""
    checkpoint(folder, "even", "float32")
    tensors = load_file(folder / "model.safetensors")
    change(tensors[f"{LAYER}.weight"])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("method", ["fp", *(name for name in METHODS if name != "int8")])
def test_a_value_that_is_not_finite_is_named(method, value, tmp_path):
    folder = with_layer(tmp_path / "step-0000190", lambda weight: weight[3, 5].fill_(value))
    with one_line(f"step-0000190: {LAYER}.weight has values that are not finite"):
        models.load(folder) if method == "fp" else quantize(method, "even", folder)


@pytest.mark.parametrize("method", METHODS)
def test_a_layer_of_zeros_has_no_errors(method, tmp_path):
    folder = with_layer(tmp_path / "source", lambda weight: weight.zero_())
    found, model = quantize(method, "even", folder).weights, models.load(folder)
    errors = model_errors(model, originals(folder, model), found, TEXT.batches())
    assert set(errors[LAYER].values()) == {0.0}
    assert all(np.isfinite([*each.values()]).all() for each in errors.values())


@pytest.mark.parametrize(
    ("shape", "dtype"), [("even", "bfloat16"), ("odd", "float16"), ("odd", "mixed")]
)
@pytest.mark.parametrize("method", METHODS)
def test_weights_on_disk_are_those_that_were_measured(method, shape, dtype, tmp_path):
    folder = checkpoint(tmp_path / "source", shape, dtype)
    result = quantize(method, shape, folder)
    result.save(folder, tmp_path / "target")
    state = models.dequantized(tmp_path / "target")
    model = models.load(folder, torch.float32)
    original = model.state_dict()
    for layer, measured in result.weights.items():
        weight = original[f"{layer}.weight"]
        assert (measured.float() - weight).square().sum() < 0.15 * weight.square().sum(), layer
        weight.copy_(measured)
    # LLM.int8 is bitsandbytes' own, in the dtype that the configuration names.
    if (method, dtype) != ("int8", "mixed"):
        assert all(torch.equal(state[name], value) for name, value in original.items())
    if method == "int8":  # as transformers itself makes it
        options = {"load_in_8bit": True, "llm_int8_skip_modules": ["lm_head"]}
        options["llm_int8_threshold"] = METHODS[method].threshold
        model = models.load(
            folder, torch.float32, quantization_config=BitsAndBytesConfig(**options)
        )
    # AWQ saves the rescaled model: the same function but for the rounding of its sums.
    found, expected = (
        models.block_losses(each, TEXT.tokens, 8)
        for each in (models.load(tmp_path / "target"), model)
    )
    torch.testing.assert_close(found, expected, rtol=2e-6 if method == "awq" else 0, atol=0)
