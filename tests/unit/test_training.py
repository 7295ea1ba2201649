"""Training: updates against an explicit reference, data order, resumption, branches, divergence."""

import csv
import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus.tokens import TrainingData
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.train import train
from ptq_dynamics.train.cross_entropy import CrossEntropy
from ptq_dynamics.train.optimizers.adamw import AdamC, AdamW, IndependentAdamW
from ptq_dynamics.train.optimizers.ademamix import AdEMAMix
from ptq_dynamics.train.optimizers.lion import Lion
from ptq_dynamics.train.optimizers.muon import Muon
from ptq_dynamics.train.optimizers.schedulefree import ScheduleFree
from ptq_dynamics.train.trainer import COLUMNS, Trainer
from ptq_dynamics.trajectories.trajectory import Trajectory, step_id
from safetensors.torch import load_file
from schedulefree import AdamWScheduleFree
from support import artifacts, differing
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer


@pytest.fixture
def settings(workspace):
    return workspace.plan.trajectories.train("trunk").settings


@pytest.fixture
def make(settings, corpus, tmp_path):
    """Trainers with changes to the trunk's settings, each in a folder of its own."""
    count = iter(range(100))

    def do(**changes):
        out = tmp_path / f"out-{next(count)}"
        out.mkdir()
        return Trainer(settings.model_copy(update=changes), out, corpus.subfolder("tokenizer"))

    return do


@pytest.fixture
def data(settings, corpus):
    return TrainingData(corpus, settings.context, settings.batch, settings.seed)


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def begin(trainer, data, steps):
    """The first updates of a run, with what it saves and logs on the way."""
    trainer.cut_curve()
    trainer.save_due()
    for step in range(steps):
        loss, norm = trainer.update(data.at(step))
        trainer.save_due()
        if trainer.step % trainer.settings.log_every == 0 or trainer.step == trainer.settings.last:
            trainer.log(loss, norm)


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# Model and optimizer

KINDS = {"adamw": AdamW, "adamw-independent": IndependentAdamW, "adamc": AdamC}
KINDS |= {"ademamix": AdEMAMix, "lion": Lion, "muon": Muon, "schedule-free": ScheduleFree}
# Share of a weight that one update takes from it, by learning rate, peak rate and λ (section 4).
DECAYS = {
    "adamw": lambda rate, _peak, strength: rate * strength,
    "adamw-independent": lambda rate, peak, strength: strength * rate / peak,
    "adamc": lambda rate, peak, strength: strength * rate**2 / peak,
}


def optimizer_of(settings, kind, **changes):
    """The settings' optimizer as another kind, with changes."""
    own = settings.optimizer.model_dump(exclude={"eps"} if kind == "lion" else set())
    return KINDS[kind](**{**own, "kind": kind, **changes})


def test_cross_entropy_and_its_gradient_are_those_of_torch_in_float64():
    torch.manual_seed(0)
    logits, targets = 5 * torch.randn(3, 7, 11), torch.randint(11, (3, 7))
    logits[0, 0, targets[0, 0]] = -300  # a probability of 0 in float32
    weights, found = torch.randn(3, 7), list[torch.Tensor]()
    for each in (logits.clone().requires_grad_(), logits.double().requires_grad_()):
        if each.dtype == torch.float32:
            losses = CrossEntropy.apply(each, targets)
        else:
            losses = cross_entropy(each.flatten(0, 1), targets.flatten(), reduction="none")
        (losses.view_as(targets) * weights).sum().backward()
        found += [losses.flatten(), each.grad]
    for ours, theirs in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-5, atol=1e-6)


def test_the_model_has_the_papers_architecture(settings):
    model, shape = settings.model.create(settings.vocabulary, seed=3), settings.model
    made = model.config
    assert made.use_parallel_residual and not made.tie_word_embeddings
    assert made.rope_parameters["partial_rotary_factor"] == 0.25
    assert model.num_parameters() == shape.parameters(settings.vocabulary)
    again, other = (shape.create(settings.vocabulary, seed).state_dict() for seed in (3, 4))
    assert equal(model.state_dict(), again) and not equal(again, other)


