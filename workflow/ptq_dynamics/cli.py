"""The command `ptq-dynamics`, which a signal ends with one line from its first moment on."""

import sys

from ptq_dynamics.jobs import signals


def main() -> int:
    """Run one verb; exit status 1 with one line when something is wrong."""
    signals.leave_at_once("error: interrupted; run the same command again")
    # To import what verbs need takes half of their time.
    from ptq_dynamics import verbs

    return verbs.main()


if __name__ == "__main__":
    sys.exit(main())
