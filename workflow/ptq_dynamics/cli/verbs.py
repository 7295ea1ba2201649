"""The verbs of `ptq-dynamics`. Each prints its findings, and returns whether all is well."""

import json
import os
import random
import sys
from collections import Counter
from contextlib import chdir
from dataclasses import asdict
from glob import glob
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.cli.chosen import Figures, Json, Place, Scale, Seeds, words
from ptq_dynamics.engine.paths import RECORD

if TYPE_CHECKING:
    from ptq_dynamics.config import Config

SHOWN = 10  # measurements
OTHERS = ("claims", "tables", "paper", "report")


def _print_json(content: object) -> None:
    print(json.dumps(content, indent=1, ensure_ascii=False))


def _make(target: str, config: "Config", seeds: str) -> str:
    figures = "" if config.choice.figures == "all" else " ".join(config.choice.figures)
    words = f"make {target} SCALE={config.choice.scale}"
    words += f' SEEDS="{seeds}"' if seeds else ""
    return words + (f' FIGURES="{figures}"' if figures not in ("", "all") else "")


def status(
    scale: Scale = None,
    figures: Figures = None,
    more_seeds: Seeds = None,
    as_json: Json = False,
    deep: Annotated[bool, Option("--deep", help="also hash every file of results")] = False,
    also: Annotated[list[str] | None, Option(help="some of 'claims tables paper report'")] = None,
) -> bool:
    """Print which results are missing or outdated, and why; exit status 1 if any.

    Example: ptq-dynamics status --scale smoke --figures 'fig04 fig06'"""
    from ptq_dynamics.config import require, scales
    from ptq_dynamics.figures.captions import PAGE, has_page
    from ptq_dynamics.plan import BY_TARGET
    from ptq_dynamics.plan.trajectory_jobs import TRAIN
    from ptq_dynamics.provenance.state import Finding, find, shortened

    require("--also", "target", words(also), OTHERS)
    plan = chosen.plan(scale=scale, figures=figures, more_seeds=more_seeds, deep=deep or None)
    others = [plan.job(BY_TARGET.get(name, name)) for name in words(also)]
    findings = find(plan, [*plan.targets(), *others], deep=plan.site.config.choice.deep)
    pictures = Path(plan.site.pictures)
    if not has_page(plan.site.config.figures, pictures):
        why = ("its figures or their words changed",)
        findings.append(Finding("page of figures", str(pictures / PAGE), "", "outdated", why))
    fresh = [finding for finding in findings if finding.state == "up to date"]
    rest = [finding for finding in findings if finding.state != "up to date"]
    seeds = [*map(str, plan.site.config.choice.more_seeds)]
    if as_json:
        _print_json([asdict(finding) for finding in findings])
    elif not rest:
        print(f"all {len(findings)} results are up to date; nothing to do")
    elif all(finding.state == "missing" for finding in findings):
        make = _make("all" if also else "figures", plan.site.config, " ".join(seeds))
        here = [name for name in scales() if glob(f"results/{name}/**/*{RECORD}", recursive=True)]
        none = f"none of {len(rest)} results is built at scale {plan.site.config.choice.scale} yet"
        print(f"{none}; run {make}; scales with results here: {', '.join(here) or 'none'}")
    else:
        counts = Counter(finding.state for finding in rest)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        print(f"{states}, {len(fresh)} up to date")
        width = max(len(finding.job) for finding in rest)
        for finding in rest:
            print(f"{finding.state:8}  {finding.job:{width}}  {shortened(finding.reasons)}")
        for name, reason in plan.site.reasons.items():
            if any(name in plan.site.left_out(figure) for figure in plan.site.config.chosen):
                print(f"left out: {name} ({reason})")
        runs = {Path(one.manifest).parent for one in findings if one.stage == TRAIN.stage}
        records = chain.from_iterable(run.parent.glob(f"*/{RECORD}") for run in runs)
        unread = {record.parent for record in records} - runs
        has_more = any(plan.site.config.figures[name].headline for name in plan.site.config.chosen)
        more = {run.name.removeprefix("seed-") for run in unread} if has_more else set[str]()
        if more.difference(seeds):
            every = " ".join(sorted(more.union(seeds)))
            print(f"results of more seeds are here: --more-seeds '{every}' includes them")
    if fresh and not as_json:
        # The first words of a note are its kind.
        kinds = ({note.partition(":")[0] for note in finding.reasons} for finding in fresh)
        for kind, count in Counter(chain.from_iterable(kinds)).items():
            print(f"note: {count} results are {kind}; --json has the reasons")
    return not rest


