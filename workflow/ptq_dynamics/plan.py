"""From configuration to jobs: which result needs which, where it lies, and what it depends on.

Pure functions of the configuration. The rules ask for a job by the wildcards of its output; the
job's specification (`Job.spec`) holds everything that its result depends on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from typing import Any

from ptq_dynamics import fingerprint, trajectory
from ptq_dynamics.config import AtMost, Branch, Config, Lawa, Whole
from ptq_dynamics.manifest import canonical
from ptq_dynamics.problem import Problem

FULL_PRECISION = "fp"


@dataclass(frozen=True)
class Job:
    """One job: its stage's module, its folder (and the stem of its files, where it shares the
    folder), the manifests it reads by label, and its slice of the configuration."""

    stage: str
    name: str
    folder: str
    inputs: Mapping[str, list[str]]
    config: Mapping[str, Any]
    stem: str | None = None
    files: tuple[str, ...] = field(default=())

    @property
    def manifest(self) -> str:
        """Path of the job's manifest."""
        return f"{self.folder}/{self.stem + '.' if self.stem else ''}manifest.json"

    @property
    def outputs(self) -> list[str]:
        """Paths of the files that the job is for: those named, or else its manifest."""
        return [f"{self.folder}/{name}" for name in self.files] or [self.manifest]

    @property
    def needs(self) -> list[str]:
        """Paths of all manifests that the job reads."""
        return list(chain.from_iterable(self.inputs.values()))

    def spec(self) -> str:
        """The job specification: canonical JSON, with the fingerprints of code and libraries."""
        module = f"{fingerprint.PACKAGE}.{self.stage}"
        return canonical(
            {
                "stage": self.stage,
                "name": self.name,
                "folder": self.folder,
                "stem": self.stem,
                "inputs": self.inputs,
                "config": self.config,
                "code": _code(module),
                "environment": _environment(module),
            }
        )


@cache
def _code(module: str) -> dict[str, str]:
    return fingerprint.code(module)


@cache
def _environment(module: str) -> dict[str, str]:
    return fingerprint.environment(module)


