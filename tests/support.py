"""What several test modules share: a tiny configuration and a workspace that builds its jobs."""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import Any

import yaml
from ptq_dynamics import manifest
from ptq_dynamics.config import load
from ptq_dynamics.job import Job
from ptq_dynamics.manifest import Manifest
from ptq_dynamics.plan import Plan
from ptq_dynamics.run import execute

ROOT = Path(__file__).resolve().parent.parent

# Scale smoke, smaller still.
SCALE: dict[str, Any] = yaml.safe_load((ROOT / "config/scales/smoke.yaml").read_text())
SCALE |= {"description": "tiny scale", "budget": 24, "log_every": 2, "warm": False}
SCALE["models"]["main"] |= {"layers": 2, "width": 32, "heads": 2, "feedforward": 64}
SCALE["models"]["main"] |= {"context": 16, "batch": 4}
SCALE["corpus"] |= {"packages": ["click", "jinja2"], "vocabulary": 300, "train": 10000}
SCALE["corpus"] |= {"validation": 1024, "calibration": 512, "probe": 512}
SCALE["measure"] |= {"trunk_every": "1/2", "cooldown_every": "1/6"}
SCALE["evaluation"] |= {"blocks": 32, "batch": 8}
SCALE["calibration"] |= {"sequences": 32, "batch": 8}

RUNS: dict[str, Any] = {
    "defaults": {
        "optimizer": {
            "kind": "adamw",
            "betas": [0.9, 0.95],
            "eps": 1e-8,
            "weight_decay": 0.1,
            "clip": 1.0,
        },
        "warmup": "1/8",
        "checkpoint_every": "1/12",
    },
    "runs": {
        "trunk": {"schedule": "constant", "peak_lr": 1e-2, "length": 1, "state_every": "1/4"},
        "branch": {"trunk": "trunk", "at": "1/2", "cooldown": "1/3"},
        "cosine": {"schedule": "cosine", "peak_lr": 1e-2, "length": "1/2", "floor": 0.1},
    },
    "averages": {"lawa": {"trajectory": "trunk", "every": "1/12", "window": 3}},
}

GPTQ = {
    "method": "gptq",
    "group_size": {"at_most": 16},
    "symmetric": True,
    "activation_order": "static",
    "damping": 0.05,
    "block_size": 128,
}

QUANTIZERS: dict[str, Any] = {
    "gptq-4bit": {**GPTQ, "bits": 4},
    "gptq-3bit": {**GPTQ, "bits": 3},
    "rtn-3bit": {"method": "rtn", "bits": 3, "group_size": {"at_most": 16}},
}

FIGURES: dict[str, Any] = {
    "fig04": {
        "title": "A title",
        "caption": "A caption.",
        "curves": {"Stable": ["trunk"], "Decay": ["branch"]},
        "quantizers": ["gptq-4bit"],
    }
}


def tiny_config(folder: Path) -> Path:
    """Write the tiny configuration, as scale smoke, to `folder`/config."""
    config = folder / "config"
    (config / "scales").mkdir(parents=True)
    files = {"runs": RUNS, "quantizers": QUANTIZERS, "figures": FIGURES, "scales/smoke": SCALE}
    for name, content in files.items():
        (config / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return config


def plan(scale: str, config: Path = ROOT / "config", seed: int = 100) -> Plan:
    """The plan of everything under a configuration folder at one scale."""
    return Plan(load({"scale": scale, "seed": seed, "figures": "all"}, config))


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
        assert status == 0, (self.folder / log_of(job)).read_text()[-2000:]
        return self.manifest(job)

    def manifest(self, job: Job) -> Manifest:
        """Manifest of a job that was run, with a path that is valid anywhere."""
        return manifest.read(self.folder / job.manifest)


def specification(job: Job, **changes: Any) -> dict[str, Any]:
    """The job as its process receives it, with changes to its configuration."""
    spec = json.loads(job.spec())
    return {**spec, "config": {**spec["config"], **changes}}


def log_of(job: Job) -> str:
    """Path of a job's log."""
    return f"{job.folder}/.{job.stem + '.' if job.stem else ''}log"


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


def copy_results(source: Path, target: Path, names: Sequence[str]) -> None:
    """Copy built results, by path relative to the workspace, from one workspace to another."""
    for name in names:
        shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns(".*"))
