"""What the text is told of the table of all measurements: how many there are of what."""

import csv
import io
from collections.abc import Iterable, Mapping

from ptq_dynamics.claims.verdicts import SEEN
from ptq_dynamics.measure.names import DEGRADATION
from ptq_dynamics.paper.numbers import whole

# A key, and the columns that tell one from another.
COUNTED = {
    "trajectories": ("trajectory",),
    "runs": ("trajectory", "seed"),
    "checkpoints": ("trajectory", "seed", "checkpoint_id"),
    "quantizers": ("quantizer",),
    "metrics": ("metric",),
    "seeds": ("seed",),
}


def numbers(text: str) -> dict[str, str]:
    """Numbers by key, from the CSV."""
    rows = list(csv.DictReader(io.StringIO(text)))
    found = {
        key: len({tuple(row[name] for name in columns) for row in rows})
        for key, columns in COUNTED.items()
    }
    found |= {"values": len(rows), **_degradations(rows)}
    return {f"measured.{key}": whole(count) for key, count in found.items()}


def _degradations(rows: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Of the degradations of accuracy that have an error, all, and those that their error does not
    explain."""
    known = [
        (float(row["value"]), float(row["stderr"]))
        for row in rows
        if row["metric"] == DEGRADATION and row["value"] and row["stderr"]
    ]
    beyond = sum(abs(value) > SEEN * error for value, error in known)
    return {"degradations": len(known), "degradations-beyond": beyond}
