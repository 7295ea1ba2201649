"""Unpack results that a kit made into this checkout: python tests/gpu/collect.py PART...

Checkpoints and states stayed on the other machine. They are noted as dropped, so that jobs that
read them make them again. Where a result is here, it stays. `dev accept` follows."""

import json
import sys
import tarfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "workflow"))

from ptq_dynamics.engine import manifest  # noqa: E402
from ptq_dynamics.engine.paths import MANIFEST, RECORD, beside  # noqa: E402


def main() -> None:
    new = []
    for part in sys.argv[1:]:
        with tarfile.open(part) as archive:
            for entry in archive:
                path = ROOT / entry.name
                if PurePosixPath(entry.name).name == RECORD and not path.exists():
                    new.append(path)
                if path in new or path.with_name(RECORD) in new:
                    archive.extract(entry, ROOT, filter="data")
    for path in new:
        result = manifest.read(beside(path, MANIFEST))
        result.drop(name for name in result.files if not (result.folder / name).exists())
    seeds = {json.loads(path.read_text())["job"]["name"].rpartition("seed ")[2][:3] for path in new}
    print(f"{len(new)} new results; next: ptq-dynamics dev accept, with seeds {sorted(seeds)}")


if __name__ == "__main__":
    main()
