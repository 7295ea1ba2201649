"""Hessian estimators against the dense Hessian of a tiny model and against known matrices."""

import math

import pytest
import torch
from ptq_dynamics.curvature import spectrum
from ptq_dynamics.curvature.hessian import LossHessian, gaussian
from ptq_dynamics.curvature.landscape import flatten
from ptq_dynamics.curvature.sharpness import hutchinson_trace, top_eigenvalue
from torch import Tensor
from torch.autograd.functional import hessian
from torch.func import functional_call
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
from transformers.models.gpt_neox import modeling_gpt_neox

pytestmark = pytest.mark.slow

N, CONTEXT, VOCAB = 5, 10, 16


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def exact_attention(module, query, key, value, attention_mask, scaling, **_):
    weights = (query @ key.transpose(2, 3) * scaling + attention_mask).softmax(dim=-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


@pytest.fixture(scope="module", autouse=True)
def double_softmax():
    """GPT-NeoX takes its softmax in float32, which would leave 1e-8 in every comparison."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_gpt_neox, "eager_attention_forward", exact_attention)
        yield


def tiny(attention="eager"):
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=VOCAB,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=CONTEXT,
        attn_implementation=attention,
    )
    model = GPTNeoXForCausalLM(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def model():
    return tiny()


@pytest.fixture(scope="module")
def probes():
    return torch.randint(VOCAB, (N, CONTEXT), generator=seeded(2))


def loss_of(model, probes, vector):
    """Mean next-token loss as a function of flat parameters, written apart from the code."""
    own = sorted(model.named_parameters())
    parts = vector.split([value.numel() for _, value in own])
    state = {name: part.view_as(value) for (name, value), part in zip(own, parts, strict=True)}
    logits = functional_call(model, state, (probes,), {"use_cache": False}).logits
    log_p = logits[:, :-1].log_softmax(dim=-1)
    return -log_p.gather(-1, probes[:, 1:, None]).mean()


@pytest.fixture(scope="module")
def dense(model, probes):
    vector = flatten(dict(model.named_parameters()))
    # Row by row: vectorized, as torch.func.hessian is, layer norm has a wrong second derivative.
    matrix = hessian(lambda theta: loss_of(model, probes, theta), vector)
    asymmetry = (matrix - matrix.T).abs().max() / matrix.abs().max()
    assert asymmetry < 1e-12, f"asymmetry {asymmetry}"
    return matrix


def eigenvalues(matrix: Tensor, k: int) -> Tensor:
    values = torch.linalg.eigvalsh(matrix)
    return values[values.abs().argsort(descending=True)][:k]


def symmetric(values, seed=3):
    """A matrix with these eigenvalues in random directions."""
    values = torch.as_tensor(values, dtype=torch.float64)
    noise = torch.randn(len(values), len(values), generator=seeded(seed), dtype=torch.float64)
    basis = torch.linalg.qr(noise).Q
    return basis @ torch.diag(values) @ basis.T


def form(matvec):
    """What `trace` takes: z'Hz, in one part."""
    return lambda z: (z @ matvec(z)).double().reshape(1)


def top(matvec, size, **limits):
    start = gaussian(torch.empty(size, dtype=torch.float64), seeded())
    return top_eigenvalue(matvec, start, **limits)


def spectrum_of(matvec, size, k, dtype=torch.float64, **limits):
    return spectrum.top_spectrum(matvec, torch.empty(size, dtype=dtype), k, seeded(), **limits)


@pytest.mark.parametrize(("batch_size", "keep_graph"), [(1, True), (2, False), (N, True)])
def test_matvec_is_the_dense_hessian(model, probes, dense, batch_size, keep_graph):
    product = LossHessian(model, probes, batch_size, keep_graph=keep_graph)
    assert len(product.like) == dense.shape[0]
    assert product.like.dtype == torch.float64
    for seed in range(3):
        v = torch.randn(len(product.like), generator=seeded(seed), dtype=torch.float64)
        expected = dense @ v
        error = ((product(v) - expected).norm() / expected.norm()).item()
        assert error < 1e-9, f"relative error {error:.3g} at seed {seed}"


def test_model_curvature(model, probes, dense):
    product = LossHessian(model, probes, N)
    exact = eigenvalues(dense, 25)
    found = top(product, len(product.like), tolerance=1e-6, max_iterations=500)
    assert found.residual <= 1e-6, f"residual {found.residual} after {found.iterations}"
    assert found.value == pytest.approx(exact[0].item(), rel=1e-9)
    leading = spectrum_of(product, len(product.like), 25, tolerance=1e-6, max_iterations=300)
    assert (leading.residuals <= 1e-6).all(), f"{leading.residuals} after {leading.iterations}"
    torch.testing.assert_close(leading.values, exact, rtol=1e-9, atol=0)
    mean, error = hutchinson_trace(form(product), product.like, 256, seeded())
    error, bound = mean - dense.trace().item(), 4 * error
    assert abs(error) < bound, f"trace is off by {error}, four standard errors are {bound}"
    assert bound < 0.1 * torch.linalg.eigvalsh(dense).abs().sum(), f"{bound} tests nothing"


def test_dominant_negative_eigenvalue_keeps_its_sign():
    matrix = symmetric([-5.0, 3.0, 2.0, 1.0, 0.5, 0.0])
    found = top(matrix.mv, 6, tolerance=1e-8, max_iterations=200)
    assert found.residual <= 1e-8
    assert found.value == pytest.approx(-5, rel=1e-12)
    error = (matrix @ found.vector - found.value * found.vector).norm().item() / 5
    assert found.residual == pytest.approx(error, rel=1e-6)
    leading = spectrum_of(matrix.mv, 6, 3, tolerance=1e-8, max_iterations=6)
    assert leading.values.tolist() == pytest.approx([-5.0, 3.0, 2.0])


def test_trace_standard_error_has_both_samples():
    """Text that differs, with vectors that do not matter."""
    parts = torch.tensor([1.0, 2.0, 6.0, 7.0], dtype=torch.float64)
    mean, error = hutchinson_trace(lambda z: parts, parts[:3], 8, seeded())
    assert mean == 4.0
    assert error == pytest.approx(math.sqrt((9 + 4 + 4 + 9) / 3 / 4))


# Lanczos in bounded memory: what a restart may change


def restarted(monkeypatch, matrix, k, vectors, max_iterations=400):
    """Leading eigenvalues with a basis of so many vectors."""
    dim = len(matrix)
    monkeypatch.setattr(spectrum, "BASIS_BYTES", vectors * dim * matrix.dtype.itemsize)
    return spectrum_of(matrix.mv, dim, k, tolerance=1e-9, max_iterations=max_iterations)


@pytest.mark.parametrize(("k", "extra"), [(1, 0), (5, 10), (20, 1)])
def test_restarts_lead_to_the_same_eigenvalues(k, extra, monkeypatch):
    outer = torch.cat([torch.linspace(4, 9, 30), -torch.linspace(3.5, 8.5, 30)])
    matrix = symmetric(torch.cat([outer, torch.linspace(-3, 3, 200)]))
    exact = outer[outer.abs().argsort(descending=True)][:k].double()
    vectors = max(2 * k + 1, 16) + extra
    found = restarted(monkeypatch, matrix, k, vectors)
    assert found.iterations > vectors, "no restart was tested"
    assert (found.residuals <= 1e-9).all(), (found.iterations, found.residuals)
    torch.testing.assert_close(found.values, exact, rtol=1e-9, atol=0)
    error = matrix @ found.top - found.values[0] * found.top
    assert (error.norm() / exact[0].abs()).item() <= 1e-9 + found.residuals[0].item()
