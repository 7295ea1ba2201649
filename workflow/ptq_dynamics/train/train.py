"""Train one run of the paper's controlled experiments (section 4), branch one from its trunk, or go
on with another's weights as a stage after pre-training does.

Only initial weights and data order are random, and both follow from the seed; so a state is
weights, optimizer moments and the step, and an interrupted run goes on to the same bits.
"""

import csv
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from transformers import masking_utils

from ptq_dynamics import models
from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.train import processes, schedules, trajectory
from ptq_dynamics.train.objectives import Objective
from ptq_dynamics.train.settings import TRAINING, TrainSettings
from ptq_dynamics.train.trajectory import CURVE, Checkpoint, Trajectory, step_id

RESUMABLE = True
COLUMNS = ("step", "tokens", "loss", "lr", *TRAINING)
STATES = "state-*.safetensors"
# States are so many seconds apart at least, and are written at so many bytes a second at most: of
# the paper's model one every ten minutes.
EVERY, RATE = 5.0, 3e6
# On a GPU, two trainings of a run agree where their last losses differ by so many nats/token.
AGREE = 0.01


def run(context: Context[TrainSettings]) -> Mapping[str, Any]:
    """Train from the last saved state, or the trunk's, or from nothing, to the run's last step, in
    as many processes as are wanted."""
    return processes.run(work, context, context.settings.batch)


def work(context: Context[TrainSettings], team: processes.Team) -> Mapping[str, Any]:
    """What each process does."""
    settings, corpus = context.settings, context.input("corpus")
    data = settings.objective.data(corpus, settings.context, settings.batch, settings.seed)
    start = None
    if settings.start is not None:
        before = Trajectory(context.inputs["after"])
        start = before.folder(*before.at([settings.start]))
    trainer = Trainer(settings, context.out, corpus.subfolder("tokenizer"), start, team)
    saved = team.agreed(latest_state(context.scratch, trainer))
    if saved is not None:
        trainer.load(saved)
        if team.leads:
            context.progress.say(f"going on from step {trainer.step}")
    elif "trunk" in context.inputs:
        trainer.load(context.input("trunk").file(state_name(settings.first)))
    train(trainer, data, context)
    return trajectory.facts(
        [trainer.checkpoint(step) for step in settings.checkpoint_steps],
        parameters=sum(p.numel() for p in trainer.model.parameters()),
        seed=settings.seed,
        tokens_processed=(settings.last - settings.first) * trainer.tokens_per_step,
        schedule=asdict(settings.schedule),
    )


def train(trainer: "Trainer", data: Any, context: Context[TrainSettings]) -> None:
    """The training loop: update, log, save; to the last step."""
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
            saved, apart = time.monotonic(), max(EVERY, state.stat().st_size / RATE)


def ahead(data: Any, trainer: "Trainer", steps: range) -> Iterator[Tensor]:
    """This process's rows of the batches of some updates, which a thread reads in advance."""
    mine, first = trainer.team.rows(trainer.settings.batch), trainer.settings.data_first

    def read(step: int) -> Tensor:
        rows: Tensor = data.at(step - first, mine)
        return rows.pin_memory() if trainer.device.type == "cuda" else rows

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read, steps.start)
        for step in steps:
            rows, reading = reading.result(), pool.submit(read, min(step + 1, steps[-1]))
            yield rows


