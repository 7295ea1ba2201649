"""The command `ptq-dynamics`, which a signal ends with one line from its first moment on."""

import os
import sys

from ptq_dynamics.engine import signals


def main() -> int:
    """Run one verb; exit status 1 with one line when something is wrong."""
    signals.leave_at_once("error: interrupted; run the same command again")
    # To import what verbs need takes half of their time.
    from ptq_dynamics.cli import unchanged

    try:
        said = unchanged.told(sys.argv[1:])
        if said is not None:
            print(said, flush=True)
            return 0
        from ptq_dynamics.cli import verbs

        status = verbs.main()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, as `head`, has seen enough; Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
