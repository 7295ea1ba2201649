"""`make bench`: both loops, and options of torch, go on with the model of figure 4."""

import re

import options
import pytest
from bench import LOOPS, timed


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_trains_whole_batches(loop):
    speed, micro_batch = timed("smoke", loop, 0.1)
    assert speed > 100 and micro_batch >= 1


@pytest.mark.slow
def test_options_of_torch_train_what_the_trainer_trains(capsys, monkeypatch):
    """In float32 to rounding. Those that compile take minutes."""
    monkeypatch.setattr(options, "ROUNDS", 1)
    monkeypatch.setattr(options, "SECONDS", 0.2)
    names = [name for name in options.OPTIONS if name not in ("max-autotune", "cuda-graphs")]
    options.main("smoke", *names[1:])
    said = capsys.readouterr().out
    apart = {
        n: float(x) for n, x in re.findall(r"^([\w -]+?) +\S+ tokens/s.* (\S+) nats$", said, re.M)
    }
    assert [*apart] == names and max(map(abs, apart.values())) < 1e-5, said
