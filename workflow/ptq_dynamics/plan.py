"""From configuration to jobs: which result needs which, and where it lies.

Pure functions of the configuration. The rules ask for a job by the wildcards of its output.
"""

from functools import cached_property
from itertools import chain
from typing import Any

from ptq_dynamics.checks import check
from ptq_dynamics.config import AtMost, Branch, Config
from ptq_dynamics.job import Job
from ptq_dynamics.timeline import Timeline

FULL_PRECISION = "fp"


class Plan:
    """All jobs of one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.timeline = Timeline(config)
        self.results = f"results/{config.choice.scale}"
        self.pictures = f"figures/{config.choice.scale}"
        check(self.timeline)

    # Names

    @cached_property
    def figures(self) -> list[str]:
        """Names of the chosen figures."""
        chosen = self.config.choice.figures
        return list(self.config.figures) if chosen == "all" else list(chosen)

    # Jobs

    def corpus(self) -> Job:
        """Token files and tokenizer."""
        corpus = self.config.scale.corpus
        return Job(
            f"corpus.{corpus.source}",
            corpus.source,
            f"{self.results}/corpus",
            {},
            corpus.model_dump(mode="json", exclude={"source"}),
        )

    def train(self, run: str) -> Job:
        """Training of one run."""
        this, whole, scale = self.timeline.run(run), self.timeline.trunk(run), self.config.scale
        defaults = self.config.runs.defaults
        first, last = self.timeline.ends(run)
        schedule: dict[str, Any] = {
            "kind": whole.schedule,
            "peak": whole.peak_lr,
            "warmup": self.timeline.steps(whole.warmup or defaults.warmup),
            "floor": this.floor * whole.peak_lr,
        }
        inputs = {"corpus": [self.corpus().manifest]}
        if isinstance(this, Branch):
            schedule |= {"kind": "wsd", "start": first, "length": last - first}
            schedule |= {"shape": this.shape}
            inputs["trunk"] = [self.train(this.trunk).manifest]
        elif whole.schedule == "cosine":
            schedule["stop"] = last
        state_every = None if isinstance(this, Branch) else this.state_every
        shape = scale.models[whole.model].model_dump(exclude={"batch", "micro_batch"})
        config = {
            "model": {**shape, "vocabulary": scale.corpus.vocabulary},
            "batch": scale.models[whole.model].batch,
            "micro_batch": scale.models[whole.model].micro_batch,
            "precision": scale.precision,
            "compile": scale.compile,
            "seed": self.config.choice.seed,
            "optimizer": (whole.optimizer or defaults.optimizer).model_dump(mode="json"),
            "schedule": schedule,
            "first": first,
            "last": last,
            "checkpoint_every": self.timeline.checkpoint_every(run),
            "state_every": self.timeline.steps(state_every) if state_every else None,
            "log_every": scale.log_every,
        }
        return Job("train", run, f"{self.results}/train/{run}", inputs, config)

    def average(self, average: str) -> Job:
        """Averages of checkpoints along a run."""
        lawa = self.config.runs.averages[average]
        config = {
            "steps": self.timeline.measured_steps(average),
            "every": self.timeline.steps(lawa.every),
            "window": lawa.window,
        }
        inputs = {"trajectory": [self.trajectory(lawa.trajectory).manifest]}
        return Job("average", average, f"{self.results}/average/{average}", inputs, config)

    def trajectory(self, name: str) -> Job:
        """The job that makes a trajectory, whatever its kind."""
        return self.average(name) if name in self.config.runs.averages else self.train(name)

    def quantize(self, trajectory: str, quantizer: str, shard: str) -> Job:
        """Quantization of one shard of a trajectory."""
        settings = self._quantizer(quantizer, trajectory)
        calibration = self.config.scale.calibration
        return Job(
            f"quantize.{settings.pop('method')}",
            f"{trajectory} {quantizer}",
            f"{self.results}/quantize/{trajectory}/{quantizer}/{shard}",
            {
                "corpus": [self.corpus().manifest],
                "trajectory": [self.trajectory(trajectory).manifest],
            },
            {
                "steps": self.timeline.shards(trajectory)[shard],
                "context": self.timeline.shape(trajectory).context,
                "calibration_sequences": calibration.sequences,
                "calibration_batch": calibration.batch,
                "settings": settings,
            },
        )

    def _quantizer(self, quantizer: str, trajectory: str) -> dict[str, Any]:
        """Settings of a quantizer for a trajectory's model, the group size resolved."""
        settings = self.config.quantizers[quantizer]
        resolved = settings.model_dump(mode="json")
        size = getattr(settings, "group_size", None)
        shape = self.timeline.shape(trajectory)
        if isinstance(size, AtMost):
            fits = [
                g
                for g in range(1, size.at_most + 1)
                if not shape.width % g and not shape.feedforward % g
            ]
            resolved["group_size"] = max(fits)
        return resolved

    def evaluate(self, trajectory: str, method: str, shard: str) -> Job:
        """Validation losses of one shard under a quantizer, or in full precision."""
        full = method == FULL_PRECISION
        source = self.trajectory(trajectory)
        if not full:
            source = self.quantize(trajectory, method, shard)
        return Job(
            "evaluate",
            f"{trajectory} {method}",
            f"{self.results}/evaluate/{trajectory}/{method}/{shard}",
            {"corpus": [self.corpus().manifest], "checkpoints": [source.manifest]},
            {
                "steps": self.timeline.shards(trajectory)[shard],
                "context": self.timeline.shape(trajectory).context,
                "full_precision": full,
                **self.config.scale.evaluation.model_dump(),
            },
        )

    def measure(self, trajectory: str, method: str) -> Job:
        """Tidy measurements of a trajectory under a quantizer, or in full precision."""
        shards = self.timeline.shards(trajectory)

        def evaluations(method: str) -> list[str]:
            return [self.evaluate(trajectory, method, shard).manifest for shard in shards]

        inputs = {"evaluations": evaluations(method)}
        settings: dict[str, Any] = {"method": method}
        if method != FULL_PRECISION:
            settings = self._quantizer(method, trajectory)
            inputs["full_precision"] = evaluations(FULL_PRECISION)
            quantized = [self.quantize(trajectory, method, shard) for shard in shards]
            inputs["quantized"] = [job.manifest for job in quantized]
        columns = {
            "trajectory": trajectory,
            "family": "controlled",
            "method": settings["method"],
            "bits": settings.get("bits"),
            "group_size": settings.get("group_size"),
        }
        folder = f"{self.results}/measure/{trajectory}/{method}"
        return Job("measure", f"{trajectory} {method}", folder, inputs, {"columns": columns})

    def collect(self) -> Job:
        """All measurements of the chosen figures in one table."""
        figures = [self.figure(name) for name in self.figures]
        needed = {path for job in figures for path in job.inputs["measurements"]}
        inputs = {"measurements": sorted(needed)}
        files = ("measurements.csv",)
        return Job("collect", "measurements", self.results, inputs, {}, "measurements", files)

    def figure(self, figure: str) -> Job:
        """One figure."""
        settings = self.config.figures[figure]
        names = list(dict.fromkeys(chain.from_iterable(settings.curves.values())))
        methods = [FULL_PRECISION, *settings.quantizers]
        measured = [self.measure(name, method) for name in names for method in methods]
        runs = [name for name in names if name in self.config.runs.runs]
        main = self.timeline.shape(names[0])
        config = {
            "title": settings.title,
            "caption": settings.caption,
            # Pairs, not mappings: their order is that of the figure's legend and panels.
            "curves": list(settings.curves.items()),
            "quantizers": [[q, self._quantizer(q, names[0])] for q in settings.quantizers],
            "branches": {
                name: [run.trunk, self.timeline.steps(run.at)]
                for name in runs
                if isinstance(run := self.timeline.run(name), Branch)
            },
            "scale": self.config.scale.description,
            "tokens": self.config.scale.budget * main.batch * main.context,
        }
        inputs = {
            "measurements": [job.manifest for job in measured],
            "runs": [self.train(name).manifest for name in runs],
        }
        files = tuple(f"{figure}.{kind}" for kind in ("pdf", "png", "csv"))
        return Job(f"figures.{figure}", figure, self.pictures, inputs, config, figure, files)

    def targets(self) -> list[str]:
        """The files that a build of the chosen figures is for; all figures bring the table of all
        measurements."""
        jobs = [self.figure(name) for name in self.figures]
        if self.config.choice.figures == "all":
            jobs.append(self.collect())
        return list(chain.from_iterable(job.outputs for job in jobs))
