"""Train one run in several processes, one a device: the same run, but for the last bits.

The first process leads: it trains as a process alone does, writes all there is to write, and tells
the others when to take part. A batch is shared out by rows. What a row adds to the mean loss does
not depend on the others, so shares may differ in size, and a step has exactly its tokens. A process
has all weights and averages gradients (DDP), or keeps a part of weights and moments (FSDP2). Saved
states are whole in both cases, so any number of processes goes on from them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from datetime import timedelta
from enum import IntEnum, auto
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context, Seat
from ptq_dynamics.train import sharding, trajectory
from ptq_dynamics.train.objectives import objective
from ptq_dynamics.train.objectives.objective import Data
from ptq_dynamics.train.settings import TrainSettings
from ptq_dynamics.train.train import Trainer, latest_state, state_name, train
from ptq_dynamics.train.trajectory import Trajectory

# Who waits for the leader may wait for weights that are made again, or written to a slow disk. Who
# waits in vain is ended by the process that started all.
PATIENCE = timedelta(days=30)


def run(context: Context[TrainSettings], seat: Seat) -> Mapping[str, Any]:
    """What `train.run` does, in one of several processes; the facts of the result, where it
    leads.

    It stands here a second time so that `train.run` does not reach this module, of which what one
    process makes does not depend.
    """
    settings, count = context.settings, seat.team.count
    if count > settings.batch:
        raise Problem(
            f"a batch of {settings.batch} sequences cannot be shared out to {count} processes; use "
            f"at most {settings.batch}"
        )
    with joined(seat) as words:
        # Files are read and checked by one process, of the others each knows them to be right.
        if not seat.leads:
            words.wait()
        corpus = context.input("corpus")
        data = objective.data(corpus, settings)
        tokenizer = corpus.subfolder("tokenizer")
        start = trunk = None
        if settings.start is not None:
            before = Trajectory(context.inputs["after"])
            start = before.folder(*before.at([settings.start]))
        if "trunk" in context.inputs:
            trunk = context.input("trunk").file(state_name(settings.first))
        if seat.leads:
            words.wait()
        trainer = RankTrainer(settings, context.out, tokenizer, start, seat, words)
        saved = latest_state(context.scratch, trainer)
        if saved is not None:
            trainer.load(saved)
        elif trunk is not None:
            trainer.load(trunk)
        # From here on the leader may write where the others have just looked.
        words.wait()
        if not seat.leads:
            trainer.follow(data)
            return {}
        if saved is not None:
            context.progress.say(f"going on from step {trainer.step}")
        with trainer.followed():
            train(trainer, data, context.scratch, context.progress, seat.called_back)
    if trainer.step < settings.last:
        context.leave()
    return trajectory.facts(
        [trainer.checkpoint(step) for step in settings.checkpoint_steps],
        parameters=sum(p.numel() for p in trainer.model.parameters()),
        seed=settings.seed,
        tokens_processed=(settings.last - settings.first) * trainer.tokens_per_step,
        schedule=asdict(settings.schedule),
    )


class Word(IntEnum):
    """What the leader tells the others to take part in."""

    UPDATE = auto()
    LOG = auto()
    WEIGHTS = auto()
    MOMENTS = auto()
    END = auto()


class Words:
    """The leader's words, over a group of their own, which no device has to wait for."""

    def __init__(self) -> None:
        self._group: Any = distributed.new_group(backend="gloo", timeout=PATIENCE)

    def say(self, word: Word) -> None:
        """Tell all others."""
        distributed.broadcast(torch.tensor(word), 0, self._group)

    def hear(self) -> Word:
        """The leader's next word."""
        word = torch.tensor(0)
        distributed.broadcast(word, 0, self._group)
        return Word(int(word))

    def wait(self) -> None:
        """Wait until all are here."""
        distributed.barrier(self._group)