def trace(
    file: Place,
    as_json: Json = False,
) -> bool:
    """Print the lineage of a file, down to text and public checkpoints.

    FILE is a file of a result, a lone picture, or TABLE.csv:ROW.

    Example: ptq-dynamics trace figures/laptop/fig04.png"""
    from ptq_dynamics.provenance.archive import Archive
    from ptq_dynamics.provenance.released import seeds_in
    from ptq_dynamics.provenance.trace import trace as traced

    resolved = file.resolve()
    # A project of `measure` has its own results.
    homes = (place for place in resolved.parents if (place / "config/scales/own.yaml").is_file())
    with chdir(home := next(homes, Path())):
        lineage = traced(os.path.relpath(resolved) if home.name else str(file), Archive.here())
    if as_json:
        steps = [
            {"manifest": path, "reads": lineage.inputs(result), **asdict(result.record)}
            for path, result in reversed([*lineage.results.items()])
        ]
        content = {"top": lineage.top.path, "is_verified": lineage.is_verified, "steps": steps}
        content |= {"row": lineage.row, "measurements": lineage.rows or {}}
        _print_json({**content, "missing": lineage.missing})
        return lineage.is_verified
    seen = set[str]()
    print(*lineage.words(SHOWN), sep="\n", end="\n" * bool(lineage.row))
    if lineage.rows is None:
        config = chosen.load(scale=lineage.table.parent.name)
        make = _make("figures", config, seeds_in(Path(), config))
        print(f"{lineage.table} is not built; {make} builds the table of measurements")
    for depth, result, again in lineage.lines():
        about = [result.path, *result.about, *(f"reads also {path}" for path in again)]
        new = ("accepted as above" if w in seen and w.startswith("accepted") else w for w in about)
        print(f"{'  ' * depth}{result.label} ({'; '.join(new)})")
        seen.update(about)
        # Settings of the row's measurement, each once.
        used = {key: v for key, v in result.record.job["settings"].items() if key != "checkpoints"}
        if lineage.row and depth == 1 and (text := json.dumps(used)) not in seen:
            seen.add(text)
            print(f"    files: {', '.join(result.record.files)}; settings: {text}")
    for path in lineage.missing:
        print(f"the used version of {path} has no record")
    print(f"{file} {'matches' if lineage.is_verified else 'does not match'} its record")
    return lineage.is_verified


def audit(
    scale: Scale = None,
    rerun: Annotated[int, Option(metavar="N", help="run N jobs again")] = 0,
    seed: Annotated[int | None, Option(help="seed of the choice of jobs")] = None,
) -> bool:
    """Verify every byte, record and input of a scale; exit status 1 if any is wrong.

    Example: ptq-dynamics audit --scale smoke --rerun 5"""
    from ptq_dynamics.figures.captions import PAGE
    from ptq_dynamics.figures.contact import SHEET
    from ptq_dynamics.provenance import audit, costs, released
    from ptq_dynamics.provenance.archive import DERIVED, Archive

    site = chosen.plan(scale=scale).site
    scale = site.config.choice.scale
    # Problems by their remedy, root causes first.
    archive, causes = Archive.of_scale(scale), dict[str, list[str]]()
    if archive.every or archive.damaged:
        pages = [Path(site.pictures, name) for name in (PAGE, SHEET)]
        check = audit.audit(archive, [*pages, *costs.paths(Path(site.results))])
        print(f"hashed {check.files:,} files of {check.results:,} results; {check.absent:,} absent")
        again = {e.path: e for e in archive.in_order() if e.stage.startswith(DERIVED)}
        if rerun:
            seed = random.randrange(10**6) if seed is None else seed
            print(f"the sample has seed {seed}")
            again |= {result.path: result for result in audit.sample(archive, rerun, seed)}
        make = _make("all", site.config, released.seeds_in(Path(), site.config))
        causes[f"remove the first file named above, then run {make} DEEP=1"] = check.wrong
        other = f"unless the processor differs, remove the first record, and run {make}"
        causes[other] = [*audit.rerun([*again.values()])]
        causes[f"run {make}"] = check.effects
        print(f"rebuilt {len(again)} results; {len(again) - len(causes[other])} are identical")
        for note in check.notes:
            print(f"note: {note}")
    if any(causes.values()):
        audit.require_unchanged(archive, scale)
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


