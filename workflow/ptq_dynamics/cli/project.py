"""The project of `ptq-dynamics measure`: its folder, and the configuration in it."""

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path
from shutil import rmtree

from huggingface_hub import constants
from pydantic import TypeAdapter

from ptq_dynamics import config
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen, selection
from ptq_dynamics.cli.chosen import ending
from ptq_dynamics.cli.own_scale import DEFAULTS, QUANTIZERS, Yaml, relative
from ptq_dynamics.cli.selection import Shards, without_defects
from ptq_dynamics.config import families
from ptq_dynamics.config.errors import validated
from ptq_dynamics.engine.checkout import ROOT
from ptq_dynamics.engine.lease import held
from ptq_dynamics.engine.paths import RECORD
from ptq_dynamics.hub import folders
from ptq_dynamics.hub import lock as hub
from ptq_dynamics.hub.files import COMMIT, Part
from ptq_dynamics.plan.own_checkpoints import sampled_checkpoints, sampled_folders
from ptq_dynamics.quantize.methods import AnyQuantizer, Calibrated

SCALE, FIGURE, RUN = "own", "quantization", "run"
LOCK = Path("families.lock.json")


@contextmanager
def claimed(out: Path | None, places: Sequence[str], names: Sequence[str]) -> Iterator[Path]:
    """Hold the folder of a project against other calls: `out`, or a folder in own/ with the names
    of runs. This folder has no other runs. A new folder without any measurement is removed again,
    also where a signal ends this process."""
    for root in [out] if out else _roots(names, places):
        if out is None and not _is_free(root, places):
            continue
        root.parent.mkdir(parents=True, exist_ok=True)
        with ending(sys.exit), held(root.parent / f".{root.name}.lease", print) as require:
            # It may have waited for a call with other runs.
            if out is None and not _is_free(root, places):
                continue
            is_new = not root.exists()
            (root / "config").mkdir(parents=True, exist_ok=True)
            try:
                yield root
            finally:
                if is_new and not any(root.glob(f"results/*/measure/**/*{RECORD}")):
                    require()
                    rmtree(root)
            return


def _roots(names: Sequence[str], places: Sequence[str]) -> Iterator[Path]:
    """Yield folders for runs: by their names, then with the parent folders, then with a number."""
    yield Path("own", "-".join(names))
    above = [Path(place).resolve().parent.name for place in places]
    first = "-".join(f"{one}-{two}" for one, two in zip(above, names, strict=True))
    yield Path("own", first)
    yield from (Path("own", f"{first}-{number}") for number in count(2))


def _is_free(root: Path, places: Sequence[str]) -> bool:
    """Return whether a folder has no project, or one of these runs."""
    if not (file := root / "config/families.yaml").is_file():
        return True
    sources = [entry["checkpoints"] for entry in config.read_yaml(file)["own"].values()]
    earlier = [s.get("repository") or str((root / s["folder"]).resolve()) for s in sources]
    return earlier == [str(Path(p).resolve()) if Path(p).is_dir() else p for p in places]


