"""Options of torch for faster training, in turns with the trainer as it is.

    python tests/options.py SCALE [OPTION ...]

All of them train in one process, on the same batches of random tokens. Printed are the median
ratio of speeds within rounds, its range, and how far the last loss is from that without options.
An option that torch does not have, or that fails, is a line, and the others continue.
"""

import gc
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from bench import RATE, random_text
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.warm import ALLOCATOR
from ptq_dynamics.train import train
from ptq_dynamics.train.objectives.language import Language
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
    "tf32": lambda trainer: None,  # a setting of the process: see `updated`
    "foreach": with_foreach,
    "chunked-loss": partial(with_loss, objective=ChunkedLoss),
}


class Variant:
    """A trainer with an option, and its last loss."""

    def __init__(self, name: str, trainer: Trainer, batches) -> None:
        OPTIONS[name](trainer)
        self.name, self.trainer, self.batches, self.last = name, trainer, batches, torch.zeros(())

    def updated(self) -> None:
        """Make one step."""
        torch.set_float32_matmul_precision("high" if self.name == "tf32" else "highest")
        if self.name == "cuda-graphs":
            torch.compiler.cudagraph_mark_step_begin()
        self.last = self.trainer.update(next(self.batches))[0]

    def seconds(self, steps: int) -> float:
        """The seconds of a step, as a mean of some."""
        timer = Timer("step()", globals={"step": self.updated}, num_threads=torch.get_num_threads())
        return timer.timeit(steps).mean


def main(scale: str, *chosen: str) -> None:
    """Measure all options in turns, and print them."""
    if wrong := {*chosen} - {*OPTIONS}:
        raise Problem(f"there is no option {', '.join(wrong)}; there are {', '.join(OPTIONS)}")
    with random_text(scale) as (settings, corpus, folder):
        schedule = settings.schedule.model_copy(update={"peak": RATE})
        settings = settings.model_copy(update={"schedule": schedule})
        variants, speeds = list[Variant](), defaultdict[str, list[float]](list)

        def attempt(name: str, work: Callable[[], None]) -> bool:
            try:
                work()
            except (RuntimeError, AttributeError, TypeError) as error:
                print(f"{name}: {str(error).strip().splitlines()[0][:150]}", flush=True)
                return False
            return True

        for name in (PLAIN, *(chosen or [*OPTIONS][1:])):
            trainer = Trainer(settings, folder, folder)
            data = settings.objective.data(corpus, settings.context, settings.batch, settings.seed)
            variant = Variant(name, trainer, train.ahead(data, trainer, range(10**9)))
            begin = time.monotonic()
            if attempt(name, partial(variant.seconds, 2)):
                variants.append(variant)
                print(f"{name}: first steps {time.monotonic() - begin:.0f} s", flush=True)
            del trainer, variant
            gc.collect()
        if not variants or variants[0].name != PLAIN:
            raise Problem("the trainer as it is did not run; see above")
        steps = max(1, round(SECONDS / variants[0].seconds(1)))
        for other in variants[1:]:
            attempt(other.name, partial(other.seconds, 1))  # as many steps as the first
        begin, size = time.monotonic(), settings.batch * settings.context
        while not speeds or (len(speeds[PLAIN]) < ROUNDS and time.monotonic() - begin < LONGEST):
            for variant in variants:
                speeds[variant.name].append(size / variant.seconds(steps))
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
        print(f"scale {scale} on {device}, torch {torch.__version__}: {len(speeds[PLAIN])} rounds")
        for variant in variants:
            of, plain = speeds[variant.name], speeds[PLAIN]
            ratios = [one / other for one, other in zip(of, plain, strict=True)]
            apart = float(variant.last - variants[0].last)
            print(
                f"{variant.name:14} {median(of):11,.0f} tokens/s, ratio {median(ratios):.3f} "
                f"({min(ratios):.3f} to {max(ratios):.3f}), last loss {apart:+.1e} nats"
            )


if __name__ == "__main__":
    os.environ |= ALLOCATOR
    try:
        main(*sys.argv[1:])
    except Problem as problem:
        sys.exit(f"error: {problem}")
