"""Run a command, and end it with all that it started when who waits for it is gone.

Started by `processes.start` as `python guard.py COMMAND...`, as the first of a session. It imports
nothing of the package, so that it starts at once.
"""

import os
import signal
import subprocess
import sys
import threading


def main(command: list[str]) -> int:
    """Run the command to its end; its exit status, or that of a shell if a signal ended it."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_input, daemon=True).start()
    status = process.wait()
    return status if status >= 0 else 128 - status


def _end_with_input() -> None:
    # By its descriptor: at the end of Python, nobody may hold the lock of sys.stdin.
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