def reference_loss(model, batch):
    logits = model(batch[:, :-1], use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


class Reference:
    """AdamW of torch in float64, with clipping, and the decay of matrices set for each update."""

    def __init__(self, model, optimizer, clip):
        self.settings, self.model, self.clip = optimizer, model.double(), clip
        groups = ([p for p in model.parameters() if (p.ndim < 2) == low] for low in (False, True))
        options = {"betas": optimizer.betas, "eps": optimizer.eps, "weight_decay": 0.0}
        self.adamw = torch.optim.AdamW([{"params": group} for group in groups], **options)

    def update(self, batch, rate, peak):
        loss = reference_loss(self.model, batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        taken = DECAYS[self.settings.kind](rate, peak, self.settings.weight_decay)
        matrices, vectors = self.adamw.param_groups
        matrices["lr"] = vectors["lr"] = rate
        matrices["weight_decay"] = taken / rate
        self.adamw.step()
        self.adamw.zero_grad()
        return loss.item(), float(norm)


@pytest.mark.parametrize("clip", [0.05, 1e3], ids=["clipped", "not-clipped"])
@pytest.mark.parametrize("kind", DECAYS)
def test_updates_are_those_of_adamw_in_float64(make, settings, data, kind, clip):
    # eps well above the noise of gradients that are zero in float64, such as of unused tokens.
    optimizer = optimizer_of(settings, kind, eps=1e-6)
    trainer = make(optimizer=optimizer, clip=clip)
    twin = settings.model.create(settings.vocabulary, settings.seed)
    reference = Reference(twin, optimizer, clip)
    start = weights(trainer)
    for step in range(4):
        rate = 1e-2 * min(1, (step + 1) / 3)
        assert trainer.rate == pytest.approx(rate)
        loss, norm = trainer.update(data.at(step))
        expected_loss, expected_norm = reference.update(data.at(step), rate, 1e-2)
        assert float(loss) == pytest.approx(expected_loss, rel=1e-5)
        assert float(norm) == pytest.approx(expected_norm, rel=1e-4)
    for name, expected in reference.model.state_dict().items():
        moved = (expected - start[name].double()).norm()
        off = (trainer.model.state_dict()[name].double() - expected).norm()
        assert off <= 2e-3 * moved, (name, float(off), float(moved))


# Data


def test_batches_visit_every_sequence_once_an_epoch_and_depend_on_the_step_alone(corpus):
    data, tokens = TrainingData(corpus, 16, 4, seed=1), np.fromfile(corpus.file("train.bin"), "<u2")
    count = (len(tokens) - 1) // 16
    rows = torch.cat([data.at(step) for step in range(2 * count // 4)]).numpy()
    expected = np.stack([tokens[i * 16 : i * 16 + 17] for i in range(count)])
    for epoch, found in enumerate((rows[:count], rows[count : 2 * count])):
        order = np.random.Generator(np.random.PCG64([1, epoch])).permutation(count)
        assert np.array_equal(found, expected[order][: len(found)])
    assert not np.array_equal(rows[0], rows[count])
    for step in (count // 3, 5, 0):
        assert np.array_equal(data.at(step).numpy(), rows[4 * step : 4 * step + 4])


# States, branches, checkpoints


OWN = {
    "ademamix": {"beta3": 0.999, "alpha": 8.0, "t_alpha_beta3": "1/10"},
    "muon": {"momentum": 0.9},
}


@pytest.mark.parametrize("kind", ["adamw", "ademamix", "lion", "muon", "schedule-free"])
def test_a_state_gives_back_the_same_trainer_or_is_a_problem(make, settings, data, tmp_path, kind):
    optimizer = optimizer_of(settings, kind, **OWN.get(kind, {}))
    one, other = make(optimizer=optimizer), make(optimizer=optimizer, seed=5)
    path = tmp_path / "state-0000003.safetensors"
    for step in range(3):
        one.update(data.at(step))
    one.save(path)
    other.load(path)
    assert other.step == 3 and equal(weights(one), weights(other))
    for step in range(3, 5):
        for trainer, name in ((one, "one"), (other, "other")):
            trainer.update(data.at(step))
            trainer.save(tmp_path / name)
    assert equal(*(load_file(tmp_path / name) for name in ("one", "other")))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Problem, match="is no readable training state"):
        other.load(path)


def test_checkpoints_without_a_schedule_hold_the_average_and_leave_the_run_alone(
    make, settings, data, tmp_path
):
    optimizer = optimizer_of(settings, "schedule-free")
    trainer = make(optimizer=optimizer)
    begin(trainer, data, 6)  # with checkpoints on the way
    model = settings.model.create(settings.vocabulary, settings.seed)
    matrices, vectors = ([p for p in model.parameters() if (p.ndim < 2) == low] for low in (0, 1))
    decay = {"params": matrices, "weight_decay": optimizer.weight_decay}
    own = AdamWScheduleFree([decay, {"params": vectors}], betas=optimizer.betas, eps=optimizer.eps)
    own.train()
    for step in range(6):
        for group in own.param_groups:
            group["lr"] = settings.schedule.learning_rate(step)
        rows = data.at(step)
        cost = settings.objective.loss(model, rows, None) / settings.objective.count(rows)
        cost.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        own.step()
        own.zero_grad()
    assert equal(weights(trainer), model.state_dict())
    trainer.save(tmp_path / train.state_name(6))
    other = make(optimizer=optimizer)
    other.load(tmp_path / train.state_name(6))
    for found, expected in zip(other._optimizer.param_groups, own.param_groups, strict=True):
        assert all(found[name] == expected[name] for name in ("k", "lr_max", "weight_sum"))
    own.eval()
    saved = AutoModelForCausalLM.from_pretrained(trainer.out / step_id(6))
    assert equal(saved.state_dict(), model.state_dict())
    assert not equal(weights(trainer), model.state_dict())


def test_a_branch_is_one_uninterrupted_run_bit_for_bit(workspace, trunk, branch, tmp_path):
    with_cooldown = workspace.plan.trajectories.train("branch").settings.schedule
    assert (with_cooldown.start, with_cooldown.length) == (12, 8)
    single = workspace.beside(tmp_path).build(
        workspace.plan.trajectories.train("trunk"), schedule=with_cooldown.model_dump(), last=20
    )
    points = Trajectory([branch]).checkpoints
    expected = [(s, "cooldown", pytest.approx(1e-2 * (20 - s) / 8)) for s in (12, 14, 16, 18, 20)]
    assert [(point.step, point.phase, point.lr) for point in points] == expected
    for point in points:
        file = f"{point.id}/model.safetensors"
        assert equal(load_file(branch.folder / file), load_file(single.folder / file)), point.step
    rows = [
        [row for row in curve(found.folder) if int(row["step"]) > 12] for found in (branch, single)
    ]
    assert rows[0] == rows[1] and len(rows[0]) == 4


def test_a_branch_of_an_average_has_its_weights_and_the_trunks_moments(
    workspace, trunk, corpus, make, data, tmp_path
):
    """Also after an interruption, from the state in the scratch folder."""
    plans = workspace.plan.trajectories
    average = workspace.build(plans.average("lawa-at-12"))
    job = plans.train("branch-of-average")
    whole, settings = workspace.build(job), job.settings
    saved = [
        load_file(each.folder / step_id(12) / "model.safetensors") for each in (average, whole)
    ]
    assert equal(*saved)
    trainer = make(**{name: getattr(settings, name) for name in type(settings).model_fields})
    trainer.load(trunk.file(train.state_name(12)))
    mean = AutoModelForCausalLM.from_pretrained(average.folder / step_id(12))
    trainer.model.load_state_dict(mean.state_dict())
    trainer.cut_curve()
    trainer.save_due()
    while trainer.step < 15:
        trainer.update(data.at(trainer.step))
        trainer.save_due()
    trainer.save(tmp_path / train.state_name(15))
    inputs = {"corpus": [corpus], "trunk": [trunk], "weights": [average]}
    train.run(Context("test", settings, inputs, trainer.out, tmp_path, Progress("test")))
    for point in Trajectory([whole]).checkpoints:
        ends = [
            load_file(each / point.id / "model.safetensors") for each in (whole.folder, trainer.out)
        ]
        assert equal(*ends), point.step


def curve(folder):
    with (folder / train.CURVE).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("off", "agrees"), [(0.009, True), (-0.011, False), (math.nan, False)])
def test_two_trainings_agree_where_their_curves_end_alike(tmp_path, off, agrees):
    for folder, end in (("first", 3.0), ("second", 3.0 + off)):
        (tmp_path / folder).mkdir()
        losses = [*np.linspace(10.0 - end, 4.0, 180).tolist(), *[end] * 20]
        (tmp_path / folder / train.CURVE).write_text("\n".join(["loss", *map(str, losses)]))
    with nullcontext() if agrees else pytest.raises(Problem, match="nats/token, which is more"):
        assert "3.0090 instead of 3.0000" in train.agree(tmp_path / "first", tmp_path / "second")


def test_a_run_in_two_parts_is_the_run_in_one(make, data, tmp_path, trunk):
    """The state that a killed run leaves in its scratch folder leads to the same end; not where
    checkpoints before it are gone."""
    one, state = make(), tmp_path / train.state_name(9)
    begin(one, data, 9)
    one.save(state)
    # What a killed run may leave: later rows, half a row, half a checkpoint, half a state.
    with (one.out / train.CURVE).open("a") as file:
        file.write("10,640,2.5,0.01,1.0,8.0\n12,7")
    (one.out / ".partial-step-0000010").mkdir()
    (tmp_path / ".partial-state-0000010.safetensors").write_bytes(b"half")
    other = Trainer(one.settings, one.out, one._tokenizer)
    (one.out / step_id(2)).rename(tmp_path / "elsewhere")
    assert train.latest_state(tmp_path, other) is None
    (tmp_path / "elsewhere").rename(one.out / step_id(2))
    assert train.latest_state(tmp_path, other) == state
    other.load(state)
    train.train(other, data, Context("test", one.settings, {}, one.out, tmp_path, Progress("test")))
    found, expected = artifacts(one.out), artifacts(trunk.folder)
    expected = {name: expected[name] for name in expected if "/" in name or name in found}
    assert not differing(found, expected)


def test_checkpoints_are_what_hugging_face_tools_load(trunk, settings):
    points = Trajectory([trunk]).checkpoints
    assert [point.step for point in points] == list(range(2, 25, 2))
    assert [point.tokens for point in points] == [step * 4 * 16 for step in range(2, 25, 2)]
    assert [point.phase for point in points] == ["warmup", *["stable"] * 11]
    folder = trunk.folder / points[-1].id
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert type(model).__name__ == "GPTNeoXForCausalLM" and model.dtype == torch.float32
    assert tokenizer.decode(tokenizer.encode("Some text, é.")) == "Some text, é."
    assert len(tokenizer) == settings.vocabulary == model.config.vocab_size
    saved = load_file(folder / "model.safetensors")
    # transformers names the output head of every architecture lm_head.
    saved["lm_head.weight"] = saved.pop("embed_out.weight")
    assert equal(saved, model.state_dict())
    assert trunk.facts["parameters"] == model.num_parameters()
    assert trunk.facts["tokens_processed"] == points[-1].tokens


def test_the_curve_holds_every_logged_step(trunk, settings, make, data):
    rows = curve(trunk.folder)
    assert tuple(rows[0]) == COLUMNS
    assert [int(row["step"]) for row in rows] == list(range(2, 25, 2))
    trainer = make()
    losses = [trainer.update(data.at(step)) for step in range(4)]
    row = rows[1]
    assert float(row["loss"]) == float(losses[3][0])
    assert float(row["gradient_norm"]) == float(losses[3][1])
    norm = math.sqrt(sum(p.double().square().sum().item() for p in trainer.model.parameters()))
    assert float(row["weight_norm"]) == pytest.approx(norm, rel=1e-5)
    assert float(row["lr"]) == settings.schedule.peak
    assert int(row["tokens"]) == 4 * 4 * 16


# Divergence


@pytest.mark.parametrize("log_every", [1, 1000], ids=["logged", "checkpoint"])
def test_a_diverged_run_stops_with_one_line_and_leaves_its_curve(
    workspace, tmp_path, capsys, log_every
):
    job = workspace.plan.trajectories.train("trunk")
    schedule = job.settings.schedule.model_dump() | {"peak": 1e30}
    here = workspace.beside(tmp_path)
    assert here.attempt(job, schedule=schedule, log_every=log_every) == 1
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert "diverged: the loss is nan at step" in error and "lower its peak_lr" in error
    assert not (tmp_path / job.manifest).exists()
    left = tmp_path / error.rpartition("the curve so far is ")[2].partition(" (log: ")[0]
    rows = curve(left.parent)
    assert [int(row["step"]) for row in rows] == list(range(1, len(rows) + 1))
    assert bool(rows) == (log_every == 1)