class Costs(nn.Module):
    """A model and the objective that it is trained for: what it costs is compiled, and shared out,
    as one."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, rows: Tensor, before: nn.Module | None) -> Any:
        """See `Objective.loss`."""
        return self.objective.loss(self.model, rows, before)


def causal_mask(*sizes: Any, **options: Any) -> Any:
    """No mask of a training batch, whose attention is plainly causal, so that a quick kernel takes
    it; while compiling, transformers 5.17 makes a table (its issues 48925 and 48975)."""
    if options.get("attention_mask") is None and options.get("local_size") is None:
        return None
    return masking_utils.sdpa_mask(*sizes, **options)


class Trainer:
    """Model, optimizer and position of a run, and how they are saved."""

    def __init__(
        self,
        settings: TrainSettings,
        out: Path,
        tokenizer: Path,
        start: Path | None = None,
        team: processes.Team = processes.ALONE,
    ) -> None:
        self.settings, self.out, self._tokenizer, self.team = settings, out, tokenizer, team
        self.step = settings.first
        self.tokens_per_step = settings.batch * settings.context
        self.device = models.device()
        self.model = settings.model.create(settings.vocabulary, settings.seed).train()
        self._before: nn.Module | None = None
        if start is not None:
            before = models.load(start, torch.float32).requires_grad_(False)
            self.model.load_state_dict(before.state_dict())
            self._before = before if settings.objective.anchored else None
        self.model.to(self.device)
        self._joined: Any = Costs(self.model, settings.objective)
        if team.count > 1:
            self._joined = DistributedDataParallel(self._joined, forward_sync_buffers=False)
        self._cost: Any = self._joined
        if settings.compile:
            masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.register("sdpa", causal_mask)
            self._cost = torch.compile(self._joined)
        self._optimizer = settings.optimizer.make(self.model, settings.budget)

    @property
    def rate(self) -> float:
        """Learning rate of the next update."""
        return schedules.learning_rate(self.settings.schedule, self.step)

    def update(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """One optimizer step on a batch as the objective has them, of which this process computes
        its rows; mean loss of the whole and gradient norm before clipping, both 0-dimensional."""
        settings = self.settings
        settings.optimizer.set_rate(self._optimizer, self.rate, settings.schedule.peak)
        *others, last = self.team.parts(rows, settings.batch, settings.micro_batch)
        count = torch.as_tensor(settings.objective.count(rows), device=self.device)
        if self.team.count > 1:
            distributed.all_reduce(count)
        total = torch.zeros((), device=self.device)
        # All processes share gradients in the last part alone.
        with self._joined.no_sync() if self.team.count > 1 else nullcontext():
            for part, weight in others:
                total += self._backward(part, weight, count)
        total += self._backward(*last, count)
        if self.team.count > 1:
            distributed.all_reduce(total)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return total, norm

    def _backward(self, part: Tensor, weight: int, count: Tensor) -> Tensor:
        part = part.to(self.device, non_blocking=True)
        mixed = self.settings.precision == "bfloat16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=mixed):
            cost = self._cost(part, self._before)
        loss = cost / count.clamp(min=1) * weight
        # Gradients are averaged over processes, but parts add up.
        (loss * self.team.count).backward()
        return loss.detach()

    # Training curve

    def cut_curve(self) -> None:
        """Go on with the curve of an interrupted run, without the rows after its saved state."""
        path = self.out / CURVE
        rows = [row.split(",") for row in path.read_text().splitlines()] if path.exists() else []
        kept = [row for row in rows[1:] if len(row) == len(COLUMNS) and int(row[0]) <= self.step]
        write_atomically(path, "".join(",".join(row) + "\n" for row in [COLUMNS, *kept]))

    def log(self, loss: Tensor, gradient_norm: Tensor) -> None:
        """Add a row: the loss, rate and norms of the update that led to this step."""
        norm = nn.utils.get_total_norm(p.detach() for p in self.model.parameters())
        lr = schedules.learning_rate(self.settings.schedule, self.step - 1)
        values = [float(loss), lr, float(gradient_norm), float(norm)]
        row = [self.step, self.tokens(self.step), *(repr(value) for value in values)]
        if self.team.leads:
            with (self.out / CURVE).open("a", encoding="utf-8") as curve:
                curve.write(",".join(map(str, row)) + "\n")
        self.require_finite(loss)

    def require_finite(self, loss: Tensor) -> None:
        """Raise `Problem` when the run has diverged."""
        if not math.isfinite(float(loss)):
            raise Problem(
                f"diverged: the loss is {float(loss)} at step {self.step} (lr {self.rate:.2e}); "
                f"lower its peak_lr under config; the curve so far is {self.out / CURVE}"
            )

    # Checkpoints and states

    def checkpoint(self, step: int) -> Checkpoint:
        """The run's checkpoint after `step` updates."""
        schedule = self.settings.schedule
        lr, phase = schedules.learning_rate(schedule, step), schedules.phase(schedule, step)
        return Checkpoint(step_id(step), step, self.tokens(step), lr, phase)

    def tokens(self, step: int) -> int:
        """Tokens seen before the update after `step` updates."""
        return self.settings.first_tokens + (step - self.settings.first) * self.tokens_per_step

    def save_due(self, loss: Tensor | None = None) -> None:
        """Save what is due at this step; the process that leads does."""
        if not self.team.leads:
            return
        if self.step in self.settings.checkpoint_steps:
            if loss is not None:
                self.require_finite(loss)
            folder = self.out / step_id(self.step)
            partial = self.out / f".partial-{folder.name}"
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(self._tokenizer, partial)
            self.model.save_pretrained(partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.replace(folder)
        if self.step in self.settings.state_steps:
            self.save(self.out / state_name(self.step))

    def save(self, path: Path) -> None:
        """Write the whole state to one file, whole or not at all."""
        every = self.model.state_dict()
        # Each once: a tied head is the embedding.
        first = {value.data_ptr(): name for name, value in reversed(every.items())}
        tensors = {f"model.{name}": every[name].contiguous() for name in first.values()}
        for index, moments in self._optimizer.state_dict()["state"].items():
            for name, value in moments.items():
                tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value).contiguous()
        partial = path.with_name(f".partial-{path.name}")
        save_file(tensors, partial, metadata={"step": json.dumps(self.step)})
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)

    def load(self, path: Path) -> None:
        """Take up the state that `save` wrote; `Problem` when the file is damaged."""
        weights, state = dict[str, Tensor](), dict[int, dict[str, Tensor]]()
        try:
            found = load_file(path, device=str(self.device))
        except (SafetensorError, OSError) as error:
            raise Problem(f"{path} is no readable training state ({error}); remove it") from error
        self.step = int(path.stem.removeprefix("state-"))
        for name, value in found.items():
            if name.startswith("model."):
                weights[name.removeprefix("model.")] = value
            else:
                _, index, moment = name.split(".")
                state.setdefault(int(index), {})[moment] = value
        # A tied head is not in it.
        self.model.load_state_dict(weights, strict=False)
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": state})