@contextmanager
def joined(seat: Seat) -> Iterator[Words]:
    """In this block the processes of a job know each other, and each has its device."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(seat.rank)
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{seat.meeting}",
        rank=seat.rank,
        world_size=seat.team.count,
    )
    yield Words()
    # Not after an exception, where it could wait for processes that are stuck.
    distributed.destroy_process_group()


class RankTrainer(Trainer):
    """A trainer that has a share of every batch."""

    def __init__(
        self,
        settings: TrainSettings,
        out: Path,
        tokenizer: Path,
        start: Path | None,
        seat: Seat,
        words: Words,
    ) -> None:
        super().__init__(settings, out, tokenizer, start)
        self._seat, self._words = seat, words
        self._is_followed = self._follows = False
        self._apart: Callable[[], AbstractContextManager[Any]] = nullcontext
        if seat.team.sharding == "full":
            sharding.shard(self.model, seat.team.count, compiled=settings.compile)
            self._optimizer = self._kind.make(self.model, self._optimizer_settings)
            sharding.save_whole(self.model, lambda: self._asked(Word.WEIGHTS))
            sharding.save_whole_moments(self._optimizer, lambda: self._asked(Word.MOMENTS))
            self._forward = self.model
        else:
            alike = DistributedDataParallel(self.model, forward_sync_buffers=False)
            self._apart = alike.no_sync
            self._forward = torch.compile(alike) if settings.compile else alike  # type: ignore[assignment]

    @contextmanager
    def followed(self) -> Iterator[None]:
        """In this block the others do what this process does."""
        self._is_followed = True
        yield
        self._tell(Word.END)

    def follow(self, data: Data) -> None:
        """Take part in what the leader does, until it has ended; nothing is written."""
        self._follows, loss, norm = True, torch.zeros(()), torch.zeros(())
        with open(os.devnull, "w", encoding="utf-8") as self._curve:
            while (word := self._words.hear()) is not Word.END:
                match word:
                    case Word.UPDATE:
                        batch = data.at(self.step - self.settings.data_first)
                        loss, norm = self.update(batch)
                    case Word.LOG:
                        self.log(loss, norm)
                    case Word.WEIGHTS:
                        self.model.state_dict()
                    case Word.MOMENTS:
                        self._optimizer.state_dict()

    def _tell(self, word: Word) -> None:
        if self._is_followed:
            self._words.say(word)

    def _asked(self, word: Word) -> bool:
        """For the state that a word is of: whether this process is the one to save it."""
        self._tell(word)
        return not self._follows

    def update(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """One optimizer step on a batch, of which this process computes its share; mean loss of the
        whole and gradient norm before clipping, both 0-dimensional and the same in all."""
        self._tell(Word.UPDATE)
        settings = self.settings
        chosen, peak = self._optimizer_settings, settings.schedule.peak
        self._kind.set_rate(self._optimizer, chosen, self.rate, peak)
        *others, last = share(batch, self._seat, settings.micro_batch)
        total = torch.zeros((), device=self._device)
        with self._apart():
            for part, weight in others:
                total += self._backward(part, weight, batch)
        total += self._backward(*last, batch)
        distributed.all_reduce(total)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return total, norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _backward(self, part: Tensor, weight: int, whole: Tensor) -> Tensor:
        """What a part adds to the mean loss."""
        part = part.to(self._device, non_blocking=True)
        with self._autocast():
            loss = self._objective.loss(self._forward, part, whole) * weight
        # Gradients are averaged over processes, but parts add up.
        (loss * self._seat.team.count).backward()
        return loss.detach()

    def log(self, loss: Tensor, gradient_norm: Tensor) -> None:
        """Add a row; for the norm of weights in parts, all have to take part."""
        self._tell(Word.LOG)
        super().log(loss, gradient_norm)

    def load(self, path: Path) -> None:
        """Take up a state, whoever saved it."""
        device, self._device = self._device, torch.device("cpu")
        super().load(path)
        self._device = device


def share(batch: Tensor, seat: Seat, most: int | None) -> list[tuple[Tensor, int]]:
    """A process's part of a batch, in parts of at most `most` rows, each with the weight 1.

    All processes have equally many parts, since in each of them all exchange weights or gradients;
    so there may be a part that fills up, with the weight 0.
    """
    rows = -(-len(batch) // seat.team.count)
    count = -(-rows // (most or rows))
    mine = batch.tensor_split(seat.team.count)[seat.rank]
    return [(part, 1) if len(part) else (batch[:1], 0) for part in mine.tensor_split(count)]
