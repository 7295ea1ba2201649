"""Training: updates against an explicit reference, data order, resumption, branches, divergence."""

import csv
import math
from dataclasses import asdict, replace
from functools import cache

import numpy as np
import pytest
import torch
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Whole
from ptq_dynamics.corpus.tokens import TrainingData
from ptq_dynamics.engine.context import Progress
from ptq_dynamics.train import train
from ptq_dynamics.train.optimizers.adamc import AdamC
from ptq_dynamics.train.optimizers.adamw import AdamW
from ptq_dynamics.train.optimizers.adamw_independent import IndependentAdamW
from ptq_dynamics.train.train import Trainer
from ptq_dynamics.train.trajectory import Trajectory, step_id
from safetensors.torch import load_file
from support import Workspace, artifacts, begin, copy_results, differing
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


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# Model and optimizer

KINDS = {"adamw": AdamW, "adamw-independent": IndependentAdamW, "adamc": AdamC}
# Share of a weight that one update takes from it, by learning rate, peak rate and λ (section 4).
DECAYS = {
    "adamw": lambda rate, _peak, strength: rate * strength,
    "adamw-independent": lambda rate, peak, strength: strength * rate / peak,
    "adamc": lambda rate, peak, strength: strength * rate**2 / peak,
}


def optimizer_of(settings, kind, **changes):
    """The settings' optimizer as another kind, with changes."""
    return KINDS[kind](**{**settings.optimizer.model_dump(), "kind": kind, **changes})


