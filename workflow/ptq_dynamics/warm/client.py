"""Find the process that has imported the big libraries, and hand a job to it (see `server`)."""

import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

VARIABLE = "PTQ_DYNAMICS_WARM"
# glibc otherwise gives each step's large tensors back to the system and asks for them again.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}

_servers: list[Popen[bytes]] = []


def start() -> None:
    """Start a server for this process and its children; it ends when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="ptq-dynamics-"))
    command = [sys.executable, "-m", "ptq_dynamics.warm.server", str(folder / "socket")]
    # The pipe stays open until the kernel closes it with this process, whatever ends it.
    _servers.append(Popen(command, stdin=PIPE, env={**os.environ, **ALLOCATOR}))
    os.environ[VARIABLE] = str(folder / "socket")


def delegate(job: Mapping[str, Any]) -> int | None:
    """Exit status of the job, run by the warm process; None where there is no such process."""
    address = os.environ.get(VARIABLE)
    if not address:
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        return None
    request = {"job": job, "environment": dict(os.environ), "directory": os.getcwd()}
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
