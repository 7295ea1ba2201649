"""What planning makes of times: whatever happened to results, a build makes what differs, and no
more. Snakemake is played by its rules: a job runs after one that it reads of, and with newer inputs
that have another content than when Snakemake ran it last; without its output, where that is the
target or a job that runs reads it."""

import os
import random
import shutil
import sys
from contextlib import chdir
from pathlib import Path

import ptq_dynamics
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ptq_dynamics.engine import code, execute, specification
from ptq_dynamics.engine.specification import settle
from support import artifacts, visible
from toy import NAMES, PACKAGE, Toy

pytestmark = pytest.mark.slow

FACTORS = (2, 3)
CHOICES = [{}, {"count": 7}, {"seed": 2}, {"title": "sum"}, {"count": 7, "title": "sum"}]


class Site:
    """A folder in which the toy's jobs are settled and run in this process."""

    def __init__(self, toy: Toy, folder: Path) -> None:
        self.toy, self.folder = toy, folder
        self.choice, self.factor = dict[str, object](), 0
        self.made = list[str]()
        self.known = dict[str, dict[str, bytes]]()  # contents of inputs, as Snakemake notes them
        self.edit(FACTORS[0])

    def edit(self, factor: int) -> None:
        """Another constant that the first job's code reaches."""
        if factor != self.factor:
            self.toy.edit("tools", f"FACTOR = {self.factor or 2}\n", f"FACTOR = {factor}\n")
            self.factor = factor
        for cached in (code.planned, code._first):
            cached.cache_clear()
        for name in [each for each in sys.modules if each.startswith("ptq_dynamics.toy")]:
            del sys.modules[name]

    def jobs(self):
        from ptq_dynamics.toy.graph import jobs

        return jobs(**self.choice)

    def settle(self, *, deep: bool = False) -> list[bool]:
        with chdir(self.folder):
            found = [True]
            for job in self.jobs():
                found.append(settle(job, waits=not found[-1], deep=deep))
            return found[1:]

    def build(self, stop: int = 3, *, deep: bool = False) -> set[str]:
        """Build all, or as far as before job number `stop`; the jobs that computed."""
        self.settle(deep=deep)
        self.made.clear()
        with chdir(self.folder):
            jobs = self.jobs()[:stop]
            due = self.due(jobs)
            for job in jobs:
                if job.manifest in due:
                    inputs = [str(job.paths.spec), *job.needs]
                    Path(job.manifest).unlink(missing_ok=True)
                    assert execute.execute(job.spec) == 0
                    self.known[job.manifest] = {p: Path(p).read_bytes() for p in inputs}
        return set(self.made)

    def due(self, jobs) -> set[str]:
        """The jobs of a chain that Snakemake runs, by their outputs."""
        due, oldest = set[str](), None
        for number, job in reversed([*enumerate(jobs, 1)]):
            output, known = Path(job.manifest), self.known.get(job.manifest, {})
            oldest = os.stat(output).st_mtime_ns if output.exists() else oldest
            inputs = [path for path in map(Path, (job.paths.spec, *job.needs)) if path.exists()]
            newer = [p for p in inputs if oldest is not None and os.stat(p).st_mtime_ns > oldest]
            if any(known.get(str(path)) != path.read_bytes() for path in newer):
                due.add(job.manifest)
            if number == len(jobs) and not output.exists():
                due.add(job.manifest)
        for job in jobs:
            due |= {job.manifest} if due.intersection(job.needs) else set()
        for job in reversed(jobs):
            needed = job.needs if job.manifest in due else []
            due |= {path for path in needed if not Path(path).exists()}
        return due

    def files(self) -> list[Path]:
        """All files of results, records, manifests and specifications."""
        return [self.folder / name for name in sorted(visible(self.folder))]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The stages of the toy as modules of this process."""
    made = Toy.at(tmp_path_factory.mktemp("toy"))
    patch = pytest.MonkeyPatch()
    inside = [*ptq_dynamics.__path__, str(made.folder / PACKAGE)]
    patch.setattr(ptq_dynamics, "__path__", inside)
    # Python takes compiled code for that of its source where second and size are the same.
    patch.setattr(sys, "dont_write_bytecode", True)
    patch.setattr(code, "SOURCES", made.folder / "workflow")
    patch.setattr(code.Program.__init__, "__defaults__", (made.folder / "workflow", "ptq_dynamics"))
    yield made
    patch.undo()
    for cached in (code.planned, code._first):
        cached.cache_clear()


@pytest.fixture
def site(toy, tmp_path_factory, monkeypatch):
    """A folder without results."""
    found = Site(toy, tmp_path_factory.mktemp("site"))
    build = execute._build

    def noted(spec, *others):
        build(spec, *others)
        found.made.append(spec["stage"].removeprefix("toy."))

    monkeypatch.setattr(execute, "_build", noted)
    yield found
    found.edit(FACTORS[0])


def anew(site: Site) -> None:
    """Remove all results."""
    shutil.rmtree(site.folder)
    site.folder.mkdir()
    site.choice = {}
    site.known.clear()
    site.edit(FACTORS[0])


def picked(site: Site, number: int) -> Path | None:
    """One of the files."""
    found = site.files()
    return found[number % len(found)] if found else None


def turn_back(site: Site, number: int) -> None:
    """All files get times in an order of their own, as a copy might have."""
    moments = random.Random(number)
    for path in site.files():
        os.utime(path, (time := moments.randrange(10**9), time))


def do(site: Site, action: str, number: int) -> None:
    """One thing that happens between builds."""
    path = picked(site, number)
    if action == "choose":
        site.choice = CHOICES[number % len(CHOICES)]
    elif action == "edit":
        site.edit(FACTORS[number % 2])
    elif action == "settle":
        site.settle()
    elif action == "build a part":
        site.build(number % 3)
    elif action == "turn back":
        turn_back(site, number)
    elif path is None:
        pass
    elif action == "delete":
        path.unlink()
    elif action == "shorten":
        path.write_bytes(path.read_bytes()[:-1])
    elif action == "touch":
        os.utime(path)
    elif action == "delete manifest" and path.name.endswith("manifest.json"):
        path.unlink()


HARMLESS = ("settle", "turn back", "touch", "delete manifest")
ALL = (*HARMLESS, "choose", "edit", "delete", "shorten", "build a part")
actions = st.lists(st.tuples(st.sampled_from(ALL), st.integers(0, 99)), max_size=8)
harmless = st.lists(st.tuples(st.sampled_from(HARMLESS), st.integers(0, 99)), max_size=6)
QUICK = settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@QUICK
@given(actions)
def test_whatever_happened_a_build_ends_as_one_from_nothing(site, happened):
    anew(site)
    site.build()
    for action, number in happened:
        do(site, action, number)
    site.build()
    found, choice, factor = artifacts(site.folder), site.choice, site.factor
    assert site.build() == set() and site.settle() == [True] * 3
    anew(site)
    site.choice = choice
    site.edit(factor)
    site.build()
    assert found == artifacts(site.folder)


@QUICK
@given(harmless)
def test_what_changes_no_result_makes_none(site, happened):
    anew(site)
    site.build()
    for action, number in happened:
        do(site, action, number)
    assert site.build() == set()


def test_an_edit_makes_what_depends_on_it_and_an_undone_one_nothing(site):
    assert site.build() == {*NAMES}
    site.choice = {"title": "sum"}
    assert site.build() == {"total"}
    site.edit(3)
    assert site.settle() == [False] * 3
    site.edit(2)
    assert site.settle() == [True] * 3
    assert site.build() == set()
    # Both are published with the same numbers, whose readers run no further than to see that.
    site.choice = {"title": "sum", "pause": 1e-9}
    assert site.build() == {"walk"}


@pytest.mark.parametrize(
    ("before", "now", "lines"),
    [
        ([1, 2, 3], [1], ["seeds 1, 2, 3 → 1", "series 3 entries → 1 entries"]),
        ([2], [3], ["seeds 2 → 3", "series.0.seed 2 → 3"]),
        ([], [3], ["input measure run fp is new", "series 0 entries → 1 entries"]),
        ([3], [], ["input measure run fp is no longer read", "series 1 entries → 0 entries"]),
    ],
)
def test_inputs_that_differ_in_seeds_are_one_reason(before, now, lines):
    def spec(seeds):
        inputs = {f"measure run seed {n} {kind}": ["a"] for kind in ("fp", "rtn") for n in seeds}
        inputs = inputs if before and now else dict([*inputs.items()][:1])
        return {"inputs": inputs, "settings": {"series": [{"seed": n} for n in seeds]}}

    assert list(specification.differences(spec(before), spec(now))) == lines


def test_why_a_result_is_outdated_is_said_with_the_root_cause_first(site):
    site.build()
    site.edit(3)
    site.choice = {"count": 7}
    with chdir(site.folder):
        one, two, three = site.jobs()
        assert specification.stale(one.spec, one.paths) == ["toy.tools changed", "count 5 → 7"]
        Path(one.manifest).write_text("{}")
        (reason,) = specification.stale(two.spec, two.paths)
        assert reason == f"its input {one.manifest} is other"
        (site.folder / "results/total.json").unlink()
        harm = "damaged: results/total.json is missing"
        assert specification.stale(three.spec, three.paths) == [harm]
        three.paths.record.unlink()
        assert specification.stale(three.spec, three.paths) == [specification.MISSING]
