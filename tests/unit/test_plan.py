"""The plan: the paper's steps at scale paper, and what job specifications hold."""

import json
import re
from functools import cache
from itertools import chain, pairwise

import pytest
from ptq_dynamics.config import SCALES
from ptq_dynamics.content import canonical
from support import ROOT, plan


@cache
def at(scale):
    return plan(scale)


def train(name, scale="paper"):
    return at(scale).train(name).settings


def jobs(scale):
    """Every job that the figures and their measurements need."""
    found = at(scale)
    runs = list(found.config.runs.runs)
    trajectories = [*runs, *found.config.runs.averages]
    yield found.corpus("main")
    yield found.collect()
    yield from (found.train(name) for name in runs)
    yield from (found.average(name) for name in found.config.runs.averages)
    yield from (found.figure(name) for name in found.figures)
    for name in ("constant-3e-3", "rainbow-172", "lawa-20"):
        assert name in trajectories
        for method in ("fp", "gptq-4bit", "rtn-3bit"):
            yield found.measure(name, method)
            for shard in found.timeline.shards(name):
                yield found.evaluate(name, method, shard)
                if method != "fp":
                    yield found.quantize(name, method, shard)


# The paper's numbers (section 4)


@pytest.mark.parametrize("thousands", [2, 36, 70, 104, 138, 172])
def test_the_rainbows_cooldowns_are_the_papers(thousands):
    config = train(f"rainbow-{thousands:03d}")
    first = thousands * 1000
    assert (config["first"], config["last"]) == (first, first + 18_000)
    assert config["schedule"] == {
        "kind": "wsd",
        "peak": 3e-3,
        "warmup": 1900,
        "floor": 0.0,
        "start": first,
        "length": 18_000,
        "shape": "linear",
    }
    tokens = config["last"] * config["batch"] * config["model"]["context"] / 1e9
    ends = {2: 10.5, 36: 28.3, 70: 46.1, 104: 64.0, 138: 81.8, 172: 99.6}
    assert tokens == pytest.approx(ends[thousands], abs=0.05)


@pytest.mark.parametrize("rate", ["3e-4", "1e-3", "3e-3", "1e-2"])
def test_the_peak_rates_are_the_papers(rate):
    trunk, decay = train(f"constant-{rate}"), train(f"wsd-{rate}")
    assert trunk["schedule"]["peak"] == decay["schedule"]["peak"] == float(rate)
    assert trunk["schedule"]["kind"] == "constant"
    assert trunk["schedule"]["warmup"] == 1900
    assert trunk["last"] == (190_000 if rate == "3e-3" else 152_000)
    assert (decay["first"], decay["last"]) == (152_000, 190_000)
    assert decay["schedule"]["length"] == 38_000


@pytest.mark.parametrize("thousands", [40, 80, 120])
def test_the_cooldowns_beside_lawa_are_the_papers(thousands):
    config = train(f"decay-{thousands:03d}")
    assert (config["first"], config["last"]) == (thousands * 1000, thousands * 1000 + 38_000)


def test_lawa_averages_the_last_checkpoints_every_500_steps():
    for window in (5, 20):
        config = at("paper").average(f"lawa-{window}").settings
        assert (config["every"], config["window"]) == (500, window)
        assert min(config["steps"]) >= 500 * window
        assert max(config["steps"]) == 190_000
        checkpoints = set(at("paper").timeline.grid("constant-3e-3"))
        needed = {step - 500 * back for step in config["steps"] for back in range(window)}
        assert needed <= checkpoints, sorted(needed - checkpoints)[:3]


def test_the_model_and_its_training_are_the_papers():
    config = train("constant-3e-3")
    assert config["model"] == {
        "layers": 12,
        "width": 768,
        "heads": 12,
        "feedforward": 3072,
        "rotary_fraction": 0.25,
        "context": 2048,
        "vocabulary": 50304,
    }
    assert config["batch"] * config["model"]["context"] == 524_288
    assert config["optimizer"] == {
        "kind": "adamw",
        "betas": [0.9, 0.95],
        "eps": 1e-8,
        "weight_decay": 0.1,
        "clip": 1.0,
    }
    assert (config["seed"], config["precision"]) == (100, "bfloat16")
    tokens = config["last"] * 524_288
    assert at("paper").config.scale.corpora["main"].train >= tokens + 1


@pytest.mark.parametrize("bits", [3, 4])
def test_gptq_has_the_papers_settings(bits):
    found = at("paper")
    shard = next(iter(found.timeline.shards("wsd-3e-3")))
    job = found.quantize("wsd-3e-3", f"gptq-{bits}bit", shard)
    settings = job.settings.quantizer
    assert (settings.bits, settings.group_size) == (bits, 128)
    assert (settings.symmetric, settings.damping) == (True, 0.05)
    assert settings.activation_order == "static"
    assert job.settings.calibration_sequences == 1024
    assert job.settings.calibration_batch == 16


