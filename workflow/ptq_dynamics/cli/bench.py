"""Measure what later changes are compared by: `python -m ptq_dynamics.cli.bench --scale laptop`."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import checkout

SNAKEMAKE = str(Path(sys.executable).with_name("snakemake"))


def main() -> None:
    """Print one row a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="laptop", help="that is planned")
    parser.add_argument("--figures", default="all", help="that are built at scale smoke")
    arguments = parser.parse_args()
    try:
        checkout.check(Path())
    except Problem as problem:
        sys.exit(f"error: {problem}")
    table = Table("measurement", "value")
    table.add_row(f"planning at {arguments.scale}", _planning(arguments.scale))
    with tempfile.TemporaryDirectory() as folder:
        for name, value in _building(Path(folder), arguments.figures):
            table.add_row(name, value)
    Console().print(table)


def _planning(scale: str) -> str:
    start = time.perf_counter()
    command = [SNAKEMAKE, "-n", "--quiet", "all", "--config", f"scale={scale}"]
    subprocess.run(command, check=True, capture_output=True)
    return f"{time.perf_counter() - start:.1f} s"


def _building(folder: Path, figures: str) -> Iterator[tuple[str, str]]:
    """A build from nothing, and what its jobs took by their records."""
    command = [SNAKEMAKE, "-s", str(Path("Snakefile").resolve()), "--directory", str(folder)]
    start = time.perf_counter()
    command += ["--config", "scale=smoke", f"figures={figures}"]
    subprocess.run(command, check=True, capture_output=True)
    wall, cores = time.perf_counter() - start, os.cpu_count() or 1
    stages = defaultdict[str, list[dict[str, float]]](list)
    for path in folder.rglob("*record.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        stages[record["job"]["stage"]].append(record)
    jobs = sum(map(len, stages.values()))
    busy = sum(record["seconds"] for records in stages.values() for record in records)
    yield "building at smoke", f"{wall:.0f} s, {jobs} jobs"
    yield "share of that not in jobs", f"{1 - busy / (wall * cores):.0%} of {cores} cores"
    for stage, records in sorted(stages.items()):
        seconds = [record["seconds"] for record in records]
        tokens = sum(record.get("tokens") or 0 for record in records)
        speed = f", {tokens / sum(seconds):,.0f} tokens/s" if tokens else ""
        yield stage, f"{len(seconds)} jobs, median {median(seconds):.2f} s{speed}"


if __name__ == "__main__":
    main()