class Plan:
    """All jobs of one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.results = f"results/{config.choice.scale}"
        self.pictures = f"figures/{config.choice.scale}"
        self._check()

    # Names

    @cached_property
    def figures(self) -> list[str]:
        """Names of the chosen figures."""
        chosen = self.config.choice.figures
        return list(self.config.figures) if chosen == "all" else list(chosen)

    def _run(self, name: str) -> Whole | Branch:
        return self.config.runs.runs[name]

    def _trunk(self, name: str) -> Whole:
        """The run itself, or the one it branches from."""
        run = self._run(name)
        whole = self._run(run.trunk) if isinstance(run, Branch) else run
        assert isinstance(whole, Whole)
        return whole

    def _base(self, name: str) -> str:
        """The run behind a trajectory."""
        average = self.config.runs.averages.get(name)
        return average.trajectory if average else name

    # Steps

    def steps(self, share: Any) -> int:
        """A share of the budget in whole steps, at least one."""
        return max(1, round(share * self.config.scale.budget))

    def _ends(self, name: str) -> tuple[int, int]:
        run = self._run(name)
        if isinstance(run, Branch):
            first = self.steps(run.at)
            return first, first + self.steps(run.cooldown)
        return 0, self.steps(run.length)

    def _checkpoint_every(self, name: str) -> int:
        run = self._run(name)
        return self.steps(run.checkpoint_every or self.config.runs.defaults.checkpoint_every)

    def _grid(self, name: str) -> list[int]:
        return trajectory.grid(*self._ends(name), self._checkpoint_every(name))

    def measured_steps(self, name: str) -> list[int]:
        """Steps of a trajectory that are quantized and evaluated: one every `measure.*_every`
        along its grid, its first and its last."""
        average = self.config.runs.averages.get(name)
        if average is not None:
            reach = self.steps(average.every) * average.window
            return [s for s in self.measured_steps(average.trajectory) if s >= reach]
        grid, (first, _) = self._grid(name), self._ends(name)
        measure = self.config.scale.measure
        branch = isinstance(self._run(name), Branch)
        every = self.steps(measure.cooldown_every if branch else measure.trunk_every)
        return [s for s in grid if (s - first) % every == 0 or s in (grid[0], grid[-1])]

    def shards(self, name: str) -> dict[str, list[int]]:
        """The measured steps of a trajectory by shard: one job each."""
        steps, size = self.measured_steps(name), self.config.scale.shard
        if size is None:
            return {"all": steps}
        parts = [steps[start : start + size] for start in range(0, len(steps), size)]
        return {trajectory.folder_name(part[0]): part for part in parts}

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
        this, whole, scale = self._run(run), self._trunk(run), self.config.scale
        defaults = self.config.runs.defaults
        first, last = self._ends(run)
        schedule: dict[str, Any] = {
            "kind": whole.schedule,
            "peak": whole.peak_lr,
            "warmup": self.steps(whole.warmup or defaults.warmup),
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
            "checkpoint_every": self._checkpoint_every(run),
            "state_every": self.steps(state_every) if state_every else None,
            "log_every": scale.log_every,
        }
        return Job("train", run, f"{self.results}/train/{run}", inputs, config)

    def average(self, average: str) -> Job:
        """Averages of checkpoints along a run."""
        lawa = self._average(average)
        config = {
            "steps": self.measured_steps(average),
            "every": self.steps(lawa.every),
            "window": lawa.window,
        }
        inputs = {"trajectory": [self.trajectory(lawa.trajectory).manifest]}
        return Job("average", average, f"{self.results}/average/{average}", inputs, config)

    def _average(self, name: str) -> Lawa:
        return self.config.runs.averages[name]

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
                "steps": self.shards(trajectory)[shard],
                "context": self._shape(trajectory).context,
                "calibration_sequences": calibration.sequences,
                "calibration_batch": calibration.batch,
                "settings": settings,
            },
        )

    def _shape(self, trajectory: str) -> Any:
        return self.config.scale.models[self._trunk(self._base(trajectory)).model]

    def _quantizer(self, quantizer: str, trajectory: str) -> dict[str, Any]:
        """Settings of a quantizer for a trajectory's model, the group size resolved."""
        settings = self.config.quantizers[quantizer]
        resolved = settings.model_dump(mode="json")
        size = getattr(settings, "group_size", None)
        shape = self._shape(trajectory)
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
                "steps": self.shards(trajectory)[shard],
                "context": self._shape(trajectory).context,
                "full_precision": full,
                **self.config.scale.evaluation.model_dump(),
            },
        )

    def measure(self, trajectory: str, method: str) -> Job:
        """Tidy measurements of a trajectory under a quantizer, or in full precision."""
        shards = self.shards(trajectory)

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
        main = self._shape(names[0])
        config = {
            "title": settings.title,
            "caption": settings.caption,
            "curves": settings.curves,
            "quantizers": {q: self._quantizer(q, names[0]) for q in settings.quantizers},
            "branches": {
                name: [run.trunk, self.steps(run.at)]
                for name in runs
                if isinstance(run := self._run(name), Branch)
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

    # Checks across files

    def _check(self) -> None:
        self._check_names()
        for name, run in self.config.runs.runs.items():
            if isinstance(run, Branch):
                self._check_branch(name, run)
        for name, lawa in self.config.runs.averages.items():
            self._check_average(name, lawa)
        for name, quantizer in self.config.quantizers.items():
            size = getattr(quantizer, "group_size", None)
            for model, shape in self.config.scale.models.items():
                for width in (shape.width, shape.feedforward):
                    if isinstance(size, int) and width % size:
                        raise Problem(
                            f"config/quantizers.yaml: {name}.group_size is {size}, which does not "
                            f"divide the layer width {width} of model {model!r} at "
                            f"{self.config.scale.description}; choose a divisor, or {{at_most: N}}"
                        )

    def _check_names(self) -> None:
        config = self.config
        runs, averages = config.runs.runs, config.runs.averages
        both = sorted(set(runs) & set(averages))
        if both:
            raise Problem(f"config/runs.yaml: {both[0]!r} is the name of a run and of an average")
        known = {"figure": config.figures, "quantizer": config.quantizers}
        known |= {"trajectory": {**runs, **averages}, "model": config.scale.models}
        wanted = [("config/config.yaml: figures", "figure", name) for name in self.figures]
        for name, figure in config.figures.items():
            place = f"config/figures.yaml: {name}"
            members = chain.from_iterable(figure.curves.values())
            wanted += [(f"{place}.curves", "trajectory", member) for member in members]
            wanted += [(f"{place}.quantizers", "quantizer", q) for q in figure.quantizers]
        for name, run in runs.items():
            if isinstance(run, Whole):
                wanted.append((f"config/runs.yaml: runs.{name}.model", "model", run.model))
        for place, kind, name in wanted:
            if name not in known[kind]:
                allowed = ", ".join(known[kind])
                raise Problem(f"{place} names no known {kind}: {name!r} (known: {allowed})")

    def _check_branch(self, name: str, run: Branch) -> None:
        place = f"config/runs.yaml: runs.{name}"
        trunk = self.config.runs.runs.get(run.trunk)
        if not isinstance(trunk, Whole):
            whole = [n for n, r in self.config.runs.runs.items() if isinstance(r, Whole)]
            raise Problem(f"{place}.trunk is {run.trunk!r}; it must be one of {', '.join(whole)}")
        if run.at > trunk.length:
            raise Problem(
                f"{place}.at is {run.at}, after the end of its trunk {run.trunk} at {trunk.length}"
            )
        every = self.steps(trunk.state_every) if trunk.state_every else None
        if every is None or self.steps(run.at) % every:
            kept = f"every {every} steps" if every else "nowhere"
            raise Problem(
                f"{place}.at is step {self.steps(run.at)}, where its trunk {run.trunk} keeps no "
                f"state (it does {kept}); change at, or state_every of the trunk"
            )

    def _check_average(self, name: str, lawa: Lawa) -> None:
        place = f"config/runs.yaml: averages.{name}"
        if lawa.trajectory not in self.config.runs.runs:
            known = ", ".join(self.config.runs.runs)
            raise Problem(f"{place}.trajectory is {lawa.trajectory!r}; known runs: {known}")
        every, grid = self.steps(lawa.every), self._checkpoint_every(lawa.trajectory)
        if every % grid:
            raise Problem(
                f"{place}.every is {every} steps, not a multiple of the {grid} steps between "
                f"checkpoints of {lawa.trajectory}; change it, or checkpoint_every of the run"
            )
        available = len(self._grid(lawa.trajectory)) * grid // every
        if lawa.window > available:
            raise Problem(
                f"{place}.window is {lawa.window}, but {lawa.trajectory} has only {available} "
                f"checkpoints {every} steps apart; lower window or every"
            )
