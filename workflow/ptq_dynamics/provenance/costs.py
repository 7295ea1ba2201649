"""Tables of a build's cost, and of requested and used resources, from the records."""

from collections import defaultdict
from collections.abc import Iterable
from operator import add
from pathlib import Path
from statistics import median

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.formats import FORMATS, Cell, Table
from ptq_dynamics.engine.record import TRAINED, Record
from ptq_dynamics.plan import Plan
from ptq_dynamics.provenance.archive import Archive, Result

HEADS = ("Kind", "Jobs", "Tokens trained", "Wall hours", "Core hours", "GPU hours")
USED = (
    *("Rule", "Jobs", "Minutes requested", "Minutes, median", "Minutes, most", "MB requested"),
    *("MB, median", "MB, most", "GPUs requested", "GPU MB, median", "GPU MB, most"),
)


def paths(folder: Path) -> list[Path]:
    """Return the paths of the tables in a folder."""
    return [folder / f"{name}.{suffix}" for name in ("cost", "resources") for suffix in FORMATS]


def write_costs(plan: Plan, folder: Path) -> list[Table]:
    """Write the tables of a scale into a folder; raises `Problem` if nothing is built."""
    results = Archive.of_scale(scale := plan.site.config.choice.scale).results.values()
    if not results:
        raise Problem(f"scale {scale} has no results; run make figures SCALE={scale}")
    costs = cost_table(result.record for result in results)
    tables = {"cost": costs, "resources": _resources(plan, results)}
    for path in paths(folder):
        write_atomically(path, FORMATS[path.suffix[1:]](tables[path.stem]))
    return [*tables.values()]


def _resources(plan: Plan, results: Iterable[Result]) -> Table:
    """Return a row for every rule, with the largest request of a first attempt."""
    jobs, rows = defaultdict[str, list[list[tuple[float, float]]]](list), list[list[Cell]]()
    for result in results:
        (rule, wildcards), account = plan.rule_of(result.path), result.record
        memory, device = account.peak_memory / 10**6, (account.device.peak_memory or 0) / 10**6
        used = {"runtime": account.seconds / 60, "mem_mb": memory, "gpu": device}
        request = plan.resources.ask(rule, wildcards=wildcards)
        jobs[rule].append([(request.get(key, 0), value) for key, value in used.items()])
    for rule, own in sorted(jobs.items()):
        pairs = [zip(*column, strict=True) for column in zip(*own, strict=True)]
        numbers = [n for limit, took in pairs for n in (max(limit), median(took), max(took))]
        rows.append([rule, len(own), *(f"{n:.0f}" if n >= 10 else f"{n:.2g}" for n in numbers)])
    return Table("Resources of jobs: requested, and used at the median and at most", USED, rows)


def cost_table(records: Iterable[Record]) -> Table:
    """Return a row for every kind of job, by processor time, and the sums."""
    sums = defaultdict[str, list[float]](lambda: [0] * 5)
    for record in records:
        stage = str(record.job["stage"])
        gpus = 0 if record.device.kind == "cpu" else record.device.count or 1
        row = (1, record.facts.get(TRAINED, 0), record.seconds, record.cpu_seconds)
        for kind in ("figures" if stage.startswith("figures.") else stage, "all"):
            sums[kind] = [*map(add, sums[kind], (*row, gpus * record.seconds))]
    total = sums.pop("all")
    ordered = sorted(sums.items(), key=lambda item: (-item[1][3], item[0]))
    rows: list[list[Cell]] = [
        [kind, int(jobs), int(tokens), *(f"{duration / 3600:.4f}" for duration in seconds)]
        for kind, (jobs, tokens, *seconds) in [*ordered, ("all", total)]
    ]
    return Table("Cost by kind of job, as records have it", HEADS, rows)
