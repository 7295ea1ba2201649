"""Learning rates of checkpoints of a Trainer: those of its schedulers, or none; and phases."""

import json
from pathlib import Path

import pytest
import tiny
import torch
import transformers
from ptq_dynamics.config.families import Own
from ptq_dynamics.hub import folders, own_rates
from ptq_dynamics.plan import own_checkpoints
from pydantic import ValidationError
from support import one_line, plan
from tiny import create

SCHEDULES = {"linear": {}, "cosine_with_restarts": {"num_cycles": 4}}


class Scheduled(transformers.TrainerCallback):
    """The next rate of the scheduler by saved step."""

    def __init__(self):
        self.found = {}

    def on_save(self, args, state, control, lr_scheduler, **_):
        self.found[state.global_step] = lr_scheduler.get_last_lr()[0]


def train(folder, kind, logging):
    """A run in transformers' Trainer of 40 steps with 8 checkpoints; the rates of its scheduler."""
    model, rows, known = create(num_hidden_layers=1), torch.arange(16).repeat(8, 1), Scheduled()
    schedule = {"lr_scheduler_type": kind, "lr_scheduler_kwargs": SCHEDULES[kind]}
    steps = {"max_steps": 40, "save_steps": 5, "logging_steps": logging}
    tiny.train(folder, model, rows, [known], **schedule, **steps)
    return known.found


@pytest.fixture(scope="module")
def scale():
    return plan("smoke").site.config.scale


def rates(scale, folder):
    """Those that are known."""
    _, found = own_checkpoints.with_own({"m": Own(checkpoints={"folder": str(folder)})}, scale, {})
    return {c.step: c.lr for c in found["m"].checkpoints.values() if c.lr is not None}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("logging", [1, 10])
def test_a_rate_is_that_of_the_scheduler_or_not_known(scale, tmp_path, kind, logging):
    expected = train(tmp_path, kind, logging)
    assert rates(scale, tmp_path) == expected and len(expected) == 8
    for path in tmp_path.rglob("scheduler.pt"):
        path.unlink()
    # A log has the rate of the update that a checkpoint precedes, if every update is logged.
    del expected[40]
    assert rates(scale, tmp_path) == (expected if logging == 1 else {})


LOG = {step: 1e-3 * step for step in range(1, 6)}
NEWER = {"best_global_step": None}


@pytest.mark.parametrize(
    ("written", "version", "shift"),
    [({}, "5.17.0", 0), (NEWER, "4.50.3", 0), (NEWER, "4.51.0", 1)],
)
def test_older_trainers_log_the_rate_of_the_next_update(tmp_path, written, version, shift):
    state = {**written, "log_history": [{"step": s, "learning_rate": r} for s, r in LOG.items()]}
    state["log_history"].append({"step": 5, "train_loss": 1.0})
    (tmp_path / folders.STATE).write_text(json.dumps(state))
    state = folders.state(tmp_path)
    assert own_rates.logged(state, version) == {step - shift: rate for step, rate in LOG.items()}


WARM, STABLE, COOL, DECAY, AGAIN = "warmup", "stable", "cooldown", "decay", "restart"


@pytest.mark.parametrize(
    ("known", "phases"),
    [
        ([1, 2, 3, 3, 2, 0], [WARM, WARM, STABLE, STABLE, COOL, COOL]),
        ([3, 3, 1, 3, 3, 1, 1], [STABLE, STABLE, COOL, AGAIN, AGAIN, COOL, COOL]),
        ([1, 3, 2, 1, 3, 2, 0], [WARM, DECAY, DECAY, DECAY, AGAIN, DECAY, DECAY]),
        ([3 - 1e-6 * step for step in range(5)], [DECAY] * 5),
        ([3] * 4, [STABLE] * 4),
        ([3], ["checkpoint"]),
        ([1, 2, 3], [WARM, WARM, "checkpoint"]),
    ],
)
def test_only_the_first_time_at_the_peak_rate_is_stable(known, phases):
    found = own_rates.rates_and_phases({10 * step: 1e-3 * rate for step, rate in enumerate(known)})
    assert [phase for _, phase in found.values()] == phases


