"""List scheduling: graphs whose schedules are known, and bounds that hold for all graphs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.graph.simulation import Timed, high_water, schedule


def jobs(*rows):
    """Jobs that take one of one resource: seconds, and numbers of those before."""
    return [Timed(seconds, before, (1,)) for seconds, *before in rows]


def test_a_chain_takes_its_sum_and_jobs_without_one_are_shared_out():
    chain = schedule(jobs((2,), (3, 0), (4, 1)), (5,))
    assert (chain.starts, chain.ends, chain.seconds, chain.chain) == ([0, 2, 5], [2, 5, 9], 9, 9)
    apart = jobs((2,), (2,), (2,))
    assert [schedule(apart, (number,)).seconds for number in (1, 2, 3, 9)] == [6, 4, 2, 2]
    assert schedule([], (1,)).seconds == 0


def test_what_most_has_to_wait_for_comes_first():
    # Last in the list, first in time: five seconds depend on it.
    found = schedule(jobs((3,), (3,), (1,), (5, 2)), (2,))
    assert found.starts == [0, 3, 0, 1]
    assert found.seconds == 6 == found.chain


def test_a_diamond_waits_for_its_slower_side():
    found = schedule(jobs((1,), (2, 0), (7, 0), (1, 1, 2)), (2,))
    assert found.starts == [0, 1, 1, 8]
    assert found.seconds == 9


def test_a_job_of_two_waits_until_both_are_free_and_others_pass_it():
    two, one = (2, 0), (1, 0)
    found = schedule(
        [Timed(4, (), one), Timed(3, (), two), Timed(1, (), one), Timed(1, (), one)], (2, 1)
    )
    # The one of two has less ahead than the first, more than the others; it starts when it fits.
    assert found.starts == [0, 4, 0, 1]
    assert found.seconds == 7


def test_resources_do_not_wait_for_each_other():
    found = schedule([Timed(5, (), (1, 0)), Timed(5, (), (0, 1)), Timed(5, (), (0, 1))], (1, 1))
    assert found.starts == [0, 0, 5]


def test_what_cannot_run_is_refused():
    with pytest.raises(ValueError, match="there is"):
        schedule([Timed(1, (), (2,))], (1,))
    with pytest.raises(ValueError, match="circle"):
        schedule(jobs((1, 1), (1, 0)), (1,))


@st.composite
def graphs(draw):
    """Up to 14 jobs, in any order, each of whole seconds and after some of those before."""
    count = draw(st.integers(1, 14))
    return [
        Timed(
            draw(st.integers(0, 9)),
            draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else (),
            (1,),
        )
        for number in range(count)
    ]


@given(graphs(), st.integers(1, 4))
def test_a_schedule_keeps_order_and_room_and_grahams_bounds(graph, number):
    found = schedule(graph, (number,))
    for job, start, end in zip(graph, found.starts, found.ends, strict=True):
        assert end == start + job.seconds
        assert all(found.ends[before] <= start for before in job.waits_for)
    for moment in {*found.starts}:
        spans = zip(found.starts, found.ends, strict=True)
        assert sum(start <= moment < end for start, end in spans) <= number
    total, least = sum(job.seconds for job in graph), chain(graph)
    assert found.chain == least
    assert found.seconds >= max(least, total / number)
    # Which is at most 2 - 1/N times the least that there can be.
    assert found.seconds <= total / number + (1 - 1 / number) * least + 1e-9


def chain(graph):
    ends = []
    for job in graph:
        ends.append(job.seconds + max((ends[before] for before in job.waits_for), default=0))
    return max(ends)


def test_the_high_water_mark_is_the_most_at_any_time():
    # A result of 5 with 2 beside it while it is made; one of 3 made of it, and the first dropped.
    changes = [(0, 5 + 2), (4, -2), (4, 3), (6, 1), (7, -5)]
    assert high_water(changes) == 9
    assert high_water(changes, 10) == 19
    assert high_water([], 4) == 4
    # What is freed when something begins makes room for that.
    assert high_water([(0, 5), (1, 4), (1, -5)]) == 5
