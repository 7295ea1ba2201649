"""What jobs ask of a machine, and what a build takes by that."""

import shutil
from dataclasses import replace

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import load
from ptq_dynamics.graph.forecast import Forecaster, Machine
from ptq_dynamics.graph.measured import measure
from ptq_dynamics.graph.resources import Measured, Resources
from ptq_dynamics.graph.sizes import FILES
from support import ROOT, copy_results, edit_yaml, plan, tiny_config

SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def paper():
    return plan("paper")


@pytest.fixture(scope="module")
def smoke():
    return plan("smoke")


def every(made):
    return list(made.site.needed(made.last()))


@pytest.mark.parametrize("scale", ["smoke", "laptop", "gpu", pytest.param("paper", marks=SLOW)])
def test_every_job_asks_for_something(scale):
    made = plan(scale)
    has_device = made.site.config.scale.resources.device is not None
    asks = [made.resources.ask(job) for job in every(made)]
    assert len(asks) > 500
    for ask in asks:
        assert ask.threads >= 1 and ask.memory_mb > 100 and ask.minutes >= 1 and ask.seconds >= 0
        assert ask.minutes * 60 >= ask.seconds
        assert isinstance(ask.memory_mb, int) and isinstance(ask.minutes, int)
    assert any(ask.gpus for ask in asks) == has_device


def test_jobs_have_the_threads_of_their_rules(smoke, paper):
    for made in (smoke, paper):
        rules = {"train": made.trajectories.train("constant-3e-3"), "figure": every(made)[0]}
        rules["evaluate"] = made.losses.evaluate("constant-3e-3", "fp", _shard(made))
        for rule, job in rules.items():
            assert made.resources.ask(job).threads == made.resources.threads(rule)


def _shard(made):
    return next(iter(made.site.timeline.shards("constant-3e-3")))


def test_each_attempt_asks_for_more_of_memory_and_time(paper):
    job = paper.trajectories.train("constant-3e-3")
    first, second, third = (paper.resources.ask(job, attempt) for attempt in (1, 2, 3))
    assert first == paper.resources.ask(job)
    for other, times in ((second, 2), (third, 3)):
        assert other.memory_mb == pytest.approx(times * first.memory_mb, abs=times)
        assert other.minutes == pytest.approx(times * first.minutes, abs=times)
        assert (other.seconds, other.gpus, other.threads) == (
            first.seconds,
            first.gpus,
            first.threads,
        )


def test_training_takes_six_flop_a_parameter_and_token(paper):
    assumed = paper.site.config.scale.resources
    job = paper.trajectories.train("constant-3e-3")
    tokens = job.settings.last * job.settings.batch * job.settings.context
    flop = 6 * 162_322_944 * tokens
    ask = paper.resources.ask(job)
    # Beside it: steps that are never shorter than their passes, checkpoints and states.
    assert flop / assumed.training < ask.seconds < 1.2 * flop / assumed.training
    assert (ask.gpus, paper.resources.gpu_model) == (1, "h100")
    doubled = replace(job, settings=replace(job.settings, last=2 * job.settings.last), folder="x")
    assert paper.resources.ask(doubled).seconds == pytest.approx(2 * ask.seconds, rel=0.02)


def test_a_large_model_asks_for_memory_and_gpus(paper):
    small = paper.losses.evaluate("constant-3e-3", "fp", _shard(paper))
    large = next(job for job in every(paper) if job.name.startswith("olmo2-32b seed 0 fp"))
    one, other = paper.resources.ask(small), paper.resources.ask(large)
    assert (one.gpus, other.gpus) == (1, 2)
    # In float32, on their way to the GPUs.
    assert other.memory_mb > 4 * 31e9 / 1e6 > 10 * one.memory_mb
    assert other.seconds > 50 * (one.seconds - paper.site.config.scale.resources.start)


def test_how_a_family_is_spread_is_told_and_makes_nothing_stale(paper, tmp_path):
    shutil.copytree(ROOT / "config", tmp_path / "config")
    told = {"device_map": "balanced"}
    edit_yaml(
        tmp_path / "config/families.yaml", lambda raw: raw["families"]["olmo2-32b"].update(told)
    )
    edited = plan("paper", tmp_path / "config")
    jobs = {job.manifest: job for job in every(paper)}
    again = {job.manifest: job for job in every(edited)}
    assert again == jobs
    stages = ("measure.loss", "measure.accuracy", "quantize.gptq")
    opening = [job for job in jobs.values() if job.stage.startswith(stages)]
    spread = {job.name.split()[0] for job in opening if edited.resources.spreading(job)}
    assert spread and all(name.startswith("olmo2-32b") for name in spread)
    large = next(job for job in jobs.values() if job.name.startswith("olmo2-32b seed 0 fp"))
    assert edited.resources.spreading(large) == "--device-map balanced"
    assert paper.resources.spreading(large) == ""


