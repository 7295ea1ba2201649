"""Lanczos in bounded memory: what a restart may change, and what it holds."""

import pytest
import torch
from ptq_dynamics.curvature.lanczos import BASIS_BYTES
from support import measured
from test_hessian import spectrum_of, symmetric


def spectrum(matrix, k, vectors, tolerance=1e-9, max_iterations=400):
    """Leading eigenvalues with a basis of so many vectors."""
    dim = len(matrix)
    room = {"basis_bytes": vectors * dim * matrix.dtype.itemsize}
    limits = {"tolerance": tolerance, "max_iterations": max_iterations}
    return spectrum_of(matrix.mv, dim, k, **limits, **room)


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("extra", [0, 1, 10])
def test_restarts_lead_to_the_same_eigenvalues(k, extra):
    outer = torch.cat([torch.linspace(4, 9, 30), -torch.linspace(3.5, 8.5, 30)])
    matrix = symmetric(torch.cat([outer, torch.linspace(-3, 3, 200)]))
    exact = outer[outer.abs().argsort(descending=True)][:k].double()
    vectors = max(2 * k + 1, 16) + extra
    found = spectrum(matrix, k, vectors)
    assert found.iterations > vectors, "no restart was tested"
    assert found.converged, (found.iterations, found.residuals)
    torch.testing.assert_close(found.values, exact, rtol=1e-9, atol=0)
    error = matrix @ found.top - found.values[0] * found.top
    assert (error.norm() / exact[0].abs()).item() <= 1e-9 + found.residuals[0].item()


def test_residuals_after_restarts_are_true():
    matrix = symmetric(torch.linspace(0.1, 6, 200).square())
    found = spectrum(matrix, 6, 16, max_iterations=40)
    exact = torch.linalg.eigvalsh(matrix)
    distance = (found.values[:, None] - exact).abs().amin(dim=1) / found.values.abs()
    assert (found.converged, found.iterations) == (False, 40)
    assert (distance <= found.residuals).all(), (distance, found.residuals)
    error = (matrix @ found.top - found.values[0] * found.top).norm() / found.values[0].abs()
    assert error.item() == pytest.approx(found.residuals[0].item(), rel=1e-6)


@pytest.mark.parametrize(
    "values", [[4.0, 4.0, 4.0, -3.0] + [1.0] * 26, [2.0] * 30], ids=["repeated", "identity"]
)
def test_restarts_see_repeated_eigenvalues(values):
    found = spectrum(symmetric(values), 4, 16, max_iterations=60)
    torch.testing.assert_close(found.values, torch.tensor(values[:4], dtype=torch.float64))


def test_a_basis_that_has_room_is_not_restarted():
    matrix = symmetric(torch.linspace(-1, 5, 80))
    roomy, exact, tight = (
        spectrum(matrix, 3, vectors, 1e-3, 30) for vectors in (BASIS_BYTES, 30, 29)
    )
    assert roomy.iterations == 30
    assert roomy.values.equal(exact.values) and roomy.residuals.equal(exact.residuals)
    assert roomy.top.equal(exact.top)
    # The restart comes before the last product alone.
    assert not roomy.residuals.equal(tight.residuals)
    torch.testing.assert_close(roomy.values, tight.values, rtol=1e-3, atol=0)


MEASURED = """
import torch
from ptq_dynamics.curvature.lanczos import top_spectrum
dim = 1 << 19
diagonal = torch.randn(dim, generator=torch.Generator().manual_seed(0))
find = lambda products: top_spectrum(
    diagonal.mul, diagonal / diagonal.norm(), 2, tolerance=0, max_iterations=products,
    generator=torch.Generator().manual_seed(1), basis_bytes=4 * dim * 16)
find(2)
before = peak()
find(64)
print(peak() - before)
"""


@pytest.mark.slow
def test_memory_is_that_of_the_basis_and_not_of_the_products(tmp_path):
    """64 products with vectors of 2 MiB, of which 16 are kept."""
    (growth,) = measured(MEASURED, tmp_path)
    assert growth < 32 * 2, growth
