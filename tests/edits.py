"""Edits of a whole project, made by rule, each with the results that have to count as stale after
it: told by other means than the specifications and fingerprints that decide it."""

import ast
import contextlib
import json
import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

import yaml
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.fingerprint.reach import Node
from ptq_dynamics.engine.paths import MANIFEST, RECORD
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph import Plan
from reachability import FILES, FUNCTIONS, names_of, reach
from support import leaves, plan
from tracer import Traces

CONFIGURED = ("runs", "families", "quantizers", "figures", "tasks", "backends")
FILES_OF_KEYS = (*(f"{name}.yaml" for name in CONFIGURED), "scales/smoke.yaml")
FILES_OF_CLAIMS = ("claims.yaml", "tables.yaml")
# How a file of a result is harmed.
HARMS: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "flipped": lambda path: path.write_bytes(flipped(path.read_bytes())),
}


@dataclass
class Edit:
    """One edit: its kind, what it is, the files that it changes or adds, as they are then (None:
    gone), variables of the process that asks for the status, and what has to be stale."""

    kind: str
    name: str
    files: Mapping[str, bytes | None]
    expected: set[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Known:
    """A project that is built, with what its jobs entered and read, and what it was built for."""

    folder: Path
    plan: Plan
    traces: Traces
    targets: Callable[[Plan], list[Job]] = Plan.last

    @cached_property
    def jobs(self) -> dict[str, Any]:
        """All jobs by their manifests."""
        return {job.manifest: job for job in self.plan.site.needed(self.targets(self.plan))}

    def text(self, file: str) -> bytes:
        """A file as it is."""
        return (self.folder / file).read_bytes()

    def read(self, stage: str, part: str, name: str) -> bool:
        """Whether jobs of a stage read a field of their settings, as far as they ever had it."""
        key = (part, name)
        return key in self.traces.read[stage] or key not in self.traces.given[stage]


def downstream(jobs: Mapping[str, Any], first: set[str]) -> set[str]:
    """Results with all that is made from them."""
    found, more = set(first), True
    while more:
        more = {path for path, job in jobs.items() if path not in found and found & {*job.needs}}
        found |= more
    return found


def flipped(content: bytes) -> bytes:
    """With one bit changed in the middle."""
    half = len(content) // 2
    return content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]


# Configuration


def of_keys(
    known: Known, moments: random.Random, files: tuple[str, ...] = FILES_OF_KEYS
) -> Iterator[Edit]:
    """Another value of each key: stale is what is then given other settings that it reads, or other
    inputs."""
    contents = {name: yaml.safe_load(known.text(f"config/{name}")) for name in files}
    keys = [(name, path) for name, content in contents.items() for path, _ in leaves(content)]
    moments.shuffle(keys)
    texts = defaultdict[Any, set[str]](set)
    for path, value in chain.from_iterable(map(leaves, contents.values())):
        if isinstance(value, str):
            texts[_named(path)].add(value)
    for name, path in keys:
        edit = _of_key(known, name, path, contents[name], sorted(texts[_named(path)]))
        if edit is not None:
            yield edit


def _named(path: tuple[Any, ...]) -> Any:
    """The key that a value stands under, itself or in a list."""
    return next(key for key in reversed(path) if isinstance(key, str))


def _of_key(
    known: Known, name: str, path: tuple[Any, ...], content: Any, texts: list[str]
) -> Edit | None:
    """The first other value that fits the rest, `texts` those that stand under the same key."""
    copy = json.loads(json.dumps(content))
    place = copy
    for key in path[:-1]:
        place = place[key]
    for other in _others(place[path[-1]], texts):
        place[path[-1]] = other
        told = f"{name}: {'.'.join(map(str, path))} is {other!r}"
        with contextlib.suppress(Problem):
            return _planned(known, "a key", told, f"config/{name}", copy)
    return None


