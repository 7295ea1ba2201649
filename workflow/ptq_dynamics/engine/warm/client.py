"""Find the process that has imported the big libraries, and hand a job to it (see `server`)."""

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from ptq_dynamics.engine import signals

VARIABLE = "PTQ_DYNAMICS_WARM"


def delegate(job: Mapping[str, Any], **how: Any) -> int | None:
    """Exit status of the job, which the warm process runs as `execute.execute` does; None where
    there is no such process."""
    address = os.environ.get(VARIABLE)
    if not address:
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        return None
    place = {"environment": dict(os.environ), "directory": os.getcwd()}
    request = {"job": job, "how": how, **place}
    name = f"{job['stage']} {job['name']}"
    with connection:
        try:
            socket.send_fds(connection, [b"!"], [1, 2])
            connection.sendall(json.dumps(request).encode())
            connection.shutdown(socket.SHUT_WR)
            # An interrupted client closes the connection, which ends the child.
            answer = _answer(connection)
        except ConnectionError:
            # The server ended before it took the job.
            return None
        except KeyboardInterrupt:
            signals.complain(name)
            return 1
    if not answer:
        sys.stderr.write(f"error: {name}: its process was killed (out of memory?); run again\n")
        return signals.KILLED
    return int(answer)


def _answer(connection: socket.socket) -> bytes:
    """What the child says at its end; a signal here is passed on to it, which says so itself."""
    child = int(_line(connection) or 0)
    if child:
        signals.call_too(child)
    try:
        return _line(connection)
    except KeyboardInterrupt:
        signals.answer()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        return _line(connection) or b"1"


def _line(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1).rstrip(b"\n"), b""))
