"""Accuracies: the harness's own numbers, and the errors of what is made of them."""

import json
import logging
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from lm_eval.models.huggingface import HFLM
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.measure import accuracy, joining, measurements
from ptq_dynamics.measure.names import (
    ACCURACY,
    DEGRADATION,
    FULL_PRECISION,
    MEAN,
    OUTCOMES,
)
from ptq_dynamics.measure.tasks import loading
from ptq_dynamics.train.trajectory import Trajectory
from safetensors.numpy import load_file
from support import Workspace, artifacts, differing, edit_yaml, figure, plan, tiny_config
from transformers import AutoModelForCausalLM, AutoTokenizer

# With a context that five shots fit in.
AMOUNTS = {"evaluation": 2, "calibration": 2, "curvature": 4, "landscape": 2}
TASKS = {
    "names": ["word", "ending", "prose"],
    "documents": 12,
    "pool": 8,
    "shots": 5,
    "shots_of": {"prose": 1},
    "batch": 8,
    "context": 128,
    "at_chance": ["prose"],
}
FIGURE = figure(
    "stages", {"trunk": ["trunk"]}, [ACCURACY, DEGRADATION], quantizers=["gptq3", "rtn3"]
)


def longer(scale):
    scale["models"]["main"]["context"] = 128
    for key, blocks in AMOUNTS.items():
        scale[key]["blocks"] = blocks
    scale["tasks"] |= TASKS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("accuracy")
    config = tiny_config(folder)
    edit_yaml(config / "scales/smoke.yaml", longer)
    edit_yaml(config / "figures.yaml", lambda found: found.update(accuracies=FIGURE))
    return Workspace(folder, plan("smoke", config))


@pytest.fixture(scope="module")
def measured(place):
    """Outcomes on a task under a quantizer, or in full precision."""

    def do(task, method):
        return place.make(place.plan.tasks.accuracy("trunk", method, task))

    return do


@pytest.fixture(scope="module")
def task(place):
    return lambda name: place.make(place.plan.tasks.made(name, "main"))


def test_a_job_keeps_outcomes_of_every_measured_checkpoint(place, measured):
    found = measured("word", "fp")
    right = load_file(found.file(OUTCOMES))
    planned = [point.id for point in place.plan.site.timeline.measured("trunk")]
    assert list(right) == planned and len(planned) > 1
    for values in right.values():
        assert values.dtype == np.float32 and values.shape == (12,)
        assert set(values) <= {0.0, 1.0}
    facts = found.facts
    assert (facts["task"], facts["documents"], facts["metric"]) == ("word", 12, ["acc"])
    assert facts["chance"] == 0.25 and measured("prose", "fp").facts["chance"] == 0.5
    source = Trajectory([place.manifest(place.plan.trajectories.train("trunk"))])
    assert facts["digests"] == {name: source.digest(at(source, name)) for name in planned}


def at(source, name):
    return next(each for each in source.checkpoints if each.id == name)


def test_the_same_job_gives_equal_bytes_and_writes_nowhere_else(place, measured, monkeypatch):
    first = artifacts(measured("word", "fp").folder)
    home = place.folder / "home"
    home.mkdir()
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setenv("HOME", str(home))
    before = {path for path in place.folder.rglob("*") if path.is_file()}
    again = place.build(place.plan.tasks.accuracy("trunk", "fp", "word"))
    assert not differing(first, artifacts(again.folder))
    more = {path for path in place.folder.rglob("*") if path.is_file()} - before
    assert all(path.is_relative_to(again.folder) for path in more), more


