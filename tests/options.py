"""Options of torch for faster training, in turns with the trainer as it is.

    python tests/options.py SCALE [OPTION ...]

All of them train in one process, on the same batches of random tokens. Printed are the median
ratio of speeds within rounds, its range, and how far the last loss is from that without options.
An option that torch does not have, or that fails, is a line, and the others continue.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from bench import RATE, random_text
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import require
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.engine.warm import ALLOCATOR
from ptq_dynamics.train import train
from ptq_dynamics.train.objectives.language import Language
from ptq_dynamics.train.settings import TrainSettings
from ptq_dynamics.train.trainer import Trainer
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.benchmark import Timer

ROUNDS, SECONDS = 5, 2.0  # of each option; about the seconds that it is timed in a round
LONGEST = 240.0  # seconds of all rounds


class BfloatLoss(Language):
    """The loss of logits as they come: in bfloat16 under autocast, which would convert them."""

    def loss(self, model: nn.Module, rows: Tensor, before: nn.Module | None) -> Tensor:
        """See `Language`."""
        logits, targets = model(rows[:, :-1], use_cache=False).logits, rows[:, 1:]
        with torch.autocast(rows.device.type, enabled=False):
            return functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), reduction="sum"
            )


@torch.compiler.disable  # it computes gradients in its forward
def in_chunks(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The loss without a table of all logits."""
    options = nn.LinearCrossEntropyOptions()
    chunked = functional.linear_cross_entropy
    return chunked(hidden, weight.to(hidden.dtype), targets, reduction="sum", options=options)


class ChunkedLoss(Language):
    """torch's fusion of the last matrix with the loss, since torch 2.13."""

    def loss(self, model: nn.Module, rows: Tensor, before: nn.Module | None) -> Tensor:
        """See `Language`."""
        hidden = model.base_model(rows[:, :-1], use_cache=False).last_hidden_state
        if torch.is_autocast_enabled(rows.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(rows.device.type))
        weight = model.get_output_embeddings().weight
        return in_chunks(hidden.flatten(0, 1), weight, rows[:, 1:].flatten())


def of_costs(trainer: Trainer) -> nn.Module:
    """The trainer's module as it was before it was compiled."""
    return getattr(trainer._cost, "_orig_mod", trainer._cost)


def compiled(trainer: Trainer, mode: str) -> None:
    """Compile in another mode of torch."""
    trainer._cost = torch.compile(of_costs(trainer), mode=mode)


def with_loss(trainer: Trainer, objective: type[Language]) -> None:
    """Compute the loss in another way."""
    of_costs(trainer).objective = objective()


def with_foreach(trainer: Trainer) -> None:
    """Update by lists of tensors instead of one kernel."""
    for group in trainer._optimizer.param_groups:
        group.update(fused=False, foreach=True)


PLAIN = "as it is"
OPTIONS: dict[str, Callable[[Trainer], None]] = {
    PLAIN: lambda trainer: None,
    "bfloat16-loss": partial(with_loss, objective=BfloatLoss),
    "max-autotune": partial(compiled, mode="max-autotune-no-cudagraphs"),
    "cuda-graphs": partial(compiled, mode="reduce-overhead"),
    "tf32": lambda trainer: None,  # a setting of the process: see `update`
    "foreach": with_foreach,
    "chunked-loss": partial(with_loss, objective=ChunkedLoss),
}


class Variant:
    """A trainer with an option, and its last loss."""

    def __init__(self, name: str, settings: TrainSettings, corpus: Manifest, folder: Path) -> None:
        trainer = Trainer(settings, folder, folder)
        OPTIONS[name](trainer)
        data = settings.objective.data(corpus, settings.context, settings.batch, settings.seed)
        self._batches = train.ahead(data, trainer, range(10**9))
        self.name, self._trainer, self.loss = name, trainer, torch.zeros(())

    def update(self) -> None:
        """Make one step."""
        torch.set_float32_matmul_precision("high" if self.name == "tf32" else "highest")
        if self.name == "cuda-graphs":
            torch.compiler.cudagraph_mark_step_begin()
        self.loss = self._trainer.update(next(self._batches))[0]

    def seconds(self, steps: int) -> float:
        """The seconds of a step, as a mean of some."""
        timer = Timer("step()", globals={"step": self.update}, num_threads=torch.get_num_threads())
        return timer.timeit(steps).mean


def begun(names: Sequence[str], *given: Any) -> Iterator[Variant]:
    """Variants after their first steps, which compile."""
    for name in names:
        begin, variant = time.monotonic(), Variant(name, *given)
        try:
            variant.seconds(3)
        except (RuntimeError, AttributeError) as error:
            if name == PLAIN:
                raise
            print(f"{name} fails: {str(error).strip().splitlines()[0][:150]}", flush=True)
            continue
        print(f"{name}: first steps {time.monotonic() - begin:.0f} s", flush=True)
        yield variant


def main(scale: str, *names: str) -> None:
    """Measure all options in turns, and print them."""
    require("options.py", "option", names, OPTIONS)
    with random_text(scale) as (settings, corpus, folder):
        schedule = settings.schedule.model_copy(update={"peak": RATE})
        settings = settings.model_copy(update={"schedule": schedule})
        chosen = [PLAIN, *(names or [*OPTIONS][1:])]
        plain, *others = begun(chosen, settings, corpus, folder)
        steps = max(1, round(SECONDS / plain.seconds(1)))
        for other in others:
            other.seconds(1)  # as many steps as the first
        begin, rounds = time.monotonic(), list[list[float]]()
        while not rounds or (len(rounds) < ROUNDS and time.monotonic() - begin < LONGEST):
            rounds.append([variant.seconds(steps) for variant in (plain, *others)])
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
    print(f"scale {scale} on {device}, torch {torch.__version__}: {len(rounds)} rounds")
    for variant, times in zip((plain, *others), zip(*rounds, strict=True), strict=True):
        speed = settings.batch * settings.context / median(times)
        ratios = [first[0] / taken for first, taken in zip(rounds, times, strict=True)]
        ratio = f"ratio {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        apart = f"last loss {float(variant.loss - plain.loss):+.1e} nats"
        print(f"{variant.name:14} {speed:11,.0f} tokens/s, {ratio}, {apart}")


if __name__ == "__main__":
    os.environ |= ALLOCATOR
    try:
        main(*sys.argv[1:])
    except Problem as problem:
        sys.exit(f"error: {problem}")