def test_the_model_has_the_papers_architecture(settings):
    model, shape = settings.model.create(settings.vocabulary, seed=3), settings.model
    made = model.config
    assert made.use_parallel_residual
    assert not made.tie_word_embeddings
    assert made.rope_parameters["partial_rotary_factor"] == 0.25
    assert (made.attention_dropout, made.hidden_dropout) == (0.0, 0.0)
    width, feedforward, vocabulary = shape.width, shape.feedforward, settings.vocabulary
    block = 4 * width**2 + 4 * width + 2 * width * feedforward + feedforward + width + 4 * width
    expected = 2 * vocabulary * width + shape.layers * block + 2 * width
    assert model.num_parameters() == expected == shape.parameters(vocabulary)
    again, other = (shape.create(vocabulary, seed) for seed in (3, 4))
    assert equal(model.state_dict(), again.state_dict())
    assert not equal(model.state_dict(), other.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_weight_decay_is_on_matrices_and_on_nothing_else(settings, kind):
    model, chosen = settings.model.create(settings.vocabulary, 0), optimizer_of(settings, kind)
    optimizer = chosen.make(model, settings.budget)
    chosen.set_rate(optimizer, 0.005, 0.01)
    # What torch multiplies with the rate.
    decay = DECAYS[kind](0.005, 0.01, 0.1) / 0.005
    name_of = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        assert group["lr"] == 0.005
        for parameter in group["params"]:
            name = name_of.pop(id(parameter))
            matrix = name.endswith("weight") and "norm" not in name
            assert matrix or name.endswith("bias") or "norm" in name, name
            assert group["weight_decay"] == (pytest.approx(decay) if matrix else 0.0), name
    assert not name_of, "every parameter is in a group"


def reference_loss(model, batch):
    logits = model(batch[:, :-1], use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


class Reference:
    """AdamW with decoupled decay (Loshchilov and Hutter) and clipping, in float64."""

    def __init__(self, model, optimizer, clip):
        self.settings = optimizer
        self.model, self.clip, self.count = model.double(), clip, 0
        self.first = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        self.second = {name: torch.zeros_like(p) for name, p in model.named_parameters()}

    def update(self, batch, rate, peak):
        loss = reference_loss(self.model, batch)
        taken = DECAYS[self.settings.kind](rate, peak, self.settings.weight_decay)
        names, parameters = zip(*self.model.named_parameters(), strict=True)
        gradients = torch.autograd.grad(loss, parameters)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        factor = min(1.0, self.clip / norm)
        beta1, beta2 = self.settings.betas
        self.count += 1
        with torch.no_grad():
            for name, parameter, raw in zip(names, parameters, gradients, strict=True):
                gradient = raw * factor
                self.first[name] = beta1 * self.first[name] + (1 - beta1) * gradient
                self.second[name] = beta2 * self.second[name] + (1 - beta2) * gradient**2
                mean = self.first[name] / (1 - beta1**self.count)
                spread = (self.second[name] / (1 - beta2**self.count)).sqrt()
                decay = taken if parameter.ndim >= 2 else 0.0
                parameter -= rate * mean / (spread + self.settings.eps) + decay * parameter
        return loss.item(), norm


@pytest.mark.parametrize("clip", [0.05, 1e3], ids=["clipped", "not-clipped"])
@pytest.mark.parametrize("kind", DECAYS)
def test_updates_are_those_of_an_explicit_adamw(make, settings, data, kind, clip):
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


def test_parts_of_a_batch_add_up_to_the_whole(make, data, settings):
    whole, parts = make(), make(micro_batch=1)
    for step in range(3):
        losses = [trainer.update(data.at(step)) for trainer in (whole, parts)]
        assert float(losses[0][0]) == pytest.approx(float(losses[1][0]), rel=1e-5)
        assert float(losses[0][1]) == pytest.approx(float(losses[1][1]), rel=1e-4)
    for name, value in weights(whole).items():
        gap = (value - weights(parts)[name]).abs().max()
        assert gap < 1e-2 * settings.schedule.peak, (name, float(gap))


# Data


@cache
def order(sequences, seed, epoch):
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(sequences)


def test_batches_depend_on_the_step_alone(corpus):
    sequences = TrainingData(corpus, 16, 4, seed=1).sequences
    steps = [0, 5, sequences // 4, 3 * sequences, 1]
    forwards = TrainingData(corpus, 16, 4, seed=1)
    in_order = {step: forwards.at(step) for step in sorted(steps)}
    backwards = TrainingData(corpus, 16, 4, seed=1)
    for step in steps:
        assert torch.equal(backwards.at(step), in_order[step]), step
    other = TrainingData(corpus, 16, 4, seed=2)
    assert not torch.equal(other.at(0), in_order[0])


def test_an_epoch_visits_every_sequence_once_and_epochs_differ(corpus):
    batch = 4
    tokens = np.fromfile(corpus.file("train.bin"), dtype="<u2").astype(np.int64)
    data = TrainingData(corpus, 16, batch, seed=1)
    count = (len(tokens) - 1) // 16
    assert data.sequences == count
    rows = torch.cat([data.at(step) for step in range(2 * count // batch)]).numpy()
    expected = np.stack([tokens[i * 16 : i * 16 + 17] for i in range(count)])
    first, second = rows[:count], rows[count : 2 * count]
    for epoch, found in enumerate((first, second)):
        assert np.array_equal(found, expected[order(count, 1, epoch)][: len(found)])
    assert not np.array_equal(first[: len(second)], second)


# States, branches, checkpoints


def test_a_state_gives_back_the_same_trainer(make, data, tmp_path):
    one = make()
    for step in range(3):
        one.update(data.at(step))
    one.save(tmp_path / "state-0000003.safetensors")
    other = make(seed=5)
    other.load(tmp_path / "state-0000003.safetensors")
    assert other.step == 3
    assert equal(weights(one), weights(other))
    for step in range(3, 5):
        one.update(data.at(step))
        other.update(data.at(step))
    assert equal(weights(one), weights(other))
    one.save(tmp_path / "one")
    other.save(tmp_path / "other")
    assert equal(*(load_file(tmp_path / name) for name in ("one", "other")))


@pytest.mark.parametrize("cut", [0, -1])
def test_a_damaged_state_is_a_problem(make, data, tmp_path, cut):
    path = tmp_path / "state.safetensors"
    trainer = make()
    trainer.update(data.at(0))
    trainer.save(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(Problem, match="is no readable training state"):
        make().load(path)


def test_a_branch_is_one_uninterrupted_run_bit_for_bit(workspace, trunk, branch, tmp_path):
    branched = workspace.plan.trajectories.train("branch")
    first, last = 12, 20
    with_cooldown = branched.settings.schedule
    assert (with_cooldown.start, with_cooldown.length) == (first, last - first)
    copy_results(workspace.folder, tmp_path, [workspace.plan.corpora.corpus("main").folder])
    single = Workspace(tmp_path, workspace.plan).build(
        workspace.plan.trajectories.train("trunk"), schedule=asdict(with_cooldown), last=last
    )
    points = Trajectory([branch]).checkpoints
    assert [point.step for point in points] == [12, 14, 16, 18, 20]
    for point in points:
        one = load_file(branch.folder / point.id / "model.safetensors")
        other = load_file(single.folder / point.id / "model.safetensors")
        assert equal(one, other), point.step
    before = step_id(first)
    assert (
        trunk.files[f"{before}/model.safetensors"]["sha256"]
        == (branch.files[f"{before}/model.safetensors"]["sha256"])
    )
    curves = (curve(found.folder) for found in (branch, single))
    rows = [[row for row in found if int(row["step"]) > first] for found in curves]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 4


def curve(folder):
    with (folder / train.CURVE).open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_in_two_parts_is_the_run_in_one(make, data, tmp_path, trunk):
    """The state that a killed run leaves in its scratch folder leads to the same end."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    one = make()
    begin(one, data, 9)
    one.save(scratch / train.state_name(7))
    # What a killed run may leave: later rows, half a row, half a checkpoint, half a state.
    one.save(scratch / train.state_name(9))
    with (one.out / train.CURVE).open("a") as file:
        file.write("10,640,2.5,0.01,1.0,8.0\n12,7")
    (one.out / ".partial-step-0000010").mkdir()
    (scratch / ".partial-state-0000010.safetensors").write_bytes(b"half")
    (scratch / train.state_name(7)).unlink()
    other = Trainer(one.settings, one.out, one._tokenizer)
    saved = train.latest_state(scratch, other)
    assert saved == scratch / train.state_name(9)
    other.load(saved)
    train.train(other, data, scratch, Progress("test"))
    found, expected = artifacts(one.out), artifacts(trunk.folder)
    expected.pop("manifest.json")
    assert not differing(found, expected)


def test_a_state_whose_checkpoints_are_gone_is_not_gone_on_from(make, data, tmp_path):
    trainer = make()
    trainer.save_due()
    for step in range(4):
        trainer.update(data.at(step))
        trainer.save_due()
    trainer.save(tmp_path / train.state_name(4))
    assert train.latest_state(tmp_path, trainer) is not None
    checkpoint = trainer.out / step_id(2)
    checkpoint.rename(trainer.out / "elsewhere")
    assert train.latest_state(tmp_path, trainer) is None


def test_checkpoints_are_what_hugging_face_tools_load(trunk, settings):
    points = Trajectory([trunk]).checkpoints
    assert [point.step for point in points] == list(range(2, 25, 2))
    assert [point.tokens for point in points] == [step * 4 * 16 for step in range(2, 25, 2)]
    for point in (points[0], points[-1]):
        folder = trunk.folder / point.id
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert type(model).__name__ == "GPTNeoXForCausalLM"
        assert model.dtype == torch.float32
        assert tokenizer.decode(tokenizer.encode("Some text, é.")) == "Some text, é."
        assert len(tokenizer) == settings.vocabulary == model.config.vocab_size
        saved = load_file(folder / "model.safetensors")
        # transformers names the output head of every architecture lm_head.
        saved["lm_head.weight"] = saved.pop("embed_out.weight")
        assert equal(saved, model.state_dict())
    assert trunk.facts["parameters"] == model.num_parameters()
    assert trunk.facts["tokens_processed"] == points[-1].tokens


def test_phases_and_rates_of_checkpoints(trunk, branch):
    assert [(p.step, p.phase) for p in Trajectory([trunk]).checkpoints][:2] == [
        (2, "warmup"),
        (4, "stable"),
    ]
    found = [(p.step, p.phase, p.lr) for p in Trajectory([branch]).checkpoints]
    expected = [(s, "cooldown", pytest.approx(1e-2 * (20 - s) / 8)) for s in (12, 14, 16, 18, 20)]
    assert found == expected


def test_the_curve_holds_every_logged_step(trunk, settings, make, data):
    rows = curve(trunk.folder)
    assert tuple(rows[0]) == train.COLUMNS
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


@pytest.mark.parametrize("when", ["logged", "checkpoint"])
def test_a_diverged_run_stops_with_one_line_and_leaves_its_curve(
    workspace, corpus, tmp_path, capsys, when
):
    job = workspace.plan.trajectories.train("trunk")
    copy_results(workspace.folder, tmp_path, [workspace.plan.corpora.corpus("main").folder])
    here = Workspace(tmp_path, workspace.plan)
    schedule = asdict(replace(job.settings.schedule, peak=1e30))
    changes = {"log_every": 1} if when == "logged" else {"log_every": 1000}
    assert here.attempt(job, schedule=schedule, **changes) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, errors
    assert "diverged: the loss is nan at step" in errors[0]
    assert "lower its peak_lr under config" in errors[0]
    assert not (tmp_path / job.manifest).exists()
    left = tmp_path / errors[0].rpartition("the curve so far is ")[2].partition(" (log: ")[0]
    rows = curve(left.parent)
    assert bool(rows) == (when == "logged")
    if rows:
        assert [int(row["step"]) for row in rows] == list(range(1, len(rows) + 1))
        assert math.isfinite(float(rows[0]["loss"]))


def test_an_infinite_weight_stops_the_run(make, data, tmp_path):
    trainer = make(log_every=1)
    with torch.no_grad():
        trainer.model.get_input_embeddings().weight[:] = math.inf
    with pytest.raises(Problem, match="diverged"):
        train.train(trainer, data, tmp_path, Progress("test"))
    assert [row["loss"] for row in curve(trainer.out)] == ["nan"]


@pytest.mark.parametrize(
    ("first", "last", "every", "steps"),
    [
        (0, 24, 6, [6, 12, 18, 24]),
        (0, 25, 6, [6, 12, 18, 24, 25]),
        (12, 20, 2, [12, 14, 16, 18, 20]),
        (13, 20, 4, [13, 16, 20]),
        (0, 1, 5, [1]),
    ],
)
def test_checkpoints_are_multiples_of_their_spacing_and_both_ends(first, last, every, steps):
    class Given(Whole):
        def ends(self, timeline):
            return first, last

        def spacing(self, timeline):
            return every

    run = Given(schedule="constant", peak_lr=1e-3, length="1/190")
    assert [point.step for point in run.checkpoints(None)] == steps
