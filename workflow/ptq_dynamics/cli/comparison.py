"""`ptq-dynamics compare`: two builds side by side."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.provenance.comparison import TOLERANCE, Build, Compared, compare, parting
from ptq_dynamics.provenance.differences import told

# Measurements that are told: those in both builds first, the furthest apart before others.
TOLD = 10


def show(one: Path, other: Path, *, as_json: bool) -> bool:
    """Print how many measurements agree and which do not; whether none differs."""
    builds = Build(one), Build(other)
    found = list(compare(*builds))
    counts: Counter[str] = Counter(each.verdict for each in found)
    part = _parting(*builds, in_full=as_json)
    if as_json:
        content = {"measurements": [_plain(each) for each in found], "parting": part}
        print(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _tell(found, counts, part)
    return not counts["different"] and not counts["only in one"]


NO_REASON = "its specification is the same, so machine, libraries or chance made it another"


def _plain(each: Compared) -> dict[str, Any]:
    """As JSON has it, which knows no nan."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in each.content().items()
    }


def _parting(one: Build, other: Build, *, in_full: bool) -> str | None:
    try:
        found = parting(one, other)
    except Problem as problem:
        return str(problem)
    if found is None:
        return None
    reasons = "; ".join(found.reasons) if in_full else told(found.reasons)
    return f"they part first at {found.job}, {found.result}: {reasons or NO_REASON}"


def _tell(found: list[Compared], counts: Counter[str], part: str | None) -> None:
    print(", ".join(f"{count:,} {verdict}" for verdict, count in counts.most_common()))
    apart = [each for each in found if each.verdict in ("different", "only in one")]
    apart.sort(key=lambda each: (each.verdict == "different", _distance(each)), reverse=True)
    for each in apart[:TOLD]:
        how = "paired" if each.paired else "from both errors"
        error = f"± {each.error:.3g}, {how}" if each.error is not None else "no error known"
        name = " ".join(filter(None, each.key))
        print(f"{each.verdict}: {name}: {each.one} and {each.other} ({error})")
    if len(apart) > TOLD:
        print(f"and {len(apart) - TOLD:,} more; --json lists all")
    if counts["within tolerance"]:
        print(f"within tolerance: at most {TOLERANCE:g} standard errors of the difference")
    if counts["not judged"]:
        farthest = max(map(_relative, (each for each in found if each.verdict == "not judged")))
        print(f"not judged: their errors are not known; they differ by at most {farthest:.2g}")
    if part and counts.keys() - {"equal"}:
        print(part)


def _relative(each: Compared) -> float:
    """How far two values are apart, as a share of the larger."""
    if each.one is None or each.other is None:
        return float("inf")
    return abs(each.one - each.other) / max(abs(each.one), abs(each.other))


def _distance(each: Compared) -> float:
    if each.one is None or each.other is None or math.isnan(each.one - each.other):
        return math.inf
    return abs(each.one - each.other) / (each.error or 1e-300)
