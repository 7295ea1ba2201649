"""The verbs of `ptq-dynamics`. Each prints its findings, and returns whether all is well."""

import json
import os
import random
import sys
from argparse import Namespace
from collections import Counter
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path

import yaml

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.measuring import measure as measure
from ptq_dynamics.config import schema
from ptq_dynamics.engine.publish import sweep
from ptq_dynamics.hub import lock as hub
from ptq_dynamics.plan.build import PAGE, has_page
from ptq_dynamics.plan.releases import to_lock
from ptq_dynamics.plan.resolved import resolve
from ptq_dynamics.plan.site import BY_NAME
from ptq_dynamics.provenance.archive import DERIVED, Archive
from ptq_dynamics.provenance.state import Finding, find, shortened

SHOWN = 10  # measurements


def _print_json(content: object) -> None:
    print(json.dumps(content, indent=1, ensure_ascii=False))


def _make(target: str, scale: str, seeds: str) -> str:
    return f"make {target} SCALE={scale}" + (f' SEEDS="{seeds}"' if seeds else "")


def status(arguments: Namespace) -> bool:
    """Print which results are missing or outdated, and why."""
    plan = chosen.plan(arguments)
    others = [plan.job(BY_NAME.get(each, each)) for each in arguments.also]
    found = find(plan, [*plan.last(), *others], deep=plan.site.config.choice.deep)
    for each in (each for each in found if each.state == "up to date"):
        sweep(plan.site.made[each.manifest].paths)
    pictures = Path(plan.site.pictures)
    if not has_page(plan.site.config.figures, pictures):
        why = ("its figures or their words changed",)
        found.append(Finding("page of figures", str(pictures / PAGE), "", "outdated", why))
    rest = [each for each in found if each.state != "up to date"]
    if arguments.json:
        _print_json([asdict(each) for each in found])
        return not rest
    notes = Counter(note for e in found if e.state == "up to date" for note in e.reasons)
    for note, count in notes.items():
        print(f"note: {count} results: {note}")
    if not rest:
        print(f"all {len(found)} results are up to date; nothing to do")
        return True
    width = max(len(each.job) for each in rest)
    for each in rest:
        print(f"{each.state:8}  {each.job:{width}}  {shortened(each.reasons)}")
    counts = Counter(each.state for each in rest)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    print(f"{states}, {len(found) - len(rest)} up to date")
    return False


def plan(arguments: Namespace) -> bool:
    """Print how many jobs of each kind would run."""
    plan = chosen.plan(arguments)
    jobs = dict[str, Counter[str]]()
    for each in find(plan, plan.last()):
        state = "kept" if each.state == "up to date" else "run"
        kind = plan.site.rules[each.manifest]
        jobs.setdefault(kind, Counter(run=0, kept=0))[state] += 1
    left_out = plan.site.reasons
    if arguments.json:
        _print_json({"jobs": jobs, "left_out": left_out})
        return True
    print(f"{'kind':14} {'run':>7} {'kept':>7}")
    for kind, counts in [*jobs.items(), ("all", sum(jobs.values(), Counter[str]()))]:
        print(f"{kind:14} {counts['run']:7,} {counts['kept']:7,}")
    for name, reason in left_out.items():
        print(f"left out: {name} ({reason})")
    return True


