"""Snakemake as `make` starts it: a signal ends it in one line from the first moment, and not only
once it has read the workflow, a second later."""

import sys

from ptq_dynamics.engine import signals


def main() -> None:
    """Run Snakemake with the arguments of this command."""
    signals.leave_at_once("interrupted; run the same command again")
    sys.argv[0] = "snakemake"
    from snakemake.cli import main as snakemake

    snakemake()


if __name__ == "__main__":
    main()
