"""`ptq-dynamics compare`: two builds side by side."""

import argparse
import json
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.provenance import comparison
from ptq_dynamics.provenance.comparison import DIFFERENT, EQUAL, ONLY, TOLERANCE, UNJUDGED, WITHIN
from ptq_dynamics.provenance.state import shortened

SHOWN = 10  # measurements
NO_REASON = "its specification is the same, so machine or chance made it another"


def options(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("one", type=Path, help="a folder of results, or measurements.csv")
    parser.add_argument("other", type=Path, help="the same of another build")
    parser.add_argument("--json", action="store_true", help="list every measurement, as JSON")


def run(arguments: argparse.Namespace) -> bool:
    """Print how many measurements agree, those that do not, the furthest apart first, and the first
    job that differs; whether none differs."""
    builds = comparison.Build(arguments.one), comparison.Build(arguments.other)
    found = comparison.compare(*builds)
    parting = _parting(*builds, in_full=arguments.json)
    apart = found[found.verdict.isin([DIFFERENT, ONLY])]
    if arguments.json:
        plain = found.reset_index(names=comparison.KEY).to_json(orient="records")
        content = {"measurements": json.loads(plain), "parting": parting}
        print(json.dumps(content, indent=1, ensure_ascii=False))
        return apart.empty
    counts = found.verdict.value_counts()
    print(", ".join(f"{count:,} {verdict}" for verdict, count in counts.items()))
    # Measurements in both builds come first.
    distance = ((apart.one - apart.other) / apart.error).abs()
    apart = apart.assign(distance=distance)
    apart = apart.sort_values(["verdict", "distance"], ascending=[True, False])
    for key, row in apart[:SHOWN].iterrows():
        name = " ".join(filter(None, key if isinstance(key, tuple) else [str(key)]))
        how = "paired" if row.paired else "from both errors"
        print(f"{row.verdict}: {name}: {row.one} and {row.other} (± {row.error:.3g}, {how})")
    if len(apart) > SHOWN:
        print(f"and {len(apart) - SHOWN:,} more; --json lists all")
    if WITHIN in counts:
        print(f"{WITHIN}: at most {TOLERANCE:g} standard errors of the difference")
    if UNJUDGED in counts:
        rest = found[found.verdict == UNJUDGED]
        most = ((rest.one - rest.other).abs() / rest[["one", "other"]].abs().max(axis=1)).max()
        print(f"{UNJUDGED}: their errors are not known; they differ by at most {most:.2g}")
    if parting and set(counts.index) != {EQUAL}:
        print(parting)
    return apart.empty


def _parting(one: comparison.Build, other: comparison.Build, *, in_full: bool) -> str | None:
    try:
        found = comparison.parting(one, other)
    except Problem as problem:
        return str(problem)
    if found is None:
        return None
    reasons = "; ".join(found.reasons) if in_full else shortened(found.reasons)
    return f"they part first at {found.job}, {found.result}: {reasons or NO_REASON}"
