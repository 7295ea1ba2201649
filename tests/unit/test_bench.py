"""`make bench`: both loops go on with the model of figure 4."""

import pytest
from bench import LOOPS, timed


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_trains_whole_batches(loop):
    speed, micro_batch = timed("smoke", loop, 0.1)
    assert speed > 100 and micro_batch >= 1