def names_of(places: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return the names of runs: those given, or the last parts of their places that differ."""
    if given and (len(given) != len(places) or len({*given}) < len(given)):
        raise Problem(f"--names has {', '.join(given)}: must be {len(places)} different names")
    parts = [Path(place).resolve().parts for place in places]
    if len({*parts}) < len(parts):
        raise Problem(f"{', '.join(places)} has a run twice; name each run once")
    depth = 1
    while len({own[-depth:] for own in parts}) < len(parts):
        depth += 1
    return list(given) or ["-".join(own[-depth:]) for own in parts]


def write(
    root: Path,
    runs: Mapping[str, Yaml],
    quantizers: Yaml,
    scale: Yaml,
    *,
    average: int | None,
    metrics: Sequence[str],
    seed: int,
    grows: bool,
    lost: Shards = frozenset(),
) -> list[str]:
    """Write the configuration of runs by name. `average` consecutive checkpoints are averaged, if
    there are so many; there may be too few while a run `grows`.
    Checkpoints and averages are left out that are `lost`, since their weights were deleted. The
    errors of lone checkpoints are measured with a second calibration set, too. Return a line for
    each run with too few checkpoints for the default average."""
    default, curves = config.read_yaml(DEFAULTS), dict[str, list[str]]()
    averages, own, second, most = dict[str, Yaml](), dict[str, Yaml](), Yaml(), 0
    short = list[str]()
    files = [name for name, kind in quantizers.items() if kind["method"] == "gguf-file"]
    size = default["average"] if average is None else average
    for key, (name, entry) in zip(keys(runs), runs.items(), strict=True):
        own[key], count = kept(root, key, entry, lost)
        mean, most = f"last-{size}" if key == RUN else f"{key}-last-{size}", max(most, count)
        if average not in (None, 0, *range(2, count + 1)) and (average == 1 or not grows):
            others = f"or from 2 to {count} (all checkpoints)"
            others = others if count > 1 else "since there is one checkpoint"
            raise Problem(f"--average is {average}: must be 0, {others}")
        if average is None and not grows and 1 < count < size:
            too_few = f"{count} checkpoints, too few for an average of {size}"
            short.append(f"{name} has {too_few}; give --average {count}")
        if files and (count > 1 or len(runs) > 1):
            why = "is of one checkpoint; name its folder, or --last 1"
            raise Problem(f"--methods: {files[0]} {why}")
        # A colon and a space would end the name of a group of curves, and dollars enclose formulas.
        curve = name.replace(": ", ":\N{NO-BREAK SPACE}").replace("$", "\\$")
        curves[curve] = [key]
        without = sorted(shard for of, shard in lost if of == mean)
        if size > 1 and count - size + 1 > len(without):
            label = f"average of the last {size}"
            curves[label if len(runs) == 1 else f"{label} of {curve}"] = [mean]
            averages[mean] = {"trajectory": key, "last": size, "without": without}
    figure = {**default["figure"], "curves": curves, "quantizers": [*quantizers]}
    figure["metrics"] = ["quantization_error", "loss", *metrics]
    if most == 1 and scale["calibration"].get("draws", 1) > 1:
        kinds = TypeAdapter(dict[str, AnyQuantizer]).validate_python(quantizers)
        calibrated = [name for name, kind in kinds.items() if isinstance(kind, Calibrated)]
        second |= {f"{name}-draw-2": {**quantizers[name], "draw": 2} for name in calibrated}
        figure["draws"] = {name: [f"{name}-draw-2"] for name in calibrated}
    contents = {
        "config": {"scale": SCALE, "seed": seed, "figures": "all"},
        "runs": {**config.read_yaml(ROOT / "config/runs.yaml"), "runs": {}, "averages": {}},
        "families": {"families": {}, "runs": {}, "averages": averages, "own": own},
        "quantizers": {**config.read_yaml(QUANTIZERS), **quantizers, **second},
        "figures": {FIGURE: figure},
        "tables": {},
        "tasks": config.read_yaml(ROOT / "config/tasks.yaml"),
        "backends": {"trajectory": RUN, "groups": []},
        f"scales/{SCALE}": scale,
    }
    for file, content in contents.items():
        chosen.write(root / f"config/{file}.yaml", content)
    with chdir(root):
        has_deleted = any(entry.get("deleted") for entry in own.values())
        more = selection.lost(chosen.plan()) if has_deleted else frozenset()
    for of, shard in sorted(more):
        print(f"{shard} of {of} is left out: it was deleted, and not measured as it is now")
    if more:
        inputs = root, runs, quantizers, scale
        more |= lost
        return write(*inputs, average=average, metrics=metrics, seed=seed, grows=grows, lost=more)
    print(*(f"{line}\n" for line in short), sep="", end="", flush=True)
    return short


def keys(runs: Collection[str]) -> list[str]:
    """Return the names of the trajectories of runs."""
    return [RUN, *(f"{RUN}-{number}" for number in range(2, len(runs) + 1))]


def complete(root: Path, key: str, entry: Yaml) -> list[str]:
    """Exclude defective checkpoints of a run, and add those that were deleted after they had been
    measured. Return a line for each model that is not measured."""
    given = validated(TypeAdapter(families.Own), entry, "measure")
    if not isinstance(given.checkpoints, families.Local):
        return []
    results = Path("results", SCALE, "fetch", key)
    with chdir(root):
        known = [local for _, local in selection.linked(results, given.checkpoints.folder)]
        source, left = without_defects(given, given.checkpoints, known)
        names = (path.name for path, _ in sampled_folders(given, source))
        kinds = sorted({re.sub(r"\d+", "N", n) for n in names if source.step.search(n)})
        if len(kinds) > 1:
            several = f"{' and '.join(kinds[:2])} of {source.folder} are measured as one run"
            left.append(f"{several}; if they are several, select one by --exclude or --step")
        entry["deleted"] = [asdict(local) for local in selection.without_files(results, source)]
    print(*(f"{line}\n" for line in left), sep="", end="", flush=True)
    if source.exclude:
        entry["checkpoints"]["exclude"] = [*source.exclude]
    return left


def kept(root: Path, key: str, entry: Yaml, lost: Shards = frozenset()) -> tuple[Yaml, int]:
    """Return a run without the deleted checkpoints that are lost, or more than the last ones that
    are wanted, and the number of its checkpoints."""
    with chdir(root):
        count = len(sampled_checkpoints(families.Own(**entry)))
    gone = [e for e in entry.get("deleted", ()) if (key, e["checkpoint"]["id"]) not in lost]
    gone = gone[max(0, count + len(gone) - entry.get("last", sys.maxsize)) :]
    return {**entry, "deleted": gone}, count + len(gone)


def checkpoints(
    root: Path,
    key: str,
    place: str,
    revisions: str | None,
    step: str | None,
    exclude: Sequence[str],
    *,
    trusts_code: bool,
) -> Yaml:
    """Return the place of the checkpoints of a run, and what to exclude. Revisions are locked to
    commits."""
    folder, entry = root / "config", Yaml(trusts_code=True) if trusts_code else Yaml()
    earlier = folder / "families.yaml"
    if Path(place).is_dir():
        entry["checkpoints"] = {"folder": relative(place, root)}
        if exclude:
            entry["checkpoints"]["exclude"] = [*exclude]
    elif revisions is None:
        raise Problem(f"{place} is no folder; for a repository of the hub, add --revisions 'step*'")
    elif trusts_code and not COMMIT.match(revisions):
        mend = "add --revisions COMMIT, with all 40 digits"
        raise Problem(f"--trust-remote-code needs a folder, or a commit of {place}; {mend}")
    else:
        offline = constants.HF_HUB_OFFLINE and earlier.is_file()
        known = config.read_yaml(earlier)["own"].get(key, {}) if offline else {}
        source = known.get("checkpoints", {})
        recorded = hub.read_lock(folder / LOCK) if source.get("repository") == place else {}
        names = hub.revisions(place, revisions, [*recorded.get(place, ())])
        names = [name for name in names if not folders.is_excluded(name, exclude)]
        if not names:
            raise Problem("--exclude leaves no revision; correct it")
        entry["checkpoints"] = {"repository": place, "revisions": names}
        model = known["model"] if {*names} <= {*recorded.get(place, ())} else None
        entry["model"] = model or _locked(folder / LOCK, place, names, trusts_code)
    if step:
        entry["checkpoints"]["step"] = step
    return entry


def _locked(lock: Path, place: str, names: Sequence[str], trusts_code: bool) -> Yaml:
    """Lock revisions to commits; return the model of the first."""
    part: Part = "code" if trusts_code else "checkpoint"
    _, failed = hub.lock([hub.Wanted(place, name, part) for name in names], lock)
    if failed:
        raise Problem(failed[0])
    return hub.model(place, names[0], hub.read_lock(lock)[place][names[0]], trusts_code=trusts_code)
