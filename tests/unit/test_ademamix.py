"""AdEMAMix against another implementation, and as configuration has it."""

from copy import deepcopy
from fractions import Fraction

import pytest
import torch
from bitsandbytes.optim.ademamix import _ReferenceAdEMAMix as Reference
from ptq_dynamics.train.optimizers.ademamix import AdEMAMix
from transformers import LlamaConfig, LlamaForCausalLM

CHOSEN = {"betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1, "beta3": 0.999, "alpha": 8.0}
CHOSEN |= {"kind": "ademamix", "t_alpha_beta3": "1/10"}
BUDGET = 400  # steps


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        (torch.float32, {}),
        (torch.float64, {"t_alpha_beta3": None}),
        (torch.float64, {"t_alpha_beta3": "1/2"}),
    ],
)
def test_updates_are_those_of_another_implementation(dtype, changes):
    """In float64, by bitsandbytes; biases have no weight decay."""
    settings = AdEMAMix(**{**CHOSEN, **changes})
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 5).to(dtype)
    twin = deepcopy(model).double()
    optimizer, share = settings.make(model, BUDGET), settings.t_alpha_beta3
    rises = dict.fromkeys(("t_alpha", "t_beta3"), share and int(share * BUDGET))
    groups = [{"params": [twin.weight]}, {"params": [twin.bias], "weight_decay": 0.0}]
    betas, rest = (*settings.betas, settings.beta3), {"alpha": settings.alpha, "eps": settings.eps}
    theirs = Reference(groups, betas=betas, weight_decay=settings.weight_decay, **rest, **rises)
    start = twin.weight.detach().clone()
    for step in range(80):
        rate = 1e-2 * min(1, (step + 1) / 10) * (1 - step / 100)
        settings.set_rate(optimizer, rate, 1e-2)
        for group in theirs.param_groups:
            group["lr"] = rate
        for ours, other in zip(model.parameters(), twin.parameters(), strict=True):
            ours.grad = torch.randn(ours.shape).to(dtype)
            other.grad = ours.grad.double()
        optimizer.step()
        theirs.step()
        close = {torch.float64: 1e-12, torch.float32: 2e-6}[dtype]
        for ours, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.allclose(ours.double(), other, rtol=0, atol=close), step
    assert (twin.weight - start).abs().max() > 0.1, "or any small update would do"


def test_a_scale_changes_the_weight_decay_alone():
    """The memory of the slow mean is written for a scale; its rise is a share of the budget."""
    found = AdEMAMix(**{**CHOSEN, "t_alpha_beta3": "19/190"})
    assert found.scaled(5, 0.5) == found.model_copy(update={"weight_decay": 0.05})
    assert found.per_step(1e-3, 1e-2) == pytest.approx(1e-4)
    assert found.slow(95, 1900)[0] == 4 and found.slow(190, 1900) == (8, 0.999)
    never = AdEMAMix(**{**CHOSEN, "t_alpha_beta3": None})
    assert never.lasting(Fraction(1, 2)).t_alpha_beta3 is None
    assert found.lasting(Fraction(1, 2)).t_alpha_beta3 == Fraction(1, 20)


def test_of_all_matrices_an_exempt_embedding_alone_has_no_decay():
    sizes = {"hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1}
    for tied in (False, True):
        model = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=tied))
        still = AdEMAMix(**CHOSEN, exempt=["vectors", "embedding"]).groups(model)[1]["params"]
        (matrix,) = (each for each in still if each.ndim > 1)
        assert matrix is model.get_input_embeddings().weight
