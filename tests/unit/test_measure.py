"""What is measured of a trajectory: losses against transformers' own, answers against the harness's
own numbers, and the statistics made of them."""

import json

import numpy as np
import pytest
import torch
import yaml
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import tokens
from ptq_dynamics.corpus.sources.embedded import train_tokenizer
from ptq_dynamics.engine import manifest
from ptq_dynamics.measure import answers, measurements
from ptq_dynamics.measure.names import (
    ACCURACY,
    DEGRADATION,
    FULL_PRECISION,
    LOSSES,
    MEAN,
    OUTCOMES,
    VALUES,
)
from ptq_dynamics.measure.series import TaskSettings
from ptq_dynamics.trajectories.trajectory import Trajectory
from safetensors.numpy import load_file
from support import Workspace, figure, plan, python, tiny_config
from tiny import create
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def blocks(corpus):
    return tokens.blocks(corpus, "validation", 16, 32)


def own_losses(model, blocks):
    with torch.no_grad():
        found = [model(block[None], labels=block[None]).loss.item() for block in blocks]
    return torch.tensor(found)


@pytest.mark.parametrize("batch", [1, 5, 8, 64])
def test_block_losses_are_those_of_transformers_whatever_the_batch(trunk, blocks, batch):
    model = models.load(trunk.folder / Trajectory([trunk]).checkpoints[-1].id)
    found = models.block_losses(model, blocks, batch)
    assert (found - own_losses(model, blocks)).abs().max() < 2e-6
    assert found.dtype == torch.float32 and found.shape == (32,)
    assert found.std() > 0.01, "blocks do not differ, so that their order would not matter"


@pytest.mark.parametrize("method", ["fp", "rtn3"])
def test_a_job_keeps_the_losses_of_every_measured_checkpoint(workspace, trunk, rtn, blocks, method):
    job = workspace.plan.measurements.measure("trunk", method, "all", 100)
    found, source = (workspace.build(job), trunk) if method == "fp" else (rtn, rtn)
    losses, points = load_file(found.file(LOSSES)), Trajectory([found]).checkpoints
    planned = workspace.plan.site.planned["trunk"].measured
    assert [(point.id, point.step) for point in points] == planned
    assert losses.keys() == {point.id for point in points}
    for point in points:
        model = AutoModelForCausalLM.from_pretrained(source.folder / point.id)
        gap = abs(losses[point.id] - own_losses(model, blocks).numpy()).max()
        assert gap < 2e-6, (point.step, gap)
        assert found.facts["digests"][point.id] == Trajectory([source]).digest(point)
    assert len(set(found.facts["digests"].values())) == len(points)


def test_divergence_and_agreement_of_quantized_predictions_are_those_of_their_distributions(
    workspace, trunk, rtn, blocks, tmp_path
):
    place = workspace.beside(tmp_path, None, "trunk")
    job = place.plan.measurements.measure("trunk", "rtn3", "all", 100)
    built = place.build(job, metrics=({"metric": "kl_divergence"}, {"metric": "top1_agreement"}))
    assert built.file(LOSSES).read_bytes() == rtn.file(LOSSES).read_bytes()
    found = measurements.read_table(built.file(VALUES)).set_index(["checkpoint_id", "metric"])
    points = Trajectory([rtn]).checkpoints
    assert [*found.index.unique(0)] == [point.id for point in points]
    for name in (point.id for point in points):
        folders = trunk.folder / name, rtn.folder / name
        p, q = (
            AutoModelForCausalLM.from_pretrained(folder)(blocks[:, :-1]).logits.double().softmax(-1)
            for folder in folders
        )
        expected = {"kl_divergence": (p * (p / q).log()).sum(-1)}
        expected["top1_agreement"] = (p.max(-1).indices == q.max(-1).indices).double()
        for metric, tokens_ in expected.items():
            means, row = tokens_.mean(1), found.loc[name, metric]
            error = means.std() / len(means) ** 0.5
            assert row.value == pytest.approx(means.mean().item(), rel=1e-5), metric
            assert row.stderr == pytest.approx(error.item(), rel=1e-4), metric