@pytest.mark.slow
@pytest.mark.parametrize("name", ["word", "prose"])
def test_outcomes_are_those_of_the_harness_on_the_command_line(place, measured, task, name):
    found, made = measured(name, "fp"), task(name)
    trunk = place.manifest(place.plan.trajectories.train("trunk"))
    last = Trajectory([found]).checkpoints[-1]
    shots = place.plan.site.config.scale.tasks.shots_before(name)
    out = place.folder / f"out-{name}"
    command = [sys.executable, "-m", "lm_eval", "--model", "hf", "--device", "cpu"]
    command += ["--model_args", f"pretrained={trunk.folder / last.id}"]
    command += ["--include_path", ".", "--tasks", name, "--num_fewshot", str(shots)]
    command += ["--batch_size", "8", "--output_path", str(out), "--log_samples"]
    environment = {**os.environ, "HF_HOME": str(place.folder / "cache"), "OMP_NUM_THREADS": "1"}
    # The definition names its files as they lie beside it.
    done = subprocess.run(
        command, cwd=made.folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (results,) = out.rglob("results_*.json")
    (samples,) = out.rglob("samples_*.jsonl")
    metric = found.facts["metric"][0]
    said = json.loads(results.read_text())["results"][name]
    lines = sorted(map(json.loads, samples.read_text().splitlines()), key=lambda s: s["doc_id"])
    right = load_file(found.file(OUTCOMES))[last.id]
    assert [line[metric] for line in lines] == right.tolist()
    mean, stderr = measurements.mean_and_error(right)
    assert said[f"{metric},none"] == mean
    assert said[f"{metric}_stderr,none"] == pytest.approx(stderr, rel=1e-12)
    assert 0 < mean < 1


def likelihoods(model, parts):
    """Of every choice, as a model has them."""
    right = accuracy.outcomes(model, parts, 5, None)
    return right.tolist(), [each.resps for _, task in parts for each in task.instances]


def test_a_packed_checkpoint_in_transformers_has_the_same_outcomes(place, measured, task):
    found = measured("ending", "gptq3")
    packed = place.manifest(place.plan.quantization.quantize("trunk", "gptq3"))
    parts = loading.load(task("ending"))
    for name, right in load_file(found.file(OUTCOMES)).items():
        folder = packed.folder / name
        assert "quantization_config" in json.loads((folder / "config.json").read_text())
        plain = HFLM(
            pretrained=AutoModelForCausalLM.from_pretrained(folder),
            tokenizer=AutoTokenizer.from_pretrained(folder),
            max_length=128,
            batch_size=8,
        )
        outcomes, theirs = likelihoods(plain, parts)
        assert outcomes == right.tolist()
        assert theirs == likelihoods(loaded(place, folder, None), parts)[1]
    trunk = place.manifest(place.plan.trajectories.train("trunk"))
    full = loaded(place, trunk.folder / name, torch.float32)
    assert theirs != likelihoods(full, parts)[1]


def loaded(place, folder, dtype, **changes):
    """A checkpoint as jobs evaluate it."""
    settings = place.plan.tasks.accuracy("trunk", "fp", "ending").settings
    return accuracy._model(folder, dtype, "word", replace(settings, **changes))


@pytest.mark.parametrize(("full", "dtype"), [(True, torch.float32), (False, None)])
def test_full_precision_is_float32_and_quantized_models_keep_their_dtype(
    place, measured, monkeypatch, full, dtype
):
    measured("word", "fp")
    seen, load = [], accuracy.models.load

    def noted(folder, asked):
        seen.append(asked)
        return load(folder, asked)

    monkeypatch.setattr(accuracy.models, "load", noted)
    job = place.plan.tasks.accuracy("trunk", "fp", "word")
    place.build(job, full_precision=full)
    assert {*seen} == {dtype}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"context": 20}, r"task word: a prompt with 5 shots has \d+ tokens, more than .* of 20"),
        ({"backend": "vllm"}, "tasks.backend is vllm, which is not installed"),
    ],
)
def test_what_cannot_be_evaluated_is_said_in_one_line(place, measured, capfd, changes, said):
    measured("word", "fp")
    job = place.plan.tasks.accuracy("trunk", "fp", "word")
    assert place.attempt(job, **changes) == 1
    (line,) = [each for each in capfd.readouterr().err.splitlines() if each.startswith("error")]
    assert re.search(said, line)


def test_nothing_is_cut_from_the_left(place, measured, task):
    measured("word", "fp")
    trunk = place.manifest(place.plan.trajectories.train("trunk"))
    folder = trunk.folder / Trajectory([trunk]).checkpoints[-1].id
    with pytest.raises(Problem, match="more than the context of 20"):
        likelihoods(loaded(place, folder, torch.float32, context=20), loading.load(task("word")))


# Measurements


@pytest.fixture(scope="module")
def table(place):
    job = place.plan.figures.figure("accuracies")
    inputs = {}
    for label, paths in job.inputs.items():
        for path in paths:
            place.make(place.plan.site.made[path])
        inputs[label] = [place.read(path) for path in paths]
    return joining.join(job.settings.series, inputs), job, inputs


def test_a_figure_of_accuracies_reads_all_tasks_of_the_scale(place, table):
    frame, job, inputs = table
    quantizers = {FULL_PRECISION, "gptq3", "rtn3"}
    assert set(frame.task) == {"word", "ending", "prose", MEAN}
    assert set(frame[frame.metric == DEGRADATION].quantizer) == quantizers - {FULL_PRECISION}
    assert set(frame[frame.metric == ACCURACY].quantizer) == quantizers
    points = len(place.plan.site.timeline.measured("trunk"))
    assert len(frame) == points * 4 * (3 + 2)
    assert not frame.duplicated(measurements.KEY).any()
    read = {label for label in job.inputs if not label.startswith("run ")}
    assert read <= {*place.plan.figures.collect().inputs}
    chance = joining.chances(inputs)
    assert chance == {"word": 0.25, "ending": 0.25, "prose": 0.5, MEAN: 0.25}