def test_what_was_measured_replaces_what_is_assumed(smoke):
    job = smoke.trajectories.train("constant-3e-3")
    config = smoke.site.config
    known = Resources(config, {job.stage: Measured(seconds=10, memory=2, records=3)})
    start = config.scale.resources.start
    assert known.seconds(job) - start == pytest.approx(10 * (smoke.resources.seconds(job) - start))
    assert known.memory(job) == 2 * smoke.resources.memory(job)
    other = smoke.losses.evaluate("constant-3e-3", "fp")
    assert known.ask(other) == smoke.resources.ask(other)
    assert known.is_measured(job) and not known.is_measured(other)


@pytest.mark.usefixtures("trunk", "branch", "rtn")
def test_records_of_built_jobs_are_measured(workspace, tmp_path):
    made = workspace.plan
    job = made.quantization.quantize("trunk", "rtn3")
    built = [made.corpora.corpus("main"), *map(made.trajectories.train, ("trunk", "branch")), job]
    copy_results(workspace.folder, tmp_path, [each.folder for each in built])
    found = measure(made.site.config, tmp_path)
    assert {stage: each.records for stage, each in found.items()} == {
        "corpus.corpus": 1,
        "quantize.rtn": 1,
        "train.train": 2,
    }
    known = Resources(made.site.config, found)
    took = tmp_path / job.paths.record
    seconds = float(took.read_text().partition('"seconds": ')[2].partition(",")[0])
    assert known.seconds(job) == pytest.approx(made.site.config.scale.resources.start + seconds)
    assert measure(made.site.config, tmp_path / "nowhere") == {}


def test_records_that_cannot_be_read_or_are_of_something_else_count_for_nothing(tmp_path, smoke):
    folder = tmp_path / "results/smoke/train/gone/seed-1"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text("{")
    assert measure(smoke.site.config, tmp_path) == {}
    (folder / "record.json").write_text("[]")
    assert measure(smoke.site.config, tmp_path) == {}


def test_all_documents_of_a_task_need_a_size(tmp_path):
    config = tiny_config(tmp_path)
    edit_yaml(config / "scales/smoke.yaml", lambda found: found["tasks"].update(documents=None))
    with pytest.raises(Problem, match=r"resources\.tasks\.whole does not say"):
        load({"scale": "smoke", "seed": 100, "figures": "all"}, config)


# What a build takes


def test_a_build_on_one_core_takes_the_sum_and_on_many_the_longest_chain(smoke):
    jobs = every(smoke)
    forecaster = Forecaster(smoke.site, smoke.resources)
    one, two, many = (forecaster.of([], jobs, Machine(0, cores)) for cores in (1, 2, 10**6))
    total = sum(smoke.resources.seconds(job) for job in jobs)
    assert one.seconds == pytest.approx(total) == pytest.approx(one.core_seconds)
    assert many.seconds == pytest.approx(many.chain) == pytest.approx(one.chain)
    assert max(total / 2, one.chain) <= two.seconds <= total / 2 + one.chain
    assert sum(kind.due for kind in one.kinds.values()) == len(jobs)
    assert not one.gpu_seconds
    # All of it stays.
    assert one.most == pytest.approx(one.after, rel=0.01)


def test_what_is_fresh_takes_no_time_and_its_room(smoke):
    jobs, forecaster = every(smoke), Forecaster(smoke.site, smoke.resources)
    whole = forecaster.of([], jobs, Machine(0, 2))
    found = forecaster.of(jobs, [], Machine(0, 2))
    assert (found.seconds, found.core_seconds) == (0, 0)
    assert found.before == found.most == found.after == pytest.approx(whole.after)
    assert sum(kind.fresh for kind in found.kinds.values()) == len(jobs)