def compare(
    one: Place,
    other: Place,
    scale: Annotated[str | None, Option(help="compare results/SCALE of two checkouts")] = None,
    as_json: Json = False,
) -> bool:
    """Compare two tables of measurements, and name the first job that differs.

    ONE and OTHER are folders of results, or files measurements.csv.

    Example: ptq-dynamics compare results/reference/laptop results/laptop"""
    from ptq_dynamics.provenance import comparison as by

    where = Path("results", scale) if scale else Path()
    builds = one / where, other / where
    table, parting = by.compare(*builds), by.parting(*builds)
    apart = table[table.verdict.isin([by.DIFFERENT, by.ONLY])]
    if as_json:
        plain = table.reset_index(names=by.KEY).to_json(orient="records")
        _print_json({"measurements": json.loads(plain), "parting": parting})
        return apart.empty
    counts = table.verdict.value_counts()
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
        rest = table[table.verdict == by.UNJUDGED]
        most = ((rest.one - rest.other).abs() / rest[["one", "other"]].abs().max(axis=1)).max()
        print(f"{by.UNJUDGED}: the errors are unknown; relative differences are at most {most:.2g}")
    if parting and set(counts.index) != {by.EQUAL}:
        print(parting)
    return apart.empty


def adopt(
    source: Place, scale: Scale = None, figures: Figures = None, more_seeds: Seeds = None
) -> bool:
    """Import results from another checkout, or from the folder or the archive of a release.

    Example: ptq-dynamics adopt results/reference/laptop --scale laptop"""
    from ptq_dynamics.provenance.archive import DERIVED
    from ptq_dynamics.provenance.released import adopt, seeds_in, unpacked
    from ptq_dynamics.provenance.state import find, shortened

    with unpacked(source) as folder:
        if more_seeds is None:
            more_seeds = seeds_in(folder, chosen.load(scale=scale))
        plan = chosen.plan(scale=scale, figures=figures, more_seeds=more_seeds)
        taken, had, left = adopt(plan, folder, source)
    for finding in left:
        print(f"{finding.state:8}  {finding.job}  {shortened(finding.reasons)}")
    rest = [finding for finding in find(plan, plan.targets()) if finding.state != "up to date"]
    lacking = sum(not finding.stage.startswith(DERIVED) for finding in rest)
    done = f"{taken} results were imported, {had} were already up to date"
    print(f"{done}, {lacking} are missing or outdated in the source")
    if rest:
        what = "build them and the figures that use them" if lacking else "draw the figures"
        print(f"to {what}, run:\n    {_make('figures', plan.site.config, more_seeds)}")
    return not lacking


def release(
    scale: Scale = None,
    figures: Figures = None,
    more_seeds: Annotated[str | None, Option(help="default: the scale's release_seeds")] = None,
    build: Annotated[
        bool, Option("--build", help="first build and audit all, then plot all releases")
    ] = False,
) -> bool:
    """Write the released files of a scale, from a clean commit.

    Example: ptq-dynamics release --scale smoke"""
    from ptq_dynamics.cli import outcomes
    from ptq_dynamics.provenance.released import release, require_clean

    configured = chosen.load(scale=scale)
    seeds = more_seeds or " ".join(map(str, configured.scale.release_seeds))
    choice = {"scale": configured.choice.scale}
    choice |= {"figures": figures} if figures else {}
    choice |= {"more_seeds": seeds} if seeds else {}
    if build:
        require_clean()
        targets = ("figures", *OTHERS)
        chosen.build(Path(), targets, chosen.profile("default"), **choice)
        if not audit(configured.choice.scale):
            return False
    place, count = release(chosen.plan(**choice))
    print(f"{place}: {count} results, {place.stat().st_size / 1e6:.1f} MB")
    if build:
        outcomes.draw()
    return True


def config(
    scale: Scale = None,
    help_keys: Annotated[
        str | None, Option(metavar="FILE", help="print keys, as JSON schema: runs, ...")
    ] = None,
) -> bool:
    """Print the resolved configuration of a scale.

    Example: ptq-dynamics config --help-keys runs"""
    import yaml

    from ptq_dynamics.config import schema
    from ptq_dynamics.plan.catalogue import resolve

    if help_keys:
        print(json.dumps(schema(help_keys), indent=1, ensure_ascii=False))
        return True
    at_scale = resolve(chosen.load(scale=scale)).config
    content = at_scale.model_dump(mode="json", serialize_as_any=True)
    yaml.safe_dump(content, sys.stdout, sort_keys=False, allow_unicode=True)
    return True


def lock() -> bool:
    """Pin the revisions of public models to commits on the Hugging Face hub.

    Example: ptq-dynamics lock"""
    from ptq_dynamics.hub import lock as hub
    from ptq_dynamics.plan.catalogue import resolve
    from ptq_dynamics.plan.releases import to_lock

    paper = resolve(chosen.load(scale="paper"))
    resolved, failed = hub.lock(to_lock(paper.entries.values(), paper.config.scale))
    print(f"{resolved} revisions are locked in {hub.LOCK}", *failed, sep="\nerror: ")
    return not failed
