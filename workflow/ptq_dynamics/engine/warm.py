"""A process that has imported the large libraries of its jobs already and forks one child per job.

Importing torch and transformers takes seconds, a small job less. While Snakemake runs on one
machine, it keeps one such process. A job (`run.delegate`) finds the process by the variable
`PTQ_DYNAMICS_WARM`, sends its specification, environment and standard streams, and waits for the
exit status. After an edit of the package the process ends, and the next build has another. Jobs
give the same results without it.
"""

import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, BinaryIO, NoReturn

from ptq_dynamics.engine import signals
from ptq_dynamics.engine.lease import VISIBLE, visible
from ptq_dynamics.engine.run import ALONE, QUIET, VARIABLE

# glibc otherwise gives each step's large tensors back to the system and asks for them again.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
# CUDA does not survive a fork: what this process imports must not find a device to begin it on.
HIDDEN = {VISIBLE: "", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
PATIENCE = 5.0  # seconds in which a client has to say what its job is
BEGINNING = 30.0  # in which CUDA has to begin
BITS = "bitsandbytes"
# What jobs import of the libraries they compute with, and takes seconds.
MODULES = (
    "transformers.models.gpt_neox.modeling_gpt_neox",
    BITS,
    "datasets",
    "llmcompressor.modeling.moe.gpt_oss",
    "llmcompressor.modifiers.gptq",
    "llmcompressor.modifiers.transform.awq",
    "lm_eval.tasks",
    "pandas.io.formats.csvs",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf",
)

_servers: list[Popen[bytes]] = []
_known = set[str]()  # modules and libraries that are imported


def start() -> None:
    """Start a server for this process and its children; it ends when this process ends."""
    with suppress(OSError):
        address = f"{tempfile.mkdtemp(prefix='ptq-dynamics-')}/socket"
        command = [sys.executable, "-m", "ptq_dynamics.engine.warm", address, *visible()]
        # The kernel closes the pipe with this process, whatever ends it. Jobs get the signals of a
        # terminal from those who wait for them.
        environment = {**os.environ, **ALLOCATOR, **HIDDEN}
        _servers.append(Popen(command, stdin=PIPE, env=environment, start_new_session=True))
        os.environ[VARIABLE] = address


def serve(address: str, *devices: str) -> None:
    """For every connection, import what its job imports, unless an earlier one did, and fork a
    child, until stdin ends. Jobs that connect meanwhile wait: on few cores, that is sooner than if
    each imported for itself. `devices` are those that jobs may compute on."""
    from ptq_dynamics.engine import code, machine

    os.environ.update(QUIET)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1024)
        sources = code.program()
        machine.commit()
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            # Jobs that have connected go on without.
            if code.program() is not sources:
                return
            connection, _ = listener.accept()
            # A client may be killed before it has said all.
            with connection, connection.makefile("rb") as stream, suppress(OSError, ValueError):
                connection.settimeout(PATIENCE)
                _, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
                try:
                    request = json.loads(stream.readline())
                    connection.settimeout(None)
                    if not _prepare(request["job"], devices):
                        connection.sendall(ALONE)
                        return
                    if os.fork() == 0:
                        listener.close()
                        _serve_one(connection, stream, descriptors, request)
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _prepare(job: Mapping[str, Any], devices: Sequence[str]) -> bool:
    """Import what a job imports, and parse its sources; whether a child of this process can run
    it: some may begin CUDA all the same, and a job says itself what cannot be imported."""
    from ptq_dynamics.engine import code

    if (names := {*job["code"], *job["libraries"]}) <= _known:
        return True
    try:
        code.load(job["code"])
        for module in MODULES:
            # On import, bitsandbytes chooses between the CPU and the device, which is hidden.
            if module.split(".")[0] in job["libraries"] and not (devices and module == BITS):
                import_module(module)
        whole = (code.Node(f"{code.PACKAGE}.{name}", code.WHOLE) for name in job["code"])
        code.program().reach(whole)
    except Exception:
        return False
    if torch := sys.modules.get("torch"):
        if devices and not (_known or _can_begin_cuda(torch, devices[0])):
            return False
        torch.set_num_threads(1)
    _known.update(names)
    # The garbage collector of a child would otherwise touch, and so copy, all of this memory.
    gc.collect()
    gc.freeze()
    return True


def _can_begin_cuda(torch: Any, device: str) -> bool:
    """Whether a child of this process can compute on a device."""

    def begin() -> None:
        with suppress(Exception):
            os.environ[VISIBLE] = device
            # Where CUDA cannot be used at all, jobs compute on the CPU.
            torch.ones(1, device="cuda" if torch.cuda.is_available() else "cpu").item()
            os._exit(0)
        os._exit(1)

    child = get_context("fork").Process(target=begin)
    child.start()
    child.join(BEGINNING)
    child.kill()
    return child.exitcode == 0


def _serve_one(
    connection: socket.socket, stream: BinaryIO, descriptors: list[int], request: Any
) -> NoReturn:
    """Run the job of a connection and end this child, whatever its client does."""
    from ptq_dynamics.engine.execute import execute

    status = 1
    try:
        for target, descriptor in enumerate(descriptors, start=1):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        signals.end_at_once()
        threading.Thread(target=_attend, args=(stream,), daemon=True).start()
        if "torch" in sys.modules and (threads := os.environ.get("OMP_NUM_THREADS")):
            sys.modules["torch"].set_num_threads(int(threads))
        status = execute(request["job"], **request["how"])
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(str(status).encode())
    finally:
        os._exit(status)


def _attend(stream: BinaryIO) -> None:
    """End the job once its client has gone."""
    with suppress(OSError):
        stream.read(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    try:
        with suppress(OSError):
            serve(*sys.argv[1:])
    finally:
        shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)
