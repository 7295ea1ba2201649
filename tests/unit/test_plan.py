"""The plan: the paper's steps at scale paper, and what jobs depend on."""

import re
from functools import cache
from itertools import chain

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import scales
from ptq_dynamics.engine.execute import settings_of
from ptq_dynamics.plan import RULES
from ptq_dynamics.train.schedules.wsd import Wsd
from ptq_dynamics.trajectories.averages.windows import Tails
from ptq_dynamics.trajectories.trajectory import step_id
from pydantic_core import to_jsonable_python
from support import ROOT, RUNS, figure, one_line, plan, tiny_config


@cache
def at(scale):
    return plan(scale)


def train(name, scale="paper"):
    return at(scale).trajectories.train(name).settings


# The paper's numbers (section 4)


@pytest.mark.parametrize("thousands", [2, 36, 70, 104, 138, 172])
def test_the_rainbows_cooldowns_are_the_papers(thousands):
    settings = train(f"rainbow-{thousands:03d}")
    first = thousands * 1000
    assert (settings.first, settings.last) == (first, first + 18_000)
    assert settings.schedule == Wsd(
        kind="wsd", peak=3e-3, warmup=1900, floor=0.0, start=first, length=18_000, shape="linear"
    )
    assert settings.first_tokens == first * settings.batch * settings.context
    tokens = settings.last * settings.batch * settings.context / 1e9
    ends = {2: 10.5, 36: 28.3, 70: 46.1, 104: 64.0, 138: 81.8, 172: 99.6}
    assert tokens == pytest.approx(ends[thousands], abs=0.05)


def test_lawa_averages_the_last_checkpoints_every_500_steps():
    for window in (5, 20):
        # One job at every shard, which holds the averages at its checkpoints.
        made = at("paper").trajectories.jobs(f"lawa-{window}")
        means = [mean for job in made for mean in job.settings.means]
        measured = at("paper").site.planned[f"lawa-{window}"].measured
        assert [(mean.id, mean.step) for mean in means] == measured
        assert means[-1].step == 190_000
        for mean in means:
            steps = [mean.step - 500 * back for back in reversed(range(window))]
            assert [member.checkpoint for member in mean.members] == [*map(step_id, steps)]