def trace(arguments: Namespace) -> bool:
    """Print the lineage of a file as a tree; well if the file matches its record."""
    from ptq_dynamics.provenance.released import seeds_in
    from ptq_dynamics.provenance.trace import trace as traced

    file = arguments.file.resolve()
    # A project of `measure` has its own results.
    homes = (each for each in file.parents if (each / "config/scales/own.yaml").is_file())
    with chdir(home := next(homes, Path())):
        chain = traced(os.path.relpath(file) if home.name else str(arguments.file), Archive.here())
    if arguments.json:
        steps = [
            {"manifest": path, "reads": chain.inputs(each), **asdict(each.record)}
            for path, each in reversed([*chain.results.items()])
        ]
        content = {"top": chain.top.path, "is_verified": chain.is_verified, "steps": steps}
        content |= {"row": chain.row, "measurements": chain.rows or {}}
        _print_json({**content, "missing": chain.missing})
        return chain.is_verified
    if arguments.mermaid:
        print(chain.mermaid())
        return chain.is_verified
    seen = set[str]()
    print(*chain.words(SHOWN), sep="\n", end="\n" * bool(chain.row))
    if chain.rows is None:
        scale = chain.table.parent.name
        make = _make("figures", scale, seeds_in(Path(), chosen.load(scale=scale)))
        print(f"{chain.table} is not built; {make} builds the table of measurements")
    for depth, result, again in chain.lines():
        words = [result.path, *result.about, *(f"reads also {each}" for each in again)]
        said = ("accepted as above" if w in seen and w.startswith("accepted") else w for w in words)
        print(f"{'  ' * depth}{result.label} ({'; '.join(said)})")
        seen.update(words)
        # Settings of the row's measurement, each once.
        used = {key: v for key, v in result.record.job["settings"].items() if key != "checkpoints"}
        if chain.row and depth == 1 and (text := json.dumps(used)) not in seen:
            seen.add(text)
            print(f"    files: {', '.join(result.record.files)}; settings: {text}")
    for path in chain.missing:
        print(f"the used version of {path} has no record")
    print(f"{arguments.file} {'matches' if chain.is_verified else 'does not match'} its record")
    return chain.is_verified


def audit(arguments: Namespace) -> bool:
    """Print a line for each problem in the folders of a scale."""
    from ptq_dynamics.provenance import audit, costs, released

    site = chosen.plan(arguments).site
    scale = site.config.choice.scale
    # Problems by their remedy, root causes first.
    archive, causes = Archive.of_scale(scale), dict[str, list[str]]()
    if archive.every or archive.damaged:
        found = audit.audit(archive, [Path(site.pictures, PAGE), *costs.files(Path(site.results))])
        print(f"hashed {found.files:,} files of {found.results:,} results; {found.absent:,} absent")
        again = {e.path: e for e in archive.in_order() if e.stage.startswith(DERIVED)}
        if arguments.rerun:
            seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
            print(f"the sample has seed {seed}")
            again |= {each.path: each for each in audit.sample(archive, arguments.rerun, seed)}
        make = _make("all", scale, released.seeds_in(Path(), site.config))
        causes[f"remove the first file named above, then run {make} DEEP=1"] = found.wrong
        other = f"unless the processor differs, remove the first record, and run {make}"
        causes[other] = [*audit.rerun([*again.values()])]
        causes[f"run {make}"] = found.effects
        print(f"rebuilt {len(again)} results; {len(again) - len(causes[other])} are identical")
        for note in found.notes:
            print(f"note: {note}")
    places = released.folders(scale)
    sums = places[0] / released.SUMS
    if sums.is_file():
        print(f"compared the released files with {sums}")
        restore = f"remove these files, then run git checkout {places[0]} {places[1]}"
        causes[restore] = [*released.wrong(scale)]
    elif not causes:
        raise Problem(f"scale {scale} has no results; run make figures SCALE={scale}")
    lost = "merge the branch that has the commit, or remove the records and build again"
    unknown, gap = released.unreachable(scale, archive.every)
    causes[lost] = [] if gap else unknown
    unsure = f"commits of records that cannot be verified: {len(unknown)} ({gap})"
    unsure *= bool(gap and unknown)
    wrong = [line for lines in causes.values() for line in lines]
    for line in wrong:
        print(f"wrong: {line}")
    remedy = next((words for words, lines in causes.items() if lines), "")
    if wrong and unsure:
        print(f"note: {unsure}")
    well = f"all else is well; {unsure}" if unsure else "all is well"
    print(f"problems: {len(wrong)}; {remedy}" if wrong else well)
    return not wrong


