"""A checkout of the engine with three small stages of its own, whose jobs take milliseconds.

`numbers` writes random numbers; `walk` adds them up, and goes on after an interruption; `total`
shares its folder with others, and computes with numpy.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any

from support import ROOT, artifacts

PACKAGE = "workflow/ptq_dynamics"
MODULES = {
    "__init__": "",
    "numbers": '''
"""Random numbers."""
import random
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.toy.tools import scaled
class Numbers(Strict):
    """How many, and their seed."""
    count: int
    seed: int
def run(context: "Context[Numbers]"):
    """Stage."""
    settings = context.settings
    moments = random.Random(settings.seed)
    (context.out / "sub").mkdir(exist_ok=True)
    numbers = [scaled(moments.random()) for _ in range(settings.count)]
    (context.out / "sub/numbers.txt").write_text("\\n".join(map(str, numbers)))
    (context.out / "count.txt").write_text("x" * settings.count)
    if settings.count == 13:
        raise ValueError("of ill luck")
    if settings.count > 10000:
        raise Problem("there are not so many numbers; lower the count")
    return {"count": settings.count}
from ptq_dynamics.engine.context import Context
''',
    "tools": '''
"""What stages share."""
FACTOR = 2
def scaled(value):
    """A number, scaled."""
    return FACTOR * value
def unused():
    return None
''',
    "walk": '''
"""Sums of numbers, one at a time."""
import time
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.engine.context import Context
RESUMABLE = True
class Walk(Strict):
    """How long each step takes."""
    pause: float = 0.0
def run(context: Context[Walk]):
    """Stage."""
    numbers = context.input("numbers").file("sub/numbers.txt").read_text().split()
    state, sums = context.scratch / "state.txt", context.out / "sums.txt"
    done = state.read_text().split("\\n") if state.exists() else []
    if done:
        context.progress.say(f"going on from {len(done)}")
    for number in map(float, numbers[len(done):]):
        done.append(str(float(done[-1] if done else 0) + number))
        state.with_suffix(".new").write_text("\\n".join(done))
        state.with_suffix(".new").replace(state)
        time.sleep(context.settings.pause)
    sums.write_text("\\n".join(done))
    return {"steps": len(done)}
''',
    "total": '''
"""The total."""
import json
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.engine.context import Context
class Total(Strict):
    """Its name."""
    title: str
def run(context: Context[Total]):
    """Stage."""
    import numpy
    sums = context.input("sums").file("sums.txt").read_text().split()
    total = {context.settings.title: numpy.float64(sums[-1]).item()}
    (context.out / "total.json").write_text(json.dumps(total))
    return {"identity": len(context.identity)}
''',
    "graph": '''
"""The jobs of some choices."""
from ptq_dynamics.engine.job import Job, settle
from ptq_dynamics.toy.numbers import Numbers
from ptq_dynamics.toy.total import Total
from ptq_dynamics.toy.walk import Walk
def jobs(count=5, seed=1, pause=0.0, title="all"):
    """The three, in order."""
    one = Job("toy.numbers", "one", "results/numbers", {}, Numbers(count=count, seed=seed))
    two = Job("toy.walk", "two", "results/walk", {"numbers": [one.manifest]}, Walk(pause=pause))
    three = Job(
        "toy.total", "three", "results", {"sums": [two.manifest]}, Total(title=title), stem="total"
    )
    return one, two, three
''',
}
SETTLE = """
import json, sys
from ptq_dynamics.toy.graph import jobs, settle
found = [["", True]]
for job in jobs(**json.loads(sys.argv[1])):
    found.append([str(job.paths.spec), settle(job, waits=not found[-1][1])])
found.pop(0)
print(json.dumps(found))
"""
NAMES = ("numbers", "walk", "total")


@dataclass
class Toy:
    """One checkout, in which results lie, too."""

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Toy":
        """A fresh one."""
        package = folder / PACKAGE
        for room in ("engine", "base"):
            shutil.copytree(ROOT / PACKAGE / room, package / room)
        shutil.copy2(ROOT / PACKAGE / "__init__.py", package)
        (package / "toy").mkdir()
        for name, text in MODULES.items():
            (package / f"toy/{name}.py").write_text(text.lstrip())
        return cls(folder)

    def copied(self, folder: Path) -> "Toy":
        """Another one with the same results."""
        copy = Toy(folder)
        shutil.copytree(self.folder, copy.folder)
        copy.specs = self.specs
        return copy

    def results(self) -> dict[str, bytes]:
        """Bytes of all results, without records."""
        return artifacts(self.folder / "results")

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in one of its modules."""
        path = self.folder / PACKAGE / f"toy/{name}.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def begin(self, *arguments: str, **environment: str) -> Popen[str]:
        """Start Python in the checkout."""
        own = {"PYTHONPATH": str(self.folder / "workflow"), "PYTHONDONTWRITEBYTECODE": "1"}
        variables = {**os.environ, **own, **environment}
        command, pipes = [sys.executable, *arguments], dict(stdin=PIPE, stdout=PIPE, stderr=PIPE)
        return Popen(command, cwd=self.folder, env=variables, text=True, **pipes)

    def python(self, *arguments: str, **environment: str) -> CompletedProcess[str]:
        """Run Python in the checkout to its end."""
        return self._ended(self.begin(*arguments, **environment))

    def _ended(self, process: Popen[str]) -> CompletedProcess[str]:
        said = process.communicate(timeout=60)
        return CompletedProcess(process.args, process.returncode, *said)

    def settle(self, **choice: Any) -> dict[str, bool]:
        """Settle all jobs; whether each is up to date, by its stage's name."""
        done = self.python("-c", SETTLE, json.dumps(choice))
        assert done.returncode == 0, done.stderr
        self.specs = dict(zip(NAMES, [spec for spec, _ in json.loads(done.stdout)], strict=True))
        return dict(zip(NAMES, [fresh for _, fresh in json.loads(done.stdout)], strict=True))

    def start(self, name: str, *options: str, **environment: str) -> Popen[str]:
        """Start a job that was settled."""
        command = ("-m", "ptq_dynamics.engine.run", self.specs[name])
        return self.begin(*command, *options, **environment)

    def run(self, name: str, *options: str, **environment: str) -> CompletedProcess[str]:
        """Run a job that was settled to its end."""
        return self._ended(self.start(name, *options, **environment))

    def build(self, **choice: Any) -> dict[str, str]:
        """Settle, and run what is outdated as Snakemake does; what each job said."""
        found, said = self.settle(**choice), dict[str, str]()
        for name in NAMES:
            if not found[name]:
                manifest = self.folder / self.specs[name].replace("spec.json", "manifest.json")
                manifest.unlink(missing_ok=True)
                done = self.run(name)
                assert done.returncode == 0, done.stderr
                assert manifest.exists()
                said[name] = done.stderr
        return said

    def made(self, said: Mapping[str, str]) -> set[str]:
        """The jobs that computed, by what they said."""
        return {name for name, text in said.items() if "done in" in text}