def agree(first: Path, second: Path) -> str:
    """How far two trainings of a run, in two folders, lie apart at the end of their curves, in
    words. Raises `Problem` where the mean losses of the last tenth differ by more than `AGREE`."""
    ends = []
    for folder in (first, second):
        with (folder / CURVE).open(encoding="utf-8", newline="") as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file)]
        ends.append(fmean(losses[-math.ceil(len(losses) / 10) :]))
    words = f"the loss at the end is {ends[1]:.4f} instead of {ends[0]:.4f} nats/token"
    if not abs(ends[1] - ends[0]) <= AGREE:
        raise Problem(f"{words}, which is more than {AGREE} apart; build the run again")
    return words


def state_name(step: int) -> str:
    """File of the whole state after `step` updates."""
    return f"state-{step:07d}.safetensors"


def latest_state(scratch: Path, trainer: Trainer) -> Path | None:
    """The newest state of an interrupted run, if the checkpoints before it are all there."""
    for path in sorted(scratch.glob(STATES), reverse=True):
        step = int(path.stem.removeprefix("state-"))
        due = [step_id(each) for each in trainer.settings.checkpoint_steps if each <= step]
        due += [state_name(each) for each in trainer.settings.state_steps if each <= step]
        if all((trainer.out / name).exists() for name in due):
            return path
    return None
