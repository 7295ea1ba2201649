"""`make bench`: a plain loop that fits into the memory, and turns that fit into three minutes."""

from pathlib import Path

import numpy as np
import pytest
from bench import WITHIN, schedule
from support import ROOT, measured

# The plain loop over a table of logits of 268 MB, in a process that may take 200 MB more.
LIMITED = """
import resource
sys.path.insert(0, sys.argv[1])
import bench, torch
from support import plan
settings = plan("smoke").trajectories.train("constant-3e-3").settings
settings = settings.model_copy(update={"vocabulary": 16384, "batch": 128})
data = bench.Tokens(Path("tokens.bin"), settings)
torch.ones(2, requires_grad=True).sum().backward()
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 200 * 2**20,) * 2)
loop, _, micro_batch = bench.plain(settings, data, Path())
loop(range(1))
print(settings.micro_batch or settings.batch, micro_batch(1.0))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="macOS has no such limit")
def test_the_plain_loop_halves_its_micro_batch_until_it_fits(tmp_path):
    most, fitted = measured(LIMITED, tmp_path, ROOT / "tests")
    assert most == 128 and fitted in (8, 16, 32)


@pytest.mark.parametrize("starting", [15, 45])
@pytest.mark.parametrize("plain", [1.2, 2.4])
def test_turns_end_within_three_minutes_where_a_step_takes_seconds(starting, plain):
    """Where the first steps take 36 s, as on an H100 at scale node."""
    step = np.array([1.2, plain])
    spent = starting + 2 * 36 + 4 * step.sum()
    steps, turns = schedule(WITHIN - spent, step)
    assert steps >= 2 and turns >= 3
    assert spent + steps * turns * step.sum() < 170
