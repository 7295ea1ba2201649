"""The model and the optimizer of a run: updates, the training curve, checkpoints and states."""

import json
import math
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
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
from ptq_dynamics.train import processes
from ptq_dynamics.train.objectives import Objective, Slope, Sloped
from ptq_dynamics.train.settings import TRAINING, TrainSettings
from ptq_dynamics.trajectories.trajectory import CURVE, step_id

COLUMNS = ("step", "tokens", "loss", "lr", *TRAINING)


class Costs(nn.Module):
    """A model with its objective, so that torch compiles and distributes both as one module."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, rows: Tensor, before: nn.Module | None, slope: Slope | None) -> Tensor:
        """See `Objective.loss` and, with a slope, `Sloped.sloped_loss`."""
        if slope is not None and isinstance(self.objective, Sloped):
            return self.objective.sloped_loss(self.model, rows, slope)
        return self.objective.loss(self.model, rows, before)


def causal_mask(*sizes: int, **options: Any) -> Tensor | None:
    """Return no mask for plainly causal attention, so that a fast kernel computes it. While torch
    compiles, transformers 5.17 builds a mask in memory (its issues 48925 and 48975). Options are
    those of transformers."""
    if options.get("attention_mask") is None and options.get("local_size") is None:
        return None
    return masking_utils.sdpa_mask(*sizes, **options)


class Trainer:
    """The model, optimizer and step of a run, with methods to update, save and load them."""

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
        costs = Costs(self.model, settings.objective)
        self._joined = DistributedDataParallel(costs) if team.count > 1 else None
        if self._joined is not None:
            self._joined.broadcast_buffers = False  # an argument of another name before torch 2.13
        self._cost: Callable[..., Tensor] = self._joined or costs
        if settings.compile:
            masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.register("sdpa", causal_mask)
            self._cost = torch.compile(self._cost)
        self._optimizer = settings.optimizer.make(self.model, settings.budget)

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return self.settings.schedule.learning_rate(self.step)

    def update(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Update the weights from this process's rows of a batch. Return the mean loss of the whole
        batch and the gradient norm before clipping, both 0-dimensional."""
        settings = self.settings
        settings.optimizer.set_rate(self._optimizer, self.rate, settings.schedule.peak)
        parts, slope = self.team.parts(rows, settings.batch, settings.micro_batch), None
        count = torch.as_tensor(settings.objective.count(rows), device=self.device)
        if self.team.count > 1:
            distributed.all_reduce(count)
        if isinstance(settings.objective, Sloped):
            loss = self._backward(parts, torch.ones_like(count), None)
            named = self.model.named_parameters()
            gradient = {name: weight.grad for name, weight in named if weight.grad is not None}
            slope = Slope(loss, gradient, count)
            self.model.zero_grad()
        total = self._backward(parts, count, slope)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
        self._optimizer.step()
        self.model.zero_grad()
        self.step += 1
        return total, norm

    def _backward(
        self, parts: list[tuple[Tensor, int]], count: Tensor, slope: Slope | None
    ) -> Tensor:
        # Add the gradient of the whole batch to those of the weights, and return its loss; both are
        # divided by the count.
        total = torch.zeros((), device=self.device)
        mixed = self.settings.precision == "bfloat16"
        for number, (part, weight) in enumerate(parts, start=1):
            # Processes exchange gradients only in the last part.
            waits = number < len(parts)
            with self._joined.no_sync() if self._joined and waits else nullcontext():
                part = part.to(self.device, non_blocking=True)
                with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=mixed):
                    cost = self._cost(part, self._before, slope)
                loss = cost / count.clamp(min=1) * weight
                # DDP averages gradients over processes; parts add up.
                (loss * self.team.count).backward()
            total += loss.detach()
        if self.team.count > 1:
            distributed.all_reduce(total)
        return total

    # Training curve

    def cut_curve(self) -> None:
        """Keep the rows of an interrupted run's curve up to its saved state."""
        path = self.out / CURVE
        rows = [row.split(",") for row in path.read_text().splitlines()] if path.exists() else []
        kept = [row for row in rows[1:] if len(row) == len(COLUMNS) and int(row[0]) <= self.step]
        write_atomically(path, "".join(",".join(row) + "\n" for row in [COLUMNS, *kept]))

    def log(self, loss: Tensor, gradient_norm: Tensor) -> None:
        """Append loss, rate and norms of the last update to the curve."""
        norm = nn.utils.get_total_norm(p.detach() for p in self.model.parameters())
        lr = self.settings.schedule.learning_rate(self.step - 1)
        values = [float(loss), lr, float(gradient_norm), float(norm)]
        row = [self.step, self.tokens(self.step), *(repr(value) for value in values)]
        if self.team.leads:
            with (self.out / CURVE).open("a", encoding="utf-8") as curve:
                curve.write(",".join(map(str, row)) + "\n")
        self.require_finite(loss)

    def require_finite(self, loss: Tensor) -> None:
        """Raise `Problem` if the run has diverged."""
        if not math.isfinite(float(loss)):
            raise Problem(
                f"diverged: the loss is {float(loss)} at step {self.step} (lr {self.rate:.2e}); "
                f"lower its peak_lr under config; the curve so far is {self.out / CURVE}"
            )

    # Checkpoints and states

    def tokens(self, step: int) -> int:
        """Return the tokens that the model has seen after `step` updates."""
        return self.settings.first_tokens + (step - self.settings.first) * self.tokens_per_step

    def save_due(self, loss: Tensor | None = None) -> None:
        """Save the checkpoint and the state of this step, if they are due, in the first process."""
        if not self.team.leads:
            return
        if self.step in self.settings.checkpoint_steps:
            if loss is not None:
                self.require_finite(loss)
            folder = self.out / step_id(self.step)
            partial = self.out / f".partial-{folder.name}"
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(self._tokenizer, partial)
            self.settings.optimizer.save_weights(self.model, self._optimizer, partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.replace(folder)
        if self.step in self.settings.state_steps:
            self.save(self.out / state_name(self.step))

    def save(self, path: Path) -> None:
        """Write the state to one file, atomically."""
        state = self.model.state_dict()
        # A tied head is the embedding, and is saved once.
        names = {value.data_ptr(): name for name, value in reversed(state.items())}
        tensors = {f"model.{name}": state[name].contiguous() for name in names.values()}
        for index, moments in self._optimizer.state_dict()["state"].items():
            for name, value in moments.items():
                tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value).contiguous()
        partial = path.with_name(f".partial-{path.name}")
        save_file(tensors, partial, metadata={"step": json.dumps(self.step)})
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)

    def load(self, path: Path, *, with_weights: bool = True) -> None:
        """Load the state that `save` wrote, or all but its weights; `Problem` if the file is
        damaged."""
        weights, state = dict[str, Tensor](), dict[int, dict[str, Tensor]]()
        try:
            tensors = load_file(path, device=str(self.device))
        except (SafetensorError, OSError) as error:
            raise Problem(f"{path} is no readable training state ({error}); remove it") from error
        self.step = int(path.stem.removeprefix("state-"))
        for name, value in tensors.items():
            if name.startswith("model."):
                weights[name.removeprefix("model.")] = value
            else:
                _, index, moment = name.split(".")
                state.setdefault(int(index), {})[moment] = value
        if with_weights:
            # The file lacks a tied head.
            self.model.load_state_dict(weights, strict=False)
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": state})


def state_name(step: int) -> str:
    """Return the name of the file with the state after `step` updates."""
    return f"state-{step:07d}.safetensors"
