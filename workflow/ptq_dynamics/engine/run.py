"""Run one job: `python -m ptq_dynamics.engine.run FILE [--devices N] [--restore | --compare]`.

FILE is a specification, or the record of a result. The job leases N GPUs. `--restore` rebuilds
dropped files; `--compare` runs the job again and compares the results. The job runs in a child of
the warm process (`engine.warm`) if there is one. Imports are few, because hundreds of jobs start
here."""

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ptq_dynamics.engine.paths import Purpose, Spec

VARIABLE = "PTQ_DYNAMICS_WARM"
ALONE = b"-"  # the answer to a job that has to run without the warm process
# No progress bars and hints of libraries among the lines of jobs. Threads of tokenizers do not
# survive a fork. The user's settings of matplotlib do not apply.
QUIET = {
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "LLM_COMPRESSOR_LOG_LEVEL": "ERROR",
    "MPLBACKEND": "agg",
    "MATPLOTLIBRC": os.devnull,
}


class JobRequest(NamedTuple):
    """A request to the warm process: how a job runs (`execute.execute`), and where."""

    job: "Spec"
    purpose: "Purpose"
    devices: int
    environment: dict[str, str]
    directory: str


def end_at_once() -> None:
    """Let SIGINT end this process without a Python exception, as SIGTERM does."""
    # A shell ignores SIGINT in processes that it starts in the background.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def delegate(job: "Spec", purpose: "Purpose", devices: int) -> int | None:
    """Run a job in the warm process and return its exit status; None if there is no process."""
    request = JobRequest(job, purpose, devices, {**os.environ}, os.getcwd())
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.connect(os.environ.get(VARIABLE, ""))
        socket.send_fds(connection, [b"!"], [1, 2])
        connection.sendall(json.dumps(request).encode() + b"\n")
        if answer := connection.recv(9):
            return None if answer == ALONE else int(answer)
        name = f"{job['stage']} {job['name']}"
        sys.stderr.write(f"error: {name}: its process was killed (out of memory?); run again\n")
        return 1
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job of the command line and return its exit status."""
    file, *flags = sys.argv[1:] if arguments is None else arguments
    devices = int(flags[flags.index("--devices") + 1]) if "--devices" in flags else 0
    purpose: Purpose = "build"
    if "--restore" in flags or "--compare" in flags:
        purpose = "restore" if "--restore" in flags else "compare"
    with open(file, encoding="utf-8") as opened:
        content = json.load(opened)
    spec = content.get("job", content)
    os.environ.update(QUIET)
    if devices:
        os.environ.setdefault("PTQ_DYNAMICS_GPUS", str(devices))
    status = None if purpose == "compare" else delegate(spec, purpose, devices)
    if status is None:
        from ptq_dynamics.engine.execute import execute

        status = execute(spec, purpose, devices)
    return status


if __name__ == "__main__":
    end_at_once()
    sys.exit(main())
