"""AdEMAMix against the equations of its paper, and as configuration has it."""

import math
from fractions import Fraction

import pytest
import torch
from ptq_dynamics.train.optimizers.ademamix import AdEMAMix
from transformers import LlamaConfig, LlamaForCausalLM

CHOSEN = {"betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1, "beta3": 0.999, "alpha": 8.0}
CHOSEN |= {"kind": "ademamix", "t_alpha_beta3": "1/10"}
BUDGET = 400  # steps


class Paper:
    """Algorithm 1 of arXiv 2409.03137 with its schedulers (section 3), in float64."""

    def __init__(self, start, settings, budget=BUDGET):
        self.settings, self.count = settings, 0
        share = settings.t_alpha_beta3
        self.horizon = None if share is None else share * budget
        self.weights = {name: value.double() for name, value in start.items()}
        zeros = {name: torch.zeros_like(value) for name, value in self.weights.items()}
        self.m1, self.m2, self.nu = dict(zeros), dict(zeros), dict(zeros)

    def alpha(self):
        horizon = self.horizon
        if horizon is None:
            return self.settings.alpha
        return min(self.count * self.settings.alpha / horizon, self.settings.alpha)

    def beta3(self):
        horizon, beta3 = self.horizon, self.settings.beta3
        if horizon is None:
            return beta3
        done = self.count / horizon
        log3, log_start = math.log(beta3), math.log(self.settings.betas[0])
        grown = math.exp(log_start * log3 / ((1 - done) * log3 + done * log_start))
        return min(grown, beta3)

    def update(self, gradients, rate):
        self.count += 1
        beta1, beta2 = self.settings.betas
        alpha, beta3 = self.alpha(), self.beta3()
        for name, gradient in gradients.items():
            self.m1[name] = beta1 * self.m1[name] + (1 - beta1) * gradient
            self.m2[name] = beta3 * self.m2[name] + (1 - beta3) * gradient
            self.nu[name] = beta2 * self.nu[name] + (1 - beta2) * gradient**2
            mean = self.m1[name] / (1 - beta1**self.count)
            spread = (self.nu[name] / (1 - beta2**self.count)).sqrt()
            weight = self.weights[name]
            moved = (mean + alpha * self.m2[name]) / (spread + self.settings.eps)
            decay = self.settings.weight_decay if weight.ndim >= 2 else 0.0
            self.weights[name] = weight - rate * (moved + decay * weight)


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        (torch.float32, {}),
        (torch.float64, {"t_alpha_beta3": None}),
        (torch.float64, {"t_alpha_beta3": "1/2"}),
    ],
)
def test_updates_are_those_of_the_paper(dtype, changes):
    settings = AdEMAMix(**{**CHOSEN, **changes})
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 5).to(dtype)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer, paper = settings.make(model, BUDGET), Paper(start, settings)
    for step in range(80):
        rate = 1e-2 * min(1, (step + 1) / 10) * (1 - step / 100)
        settings.set_rate(optimizer, rate, 1e-2)
        gradients = {}
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn(parameter.shape).to(dtype)
            gradients[name] = parameter.grad.double()
        optimizer.step()
        paper.update(gradients, rate)
        close = {torch.float64: 1e-12, torch.float32: 2e-6}[dtype]
        for name, parameter in model.named_parameters():
            expected = paper.weights[name]
            assert torch.allclose(parameter.double(), expected, rtol=0, atol=close), (step, name)
    moved = max(float((paper.weights[n] - start[n].double()).abs().max()) for n in start)
    assert moved > 0.1, "or any small update would do"


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
