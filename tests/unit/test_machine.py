"""The machine that a process computes on."""

import platform

import pytest
import torch
from ptq_dynamics.engine import machine


def test_the_vector_instructions_are_those_that_torch_uses():
    """The order of sums, and so the last bits of results, depends on them."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        pytest.skip("torch names them so on x86 under Linux")
    found = torch.backends.cpu.get_cpu_capability()
    named = {"AVX512": "avx512f", "AVX2": "avx2"}
    if found not in named:
        pytest.skip(f"torch has no code of its own for this processor ({found})")
    assert machine.this().vector == named[found]