def test_the_mean_leaves_out_what_is_at_chance(table):
    frame, _, _ = table
    for metric in (ACCURACY, DEGRADATION):
        rows = frame[frame.metric == metric].set_index([*measurements.KEY[:4], "task"]).sort_index()
        for key in {index[:4] for index in rows.index}:
            found = rows.loc[key]
            values = [found.value[task] for task in ("word", "ending")]
            errors = [found.stderr[task] for task in ("word", "ending")]
            assert found.value[MEAN] == pytest.approx(np.mean(values))
            assert found.stderr[MEAN] == pytest.approx(np.hypot(*errors) / 2)


def test_rows_are_those_of_the_outcomes(place, measured, table):
    frame, _, _ = table
    full = load_file(measured("word", "fp").file(OUTCOMES))
    quantized = load_file(measured("word", "rtn3").file(OUTCOMES))
    rows = frame[(frame.task == "word") & (frame.quantizer == "rtn3")]
    for row in rows.itertuples():
        before, after = full[row.checkpoint_id].mean(), quantized[row.checkpoint_id].mean()
        if row.metric == ACCURACY:
            assert row.value == pytest.approx(after)
        else:
            assert row.value == pytest.approx((before - after) / (1 - before))


@pytest.fixture(scope="module")
def pairs():
    """Outcomes of some tasks in full precision and quantized, which are right together often."""
    random = np.random.default_rng(0)
    found = []
    for level, documents in ((0.4, 600), (0.6, 400), (0.75, 800)):
        full = random.random(documents) < level
        lost, won = random.random(documents) < 0.15, random.random(documents) < 0.08
        found.append((full.astype(np.float32), np.where(full, ~lost, won).astype(np.float32)))
    return found


def drawn(pairs, seed):
    """Degradation of the mean accuracy over tasks, and that, of documents drawn again."""
    random = np.random.default_rng(seed)
    accuracies = []
    for full, quantized in pairs:
        chosen = random.integers(0, len(full), len(full))
        accuracies.append((full[chosen].mean(), quantized[chosen].mean()))
    before, after = np.mean(accuracies, axis=0)
    return (before - after) / (1 - before), after


@pytest.mark.parametrize("count", [1, 3])
def test_errors_are_those_of_a_bootstrap_over_documents(pairs, count):
    chosen = pairs[:count]
    samples = np.array([drawn(chosen, seed) for seed in range(3000)])
    degradation = measurements.degradation(chosen)
    right = measurements.mean_over_tasks([measurements.mean_and_error(q) for _, q in chosen])
    for (value, error), column in zip((degradation, right), samples.T, strict=True):
        assert error == pytest.approx(column.std(), rel=0.06)
        assert value == pytest.approx(column.mean(), abs=0.2 * error)
    # Unpaired, it would be larger.
    apart = [np.hypot(*(measurements.mean_and_error(o)[1] for o in pair)) for pair in chosen]
    before = np.mean([full.mean() for full, _ in chosen])
    assert degradation[1] < measurements.mean_over_tasks([(0, e) for e in apart])[1] / (1 - before)


def test_degradation_is_the_papers():
    full, quantized = np.float32([1, 1, 1, 0, 0]), np.float32([1, 0, 1, 0, 0])
    value, _ = measurements.degradation([(full, quantized)])
    assert value == pytest.approx((0.6 - 0.4) / (1 - 0.6))
    assert np.isnan(measurements.degradation([(np.ones(4), quantized[:4])])).all()


def test_a_scale_without_tasks_has_no_figure_of_accuracies(tmp_path):
    config = tiny_config(tmp_path)
    edit_yaml(config / "scales/smoke.yaml", lambda scale: scale.pop("tasks"))
    edit_yaml(config / "figures.yaml", lambda found: found.clear() or found.update(mine=FIGURE))
    with pytest.raises(Problem, match=r"mine.metrics has accuracy, but .*smoke.yaml has no tasks"):
        plan("smoke", config)


def test_the_harness_is_quiet(place, capfd):
    logging.getLogger("lm_eval").setLevel(logging.INFO)
    place.build(place.plan.tasks.accuracy("trunk", "fp", "word"))
    said = capfd.readouterr()
    assert said.out == "" and len(said.err.splitlines()) <= 2
