"""How fast jobs were, by the records of a scale's results: as `make bench` prints it."""

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import median

from ptq_dynamics.engine import record
from ptq_dynamics.engine.paths import records


def main() -> None:
    """Print a row a stage: its jobs, the median of their seconds, and tokens a second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", required=True)
    stages = defaultdict[str, list[record.Record]](list)
    for path in records(Path("results") / parser.parse_args().scale):
        found = record.read(path)
        stages[found.job["stage"]].append(found)
    for stage, every in sorted(stages.items()):
        seconds = [each.seconds for each in every]
        tokens = sum(each.tokens or 0 for each in every)
        speed = f", {tokens / sum(seconds):,.0f} tokens/s" if tokens else ""
        print(f"{stage:22} {len(every):6,} jobs, median {median(seconds):8.2f} s{speed}")


if __name__ == "__main__":
    main()