def test_jobs_that_compute_on_gpus_are_counted(paper, smoke):
    shard = _first(paper, "lawa-5")
    average = paper.trajectories.average("lawa-5", shard)
    reader = paper.losses.evaluate("lawa-5", "fp", shard)
    forecaster = Forecaster(paper.site, paper.resources)
    found = forecaster.of([], [average, reader], Machine(8))
    assert {name: kind.on_gpus for name, kind in found.kinds.items()} == {
        "average": 0,
        "evaluate": 1,
    }
    # What is fresh does not run again.
    assert (found.gpu_jobs, forecaster.of([reader], [average], Machine(8)).gpu_jobs) == (1, 0)
    here = Forecaster(smoke.site, smoke.resources).of([], every(smoke), Machine(0, 2))
    assert here.gpu_jobs == 0


def test_weights_are_there_until_their_last_reader_has_ended(paper):
    """An average at scale paper, evaluated once and dropped: the runs that it is of are there."""
    site = paper.site
    average = paper.trajectories.average("lawa-5", _first(paper, "lawa-5"))
    reader = paper.losses.evaluate("lawa-5", "fp", _first(paper, "lawa-5"))
    drop = next(j for j in every(paper) if j.inputs.get("result") == [average.manifest])
    forecaster = Forecaster(site, paper.resources)
    found = forecaster.of([], [average, reader, drop], Machine(8))
    weights = 4 * 162_322_944
    losses = 4 * reader.settings.blocks
    assert found.most == 3 * FILES + weights + losses
    assert found.after == 3 * FILES + losses
    assert found.seconds == pytest.approx(found.chain)


def _first(made, trajectory):
    return next(iter(made.site.timeline.shards(trajectory)))


def test_dropped_weights_that_are_read_again_are_made_again(paper, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shard = _first(paper, "lawa-5")
    average = paper.trajectories.average("lawa-5", shard)
    reader = paper.losses.evaluate("lawa-5", "fp", shard)
    drop = next(j for j in every(paper) if j.inputs.get("result") == [average.manifest])
    average.paths.absent.parent.mkdir(parents=True)
    average.paths.absent.write_text("{}")
    found = Forecaster(paper.site, paper.resources).of([average], [reader, drop], Machine(8))
    assert found.kinds["average"].again == found.kinds["average"].fresh == 1
    assert found.before == FILES
    assert found.most - found.after == 4 * 162_322_944
    seconds = sum(paper.resources.seconds(job) for job in (average, reader, drop))
    assert found.seconds == pytest.approx(seconds)
    # Where no job drops them any more, they stay.
    stays = Forecaster(paper.site, paper.resources).of([average], [reader], Machine(8))
    assert stays.most == stays.after == 2 * FILES + 4 * 162_322_944 + 4 * reader.settings.blocks


def test_what_was_kept_is_not_made_again(paper, tmp_path, monkeypatch):
    """Measured checkpoints of runs stay at scale paper; those that averages read do not."""
    monkeypatch.chdir(tmp_path)
    run = paper.trajectories.train("constant-3e-3")
    run.paths.absent.parent.mkdir(parents=True)
    run.paths.absent.write_text("{}")
    drop = next(j for j in every(paper) if j.inputs.get("result") == [run.manifest])
    reader = paper.losses.evaluate("constant-3e-3", "fp", _first(paper, "constant-3e-3"))
    average = paper.trajectories.average("lawa-5", _first(paper, "lawa-5"))
    forecaster = Forecaster(paper.site, paper.resources)
    found = forecaster.of([run, drop], [reader], Machine(8))
    assert found.kinds["train"].again == 0
    kept = len(drop.settings.kept)
    assert found.before == 2 * FILES + kept * 4 * 162_322_944 > 50 * 4 * 162_322_944
    assert forecaster.of([run, drop], [average], Machine(8)).kinds["train"].again == 1


@SLOW
def test_gpus_bound_what_needs_them(paper):
    jobs = every(paper)
    forecaster = Forecaster(paper.site, paper.resources)
    few, many = (forecaster.of([], jobs, Machine(gpus)) for gpus in (8, 64))
    assert few.gpu_seconds == many.gpu_seconds > 0
    for found in (few, many):
        assert found.seconds >= max(found.gpu_seconds / found.machine.gpus, found.chain)
    assert many.seconds < few.seconds
    assert few.most > few.after > 0
    # One GPU takes jobs that ask for more of them.
    assert forecaster.of([], jobs, Machine(1)).seconds > few.seconds
