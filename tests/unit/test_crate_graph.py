"""Crates while they are filled: each thing once, in time that grows as their number does."""

import time

from ptq_dynamics.provenance.crate.graph import Graph


def test_an_entity_names_others_once_in_their_order_beside_those_it_named_before():
    graph = Graph()
    first, second, third = (graph.add(f"#{name}", "Thing", name=name) for name in "abc")
    action = graph.add("#run", "CreateAction", result=[second])
    for others in ([first], [second, third], [first]):
        graph.link(action, "result", others)
    assert action.properties()["result"] == [{"@id": name} for name in ("#b", "#a", "#c")]
    assert graph.add("#a", "Thing", name="another") is first and first["name"] == "a"
    graph.link(action, "object", [first])
    graph.simplify()
    assert action.properties()["object"] == {"@id": "#a"}


def seconds(jobs):
    """Of this process, to name as many things one by one; the least of three tries."""
    took = []
    for _ in range(3):
        graph, before = Graph(), time.process_time()
        whole = graph.add("#whole", "CreateAction")
        for number in range(jobs):
            each = graph.add(f"#run/{number}", "CreateAction")
            graph.exemplify(whole, [each])
        assert len(whole.properties()["workExample"]) == jobs
        took.append(time.process_time() - before)
    return min(took)


def test_ten_times_as_many_jobs_take_some_ten_times_as_long():
    few, many = seconds(500), seconds(5000)
    # Where every one looked through all before it, it was some sixty times.
    assert many < 30 * few, f"500 jobs took {few:.3f} s, 5000 took {many:.3f} s"
