"""Ranks of epweave-replay as processes, without GPUs: what the tests share.

NCCL's place is taken by a library that moves bytes over sockets (src/replay/nccl/testing/socket_nccl.cc), the GPU's
by the emulated device. EPWEAVE_REPLAY names the program, EPWEAVE_NCCL the library.
"""
import json
import os
import random
import socket
import struct
import subprocess
import time

from replay_tool import REPLAY, expect

LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "NCCL_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}


def free_port():
    """One that nobody has now, nor the one after it: below those that the system gives to whoever asks for none, as connections do."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def torchrun(rank, ranks, port):
    return {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def start_command(name, arguments, variables):
    """`epweave-replay NAME` as one rank of several."""
    command = [REPLAY, name, *map(str, arguments), "--transport", "nccl"]
    environment = {**CLEAN, **{name: str(value) for name, value in variables.items()}}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def write_tensors(path, tensors):
    """A safetensors file; `tensors`: name to dtype, shape, and the elements as bytes."""
    header, data = {}, b""
    for name, (dtype, shape, elements) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(elements)]}
        data += elements
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def finish(processes, limit=120):
    """Exit code, standard output and standard error of each; none may outlive the limit."""
    results = []
    until = time.time() + limit
    for process in processes:
        try:
            output, errors = process.communicate(timeout=max(until - time.time(), 1))
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            expect(False, f"a process did not end within {limit} s")
        results.append((process.returncode, output, errors))
    return results