def test_the_model_and_its_training_are_the_papers():
    settings = train("constant-3e-3")
    shape = {"layers": 12, "width": 768, "heads": 12, "feedforward": 3072, "rotary_fraction": 0.25}
    assert shape.items() <= settings.model.model_dump().items()
    assert (settings.vocabulary, settings.context) == (50304, 2048)
    assert settings.batch * settings.context == 524_288
    chosen = {"kind": "adamw", "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    assert chosen.items() <= settings.optimizer.model_dump().items()
    assert (settings.clip, settings.seed, settings.precision) == (1.0, 100, "bfloat16")
    assert at("paper").site.config.scale.corpora["main"].train >= settings.last * 524_288 + 1


@pytest.mark.parametrize("scale", ["workstation", "paper"])
def test_measured_points_are_checkpoints_and_hold_both_ends(scale):
    planned = at(scale).site.planned
    for name, trajectory in planned.items():
        measured, points = trajectory.measured, trajectory.checkpoints
        assert set(measured) <= set(points), name
        assert (measured[0], measured[-1]) == (points[0], points[-1]), name
        steps = [point.step for point in measured if point.step is not None]
        if isinstance(getattr(trajectory, "entry", None), Tails):
            assert set(steps) == {planned["constant-3e-3"].measured[-1].step}, name
        else:
            assert steps == sorted(set(steps)), name
        for found in (measured, points):
            assert len({point.id for point in found}) == len(found), name
        assert [point for part in trajectory.shards.values() for point in part] == measured


# Jobs


@pytest.mark.parametrize("scale", ["smoke", pytest.param("paper", marks=pytest.mark.slow)])
def test_jobs_are_distinct_hold_no_absolute_path_and_read_their_specification(scale):
    made = at(scale)
    rules = ("judge", "tabulate", "typeset", "report", "comparison")
    found = list(made.site.needed([*made.targets(), *map(made.job, rules)]))
    assert len({(job.folder, job.stem) for job in found}) == len(found) > 500
    for job in found:
        paths = chain([job.folder, job.manifest], job.needs)
        assert not [path for path in paths if path.startswith(("/", "~", ".."))], job.name
        settings = settings_of(job.spec)
        assert to_jsonable_python(settings) == job.spec["settings"], job.name
        # What the paper is told may have tuples, which are lists on the other side.
        assert settings == job.settings or job.stage == "paper.typeset", job.name
    for job in found[::20]:
        told = str(job.spec["settings"])
        assert str(ROOT) not in told and not re.search(r"'/(home|root|tmp|usr|work)", told)


def test_a_job_is_found_by_the_wildcards_of_its_output():
    found = plan("smoke")
    job = found.job("train", run="wsd-3e-3", seed="100")
    assert job.settings.seed == 100 and job.name == "wsd-3e-3 seed 100"
    assert found.job("comparison").manifest == "results/smoke/backends/manifest.json"
    with pytest.raises(Problem, match=r"no figure, claim or table .* needs .+seed-7/manifest.json"):
        found.job("train", run="wsd-3e-3", seed="7")


# Which quantizer a scale takes where a figure names one


def taking(folder, **quantizers):
    """A plan of figures of GPTQ at a scale that takes these quantizers instead of others."""
    curves = {"one": ["branch"]}
    shown = figure("over_tokens", curves, ["loss", "weight_mse"], quantizers=["gptq4", "gptq3"])
    config = tiny_config(folder, {"quantizers": quantizers}, figures={"shown": shown})
    return plan("smoke", config, figures=["shown"])


def test_a_scale_takes_its_own_quantizer_where_a_figure_names_one(tmp_path):
    plain, other = taking(tmp_path / "plain"), taking(tmp_path / "other", gptq4="rtn3")
    for found, used in ((plain, "gptq4"), (other, "rtn3")):
        for each in (found.figures.figure("shown"), found.measurements.collect()):
            assert {s.quantizer for s in each.settings.series} == {"fp", used, "gptq3"}
    one, two = plain.site.made, other.site.made
    both = {path for path in one.keys() & two.keys() if one[path].stage == "train.train"}
    assert both and all(one[path] == two[path] for path in both)
    assert all("gptq4" in path for path in one.keys() - two.keys())
    assert all("rtn3" in path for path in two.keys() - one.keys())


BRANCH = {"trajectory": "branch", "seed": "100", "shard": "all"}


def test_what_no_figure_shows_is_planned_by_its_name(tmp_path):
    made = plan("smoke", tiny_config(tmp_path))
    measure, probe = {**BRANCH, "quantizer": "rtn3"}, {**BRANCH, "probe": "spectrum"}
    assert made.job("measure", **measure).settings.quantizer.bits == 3
    assert made.job("curvature", **probe).settings.eigenvalues == 5
    for rule, names, wrong in [
        ("measure", measure, {"quantizer": "rtn9"}),
        ("measure", measure, {"trajectory": "twig"}),
        ("measure", measure, {"shard": "more"}),
        ("curvature", probe, {"probe": "sharp"}),
    ]:
        with one_line(*wrong, *map(repr, wrong.values())):
            made.job(rule, **names | wrong)


def test_what_is_made_of_a_run_is_made_at_its_seed(tmp_path):
    both = {"runs": {"trunk": {"seeds": [1, 2]}, "twig": {**RUNS["branch"], "seeds": [2]}}}
    shown = figure("over_tokens", {"A": ["trunk", "twig", "lawa"]}, ["sharpness", "loss"])
    made = plan("smoke", tiny_config(tmp_path, runs=both, figures={"A": shown}), figures=["A"])
    found = [each.seed for each in made.figures.figure("A").settings.series]
    assert sorted(found) == [1, 1, 2, 2, 2]
    for job in made.site.needed(made.targets()):
        seeds = {*re.findall(r"/seed-(\d+)", job.folder)}
        assert not seeds or seeds >= {*re.findall(r"/seed-(\d+)", " ".join(job.needs))}, job.name


# What jobs ask of a cluster


@pytest.mark.parametrize("scale", scales(ROOT / "config"))
def test_every_row_of_the_table_is_of_a_rule(scale):
    found = at(scale)
    assert {*found.site.config.scale.resources.rules} <= {*RULES}
    for rule in RULES:
        asked = found.requests(rule)
        assert asked["mem_mb"] >= 1000 and asked["runtime"] >= 1, rule


def test_limits_grow_with_the_attempt_and_models_with_their_weights():
    found = plan("paper")
    requests = found.requests
    first, third = requests("train"), requests("train", 3)
    assert first["gpu"] == third["gpu"] == 8
    assert third["mem_mb"] == 3 * first["mem_mb"]
    assert requests("landscape", 3)["runtime"] == 3 * requests("landscape")["runtime"]
    assert third["runtime"] == 1440, "partitions end"
    runs = ("wsd-3e-3", "olmo2-32b")
    small, large = (requests("measure", 1, {"trajectory": run}) for run in runs)
    assert (small["gpu"], large["gpu"]) == (1, 4)
    assert requests("measure", 2, {"trajectory": "olmo2-32b"})["gpu"] == 8, "more memory of GPUs"
    assert requests("measure").keys() == small.keys(), "a rule requests only what is known of it"
    # 8 bytes a weight, and half as much beside.
    assert large["mem_mb"] - small["mem_mb"] == pytest.approx(12_000 * 32.1, rel=0.01)
    assert requests("figure") == requests("report") and "gpu" not in requests("figure")
    rules = found.site.config.scale.resources.rules
    rules["train"] = rules["train"].model_copy(update={"minutes": 3000})
    assert requests("train", 2)["runtime"] == 3000, "a longer first limit stays"
