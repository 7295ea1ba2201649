"""How often sbatch is called, in a simulation."""

import pytest
from ptq_dynamics.cluster.asked import Asked, Task
from ptq_dynamics.cluster.calls import Sent, simulate
from ptq_dynamics.config.loading import load_site
from support import ROOT

SITE = load_site(ROOT / "profiles/slurm/site.yaml").model_copy(
    update={"pack_minutes": 1, "poll_seconds": 10, "longest_minutes": 60}
)


def task(name, seconds, gpus=0, memory=1000):
    return Task(name, "", Asked(1, memory, 1, seconds, gpus))


def sent(tasks, needs=None, gpus=1, most=100):
    known = {each.file: each for each in tasks}
    return simulate(known, {name: (needs or {}).get(name, ()) for name in known}, SITE, gpus, most)


def test_what_is_ready_at_once_is_one_call_of_full_packs():
    assert sent([task(f"{n}", 20) for n in range(6)]) == Sent(calls=1, jobs=2)


def test_what_asks_for_something_else_is_a_call_of_its_own():
    alike = [task("a", 20), task("b", 20)]
    assert sent([*alike, task("c", 20, gpus=1)]) == Sent(2, 2)
    assert sent([*alike, task("c", 20, memory=5000)]) == Sent(2, 2)


def test_what_waits_is_sent_when_it_is_ready():
    chain = [task(name, 20) for name in "abcd"]
    assert sent(chain, {"b": "a", "c": "b", "d": "b"}) == Sent(3, 3)
    # a and b end between two looks at the queue.
    quick = [task("a", 2), task("b", 5), task("c", 1), task("d", 1)]
    assert sent(quick, {"c": "a", "d": "b"}) == Sent(2, 2)


def test_no_more_are_sent_at_once_than_may_be():
    assert sent([task(f"{n}", 60) for n in range(5)], most=2) == Sent(3, 5)


def test_a_device_serves_one_pack_at_a_time():
    """The second ends later, and what waits for each is sent apart."""
    first = [task("a", 60, gpus=1), task("b", 60, gpus=1)]
    assert sent(first) == Sent(1, 2)
    rest = {"c": "a", "d": "b"}
    assert sent([*first, task("c", 5), task("d", 5)], rest, gpus=1) == Sent(3, 4)
    assert sent([*first, task("c", 5), task("d", 5)], rest, gpus=2) == Sent(2, 3)


def test_a_circle_is_told():
    with pytest.raises(ValueError, match="circle"):
        sent([task("a", 1), task("b", 1)], {"a": "b", "b": "a"})
