"""Find the process that has imported the big libraries, and hand a job to it (see `server`)."""

import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

VARIABLE = "PTQ_DYNAMICS_WARM"


def delegate(job: Mapping[str, Any], restoring: bool = False) -> int | None:
    """Exit status of the job, run by the warm process; None where there is no such process."""
    address = os.environ.get(VARIABLE)
    if not address:
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        return None
    place = {"environment": dict(os.environ), "directory": os.getcwd()}
    request = {"job": job, "restoring": restoring, **place}
    with connection:
        try:
            socket.send_fds(connection, [b"!"], [1, 2])
            connection.sendall(json.dumps(request).encode())
            connection.shutdown(socket.SHUT_WR)
            # An interrupted client closes the connection, which ends the child.
            answer = connection.recv(16)
        except ConnectionError:
            # The server ended before it took the job.
            return None
    if not answer:
        name = f"{job['stage']} {job['name']}"
        print(f"error: {name}: its process was killed (out of memory?); run again", file=sys.stderr)
        return 1
    return int(answer)
