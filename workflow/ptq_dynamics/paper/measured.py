"""What the text is told of the table of all measurements: how many there are of what."""

import csv
import io

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
    return {
        f"measured.{key}": whole(count) for key, count in {"values": len(rows), **found}.items()
    }
