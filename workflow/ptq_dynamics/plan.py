"""From configuration to jobs: which result needs which, and where it lies.

Pure functions of the configuration. The rules ask for a job by the wildcards of its output.
"""

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from ptq_dynamics.checks import check
from ptq_dynamics.config import AtMost, Branch, Config, Figure, Lawa
from ptq_dynamics.job import Job
from ptq_dynamics.manifest import sha256
from ptq_dynamics.problem import Problem
from ptq_dynamics.timeline import Timeline

FULL_PRECISION = "fp"
# Methods whose library has an environment of its own, envs/METHOD.txt.
FOREIGN = ("gptqmodel", "autogptq")


class Plan:
    """All jobs of one configuration."""

    def __init__(self, config: Config, root: Path = Path()) -> None:
        self.config = config
        self.root = root
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

    @cache
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

    @cache
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
        elif whole.cooldown is not None:
            length = self.timeline.steps(whole.cooldown)
            schedule |= {"start": last - length, "length": length, "shape": whole.shape}
        shape = scale.models[whole.model].model_dump(exclude={"batch", "micro_batch"})
        config = {
            "model": {**shape, "vocabulary": scale.corpus.vocabulary},
            "batch": scale.models[whole.model].batch,
            "micro_batch": scale.models[whole.model].micro_batch,
            "precision": scale.precision,
            "compile": scale.compile,
            "seed": self.config.choice.seed,
            "optimizer": {
                **defaults.optimizer.model_dump(mode="json"),
                **whole.optimizer.model_dump(exclude_none=True),
            },
            "schedule": schedule,
            "first": first,
            "last": last,
            "checkpoint_every": self.timeline.checkpoint_every(run),
            "state_steps": self.timeline.state_steps(run),
            "log_every": scale.log_every,
        }
        return Job("train", run, f"{self.results}/train/{run}", inputs, config)

    @cache
    def average(self, average: str) -> Job:
        """Averages of checkpoints."""
        settings = self.config.runs.averages[average]
        config: dict[str, Any] = {"steps": self.timeline.measured_steps(average)}
        if isinstance(settings, Lawa):
            every = self.timeline.steps(settings.every)
            config |= {"kind": "lawa", "every": every, "window": settings.window}
            inputs = {"trajectory": [self.trajectory(settings.trajectory).manifest]}
        else:
            config |= {"kind": "line"}
            ends = {"start": settings.start, "end": settings.end}
            inputs = {label: [self.trajectory(name).manifest] for label, name in ends.items()}
        return Job("average", average, f"{self.results}/average/{average}", inputs, config)

    def trajectory(self, name: str) -> Job:
        """The job that makes a trajectory, whatever its kind."""
        return self.average(name) if name in self.config.runs.averages else self.train(name)

    @cache
    def quantize(self, trajectory: str, quantizer: str, shard: str) -> Job:
        """Quantization of one shard of a trajectory."""
        settings = dict(self._quantizer(quantizer, trajectory))
        method = settings.pop("method")
        inputs = {
            "corpus": [self.corpus().manifest],
            "trajectory": [self.trajectory(trajectory).manifest],
        }
        scripts: tuple[str, ...] = ()
        if method in FOREIGN:
            inputs["environment"] = [self.environment(method).manifest]
            names = (f"{method}_worker", "worker_protocol")
            scripts = tuple(f"quantize.foreign.{name}" for name in names)
        calibration = self.config.scale.calibration
        config = {
            "steps": self.timeline.shards(trajectory)[shard],
            "context": self.timeline.shape(trajectory).context,
            "calibration_sequences": calibration.sequences,
            "calibration_batch": calibration.batch,
            "settings": settings,
        }
        folder = f"{self.results}/quantize/{trajectory}/{quantizer}/{shard}"
        name = f"{trajectory} {quantizer}"
        return Job(f"quantize.{method}", name, folder, inputs, config, scripts=scripts)

    @cache
    def environment(self, method: str) -> Job:
        """The environment of a tool that cannot share the main one, from its lock file."""
        lock = Path("envs") / f"{method}.txt"
        config = {
            "lock": str(lock),
            "folder": f"envs/{method}",
            "digest": _digest(self.root / lock),
        }
        return Job("environment", method, f"envs/{method}", {}, config)

    @cache
    def backends(self) -> Job:
        """The comparison of GPTQ backends."""
        settings = self.config.backends
        inputs = {}
        shard = list(self.timeline.shards(settings.trajectory))[-1]
        for quantizer in chain.from_iterable(settings.groups):
            quantized = self.quantize(settings.trajectory, quantizer, shard)
            inputs[f"quantized {quantizer}"] = [quantized.manifest]
            measured = self.measure(settings.trajectory, quantizer)
            inputs[f"measured {quantizer}"] = [measured.manifest]
        config = {"groups": settings.groups}
        folder = f"{self.results}/backends"
        return Job("quantize.comparison", settings.trajectory, folder, inputs, config)

    @cache
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

    @cache
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

    @cache
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
        columns = self._columns(trajectory, settings)
        folder = f"{self.results}/measure/{trajectory}/{method}"
        return Job("measure", f"{trajectory} {method}", folder, inputs, {"columns": columns})

    def _columns(self, trajectory: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of measurements that are the same for a whole trajectory and method."""
        return {
            "trajectory": trajectory,
            "family": "controlled",
            "method": settings["method"],
            "bits": settings.get("bits"),
            "group_size": settings.get("group_size"),
        }

    @cache
    def curvature(self, trajectory: str, probe: str, shard: str) -> Job:
        """Sharpness and trace, or spectrum, of one shard in full precision."""
        settings = self.config.scale.curvature.model_dump()
        eigenvalues, samples = settings.pop("spectrum"), settings.pop("trace_samples")
        every = {name: settings.pop(f"{name}_every") for name in ("sharpness", "spectrum")}
        steps = self.timeline.shards(trajectory)[shard]
        steps = sorted({*steps[:: every[probe]], steps[-1]})
        own = {"spectrum": {"eigenvalues": eigenvalues}, "sharpness": {"trace_samples": samples}}
        return Job(
            f"geometry.{probe}",
            f"{trajectory} {probe}",
            f"{self.results}/curvature/{trajectory}/{probe}/{shard}",
            {
                "corpus": [self.corpus().manifest],
                "trajectory": [self.trajectory(trajectory).manifest],
            },
            {
                "steps": steps,
                "context": self.timeline.shape(trajectory).context,
                "seed": self.config.choice.seed,
                "columns": self._columns(trajectory, {"method": FULL_PRECISION}),
                **settings,
                **own[probe],
            },
        )

    @cache
    def landscape(self, trajectory: str, quantizer: str, previous: int) -> Job:
        """Loss in the plane of a run's last checkpoint, its quantization and an earlier one."""
        last_shard = list(self.timeline.shards(trajectory))[-1]
        final = self.timeline.measured_steps(trajectory)[-1]
        return Job(
            "geometry.landscape",
            f"{trajectory} {quantizer}",
            f"{self.results}/landscape/{trajectory}/{quantizer}/back-{previous}",
            {
                "corpus": [self.corpus().manifest],
                "trajectory": [self.trajectory(trajectory).manifest],
                "quantized": [self.quantize(trajectory, quantizer, last_shard).manifest],
            },
            {
                "final": final,
                "previous": final - previous,
                "context": self.timeline.shape(trajectory).context,
                "batch": self.config.scale.evaluation.batch,
                **self.config.scale.landscape.model_dump(),
            },
        )

    @cache
    def components(self, figure: str) -> Job:
        """Principal components of the weights along a figure's trajectories."""
        settings = self.config.figures[figure]
        names = _trajectories(settings)
        return Job(
            "geometry.components",
            figure,
            f"{self.results}/components/{figure}",
            {name: [self.trajectory(name).manifest] for name in names},
            {
                "steps": [[name, self.timeline.measured_steps(name)] for name in names],
                "components": settings.components,
            },
        )

    @cache
    def collect(self) -> Job:
        """All measurements of the chosen figures in one table."""
        figures = [self.figure(name) for name in self.figures]
        needed = {path for job in figures for path in job.inputs["measurements"]}
        inputs = {"measurements": sorted(needed)}
        files = ("measurements.csv",)
        return Job("collect", "measurements", self.results, inputs, {}, "measurements", files)

    @cache
    def figure(self, figure: str) -> Job:
        """One figure."""
        settings = self.config.figures[figure]
        names = _trajectories(settings)
        runs = list(dict.fromkeys(self.timeline.base(name) for name in names))
        inputs = {
            "measurements": [job.manifest for job in self._measurements(settings)],
            "runs": [self.train(name).manifest for name in runs],
        }
        config: dict[str, Any] = {
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
        }
        if settings.landscape:
            previous = self.timeline.steps(settings.landscape.previous)
            for q in settings.quantizers:
                jobs = [self.landscape(name, q, previous) for name in names]
                inputs[f"landscapes {q}"] = [job.manifest for job in jobs]
        if settings.components:
            inputs["components"] = [self.components(figure).manifest]
        files = tuple(f"{figure}.{kind}" for kind in ("pdf", "png", "csv"))
        return Job(f"figures.{figure}", figure, self.pictures, inputs, config, figure, files)

    def _measurements(self, figure: Figure) -> Iterator[Job]:
        """The jobs whose tables of measurements a figure reads."""
        names = _trajectories(figure)
        for name in names:
            for probe in figure.curvature:
                for shard in self.timeline.shards(name):
                    yield self.curvature(name, probe, shard)
        other = figure.curvature or figure.landscape or figure.components
        if not other or (figure.quantizers and not figure.landscape):
            for name in names:
                for method in (FULL_PRECISION, *figure.quantizers):
                    yield self.measure(name, method)

    def targets(self) -> list[str]:
        """The files that a build of the chosen figures is for; all figures bring the table of all
        measurements."""
        jobs = [self.figure(name) for name in self.figures]
        if self.config.choice.figures == "all":
            jobs.append(self.collect())
        return list(chain.from_iterable(job.outputs for job in jobs))


def _trajectories(figure: Figure) -> list[str]:
    """Names of a figure's trajectories, each once."""
    return list(dict.fromkeys(chain.from_iterable(figure.curves.values())))


def _digest(lock: Path) -> str:
    try:
        return sha256(lock)
    except FileNotFoundError:
        raise Problem(f"{lock} is missing; restore it with git checkout {lock}") from None