def test_every_state_that_is_branched_from_is_kept():
    for scale in SCALES:
        for name, run in at(scale).config.runs.runs.items():
            if hasattr(run, "trunk"):
                job = at(scale).train(name)
                assert job.settings["first"] in train(run.trunk, scale)["state_steps"], (
                    scale,
                    name,
                )
                assert job.inputs["trunk"] == [at(scale).train(run.trunk).manifest]


@pytest.mark.parametrize("scale", SCALES)
def test_scales_are_the_paper_in_proportion(scale):
    budget = at(scale).config.scale.budget
    for name in ("rainbow-036", "wsd-1e-3", "decay-120", "constant-3e-4"):
        for key in ("first", "last"):
            expected = train(name)[key] * budget / 190_000
            assert train(name, scale)[key] == pytest.approx(expected, abs=0.5), (name, key)


@pytest.mark.parametrize("scale", SCALES)
def test_measured_steps_are_checkpoints_and_hold_both_ends(scale):
    timeline = at(scale).timeline
    for name in at(scale).config.runs.runs:
        measured, grid = timeline.measured_steps(name), timeline.grid(name)
        assert set(measured) <= set(grid), name
        assert (measured[0], measured[-1]) == (grid[0], grid[-1]), name
        assert measured == sorted(set(measured))
        assert [s for part in timeline.shards(name).values() for s in part] == measured


@pytest.mark.parametrize("name", ["decay-lambda-0", "cosine-020-3e-3", "cosine-190-3e-3"])
def test_short_runs_are_measured_as_closely_as_they_need(name):
    timeline = at("laptop").timeline
    measure, steps = timeline.config.scale.measure, timeline.measured_steps(name)
    widest = max(after - before for before, after in pairwise(steps))
    assert widest <= timeline.steps(measure.trunk_every), steps
    assert len(steps) > measure.trunk_least, steps


def test_a_shard_is_a_checkpoint_at_scale_paper_and_a_trajectory_at_laptop():
    assert {len(part) for part in at("paper").timeline.shards("rainbow-036").values()} == {1}
    assert list(at("laptop").timeline.shards("rainbow-036")) == ["all"]


@pytest.mark.parametrize(("scale", "group"), [("paper", 128), ("gpu", 128), ("laptop", 64)])
def test_group_sizes_are_the_largest_that_divide(scale, group):
    shape = at(scale).timeline.shape("constant-3e-3")
    fits = [g for g in range(1, 129) if not shape.width % g and not shape.feedforward % g]
    measured = at(scale).measure("constant-3e-3", "gptq-4bit")
    assert measured.settings["columns"]["group_size"] == max(fits) == group


# Specifications


@pytest.mark.parametrize("scale", SCALES)
def test_specifications_are_canonical_small_and_hold_no_absolute_path(scale):
    found = list(jobs(scale))
    assert len({(job.folder, job.stem) for job in found}) == len(found)
    for job in found:
        spec = job.spec()
        assert spec == canonical(json.loads(spec)), job.name
        # The kernel passes at most 128 KiB in one argument.
        assert len(spec.encode()) < 100_000, (job.name, len(spec))
        assert str(ROOT) not in spec, job.name
        paths = chain([job.folder, job.manifest], job.needs, job.outputs)
        assert not [path for path in paths if path.startswith(("/", "~", ".."))], job.name
        assert not re.search(r'"/(home|root|tmp|usr|work)', spec), job.name


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_specifications_do_not_depend_on_the_process(scale):
    again = plan(scale)
    assert again.figure("fig04").spec() == at(scale).figure("fig04").spec()
    assert again.train("rainbow-172").spec() == at(scale).train("rainbow-172").spec()


def test_a_job_depends_on_its_own_slice_of_the_configuration():
    base, other = plan("smoke"), plan("smoke", seed=7)
    assert base.train("constant-3e-3").spec() != other.train("constant-3e-3").spec()
    assert base.corpus("main").spec() == other.corpus("main").spec()
    one, two = (base.quantize("constant-3e-3", name, "all") for name in ("gptq-4bit", "gptq-3bit"))
    assert one.settings.quantizer != two.settings.quantizer


def test_what_a_job_needs_is_made_by_a_job_that_the_plan_knows():
    found = list(jobs("smoke"))
    made = {path for job in found for path in (job.manifest, *job.outputs)}
    for name in ("constant-3e-3", "rainbow-172", "lawa-20"):
        job = at("smoke").measure(name, "gptq-4bit")
        assert set(job.needs) <= made, set(job.needs) - made
    assert set(at("smoke").figure("fig04").inputs) == {"measurements", "runs"}


def test_targets_are_the_chosen_figures_and_with_all_the_table():
    pictures = {f"figures/smoke/fig04.{kind}" for kind in ("pdf", "png", "csv")}
    assert pictures <= set(at("smoke").targets())
    assert "results/smoke/measurements.csv" in at("smoke").targets()
