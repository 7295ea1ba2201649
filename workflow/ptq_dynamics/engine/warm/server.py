"""A process that has imported the big libraries of its jobs already and forks one child per job.

Importing torch and transformers costs seconds, a small job less. While Snakemake runs on one
machine, the Snakefile keeps one such process (`python -m ptq_dynamics.engine.warm.server SOCKET
LIBRARIES`); a job finds it through the environment variable `PTQ_DYNAMICS_WARM`, hands over its
specification, environment and standard streams, and waits for the exit status. Local modules that
compute are never imported ahead, so that a job runs the code as it stands. Where there is no such
process (other machines, a job run by hand), jobs import what they need themselves, with the same
results.
"""

import contextlib
import gc
import importlib
import json
import logging
import os
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

from ptq_dynamics.engine import code, machine, signals
from ptq_dynamics.engine.execute import execute
from ptq_dynamics.engine.run import QUIET


def serve(address: Path, libraries: Collection[str]) -> None:
    """Listen at once, prime with these libraries, then fork a child for every connection until
    stdin ends."""
    listener = socket.socket(socket.AF_UNIX)
    unheard = address.with_suffix(".unheard")
    listener.bind(str(unheard))
    listener.listen(1024)
    # From here on there is a socket, and who connects to it is heard.
    unheard.rename(address)
    os.environ.update(QUIET)
    # CUDA does not survive a fork, so where there is a GPU jobs that compute with it start by
    # themselves.
    if "torch" in libraries and importlib.import_module("torch").cuda.is_available():
        _remove(address)
        return
    os.set_blocking(sys.stdin.fileno(), False)
    if not _prime(libraries):
        _remove(address)
        return
    code.program().parse()
    machine.holds_code()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener.settimeout(0.5)
    try:
        while _is_wanted():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            if os.fork() == 0:
                listener.close()
                _serve_one(connection)
            connection.close()
    finally:
        _remove(address)


# What jobs import of the libraries they compute with, by distribution, and which take seconds.
MODULES = {
    "torch": ("torch",),
    "transformers": ("transformers",),
    "bitsandbytes": ("bitsandbytes",),
    "datasets": ("datasets",),
    "llmcompressor": ("llmcompressor.modifiers.gptq", "llmcompressor.modifiers.transform.awq"),
    "pandas": ("pandas",),
    "seaborn": ("seaborn", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf"),
}


def _prime(libraries: Collection[str]) -> bool:
    """Import what jobs import of these distributions, and save and load a tiny model where they
    have models, whose first time is slow; whether the build is still there at the end."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    for distribution, modules in MODULES.items():
        if distribution in libraries:
            for module in modules:
                if not _is_wanted():
                    return False
                importlib.import_module(module)
    if "torch" in libraries:
        importlib.import_module("torch").set_num_threads(1)
    if "transformers" in libraries:
        _save_and_load()
    # The garbage collector of a child would otherwise touch, and so copy, all of this memory.
    gc.collect()
    gc.freeze()
    return _is_wanted()


def _save_and_load() -> None:
    from transformers import AutoModelForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM

    shape = GPTNeoXConfig(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        max_position_embeddings=8,
    )
    with tempfile.TemporaryDirectory() as folder:
        GPTNeoXForCausalLM(shape).save_pretrained(folder)
        AutoModelForCausalLM.from_pretrained(folder)


def _remove(address: Path) -> None:
    address.unlink(missing_ok=True)
    address.parent.rmdir()


def _is_wanted() -> bool:
    """Whether the build that started this process is still there."""
    try:
        return os.getppid() != 1 and os.read(sys.stdin.fileno(), 1) != b""
    except BlockingIOError:
        return True


def _serve_one(connection: socket.socket) -> NoReturn:
    """Run the job of a connection and end this child, whatever its client does."""
    status, label = 1, "job"
    try:
        request = _request(connection)
        label = f"{request['job']['stage']} {request['job']['name']}"
        with signals.ending(label):
            connection.sendall(f"{os.getpid()}\n".encode())
            threading.Thread(target=_end_with_client, args=(connection,), daemon=True).start()
            threads = os.environ.get("OMP_NUM_THREADS")
            if threads and "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(int(threads))
            status = execute(request["job"], **request["how"])
    except KeyboardInterrupt:
        signals.complain(label)
    except (OSError, ValueError, KeyError):
        pass  # the client left before it had said what is to be done
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            connection.sendall(f"{status}\n".encode())
        os._exit(status)


def _request(connection: socket.socket) -> dict[str, Any]:
    """What the client asks for, in whose environment and folder this process is from now on."""
    connection.setblocking(True)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
    for target, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, target)
        os.close(descriptor)
    request: dict[str, Any] = json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    return request


def _end_with_client(connection: socket.socket) -> None:
    # The request has been read to its end, so what comes next is the client's going away. A
    # half-closed peer looks the same to recv, hence the poll for a hang-up.
    poll = select.poll()
    poll.register(connection, 0)
    poll.poll()
    os._exit(1)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2].split(","))
