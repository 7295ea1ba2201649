"""Loss planes, flat parameter vectors and PCA against their definitions."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ptq_dynamics.curvature.components import pca
from ptq_dynamics.curvature.landscape import plane

seeds = st.integers(0, 2**32 - 1)
scales = st.floats(-4, 4).map(lambda power: 10.0**power)


def normal(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


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


@pytest.mark.parametrize(("along", "across"), [(0.5, 0.0), (0.0, 0.0), (1.0, 1e-9)])
def test_collinear_points_span_no_plane(along, across):
    origin, step, noise = normal(1, 3, 50)
    with pytest.raises(ValueError, match="no plane"):
        plane(origin, origin + step, origin + along * step + across * noise)


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
