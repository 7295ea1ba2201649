"""The stage that trains a run (section 4): from fresh weights, as a branch from the state of its
trunk (with the weights of an average, if it has one), or from the weights of another run, as a
stage after pre-training.

Only initial weights and data order are random, and both follow from the seed. A state therefore has
weights, moments of the optimizer and the step. An interrupted run resumes, on a CPU to the same
bits.
"""

import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
from torch import Tensor

from ptq_dynamics.base import needs
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.train import processes
from ptq_dynamics.train.objectives import Batches
from ptq_dynamics.train.settings import TrainSettings
from ptq_dynamics.train.trainer import Trainer, state_name
from ptq_dynamics.trajectories import trajectory
from ptq_dynamics.trajectories.trajectory import CURVE, Checkpoint, Trajectory, step_id

RESUMABLE = True
STATES = "state-*.safetensors"
# The least seconds between states, and the most bytes of states a second: the paper's model has one
# every ten minutes.
EVERY, BYTES = 5.0, 3e6
AGREE = 0.01  # nats/token, the most between the last losses of two trainings on a GPU


def run(context: Context[TrainSettings]) -> Mapping[str, object]:
    """Train to the run's last step, from its last saved state if there is one, in one or several
    processes."""
    return processes.run(work, context, context.settings.batch)


def work(context: Context[TrainSettings], team: processes.Team) -> Mapping[str, object]:
    """Train in one of the processes."""
    settings, corpus = context.settings, context.input(needs.CORPUS)
    data = settings.objective.data(corpus, settings.context, settings.batch, settings.seed)
    start = None
    if settings.start is not None:
        label = needs.WEIGHTS if needs.TRUNK in context.inputs else needs.AFTER
        before = Trajectory(context.inputs[label])
        start = before.folder(*before.at([settings.start]))
    trainer = Trainer(settings, context.out, corpus.subfolder("tokenizer"), start, team)
    saved = team.agreed(latest_state(context.scratch, trainer))
    if saved is not None:
        trainer.load(saved)
        if team.leads:
            context.progress.say(f"resumes from step {trainer.step}")
    elif needs.TRUNK in context.inputs:
        path = context.input(needs.TRUNK).file(state_name(settings.first))
        trainer.load(path, with_weights=start is None)
    train(trainer, data, context)
    schedule = settings.schedule
    checkpoints = [
        Checkpoint(
            id=step_id(step),
            step=step,
            tokens=trainer.tokens(step),
            lr=schedule.learning_rate(step),
            phase=schedule.phase(step),
        )
        for step in settings.checkpoint_steps
    ]
    return trajectory.facts(
        checkpoints,
        parameters=sum(p.numel() for p in trainer.model.parameters()),
        seed=settings.seed,
        tokens_processed=(settings.last - settings.first) * trainer.tokens_per_step,
        schedule=schedule.model_dump(),
    )


def train(trainer: Trainer, data: Batches, context: Context[TrainSettings]) -> None:
    """Update, log and save, up to the last step."""
    first, last = trainer.step, trainer.settings.last
    started = saved = time.monotonic()
    apart = EVERY
    if trainer.team.leads:
        trainer.cut_curve()
    trainer.save_due()
    for rows in ahead(data, trainer, range(first, last)):
        loss, gradient_norm = trainer.update(rows)
        if trainer.step % trainer.settings.log_every == 0 or trainer.step == last:
            trainer.log(loss, gradient_norm)
            pace = (time.monotonic() - started) / (trainer.step - first)
            context.progress.maybe(
                f"step {trainer.step}/{last}  loss {float(loss):.3f}  lr {trainer.rate:.2e}  "
                f"{trainer.tokens_per_step / pace:,.0f} tokens/s  "
                f"{(last - trainer.step) * pace:.0f} s to go"
            )
        trainer.save_due(loss)
        if trainer.team.leads and time.monotonic() - saved >= apart:
            trainer.require_finite(loss)
            state = context.scratch / state_name(trainer.step)
            trainer.save(state)
            for path in {*context.scratch.glob(STATES)} - {state}:
                path.unlink()
            saved, apart = time.monotonic(), max(EVERY, state.stat().st_size / BYTES)


def ahead(data: Batches, trainer: Trainer, steps: range) -> Iterator[Tensor]:
    """Yield this process's rows of the batch of each step; a thread reads one batch ahead."""
    mine, first = trainer.team.rows(trainer.settings.batch), trainer.settings.data_first

    def read(step: int) -> Tensor:
        rows = data.at(step - first, mine)
        return rows.pin_memory() if trainer.device.type == "cuda" else rows

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read, steps.start)
        for step in steps:
            rows, reading = reading.result(), pool.submit(read, min(step + 1, steps[-1]))
            yield rows


def agree(first: Path, second: Path) -> str:
    """Return in words how far two trainings of a run, in two folders, lie apart: the mean losses of
    the last tenth of their curves. Raises `Problem` if they differ by more than `AGREE`."""
    losses = [pd.read_csv(folder / CURVE)["loss"] for folder in (first, second)]
    expected, end = (loss.tail(math.ceil(len(loss) / 10)).mean(skipna=False) for loss in losses)
    words = f"the loss at the end is {end:.4f} instead of {expected:.4f} nats/token"
    if not abs(end - expected) <= AGREE:
        raise Problem(f"{words}, which is more than {AGREE} apart; build the run again")
    return words


def latest_state(scratch: Path, trainer: Trainer) -> Path | None:
    """Return the newest state of an interrupted run that has all checkpoints before it."""
    for path in sorted(scratch.glob(STATES), reverse=True):
        last = int(path.stem.removeprefix("state-"))
        due = [step_id(step) for step in trainer.settings.checkpoint_steps if step <= last]
        due += [state_name(step) for step in trainer.settings.state_steps if step <= last]
        if all((trainer.out / name).exists() for name in due):
            return path
    return None
