"""Curvature: products with the Hessian against differences of gradients, estimators against a dense
Hessian and known matrices, and planes and principal components against their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ptq_dynamics.curvature import spectrum
from ptq_dynamics.curvature.components import pca
from ptq_dynamics.curvature.hessian import LossHessian, gaussian
from ptq_dynamics.curvature.landscape import plane
from ptq_dynamics.curvature.sharpness import hutchinson_trace, top_eigenvalue
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(seed, *shape):
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


# The Hessian


def small():
    """A model in float64, its text, and its parameters in the order of names."""
    torch.manual_seed(0)
    shape = {"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = GPTNeoXConfig(**shape, intermediate_size=16, attn_implementation="eager")
    model, probes = GPTNeoXForCausalLM(config).double().eval(), torch.randint(16, (5, 10))
    ordered = dict(sorted(model.named_parameters()))
    start = parameters_to_vector(ordered.values()).detach()
    vector_to_parameters(start + 0.3 * normal(1, len(start)), ordered.values())
    return model, probes, ordered


@pytest.mark.parametrize(("batch_size", "keep_graph"), [(1, True), (2, False), (5, True)])
def test_products_are_differences_of_gradients(batch_size, keep_graph):
    """Of the loss that transformers gives, at two points in the direction."""
    model, probes, ordered = small()
    product = LossHessian(model, probes, batch_size, keep_graph=keep_graph)
    middle = parameters_to_vector(ordered.values()).detach()
    assert len(product.like) == len(middle) and product.like.dtype == torch.float64
    vector = normal(2, len(middle))
    found, ends = product(vector), []
    assert product.form(vector).mean() == pytest.approx(float(vector @ found), rel=1e-9)
    for way in (1e-4, -1e-4):
        vector_to_parameters(middle + way * vector, ordered.values())
        slopes = torch.autograd.grad(model(probes, labels=probes).loss, [*ordered.values()])
        ends.append(parameters_to_vector(slopes))
    expected = (ends[0] - ends[1]) / 2e-4
    assert (found - expected).norm() < 1e-3 * expected.norm()


@pytest.mark.slow
def test_curvature_of_a_small_model_is_that_of_its_exact_hessian():
    model, probes, ordered = small()
    sizes = [value.numel() for value in ordered.values()]

    def loss(vector):
        parts = zip(ordered, vector.split(sizes), strict=True)
        state = {name: part.view_as(ordered[name]) for name, part in parts}
        return functional_call(model, state, (probes,), {"labels": probes}).loss

    # Row by row: vectorized, layer norm has a wrong second derivative.
    dense = hessian(loss, parameters_to_vector(ordered.values()).detach())
    values = torch.linalg.eigvalsh(dense)
    exact = values[values.abs().argsort(descending=True)]
    product, limits = LossHessian(model, probes, 5, keep_graph=True), {"tolerance": 1e-6}
    start = gaussian(product.like, seeded())
    found = top_eigenvalue(product, start, **limits, max_iterations=500)
    assert found.value == pytest.approx(exact[0].item(), rel=1e-6)
    leading = spectrum.top_spectrum(
        product, product.like, 25, seeded(), **limits, max_iterations=300
    )
    torch.testing.assert_close(leading.values, exact[:25], rtol=1e-6, atol=0)
    mean, error = hutchinson_trace(product.form, product.like, 256, seeded())
    assert abs(mean - dense.trace().item()) < 4 * error < 0.1 * exact.abs().sum()


def symmetric(values, seed=3):
    """A matrix with these eigenvalues in random directions."""
    values = torch.as_tensor(values, dtype=torch.float64)
    basis = torch.linalg.qr(normal(seed, len(values), len(values))).Q
    return basis @ torch.diag(values) @ basis.T


def test_dominant_negative_eigenvalue_keeps_its_sign():
    matrix = symmetric([-5.0, 3.0, 2.0, 1.0, 0.5, 0.0])
    start = gaussian(matrix[0], seeded())
    found = top_eigenvalue(matrix.mv, start, tolerance=1e-8, max_iterations=200)
    assert found.residual <= 1e-8
    assert found.value == pytest.approx(-5, rel=1e-12)
    error = (matrix @ found.vector - found.value * found.vector).norm().item() / 5
    assert found.residual == pytest.approx(error, rel=1e-6)


def test_trace_standard_error_has_both_samples():
    """Text that differs, with vectors that do not matter."""
    parts = torch.tensor([1.0, 2.0, 6.0, 7.0], dtype=torch.float64)
    mean, error = hutchinson_trace(lambda z: parts, parts[:3], 8, seeded())
    assert mean == 4.0
    assert error == pytest.approx(math.sqrt((9 + 4 + 4 + 9) / 3 / 4))


# Lanczos in bounded memory: what a restart may change


@pytest.mark.parametrize(("k", "extra"), [(1, 0), (5, 10), (20, 1)])
def test_restarts_lead_to_the_same_eigenvalues(k, extra, monkeypatch):
    outer = torch.cat([torch.linspace(4, 9, 30), -torch.linspace(3.5, 8.5, 30)])
    matrix = symmetric(torch.cat([outer, torch.linspace(-3, 3, 200)]))
    exact = outer[outer.abs().argsort(descending=True)][:k].double()
    vectors = max(2 * k + 1, 16) + extra
    monkeypatch.setattr(spectrum, "BASIS_BYTES", vectors * len(matrix) * matrix.dtype.itemsize)
    limits = {"tolerance": 1e-9, "max_iterations": 400}
    found = spectrum.top_spectrum(matrix.mv, matrix[0], k, seeded(), **limits)
    assert found.iterations > vectors, "no restart was tested"
    assert (found.residuals <= 1e-9).all(), (found.iterations, found.residuals)
    torch.testing.assert_close(found.values, exact, rtol=1e-9, atol=0)
    error = matrix @ found.top - found.values[0] * found.top
    assert (error.norm() / exact[0].abs()).item() <= 1e-9 + found.residuals[0].item()


# Planes and principal components


seeds = st.integers(0, 2**32 - 1)
scales = st.floats(-4, 4).map(lambda power: 10.0**power)


@settings(deadline=None)
@given(seeds, st.integers(2, 300), scales, scales, st.booleans())
def test_plane_passes_through_its_points(seed, size, training, quantization, single):
    origin, step, error = normal(seed, 3, size)
    thetas = torch.stack([origin, origin + training * step, origin + quantization * error])
    if single:
        thetas = thetas.float()
    offsets = thetas.double()[1:] - thetas.double()[0]
    cosine = torch.nn.functional.cosine_similarity(offsets[0], offsets[1], dim=0).item()
    assume(offsets.norm(dim=1).min() > 0 and abs(cosine) < 0.999)
    found = plane(*thetas)
    gram = torch.stack([found.u, found.v]) @ torch.stack([found.u, found.v]).T
    assert (gram - torch.eye(2)).abs().max() < 1e-12, gram
    for theta, (x, y) in zip(thetas.double(), found.points.tolist(), strict=True):
        gap = (found.origin + x * found.u + y * found.v - theta).norm().item()
        assert gap < 1e-10 * max(1.0, theta.norm().item()), f"{gap} off at ({x}, {y})"
    lengths = [found.training_distance, found.quantization_distance]
    assert lengths == pytest.approx(offsets.norm(dim=1).tolist(), rel=1e-12)
    (x0, y0), (x1, y1), (x2, y2) = found.points.tolist()
    assert (x0, y0, y1) == (0, 0, 0)
    assert x1 == pytest.approx(lengths[0])
    assert y2 > 0
    assert x2 == pytest.approx(cosine * lengths[1], abs=1e-9 * lengths[1])


@settings(deadline=None)
@given(seeds, st.integers(3, 12), st.integers(12, 60), scales, st.data())
def test_pca_is_the_svd(seed, n, size, scale, data):
    components = data.draw(st.integers(1, n - 1))
    trajectory = scale * normal(seed, n, size).cumsum(dim=0)
    width = data.draw(st.integers(1, size))
    scores, ratio = pca(torch.split(trajectory, width, dim=1), components)
    centred = trajectory.numpy() - trajectory.numpy().mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    expected = (left * singular)[:, :components]
    signs = np.sign((expected * scores.numpy()).sum(axis=0))
    gap = np.abs(scores.numpy() - signs * expected).max()
    assert gap < 1e-6 * singular[0], f"scores differ by {gap}"
    shares = (singular**2 / (singular**2).sum())[:components]
    np.testing.assert_allclose(ratio.numpy(), shares, atol=1e-10)
    peak = scores.gather(0, scores.abs().argmax(dim=0, keepdim=True))
    assert (peak > 0).all(), peak
