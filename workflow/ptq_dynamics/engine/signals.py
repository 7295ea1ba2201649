"""SIGINT ends a process at once, as SIGTERM does: the next one resumes from its last state."""

import signal


def end_at_once() -> None:
    """From now on, SIGINT ends this process without a Python exception."""
    # A shell ignores SIGINT in processes that it starts in the background.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
