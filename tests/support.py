"""What several test modules share: a tiny configuration and a workspace that builds its jobs."""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import Any

import pytest
import yaml
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import load
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.execute import execute
from ptq_dynamics.engine.job import Job
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.plan import Plan
from pydantic import TypeAdapter
from snakemake.utils import update_config

ROOT = Path(__file__).resolve().parent.parent
# Make that knows nothing of the one that runs the tests.
MAKE = ["env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "-f", str(ROOT / "Makefile")]

# The largest memory that a process has had, for the head of a program that is `measured`.
PEAK = """
import resource, sys
from pathlib import Path
def peak():
    # In MiB. On Linux a process inherits the ru_maxrss of the one that started it.
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return int(status.read_text().split("VmHWM:")[1].split()[0]) / 2**10
"""

# What the tiny configuration has besides everything under config/: scale smoke with a smaller model
# and other text, and runs of a few steps.
SCALE: dict[str, Any] = yaml.safe_load((ROOT / "config/scales/smoke.yaml").read_text())
SCALE |= {"description": "tiny scale", "budget": 190, "log_every": 2, "warm": False, "keep": {}}
SCALE["models"]["main"] |= {"layers": 2, "width": 32, "heads": 2, "feedforward": 64}
SCALE["models"]["main"] |= {"context": 16}
for other in ("moe", "mamba"):
    SCALE["models"][other]["context"] = 16
SCALE["regime"] |= {"batch": 4}
SCALE["corpora"]["main"] |= {"packages": ["click", "jinja2"], "vocabulary": 300, "train": 10000}
SCALE["corpora"]["main"] |= {"validation": 1024, "calibration": 512, "probe": 512}
SCALE["measure"] |= {"trunk_every": "12/190", "trunk_least": 1, "cooldown_every": "4/190"}
SCALE["evaluation"] |= {"blocks": 32, "batch": 8}
SCALE["calibration"] |= {"blocks": 32, "batch": 8}
SCALE["tasks"] |= {"context": 16, "names": ["word", "ending"]}

TRUNK = {"schedule": "constant", "peak_lr": 1e-2, "length": "24/190", "warmup": "3/190"}
RUNS: dict[str, Any] = {
    "trunk": {**TRUNK, "checkpoint_every": "2/190", "state_every": "6/190"},
    "branch": {"trunk": "trunk", "at": "12/190", "cooldown": "8/190", "checkpoint_every": "2/190"},
}
RUNS["branch-of-average"] = {**RUNS["branch"], "weights": "lawa-at-12"}
AVERAGES: dict[str, Any] = {
    "lawa": {"trajectory": "trunk", "every": "2/190", "window": 3},
    "lawa-at-12": {"trajectory": "trunk", "every": "2/190", "window": 3, "at": "12/190"},
    "lawa-of-branch": {"trajectory": "branch", "every": "2/190", "window": 3},
    "windows": {"trajectory": "trunk", "intervals": ["2/190", "6/190", "12/190"], "window": 3},
    "fading": {"trajectory": "trunk", "every": "4/190", "memories": ["2/190", "8/190"]},
    "lawa-of-lawa": {"trajectory": "lawa", "every": "12/190", "window": 2},
    "line-of-averages": {"start": "lawa-of-lawa", "end": "lawa-of-branch", "points": 4},
    "merge": {"merge": {"branch": 3, "trunk": 1}},
    "soup": {"merge": ["branch", "trunk", "lawa"], "greedy": True},
    "merge-of-averages": {"merge": ["lawa", "branch", "merge"]},
    "last-of-branch": {"trajectory": "branch", "last": 2},
}

GPTQ: dict[str, Any] = {"method": "gptq", "group_size": {"at_most": 16}, "block_size": 128}
GPTQ |= {"symmetric": True, "activation_order": "static", "damping": 0.05}
QUANTIZERS: dict[str, Any] = {
    "gptq4": {**GPTQ, "bits": 4},
    "gptq3": {**GPTQ, "bits": 3},
    "rtn3": {"method": "rtn", "bits": 3, "group_size": {"at_most": 16}},
}


@contextmanager
def one_line(*words: str) -> Iterator[None]:
    """A block that has to end with a problem: one line in which all the words are."""
    with pytest.raises(Problem) as caught:
        yield
    message = str(caught.value)
    missing = [word for word in words if word not in message]
    assert not missing and "\n" not in message, f"{missing} not in: {message}"


def edit_yaml(path: Path, change: Callable[[Any], None]) -> None:
    """Change the content of a YAML file."""
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def put(content: Any, path: Sequence[Any], value: Any) -> None:
    """Set the value at a path of keys."""
    *outer, last = path
    for key in outer:
        content = content[key]
    content[last] = value


def git(folder: Path, *words: str | Path) -> str:
    """Run git in a folder as some author, which must succeed; what it prints."""
    who = ("git", "-c", "user.name=A", "-c", "user.email=a@b.c")
    done = run([*who, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every key that has a value, with it."""
    if isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in items:
            yield from leaves(value, (*path, key))
    else:
        yield path, content


def tiny_config(folder: Path, scale: Mapping[str, Any] = {}, **others: Mapping[str, Any]) -> Path:
    """Write the tiny configuration, as scale smoke, to `folder`/config, with what is added to the
    scale, at any depth, and to other files by name."""
    config = folder / "config"
    shutil.copytree(ROOT / "config", config)
    (config / "scales/smoke.yaml").write_text(yaml.safe_dump(SCALE, sort_keys=False))
    own = {"quantizers": QUANTIZERS, "runs": {"runs": RUNS, "averages": AVERAGES}}
    for name, added in (*own.items(), ("scales/smoke", scale), *others.items()):
        if added:
            edit_yaml(config / f"{name}.yaml", partial(update_config, overwrite_config=added))
    return config


def figure(
    layout: str, curves: Mapping[str, Sequence[str]], metrics: Sequence[str], **others: Any
) -> dict[str, Any]:
    """An entry of config/figures.yaml."""
    query = {"curves": dict(curves), "metrics": list(metrics), **others}
    return {"title": "A title", "caption": "A caption.", "layout": layout, **query}


def plan(
    scale: str, config: Path = ROOT / "config", seed: int = 100, figures: Sequence[str] = ()
) -> Plan:
    """The plan of everything under a configuration folder at one scale, or of some figures."""
    chosen = {"scale": scale, "seed": seed, "figures": list(figures) or "all"}
    return Plan(load(chosen, config), ROOT)


@dataclass
class Workspace:
    """A folder in which jobs of a plan are built, in this process."""

    folder: Path
    plan: Plan

    def attempt(self, job: Job, **changes: Any) -> int:
        """Run a job, with changes to its configuration; its exit status."""
        with chdir(self.folder):
            return execute(specification(job, **changes))

    def build(self, job: Job, **changes: Any) -> Manifest:
        """Run a job that must succeed; its manifest."""
        status = self.attempt(job, **changes)
        assert status == 0, (self.folder / job.paths.log).read_text()[-2000:]
        return self.manifest(job)

    def make(self, job: Job) -> Manifest:
        """Run a job of the plan after those that it needs and that have not been run."""
        makers = self.plan.site.made
        waiting = [job]
        while waiting:
            absent = [path for path in waiting[-1].needs if not (self.folder / path).exists()]
            if absent:
                waiting += [makers[path] for path in absent]
            elif not (self.folder / waiting[-1].manifest).exists():
                self.build(waiting.pop())
            else:
                waiting.pop()
        return self.manifest(job)

    def beside(self, folder: Path, plan: Plan | None = None, *runs: str) -> "Workspace":
        """Another workspace with the corpus and some runs of this one, and its plan or another."""
        made = [self.plan.trajectories.corpus("main"), *map(self.plan.trajectories.train, runs)]
        copy_results(self.folder, folder, [job.folder for job in made])
        return Workspace(folder, plan or self.plan)

    def manifest(self, job: Job) -> Manifest:
        """Manifest of a job that was run, with a path that is valid anywhere."""
        return self.read(job.manifest)

    def read(self, path: str) -> Manifest:
        """Manifest by its path, as jobs name their inputs."""
        return manifest.read(self.folder / path)


def specification(job: Job, **changes: Any) -> dict[str, Any]:
    """The job as its process receives it, with changes to its configuration."""
    if not changes:
        return job.spec
    settings = {**job.spec["settings"], **changes}
    kind = TypeAdapter(type(job.settings))
    return replace(job, settings=kind.validate_python(settings)).spec


def job_file(folder: Path, spec: Mapping[str, Any]) -> str:
    """The specification as the file that a process in `folder` reads it from."""
    name = hashlib.sha256(json.dumps(spec).encode()).hexdigest()[:16]
    path = folder / f".job-{name}.json"
    path.write_text(json.dumps(spec))
    return str(path)


def visible(folder: Path) -> dict[str, bytes]:
    """Bytes of every file below `folder` that is not hidden, by relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def artifacts(folder: Path) -> dict[str, bytes]:
    """As `visible`, without records, which hold times."""
    return {name: data for name, data in visible(folder).items() if "record.json" not in name}


def differing(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    """Names of the files that are not equal in both."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def python(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """Run this Python in a process of its own in `folder`."""
    return run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def measured(program: str, folder: Path, *arguments: object) -> list[float]:
    """The numbers that a program prints at its end, which calls `peak`, on one thread and with an
    allocator that gives back at once what is freed, as it always does with larger tensors."""
    plain = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    found = python(["-c", PEAK + program, *map(str, arguments)], folder, plain)
    assert found.returncode == 0, found.stderr
    return [float(number) for number in found.stdout.splitlines()[-1].split()]


def wait_until(
    condition: Callable[[], object], what: str = "it does not happen", patience: float = 120
) -> None:
    """Wait for a condition; fail with `what` is wrong after `patience` seconds."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def copy_results(source: Path, target: Path, names: Sequence[str]) -> None:
    """Copy built results, by path relative to the workspace, from one workspace to another."""
    for name in names:
        shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns(".*"))
