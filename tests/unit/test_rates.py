"""Learning rates of checkpoints of a Trainer: those of its schedulers, or none; and phases."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from ptq_dynamics.config.families import Own
from ptq_dynamics.hub import folders, own_rates
from ptq_dynamics.plan import own_checkpoints
from pydantic import ValidationError
from support import one_line, plan, python

STEPS, EVERY, PEAK = 40, 5, 3e-3
SCHEDULES = {"constant": {}, "linear": {}, "cosine": {}, "cosine_with_restarts": {"num_cycles": 4}}
SCHEDULES["warmup_stable_decay"] = {"num_decay_steps": 13}


def train(folder, kind, logging, only_model):
    """A tiny Llama in transformers' Trainer; the next rate of its scheduler by saved step."""
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 16}
    shape |= {"num_attention_heads": 1, "num_key_value_heads": 1}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape))
    rows = [{"input_ids": row, "labels": row} for row in torch.arange(16).repeat(8, 1)]
    options = transformers.TrainingArguments(
        folder,
        max_steps=STEPS,
        save_steps=EVERY,
        logging_steps=logging,
        learning_rate=PEAK,
        lr_scheduler_type=kind,
        lr_scheduler_kwargs=SCHEDULES[kind],
        save_only_model=only_model,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    found = {}

    class Saved(transformers.TrainerCallback):
        def on_save(self, args, state, control, lr_scheduler, **_):
            found[state.global_step] = lr_scheduler.get_last_lr()[0]

    collate = transformers.default_data_collator
    transformers.Trainer(model, options, collate, rows, callbacks=[Saved()]).train()
    return found


@pytest.fixture(scope="module")
def scale():
    return plan("smoke").site.config.scale


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("logging", [1, 10])
@pytest.mark.parametrize("only_model", [False, True])
def test_a_rate_is_that_of_the_scheduler_or_not_known(scale, tmp_path, kind, logging, only_model):
    expected = train(tmp_path, kind, logging, only_model)
    entry = Own(checkpoints={"folder": str(tmp_path)})
    _, found = own_checkpoints.with_own({"mine": entry}, scale, {})
    every = {point.step: point.lr for point in found["mine"].checkpoints.values()}
    known = {step: rate for step, rate in every.items() if rate is not None}
    assert known == {step: expected[step] for step in known}
    # A log has the rate of the update that a checkpoint precedes, if every update is logged.
    count = STEPS // EVERY
    assert len(known) == (count if not only_model else count - 1 if logging == 1 else 0)


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
    train(tmp_path, "linear", 1, only_model=True)
    for epoch, path in enumerate(sorted(tmp_path.iterdir()), start=1):
        path.rename(tmp_path / f"step-{epoch}")
    _, found = own_checkpoints.with_own(
        {"mine": Own(checkpoints={"folder": str(tmp_path)})}, scale, {}
    )
    assert {(c.lr, c.phase) for c in found["mine"].checkpoints.values()} == {(None, "checkpoint")}


def test_a_step_of_the_hub_follows_that_word_and_occurs_once():
    def steps(*names):
        return own_checkpoints.sampled_checkpoints(
            Own(checkpoints={"repository": "a/b", "revisions": names})
        )

    names = ("stage1-step10000-tokens50B", "stage1-step2000-tokens9B")
    assert steps(*names) == [(names[1], 2000), (names[0], 10000)]
    assert steps("0010", "iteration-7") == [("iteration-7", 7), ("0010", 10)]
    assert steps("main") == [("main", None)]
    # An amount would be taken for another number, and `main` for the first of all checkpoints.
    for amount in ("main", "step-10k", "stage2-step-10k", "tokens5B"):
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
    (tmp_path / "checkpoint-5").mkdir()
    path = tmp_path / "checkpoint-5/scheduler.pt"
    torch.save({"_last_lr": [Path()]}, path)
    assert own_rates.scheduled(path.parent) is None
    torch.save({"_last_lr": [1e-3]}, path)
    assert own_rates.scheduled(path.parent) == 1e-3
    torch.save({"_last_lr": [torch.tensor(0.5)]}, path)
    assert own_rates.scheduled(path.parent) == 0.5
    torch.save({"_last_lr": [0.5]}, path, _use_new_zipfile_serialization=False)
    assert own_rates.scheduled(path.parent) == 0.5
    path.write_bytes(path.read_bytes()[:-100])
    assert own_rates.scheduled(path.parent) is None


def test_a_rate_is_read_without_torch_whose_import_takes_a_second(tmp_path):
    torch.save({"_last_lr": [1e-3], "lr_lambdas": [{}]}, tmp_path / "scheduler.pt")
    read = "print(own_rates.scheduled(Path()), 'torch' in sys.modules)"
    head = "import sys; from pathlib import Path; from ptq_dynamics.hub import own_rates; "
    assert python(["-c", head + read], tmp_path).stdout == "0.001 False\n"