def rewritten(workspace, trunk, folder, change):
    """A workspace with the trunk, of which all models are changed."""
    place = workspace.beside(folder, None, "trunk")
    run = folder / place.plan.trajectories.train("trunk").folder
    for point in Trajectory([trunk]).checkpoints:
        model = AutoModelForCausalLM.from_pretrained(run / point.id)
        change(model).save_pretrained(run / point.id)
    path = run / "manifest.json"
    path.write_text(manifest.describe(run, path, trunk.facts).text())
    return place


@pytest.fixture(scope="module")
def halves(workspace, trunk, tmp_path_factory):
    """Workspaces with a trunk in bfloat16, and with the same weights in float32."""
    ways = (lambda model: model.bfloat16(), lambda model: model.bfloat16().float())
    return [rewritten(workspace, trunk, tmp_path_factory.mktemp("half"), way) for way in ways]


FULL = {
    "losses": lambda plan: plan.measurements.measure("trunk", "fp", "all", 100),
    "gptq": lambda plan: plan.measurements.measure("trunk", "gptq3", "all", 100),
    "sharpness": lambda plan: plan.measurements.curvature("trunk", "sharpness", "all", 100),
    "landscape": lambda plan: plan.figures.landscape("trunk", "gptq3", 2),
    "rtn": lambda plan: plan.measurements.measure("trunk", "rtn3", "all", 100),
    "awq": lambda plan: plan.measurements.measure("trunk", "awq-4bit", "all", 100),
    "int8": lambda plan: plan.measurements.measure("trunk", "int8", "all", 100),
}


@pytest.mark.parametrize("name", FULL)
def test_full_precision_is_float32_whatever_the_dtype(halves, name):
    half, whole = (place.build(FULL[name](place.plan)) for place in halves)
    tables = {each for each in whole.files if each.endswith((".csv", "losses.safetensors"))}
    # Errors of layers are those of a model in the dtype that it has.
    for table in tables - {"layers.csv"}:
        assert half.file(table).read_bytes() == whole.file(table).read_bytes(), table


def test_a_loss_that_is_not_finite_is_one_line(workspace, trunk, tmp_path):
    """Weights that float32 holds, and activations that it does not."""

    def change(model):
        next(iter(models.linear_layers(model).values())).weight.data.sign_().mul_(1e38)
        return model

    place = rewritten(workspace, trunk, tmp_path, change)
    with pytest.raises(AssertionError, match=r"the loss of step-\d+ is not finite; leave"):
        place.build(place.plan.measurements.measure("trunk", "rtn3", "all", 100))


# Answers to tasks, with a context that five shots fit in

AMOUNTS = {"evaluation": 2, "calibration": 2, "curvature": 4, "landscape": 2}
TASKS = {"names": ["word", "ending", "prose"], "documents": 12, "pool": 8, "at_chance": ["prose"]}
TASKS |= {"shots": 5, "shots_of": {"prose": 1}, "batch": 8, "context": 128}
METRICS = [ACCURACY, DEGRADATION]
FIGURE = figure("stages", {"trunk": ["trunk"]}, METRICS, quantizers=["gptq3", "rtn3"])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("accuracy")
    longer = {key: {"blocks": blocks} for key, blocks in AMOUNTS.items()}
    longer |= {"models": {"main": {"context": 128}}, "tasks": TASKS}
    config = tiny_config(folder, longer, figures={"accuracies": FIGURE})
    return Workspace(folder, plan("smoke", config))


@pytest.fixture(scope="module")
def measured(place):
    """What was measured under a quantizer, or in full precision."""
    return lambda method: place.make(place.plan.measurements.measure("trunk", method, "all", 100))


def outcomes_of(found, task):
    every = load_file(found.file(OUTCOMES))
    return {name.split("/")[1]: value for name, value in every.items() if name.startswith(task)}


@pytest.fixture(scope="module")
def harness(place, measured):
    """Where the command line of the harness wrote its results on two tasks."""
    definitions, out = place.folder / "tasks", place.folder / "out"
    definitions.mkdir()
    for name in ("word", "prose"):
        made = place.make(place.plan.trajectories.task(name, "main"))
        about = yaml.safe_load(made.file("task.yaml").read_text())
        about["num_fewshot"] = place.plan.site.config.scale.tasks.shots_before(name)
        files = about["dataset_kwargs"]["data_files"].items()
        about["dataset_kwargs"]["data_files"] = {key: str(made.folder / f) for key, f in files}
        (definitions / f"{name}.yaml").write_text(yaml.safe_dump(about))
    last = Trajectory([measured("fp")]).checkpoints[-1]
    model = place.manifest(place.plan.trajectories.train("trunk")).folder / last.id
    command = "-m lm_eval --model hf --device cpu --batch_size 8 --log_samples --tasks word,prose"
    command += f" --include_path {definitions} --output_path {out} --model_args pretrained={model}"
    done = python(command.split(), place.folder, {"HF_HOME": str(place.folder / "cache")})
    assert done.returncode == 0, done.stderr[-2000:]
    return out


