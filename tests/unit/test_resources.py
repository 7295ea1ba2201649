"""What jobs ask of a cluster."""

import pytest
from ptq_dynamics.config import scales
from ptq_dynamics.plan import RULES
from support import ROOT, plan


@pytest.mark.parametrize("scale", scales(ROOT / "config"))
def test_every_row_of_the_table_is_of_a_rule(scale):
    found = plan(scale)
    assert {*found.site.config.scale.resources.rules} <= {*RULES}
    for rule in RULES:
        asked = found.resources.ask(rule)
        assert asked["mem_mb"] >= 1000 and asked["runtime"] >= 1, rule


def test_limits_grow_with_the_attempt_and_models_with_their_weights():
    found = plan("paper").resources
    first, third = found.ask("train"), found.ask("train", 3)
    assert first["gpu"] == third["gpu"] == 8
    assert third["mem_mb"] == 3 * first["mem_mb"]
    assert found.ask("landscape", 3)["runtime"] == 3 * found.ask("landscape")["runtime"]
    assert third["runtime"] == 1440, "partitions end"
    runs = ("wsd-3e-3", "olmo2-32b")
    small, large = (found.ask("measure", 1, {"trajectory": run}) for run in runs)
    assert (small["gpu"], large["gpu"]) == (1, 4)
    assert found.ask("measure", 2, {"trajectory": "olmo2-32b"})["gpu"] == 8, "more memory of GPUs"
    assert found.ask("measure").keys() == small.keys(), "a rule requests only what is known of it"
    # 8 bytes a weight, and half as much beside.
    assert large["mem_mb"] - small["mem_mb"] == pytest.approx(12_000 * 32.1, rel=0.01)
    assert found.ask("figure") == found.ask("report") and "gpu" not in found.ask("figure")
    rules = found.scale.resources.rules
    rules["train"] = rules["train"].model_copy(update={"minutes": 3000})
    assert found.ask("train", 2)["runtime"] == 3000, "a longer first limit stays"
