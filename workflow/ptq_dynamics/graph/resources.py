"""What jobs ask of a machine. It stands outside their specification: no result depends on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import Config
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.models import AUTO
from ptq_dynamics.graph.work import Work, Works

# Rules whose jobs compute with as many threads as the scale says; others take one.
COMPUTING = frozenset(
    {
        "train",
        "average",
        "measure",
        "curvature",
        "landscape",
        "components",
    }
)
GIB, MB, MINUTE = 2**30, 10**6, 60
# What a model takes of a device for what it computes, as a factor on its weights (as `models` has
# it); a model that is larger than one is spread over several.
BESIDE = 1.25


@dataclass(frozen=True)
class Ask:
    """What a job asks for: `threads`; main memory in MB, of the whole job; `seconds` that it is
    expected to take; its limit in `minutes`; `gpus`, none where the scale has no device."""

    threads: int
    memory_mb: int
    seconds: int
    minutes: int
    gpus: int


@dataclass(frozen=True)
class Measured:
    """What jobs of a stage took, by their records, as factors on what is assumed: the median of
    their times, and the largest of their memories; and how many records."""

    seconds: float
    memory: float
    records: int


class Resources:
    """Resources of the jobs of a scale, with what was `measured` of their stages instead of what is
    assumed."""

    def __init__(self, config: Config, measured: Mapping[str, Measured] | None = None) -> None:
        self._scale, self._assumed = config.scale, config.scale.resources
        self._works, self._measured = Works(config), measured or {}
        self._known = dict[str, Work]()

    @property
    def gpu_model(self) -> str | None:
        """What the cluster calls the GPU that jobs need; None where any will do."""
        return self._assumed.device.model if self._assumed.device else None

    def threads(self, rule: str, cores: int = 1) -> int:
        """Threads of a rule's jobs; a corpus is made with all `cores`, since all wait for it."""
        if rule == "corpus":
            return cores
        return self._scale.threads if rule in COMPUTING else 1

    def ask(self, job: Job, attempt: int = 1) -> Ask:
        """What a job asks for; limits grow with every `attempt`, the first of which is 1."""
        work, margins = self.work(job), self._assumed.margins
        seconds, memory = self.seconds(job), self.memory(job)
        return Ask(
            threads=self._scale.threads if work.computes else 1,
            memory_mb=ceil(attempt * margins.memory * memory / MB),
            seconds=ceil(seconds),
            minutes=max(1, ceil(attempt * margins.time * seconds / MINUTE)),
            gpus=self.gpus(job),
        )

    def knows(self, job: Job) -> bool:
        """Whether the configuration has the trajectories and tasks that a job is about."""
        try:
            self.work(job)
        except (KeyError, Problem):
            return False
        return True

    def is_measured(self, job: Job) -> bool:
        """Whether records say what such jobs take."""
        return job.stage in self._measured

    def work(self, job: Job) -> Work:
        """How much work a job is, as assumed."""
        if job.manifest not in self._known:
            self._known[job.manifest] = self._works.of(job)
        return self._known[job.manifest]

    def seconds(self, job: Job) -> float:
        """Expected run time."""
        known = self._measured.get(job.stage)
        return self._assumed.start + self.work(job).seconds * (known.seconds if known else 1)

    def memory(self, job: Job) -> float:
        """Expected main memory in bytes; weights go through it on their way to a device."""
        work, known = self.work(job), self._measured.get(job.stage)
        on_device = self._assumed.device is not None and work.on_device
        own = work.weights + (0 if on_device else work.held)
        return (self._assumed.memory.process * GIB + own) * (known.memory if known else 1)

    def gpus(self, job: Job) -> int:
        """GPUs of a job."""
        work, device = self.work(job), self._assumed.device
        if device is None or not work.on_device:
            return 0
        if job.stage == "train.train":
            return self._assumed.gpus
        return min(device.per_machine, max(1, ceil(BESIDE * work.weights / (device.memory * GIB))))

    @property
    def training(self) -> str:
        """What a job that trains is told on its command line of the GPUs that it may have."""
        gpus = self._assumed.gpus
        return f"--gpus {gpus} --sharding {self._scale.sharding}" if gpus > 1 else ""

    def spreading(self, job: Job) -> str:
        """What a job that opens models is told on its command line of how to spread one that fits
        on no device."""
        known = self._works.models.of(job.name.split()[0])
        return "" if known.device_map == AUTO else f"--device-map {known.device_map}"

    def devices(self, rule: str) -> int:
        """GPUs of the jobs of a rule that computes on one; `--set-resources measure:devices=2`
        gives those of a rule more, where models are larger than a device."""
        return self._assumed.gpus if rule == "train" else 1