def _others(value: Any, texts: list[str]) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (type(value)(value * by) for by in (2, 0.5, 4))
        yield value + 1
    elif value is None:
        yield from (1, 2)
    else:
        yield f"{value} and more"
        yield from (other for other in texts if other != value)


def _differs(known: Known, path: str, job: Any) -> bool:
    own = known.jobs.get(path)
    if own is None or {k: [*v] for k, v in own.inputs.items()} != {
        k: [*v] for k, v in job.inputs.items()
    }:
        return True
    is_same = (own.stage, own.modules, own.files) == (job.stage, job.modules, job.files)
    return not is_same or _reads_another(known, job.stage, own.settings, job.settings)


def _reads_another(known: Known, stage: str, one: Any, other: Any) -> bool:
    """Whether two settings differ in what jobs of the stage read."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) != len(other) or any(
            _reads_another(known, stage, *pair) for pair in zip(one, other, strict=True)
        )
    if not is_dataclass(one) or type(one) is not type(other):
        return bool(type(one) is not type(other) or one != other)
    part = type(one).__name__
    return any(
        known.read(stage, part, each.name)
        and _reads_another(known, stage, getattr(one, each.name), getattr(other, each.name))
        for each in fields(one)
    )


# Code


def of_functions(known: Known, moments: random.Random) -> Iterator[Edit]:
    """One more statement in each function: stale is what needs it."""
    kinds = {(job.stage, tuple(job.modules)) for job in known.jobs.values()}
    needed = {kind: _needed(*kind) for kind in kinds}
    found = list(_functions(known))
    moments.shuffle(found)
    for module, file, owner, line, indent, name in found:
        lines = known.text(file).decode().split("\n")
        lines.insert(line, f"{' ' * indent}assert True")
        by_selection = {kind for kind in kinds if module in map(_full, kind[1])}
        stale = {
            path
            for path, job in known.jobs.items()
            if Node(module, owner) in needed[kind := (job.stage, tuple(job.modules))]
            or kind in by_selection
        }
        edited = {file: "\n".join(lines).encode()}
        yield Edit("a function", f"{module}.{name}", edited, downstream(known.jobs, stale))


def _functions(known: Known) -> Iterator[tuple[str, str, str, int, int, str]]:
    """Module, file, definition of the module, last line and its indentation, and name of all."""
    for module in FILES:
        base = "workflow/" + module.replace(".", "/")
        file = next(f for f in (f"{base}.py", f"{base}/__init__.py") if (known.folder / f).exists())
        for statement in ast.parse(known.text(file)).body:
            for each in ast.walk(statement):
                if isinstance(each, FUNCTIONS):
                    end, indent = each.body[-1].end_lineno or 0, each.body[0].col_offset
                    yield module, file, names_of(statement)[0], end, indent, each.name


def _needed(stage: str, modules: tuple[str, ...]) -> set[Node]:
    """By the second reachability; statements of modules run with these."""
    selected, acting, found = [_full(each) for each in modules], set[Node](), set[Node]()
    while True:
        found = reach(_full(stage), selected, acting)
        more = {Node(node.module, "(") for node in found if _acts(node.module)}
        if more == acting:
            return found
        acting = more


def _acts(module: str) -> bool:
    body = ast.parse(FILES[module]).body
    return any(isinstance(each, ast.If) or _is_call(each) for each in body)


def _is_call(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)


def _full(module: str) -> str:
    return f"ptq_dynamics.{module}"


# Libraries


def of_libraries(known: Known, moments: random.Random, place: Path) -> Iterator[Edit]:
    """Another version of each library: stale is what computed with it, by the records."""
    used: dict[str, set[str]] = {}
    for path in known.jobs:
        account = json.loads(known.text(path.removesuffix(MANIFEST) + RECORD))
        for library in account["packages"]:
            used.setdefault(library, set()).add(path)
    for library, paths in moments.sample(found := sorted(used.items()), len(found)):
        folder = place / library
        about = folder / f"{library.replace('-', '_')}-999.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: 999\n")
        variables = {"PYTHONPATH": f"{folder}{os.pathsep}{known.folder / 'workflow'}"}
        yield Edit("a library", library, {}, downstream(known.jobs, paths), variables)


# Runs and figures


def of_figures(known: Known, moments: random.Random) -> Iterator[Edit]:
    """Each figure removed, renamed and copied: stale is the one with a new name, and the table,
    where it has other inputs then."""
    file = "config/figures.yaml"
    content = yaml.safe_load(known.text(file))
    every = [*product(content, ("removed", "renamed", "copied"))]
    moments.shuffle(every)
    for name, change in every:
        found = {key: value for key, value in content.items() if key != name or change == "copied"}
        found |= {} if change == "removed" else {f"{name}-too": content[name]}
        yield _planned(known, "a figure", f"{name} {change}", file, found)


def of_runs(known: Known, moments: random.Random) -> Iterator[Edit]:
    """Each run of the paper copied, which nothing shows then."""
    file = "config/runs.yaml"
    content = yaml.safe_load(known.text(file))
    for name, run in moments.sample(every := [*content["runs"].items()], len(every)):
        found = {**content, "runs": {**content["runs"], f"{name}-too": run}}
        yield _planned(known, "a run", f"{name} copied", file, found)


def _planned(known: Known, kind: str, name: str, file: str, content: Any) -> Edit:
    """An edit after which a plan of its own says what has other settings or inputs."""
    text = yaml.safe_dump(content, sort_keys=False).encode()
    jobs = _jobs(known, file, text)
    changed = {path for path, job in jobs.items() if _differs(known, path, job)}
    return Edit(kind, name, {file: text}, downstream(jobs, changed))


def _jobs(known: Known, file: str, text: bytes) -> dict[str, Any]:
    """All jobs with another text in a file of the configuration; `Problem` where it does not fit
    the rest."""
    path = known.folder / file
    before = path.read_bytes()
    try:
        path.write_bytes(text)
        choice = known.plan.site.config.choice
        figures = () if choice.figures == "all" else choice.figures
        after = plan("smoke", known.folder / "config", choice.seed, figures)
        return {job.manifest: job for job in after.site.needed(known.targets(after))}
    finally:
        path.write_bytes(before)


# Files


def of_files(known: Known, moments: random.Random) -> Iterator[Edit]:
    """Files of results deleted, cut short, and with one bit changed: stale is the result, and what
    is made from it."""
    found = [
        (path, file)
        for path in known.jobs
        for file in (path, path.removesuffix(MANIFEST) + RECORD, *_files(known, path))
    ]
    moments.shuffle(found)
    for path, file in found:
        kind = moments.choice([*HARMS])
        harmed = known.folder / f"{file}.harmed"
        shutil.copyfile(known.folder / file, harmed)
        HARMS[kind](harmed)
        content = harmed.read_bytes() if harmed.exists() else None
        harmed.unlink(missing_ok=True)
        stale = downstream(known.jobs, {path})
        yield Edit("a file", f"{file} {kind}", {file: content}, stale)


def _files(known: Known, path: str) -> Iterator[str]:
    result = manifest.read(known.folder / path)
    yield from (str((result.folder / name).relative_to(known.folder)) for name in result.files)


# The table


def tabulate(tried: list[tuple[Edit, set[str], set[str]]]) -> str:
    """A line for each kind: how many edits, and results that were missed and stale needlessly."""
    kinds = Counter(edit.kind for edit, *_ in tried)
    lines = [f"{'':12} {'edits':>6} {'missed':>7} {'needless':>9}"]
    for kind, number in kinds.items():
        own = [each for each in tried if each[0].kind == kind]
        missed, needless = (sum(len(each[n]) for each in own) for n in (1, 2))
        lines.append(f"{kind:12} {number:6} {missed:7} {needless:9}")
    missed, needless = (len([*chain(*(each[n] for each in tried))]) for n in (1, 2))
    lines.append(f"{'all':12} {len(tried):6} {missed:7} {needless:9}")
    return "\n".join(lines)
