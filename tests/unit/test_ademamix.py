"""AdEMAMix against the equations of its paper, in real runs, and as configuration has it."""

import math
from dataclasses import asdict
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus.tokens import TrainingData
from ptq_dynamics.train.optimizers.ademamix import AdEMAMix
from ptq_dynamics.train.train import Trainer
from safetensors.torch import load_file
from support import (
    Workspace,
    copy_results,
    edit_yaml,
    plan,
    tiny_config,
)
from torch.nn.functional import cross_entropy

CHOSEN = {"betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1, "beta3": 0.999, "alpha": 8.0}
CHOSEN |= {"kind": "ademamix", "t_alpha_beta3": "1/10"}
BUDGET = 400  # steps


# Equations


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"t_alpha_beta3": None}, {"t_alpha_beta3": "1/2"}, {"weight_decay": 0.0}],
    ids=["scheduled", "not-scheduled", "scheduled-to-the-end", "without-decay"],
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


@pytest.mark.parametrize("horizon", [1, 7, 40, 10_000])
def test_the_slow_mean_comes_up_as_the_paper_says(horizon):
    """The weight linearly from 0, the half-life linearly from the fast mean's; then both stay."""
    settings = AdEMAMix(**{**CHOSEN, "t_alpha_beta3": f"{horizon}/10000"})
    paper = Paper({}, settings, 10_000)
    half_lives = []
    for _ in range(horizon + 3):
        paper.count += 1
        alpha, beta3 = settings.slow(paper.count, 10_000)
        assert alpha == pytest.approx(paper.alpha(), rel=1e-12)
        assert beta3 == pytest.approx(paper.beta3(), rel=1e-12)
        half_lives.append(math.log(0.5) / math.log(beta3))
    assert settings.slow(horizon, 10_000) == (8.0, 0.999)
    assert settings.slow(10 * horizon, 10_000) == (8.0, 0.999)
    first, last = math.log(0.5) / math.log(0.9), math.log(0.5) / math.log(0.999)
    for count, found in enumerate(half_lives[:horizon], start=1):
        assert found == pytest.approx(first + (last - first) * count / horizon, rel=1e-9)


@given(st.floats(0.0, 0.99), st.floats(0.0, 1.0), st.integers(1, 100), st.integers(1, 200))
def test_the_slow_mean_never_forgets_faster_than_the_fast_one(beta1, more, horizon, count):
    beta3 = max(beta1, 0.5) + more * (0.9999 - max(beta1, 0.5))
    changes = {"betas": (beta1, 0.9), "beta3": beta3, "t_alpha_beta3": f"{horizon}/100"}
    alpha, found = AdEMAMix(**{**CHOSEN, **changes}).slow(count, 100)
    assert 0 < alpha <= 8 and beta1 * (1 - 1e-12) <= found <= beta3 * (1 + 1e-12)


@given(st.floats(1e-4, 1e-2), st.floats(0.01, 1.0), st.floats(0.0, 0.5))
def test_weight_decay_alone_moves_matrices_and_nothing_else(peak, share, decay):
    model = torch.nn.Linear(3, 2).double()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    settings = AdEMAMix(**{**CHOSEN, "weight_decay": decay})
    optimizer = settings.make(model, BUDGET)
    settings.set_rate(optimizer, share * peak, peak)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    factor = 1 - share * peak * decay
    assert torch.allclose(model.weight, before["weight"] * factor, rtol=1e-14, atol=0)
    assert torch.equal(model.bias, before["bias"])


# Runs


@pytest.fixture
def make(workspace, corpus, tmp_path):
    """Trainers of the trunk with this optimizer, each in a folder of its own."""
    count, settings = iter(range(100)), workspace.plan.trajectories.train("trunk").settings

    def do(**changes):
        out = tmp_path / f"out-{next(count)}"
        out.mkdir()
        mix = {"optimizer": AdEMAMix(**CHOSEN), "budget": BUDGET, "clip": 0.5, **changes}
        found = settings.model_copy(update=mix)
        return Trainer(found, out, corpus.subfolder("tokenizer"))

    return do


@pytest.fixture
def data(workspace, corpus):
    settings = workspace.plan.trajectories.train("trunk").settings
    return TrainingData(corpus, settings.context, settings.batch, settings.seed)


