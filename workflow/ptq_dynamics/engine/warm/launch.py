"""Start the process that imports the big libraries ahead of the jobs (see `server`)."""

import os
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from subprocess import PIPE, Popen

from ptq_dynamics.engine import checkout
from ptq_dynamics.engine.warm.client import VARIABLE

# glibc otherwise gives each step's large tensors back to the system and asks for them again.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}

PATIENCE = 5.0  # seconds for the server to listen, which takes a small part of one
LONGEST = 103  # bytes of a socket's path, on the strictest of systems

_servers: list[Popen[bytes]] = []


def start(libraries: Collection[str]) -> None:
    """Start a server with these libraries for this process and its children, and wait until it
    listens; it ends when this process ends.

    Where there can be none, for want of a folder or with a path too long for a socket, jobs start
    by themselves.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="ptq-dynamics-"))
    except OSError:
        return
    socket = folder / "socket"
    if len(os.fsencode(socket.with_suffix(".unheard"))) > LONGEST:
        folder.rmdir()
        return
    command = [sys.executable, "-m", "ptq_dynamics.engine.warm.server"]
    command += [str(socket), ",".join(sorted(libraries))]
    environment = {**os.environ, **ALLOCATOR, **checkout.environment()}
    # The pipe stays open until the kernel closes it with this process, whatever ends it. Jobs get
    # the signals of a terminal from those who wait for them.
    server = Popen(command, stdin=PIPE, env=environment, start_new_session=True)
    _servers.append(server)
    os.environ[VARIABLE] = str(socket)
    # A job that comes before it listens imports all by itself, at the same time.
    end = time.monotonic() + PATIENCE
    while not socket.exists() and server.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