def compare(arguments: Namespace) -> bool:
    """Print how many measurements of two builds agree, and the first job that differs."""
    from ptq_dynamics.provenance import comparison as by

    where = Path("results", arguments.scale) if arguments.scale else Path()
    builds = arguments.one / where, arguments.other / where
    found, parting = by.compare(*builds), by.parting(*builds)
    apart = found[found.verdict.isin([by.DIFFERENT, by.ONLY])]
    if arguments.json:
        plain = found.reset_index(names=by.KEY).to_json(orient="records")
        _print_json({"measurements": json.loads(plain), "parting": parting})
        return apart.empty
    counts = found.verdict.value_counts()
    print(", ".join(f"{count:,} {verdict}" for verdict, count in counts.items()))
    # Measurements of one build have no distance, and come last.
    apart = apart.assign(distance=((apart.one - apart.other) / apart.error).abs())
    apart = apart.sort_values("distance", ascending=False)
    for key, row in apart[:SHOWN].iterrows():
        name = " ".join(filter(None, key if isinstance(key, tuple) else [str(key)]))
        print(f"{row.verdict}: {name}: {row.one} and {row.other} (± {row.error:.3g})")
    if len(apart) > SHOWN:
        print(f"and {len(apart) - SHOWN:,} more; --json lists all")
    if by.WITHIN in counts:
        print(f"{by.WITHIN}: at most {by.TOLERANCE:g} standard errors of the difference")
    if by.UNJUDGED in counts:
        rest = found[found.verdict == by.UNJUDGED]
        most = ((rest.one - rest.other).abs() / rest[["one", "other"]].abs().max(axis=1)).max()
        print(f"{by.UNJUDGED}: the errors are unknown; relative differences are at most {most:.2g}")
    if parting and set(counts.index) != {by.EQUAL}:
        print(parting)
    return apart.empty


def adopt(arguments: Namespace) -> bool:
    """Import results from elsewhere; well if only figures and tables remain to be drawn."""
    from ptq_dynamics.provenance.released import adopt, seeds_in, unpacked

    with unpacked(arguments.source) as folder:
        if arguments.more_seeds is None:
            arguments.more_seeds = seeds_in(folder, chosen.load(scale=arguments.scale))
        plan = chosen.plan(arguments)
        taken, had, left = adopt(plan, folder, arguments.source)
    for each in left:
        print(f"{each.state:8}  {each.job}  {shortened(each.reasons)}")
    rest = [each for each in find(plan, plan.last()) if each.state != "up to date"]
    lacking = sum(1 for each in rest if not each.stage.startswith(DERIVED))
    done = f"{taken} results were imported, {had} were already up to date"
    print(f"{done}, {lacking} are missing or outdated in the source")
    make = _make("figures", plan.site.config.choice.scale, arguments.more_seeds)
    make += f' FIGURES="{figures}"' if (figures := arguments.figures) else ""
    draw = f"draw {len(rest)} figures and tables"
    if rest:
        print(f"run {make} to {'build them and the figures that use them' if lacking else draw}")
    return not lacking


def release(arguments: Namespace) -> bool:
    """Write the release of a scale in place of the earlier one."""
    from ptq_dynamics.provenance.released import release

    place, count = release(chosen.plan(arguments))
    print(f"{place}: {count} results, {place.stat().st_size / 1e6:.1f} MB")
    return True


def config(arguments: Namespace) -> bool:
    """Print the resolved configuration of a scale as YAML, or the keys of a file."""
    if arguments.help_keys:
        _print_json(schema(arguments.help_keys))
        return True
    at_scale = resolve(chosen.load(scale=arguments.scale)).config
    found = at_scale.model_dump(mode="json", serialize_as_any=True)
    yaml.safe_dump(found, sys.stdout, sort_keys=False, allow_unicode=True)
    return True


def lock(arguments: Namespace) -> bool:
    """Lock the public revisions of scale paper; well if all could be resolved."""
    paper = resolve(chosen.load(scale="paper"))
    resolved, failed = hub.lock(to_lock(paper.public.values(), paper.config.scale))
    print(f"{resolved} revisions are locked in {hub.LOCK}", *failed, sep="\nerror: ")
    return not failed
