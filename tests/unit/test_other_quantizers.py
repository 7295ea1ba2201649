"""AWQ: which layers it scales, and that its scales leave the function of the model as it is."""

import pytest
import torch
from ptq_dynamics import models
from ptq_dynamics.models.packed import unscaled_weight
from ptq_dynamics.quantize.methods import Calibration
from ptq_dynamics.quantize.methods.awq import Awq
from tiny import create

pytestmark = pytest.mark.slow

GROUP = 32
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_key_value_heads": 4}
AWQ = Awq(method="awq", bits=4, group_size=GROUP, symmetric=True, duo_scaling=True, grid_points=12)
# In a Llama, linear layers come before others that AWQ scales.
LLAMA = {f"{each}_proj" for each in ("q", "k", "v", "o", "gate", "up", "down")}


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
    return model


@pytest.mark.parametrize(
    ("kind", "symmetric", "layers"),
    [
        ("GPTNeoX", True, {"query_key_value", "dense_h_to_4h"}),
        ("Llama", True, LLAMA),
        ("Llama", False, LLAMA),
    ],
)
def test_awq_scaled_back_is_the_librarys_model_on_its_grid(kind, symmetric, layers, tmp_path):
    roughen(create(kind, **SHAPE)).save_pretrained(tmp_path)
    # Some tokens are frequent.
    tokens = (torch.rand(64, 32, generator=torch.manual_seed(3)) ** 2 * 96).long()
    model, original = models.load(tmp_path), models.load(tmp_path)
    method = AWQ.model_copy(update={"symmetric": symmetric})
    grids, scaling = method.smooth(model, Calibration(tokens, 16))
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
        ours, theirs = original(tokens).logits, model(tokens).logits
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()