@pytest.mark.parametrize(("name", "metric"), [("word", "acc"), ("prose", "acc_norm")])
def test_outcomes_are_those_of_the_harness_on_the_command_line(measured, harness, name, metric):
    (results,), (samples,) = (list(harness.rglob(each)) for each in ("results_*", f"*_{name}_*"))
    said = json.loads(results.read_text())["results"][name]
    lines = sorted(map(json.loads, samples.read_text().splitlines()), key=lambda s: s["doc_id"])
    last = Trajectory([measured("fp")]).checkpoints[-1]
    right = outcomes_of(measured("fp"), name)[last.id]
    assert [line[metric] for line in lines] == right.tolist() and right.dtype == np.float32
    mean, stderr = measurements.mean_and_error(right)
    assert said[f"{metric},none"] == mean
    assert said[f"{metric}_stderr,none"] == pytest.approx(stderr, rel=1e-12)
    assert 0 < mean < 1


def test_nothing_is_cut_from_the_left(place, measured):
    measured("fp")
    trunk = place.manifest(place.plan.trajectories.train("trunk"))
    folder = trunk.folder / Trajectory([trunk]).checkpoints[-1].id
    asked = TaskSettings(task="word", documents=None, shots=5, batch=8, context=20)
    whole = answers.AnsweringModel(
        asked, models.load(folder), AutoTokenizer.from_pretrained(folder)
    )
    parts = answers.load_parts(place.make(place.plan.trajectories.task("word", "main")))
    with pytest.raises(Problem, match=r"with 5 shots has \d+ tokens, more than .* of 20"):
        answers.model_outcomes(whole, parts)


def test_answers_are_scored_without_what_the_tokenizer_puts_after_a_text():
    ours = train_tokenizer(["Yes. Well, no. " * 9], 280)
    ours.add_special_tokens(["<s>", "</s>"])
    marks = [(token, ours.token_to_id(token)) for token in ("<s>", "</s>")]
    ours.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=marks)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=ours, bos_token="<s>", eos_token="</s>")
    settings = TaskSettings(task="word", documents=None, shots=0, batch=8, context=64)
    model = answers.AnsweringModel(settings, create(vocab_size=len(tokenizer)), tokenizer)
    before, after = model._encode_pair("Yes. Well,", " no.")
    assert before == [marks[0][1], *ours.encode("Yes. Well,", add_special_tokens=False).ids]
    assert after == ours.encode(" no.", add_special_tokens=False).ids


@pytest.fixture(scope="module")
def table(place, measured):
    """The measurements that a figure of accuracies reads."""
    job = place.plan.figures.figure("accuracies")
    for method in (FULL_PRECISION, "gptq3", "rtn3"):
        measured(method)
    inputs = {label: [place.read(path) for path in paths] for label, paths in job.inputs.items()}
    assert measurements.chances(inputs) == {"word": 0.25, "ending": 0.25, "prose": 0.5, MEAN: 0.25}
    return measurements.join(job.settings.series, inputs)


def test_rows_are_those_of_the_outcomes_and_the_mean_leaves_out_what_is_at_chance(measured, table):
    full, quantized = (outcomes_of(measured(name), "word") for name in ("fp", "rtn3"))
    for metric in (ACCURACY, DEGRADATION):
        rows = table[(table.metric == metric) & (table.quantizer == "rtn3")]
        for name, found in rows.groupby("checkpoint_id"):
            found = found.set_index("task")
            before, after = full[name].mean(), quantized[name].mean()
            expected = after if metric == ACCURACY else (before - after) / (1 - before)
            assert found.value["word"] == pytest.approx(expected)
            if metric == ACCURACY:
                inside = found.loc[["word", "ending"]]
                assert found.value[MEAN] == pytest.approx(inside.value.mean())
                assert found.stderr[MEAN] == pytest.approx(np.hypot(*inside.stderr) / 2)