def test_a_table_is_interpolated_between_its_rows_and_not_beyond(tmp_path):
    (tmp_path / "rates.csv").write_text("step,lr\n10,0.003\n20,0.003\n40,0.001\n")
    known = own_rates.in_table(str(tmp_path / "rates.csv"), [5, 10, 15, 30, 40, 45])
    found = own_rates.rates_and_phases(known)
    assert {step: found[step] for step in (15, 30, 40)} == {
        15: (0.003, "stable"),
        30: (pytest.approx(0.002), "cooldown"),
        40: (0.001, "cooldown"),
    }
    assert not {5, 45} & found.keys()


@pytest.mark.parametrize("rows", ["10,0,003", "10,-0.003", "10,nan", "10,0.003\n10,0.001", ""])
def test_a_table_with_decimal_commas_or_two_rates_of_a_step_is_refused(tmp_path, rows):
    (tmp_path / "rates.csv").write_text(f"step,lr\n{rows}\n")
    with one_line("rates.csv is not a CSV file with the columns step and lr"):
        own_rates.in_table(str(tmp_path / "rates.csv"), [10])


def test_the_log_of_a_checkpoint_whose_name_has_another_number_tells_no_rate(scale, tmp_path):
    """As where folders are named by epochs or tokens."""
    train(tmp_path, "linear", 1)
    for epoch, path in enumerate(sorted(tmp_path.iterdir()), start=1):
        (path / "scheduler.pt").unlink()
        path.rename(tmp_path / f"step-{epoch}")
    assert not rates(scale, tmp_path)


def test_a_step_of_the_hub_follows_that_word_and_occurs_once():
    def steps(*names):
        return own_checkpoints.sampled_checkpoints(
            Own(checkpoints={"repository": "a/b", "revisions": names})
        )

    names = ("stage1-step10000-tokens50B", "stage1-step2000-tokens9B")
    assert steps(*names) == [(names[1], 2000), (names[0], 10000)]
    for name in ("0007", "iteration-7", "7-steps", "epoch-7-checkpoint", "run2-ckpt-7"):
        assert steps(name, "step_100_of_143k") == [(name, 7), ("step_100_of_143k", 100)]
    assert steps("main") == [("main", None)]
    # An amount would be taken for another number, and `main` for the first of all checkpoints.
    amounts = ("step-10k", "stage2-step-10k", "step-955k-token-2T", "10k-seed1", "tokens-2.5B")
    for amount in ("main", *amounts):
        with one_line(f"a/b@{amount} has no step in its name; add --exclude"):
            steps(amount, "step7")
    either = {"repository": "a/b", "revisions": ["end"], "step": r"end|(\d+)"}
    assert own_checkpoints.sampled_checkpoints(Own(checkpoints=either)) == [("end", None)]
    with one_line("stage2-step5 has the step of stage1-step5; give --step another"):
        steps("stage1-step5", "stage2-step5")
    with pytest.raises(ValidationError, match="must have one pair of brackets"):
        Own(checkpoints={"repository": "a/b", "revisions": names, "step": "step"})


def test_a_scheduler_that_could_run_code_is_not_read(tmp_path):
    """Nor one that is cut off. Rates as tensors, and in torch's old format, are read."""
    path = tmp_path / "scheduler.pt"
    for rate, known in ((Path(), None), (1e-3, 1e-3), (torch.tensor(0.5), 0.5)):
        torch.save({"_last_lr": [rate]}, path)
        assert own_rates.scheduled(tmp_path) == known
    torch.save({"_last_lr": [0.5]}, path, _use_new_zipfile_serialization=False)
    assert own_rates.scheduled(tmp_path) == 0.5
    path.write_bytes(path.read_bytes()[:-100])
    assert own_rates.scheduled(tmp_path) is None
