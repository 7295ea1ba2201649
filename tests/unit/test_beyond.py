"""Objectives, optimizers and laws beyond the paper, and how their figures are chosen."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from ptq_dynamics.claims import beyond
from ptq_dynamics.config import load
from ptq_dynamics.figures.law import LAWS, features, held_out, off
from ptq_dynamics.models import linear_layers
from ptq_dynamics.quantize.layers import round_to_nearest
from ptq_dynamics.train.objectives import Slope, flat, quantized
from ptq_dynamics.train.objectives.language import Language
from ptq_dynamics.train.optimizers.muon import Muon
from support import ROOT
from torch.linalg import svdvals


@pytest.fixture
def model(workspace):
    settings = workspace.plan.trajectories.train("trunk").settings
    return settings.model.create(settings.vocabulary, 1).double()


@pytest.fixture
def rows(workspace):
    settings = workspace.plan.trajectories.train("trunk").settings
    return torch.randint(settings.vocabulary, (4, 9), generator=torch.manual_seed(1))


def gradients(objective, model, rows):
    model.zero_grad()
    objective.loss(model, rows, None).backward()
    return [each.grad.clone() for each in model.parameters()]


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_sharpness_aware_gradients_are_those_at_a_distance(model, rows, share):
    plain = Language()
    here, weights = gradients(plain, model, rows), [*model.parameters()]
    norm = sum((each**2).sum() for each in here) ** 0.5
    with torch.no_grad():
        for weight, slope in zip(weights, here, strict=True):
            weight += 0.5 * slope / norm
    away = gradients(plain, model, rows)
    with torch.no_grad():
        for weight, slope in zip(weights, here, strict=True):
            weight -= 0.5 * slope / norm
    objective = flat.SharpnessAware(kind="sharpness-aware", radius=0.5, share=share)
    names = [name for name, _ in model.named_parameters()]
    slope = Slope(torch.tensor(7.0), dict(zip(names, here, strict=True)), rows[:, 1:].numel())
    model.zero_grad()
    objective.sloped_loss(model, rows, slope).backward()
    for weight, one, other in zip(weights, away, here, strict=True):
        torch.testing.assert_close(weight.grad, share * one + (1 - share) * other)


@pytest.mark.parametrize("bits", [2, 4])
def test_quantization_aware_gradients_are_those_at_rounded_weights(model, rows, bits):
    objective = quantized.QuantizationAware(kind="quantization-aware", bits=bits, at_most=16)
    slopes = gradients(objective, model, rows)
    for layer in linear_layers(model).values():
        weight = layer.weight.detach()
        _, scales = round_to_nearest(weight, bits, 16)
        grid = QuantizationArgs(num_bits=bits, symmetric=True, strategy="group", group_size=16)
        zeros = torch.zeros_like(scales, dtype=torch.int8)
        torch.testing.assert_close(
            fake_quantize(weight, scales, zeros, grid), quantized.fake(weight, bits, 16)
        )
        layer.weight.data = quantized.fake(weight, bits, 16)
    for one, other in zip(slopes, gradients(Language(), model, rows), strict=True):
        torch.testing.assert_close(one, other)


def test_label_noise_replaces_its_share_of_targets_and_follows_from_the_batch():
    rows = torch.randint(300, (8, 1025), generator=torch.manual_seed(2))
    batches = flat.Noisy(SimpleNamespace(at=lambda step: rows), 0.1)
    tokens, targets = batches.at(3).unbind(dim=1)
    assert torch.equal(tokens, rows) and torch.equal(batches.at(3, [5, 2])[:, 1], targets[[5, 2]])
    changed = (targets != rows).double()
    assert changed[:, 0].sum() == 0
    assert changed[:, 1:].mean() == pytest.approx(0.1, abs=0.01)


def test_muon_moves_matrices_along_all_directions(model, rows):
    optimizer = Muon(kind="muon", weight_decay=0.0, betas=(0.9, 0.95), eps=1e-8, momentum=0.9)
    name = next(n for n, each in model.named_parameters() if "dense_h_to_4h.weight" in n)
    matrix = dict(model.named_parameters())[name]
    made, before = optimizer.make(model, 10), matrix.detach().clone()
    optimizer.set_rate(made, 0.01, 0.01)
    for each, slope in zip(model.parameters(), gradients(Language(), model, rows), strict=True):
        each.grad = slope
    made.step()
    values = svdvals(matrix.detach() - before)
    # Most directions move alike, however small their gradients are.
    assert values.quantile(0.25) > values.max() / 2


def test_a_law_is_judged_on_runs_that_it_has_not_seen():
    random = np.random.default_rng(1)
    seen, lr = 10 ** random.uniform(6, 8, 60), random.uniform(0, 1e-3, 60)
    table = pd.DataFrame({"tokens": seen, "lr": lr})
    table = table.assign(peak=np.repeat([1e-3, 3e-3, 1e-2], 20), loss=random.uniform(2, 3, 60))
    groups = [str(peak) for peak in table.peak]
    x = features(table)
    errors = 10 ** (-3 + 0.2 * x.tokens - 0.5 * x.peak + 0.4 * x.decayed).to_numpy()
    factors = {law: off(held_out(x, law, groups, errors), errors) for law in LAWS}
    assert factors.pop("schedule") == pytest.approx(1) and min(factors.values()) > 1.3
    # What a group has does not reach the prediction for it.
    other = np.where(np.asarray(groups) == "0.001", 9.0, errors)
    found = [held_out(x, "tokens", groups, each)[:20] for each in (errors, other)]
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize("figures", ["all", "beyond", "fig04 beyond"])
def test_a_group_of_figures_is_chosen_by_its_name(figures):
    config = load({"scale": "laptop", "seed": 1, "figures": figures}, ROOT / "config")
    chosen = {name for name in config.chosen if name.startswith("beyond-")}
    every = {name for name, figure in config.figures.items() if figure.group == "beyond"}
    assert chosen == (every if "beyond" in figures else set())
    assert config.is_whole == ("all" in figures)
    assert ("fig04" in config.chosen) == (figures != "beyond")


def test_bits_below_which_an_average_wins_are_those_of_a_line_or_unknown():
    nets = np.array([[-0.2, 0.1, -0.3, np.nan], [0.1, 0.2, -0.2, np.nan], [0.3, 0.3, -0.1, 1.0]])
    crossed = beyond._crossing(nets)
    assert crossed[:3] == pytest.approx([2 + 0.2 / 0.3, 2, 4]) and np.isnan(crossed[3])