def test_a_trainers_updates_are_those_of_the_paper(make, data):
    trainer = make()
    settings = trainer.settings
    twin = settings.model.create(settings.vocabulary, settings.seed).double()
    parameters = dict(twin.named_parameters())
    start = {name: value.detach().clone() for name, value in parameters.items()}
    paper = Paper(start, AdEMAMix(**CHOSEN))
    for step in range(8):
        rate, batch = trainer.rate, data.at(step)
        logits = twin(batch[:, :-1], use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        norm = math.sqrt(sum(float(each.square().sum()) for each in gradients))
        found, found_norm = trainer.update(batch)
        assert float(found) == pytest.approx(loss.item(), rel=1e-5)
        assert float(found_norm) == pytest.approx(norm, rel=1e-4)
        clipped = [each * min(1.0, 0.5 / norm) for each in gradients]
        paper.update(dict(zip(parameters, clipped, strict=True)), rate)
        twin.load_state_dict(paper.weights, strict=False)
    for name, expected in paper.weights.items():
        moved = (expected - start[name]).norm()
        off = (trainer.model.state_dict()[name].double() - expected).norm()
        assert off <= 2e-3 * moved, (name, float(off), float(moved))


def test_a_saved_state_goes_on_to_the_same_bits(make, data, tmp_path):
    """In the middle of what comes up."""
    one, other = make(), make()
    for step in range(5):
        one.update(data.at(step))
    one.save(tmp_path / "state-0000005.safetensors")
    other.load(tmp_path / "state-0000005.safetensors")
    states = []
    for trainer in (one, other):
        for step in range(5, 9):
            trainer.update(data.at(step))
        trainer.save(tmp_path / "end")
        states.append(load_file(tmp_path / "end"))
    assert states[0].keys() == states[1].keys() and len(states[0]) > 50
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert {int(v) for name, v in states[0].items() if name.endswith(".step")} == {9}


def test_counts_of_updates_stay_whole_numbers():
    model = torch.nn.Linear(2, 2).bfloat16()
    optimizer = AdEMAMix(**CHOSEN).make(model, BUDGET)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    saved, large = optimizer.state_dict(), 2**24 + 1
    for moments in saved["state"].values():
        moments["step"] = torch.tensor(large)
    optimizer.load_state_dict(saved)
    optimizer.step()
    counts = [int(moments["step"]) for moments in optimizer.state_dict()["state"].values()]
    assert counts == [large + 1] * 2


RUNS = {
    "mixed": {
        **{"schedule": "constant", "peak_lr": 1e-2, "length": "12/190", "warmup": "3/190"},
        **{"checkpoint_every": "4/190", "state_every": "4/190"},
    },
    "mixed-decay": {"trunk": "mixed", "at": "8/190", "cooldown": "4/190"},
}
KIND = {"kind": "ademamix", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
KIND |= {"beta3": 0.9999, "alpha": 8}


def planned(folder, **optimizer):
    config = tiny_config(folder)
    entry = {**RUNS["mixed"], "optimizer": {**KIND, **optimizer}}
    edit_yaml(config / "runs.yaml", lambda c: c["runs"].update({**RUNS, "mixed": entry}))
    return plan("smoke", config)


def test_a_branch_is_one_uninterrupted_run_bit_for_bit(workspace, corpus, tmp_path):
    """As jobs that configuration plans: a cooldown takes up all of its trunk's optimizer."""
    here = Workspace(tmp_path, planned(tmp_path, t_alpha_beta3="10/190"))
    copy_results(workspace.folder, tmp_path, [here.plan.corpora.corpus("main").folder])
    trunk, branch = (here.plan.trajectories.train(name) for name in RUNS)
    assert trunk.settings.optimizer.t_alpha_beta3 == Fraction(10, 190)
    here.build(trunk)
    made = here.build(branch)
    single = Workspace(tmp_path / "single", here.plan)
    copy_results(tmp_path, single.folder, [here.plan.corpora.corpus("main").folder])
    whole = single.build(trunk, schedule=asdict(branch.settings.schedule))
    file = "step-0000012/model.safetensors"
    one, other = (load_file(built.folder / file) for built in (made, whole))
    assert all(torch.equal(one[name], other[name]) for name in one) and one.keys() == other.keys()
    before = load_file(made.folder / "step-0000008/model.safetensors")
    assert not any(torch.equal(one[name], before[name]) for name in one)


# Configuration


def test_a_scale_changes_the_weight_decay_alone():
    """The memory of the slow mean is written for a scale; its rise is a share of the budget."""
    found = AdEMAMix(**{**KIND, "t_alpha_beta3": "19/190"})
    assert found.scaled(5, 0.5) == found.model_copy(update={"weight_decay": 0.05})
    assert found.per_step(1e-3, 1e-2) == pytest.approx(1e-4) and found.named_by == 0.1
    assert found.slow(95, 1900)[0] == 4 and found.slow(190, 1900) == (8, 0.9999)
    assert AdEMAMix(**KIND).lasting(Fraction(1, 2)).t_alpha_beta3 is None
    assert found.lasting(Fraction(1, 2)).t_alpha_beta3 == Fraction(1, 2)


REFUSED = {
    "faster than the fast one": (
        {"beta3": 0.8},
        ["optimizer", "beta3 0.8 forgets faster than the first of betas, 0.9; raise it"],
    ),
    "no decay rate": ({"beta3": 1.0}, ["optimizer.beta3 is 1.0", "less than 1"]),
    "negative": ({"alpha": -1}, ["optimizer.alpha is -1", "greater than or equal to 0"]),
    "a number of steps": (
        {"t_alpha_beta3": 100},
        ["optimizer.t_alpha_beta3 is 100", "less than or equal to 1"],
    ),
    "unknown": ({"alpha3": 5}, ["optimizer.alpha3: unknown key; did you mean 'alpha'?"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_make_no_sense_are_refused_in_one_line(tmp_path, case):
    changes, words = REFUSED[case]
    with pytest.raises(Problem) as caught:
        planned(tmp_path, **changes)
    message = str(caught.value)
    assert "\n" not in message
    for word in ["config/runs.yaml: runs.mixed.", *words]:
        assert word in message, message
