#!/usr/bin/env python3
"""`epweave-replay` on a device that fails as a GPU does, and with a CUDA part of another build.

Whatever call fails, the program ends with a documented exit code, a report, and the node that the host was at; a second run
names the kernel that crashed. EPWEAVE_REPLAY names the program, EPWEAVE_STALE_CUDA and EPWEAVE_UNNAMED_CUDA shared objects
in libepweave_cuda.so's place.
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile

from replay_device_test import COLLECTIVES
from replay_tool import REPLAY, expect, run

FAILURE = "EPWEAVE_EMULATED_FAILURE"

# The product is the second kernel; the host learns of its crash where it asks for memory.
CRASHES = """epweave text 1
symbol u0 hint=12 unbacked
graph
  %x = placeholder : f32[6, 4] role=user which=x
  %t = aten.t.default(%x) : f32[4, 6]{1, 4}
  %n = aten.neg.default(%x) : f32[6, 4]
  %b = aten.mm.default(%n, %t) : f32[6, 6] @layers.0.moe src="model.py:3 in forward: n @ t"
  %m = aten.gt.Scalar(%x, 0.0) : b8[6, 4]
  %p = aten.index.Tensor(%x, [%m]) : f32[u0] bind(u0, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  output([%b, %p])
"""
KERNEL = (
    "rank 0: %b = aten.mm.default in layers.0.moe (model.py:3 in forward: n @ t): the device failed to launch a kernel: "
    "an illegal memory access was encountered; the device takes no more work: a kernel queued earlier, of any rank, may "
    "be the cause"
)
WAIT = (
    "rank 0: %m = aten.gt.Scalar: the device failed to give 512 bytes, 2048 being in use: an illegal memory access was "
    "encountered; the device takes no more work: a kernel queued earlier, of any rank, may be the cause"
)

OPENING = r"the device failed to (say what it is|be used by a thread)"
BEFORE = r"(rank \d: )?before the first node: the device failed to "
AT_NODE = r"rank \d: %\w+ = [\w.]+: (behind it )?the device failed to "


def run_failing(failure, *arguments, **variables):
    return run(*arguments, "--device", "emulated", **{FAILURE: failure}, **variables)


def check_any_call(folder):
    """From the n-th call on, for n that go through the whole command."""
    graph = folder / "collectives.txt"
    graph.write_text(COLLECTIVES)
    for command in (["run", graph], ["run", graph, "--cuda-graphs", "--repeat", 2], ["check", graph, graph]):
        ends, n = set(), 1
        while True:
            code, output, errors = run_failing(f"call {n}", *command, "--json")
            if code == 0:
                break
            what = f"{command}, call {n}: exit {code}: {output}{errors}"
            expect(code == 1, what)
            error = json.loads(output)["error"]
            expect(error["exit_code"] == 1 and "the device failed to " in errors, what)
            first, *rest = error["message"].split("\n")
            place = next((p for p in (OPENING, BEFORE, AT_NODE) if re.match(p, first)), None)
            expect(place is not None, what)
            ends.add(place)
            if place == AT_NODE:
                expect(error["kind"] == "device-lost" and len(rest) == 1, what)
                again = error["launch_blocking"]
                if again["exit_code"] == 0:  # threads decide how many calls there are: this was one of the last
                    expect(rest[0] == "once more with CUDA_LAUNCH_BLOCKING=1 " + again["message"], what)
                    expect(again["message"].startswith("the device did not fail: "), what)
                    expect(run_failing(f"call {n + n // 16}", *command)[0] == 0, what)
                else:
                    expect(again["exit_code"] == 1 and "the device failed to " in again["message"], what)
                    expect(rest[0] == "once more with CUDA_LAUNCH_BLOCKING=1: " + again["message"], what)
            else:
                expect(error["kind"] == "run" and not rest, what)
            n += 1 + n // 8
        expect(ends == {OPENING, BEFORE, AT_NODE}, f"{command}: {ends}")


def check_crash(folder):
    """A kernel that crashes: the node where the host learns it, then, launches waiting for kernels, the kernel's."""
    graph = folder / "crashes.txt"
    graph.write_text(CRASHES)
    files = [folder / name for name in ("outputs", "inputs", "timeline", "costs", "log")]
    code, output, errors = run_failing("launch 2", "run", graph, "--ranks", 1)
    expected = f"epweave-replay: error: {WAIT}\nonce more with CUDA_LAUNCH_BLOCKING=1: {KERNEL}\n"
    expect(code == 1 and output == "" and errors.endswith(expected), f"exit {code}: {errors}")
    options = zip(("--outputs", "--save-inputs", "--timeline", "--costs", "--log-file"), files)
    code, output, errors = run_failing("launch 2", "run", graph, "--ranks", 1, "--json", *sum(options, ()))
    error = json.loads(output)["error"]
    expect(error["launch_blocking"] == {"exit_code": 1, "message": KERNEL}, f"exit {code}: {output}{errors}")
    expect(not any(path.exists() for path in (files[0], files[2], files[3])), "files of a run that failed")
    expect(files[4].read_text().count(KERNEL) == 1, files[4].read_text())
    code, output, errors = run_failing("launch 2", "run", graph, "--ranks", 1, CUDA_LAUNCH_BLOCKING="1")
    expect(code == 1 and KERNEL in errors and "once more" not in errors, f"blocking: exit {code}: {errors}")


def check_no_second_run(folder):
    """Standard input cannot be read twice, nor can a pipe: a second run would wait for a writer."""
    expected = f"{WAIT}\nrun it with CUDA_LAUNCH_BLOCKING=1, where each launch waits for its kernel, to learn which one it was"
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    for name in ("-", "/dev/stdin", pipe):
        with subprocess.Popen(["cat", folder / "crashes.txt"], stdout=subprocess.PIPE) as graph:
            into_pipe = subprocess.Popen(["cp", folder / "crashes.txt", pipe]) if name == pipe else None
            result = subprocess.run(
                [REPLAY, "run", name, "--ranks", "1", "--device", "emulated"], stdin=graph.stdout, timeout=60,
                capture_output=True, text=True, check=False, env={**os.environ, FAILURE: "launch 2"},
            )  # fmt: skip
            if into_pipe is not None:
                into_pipe.wait()
        expect(result.returncode == 1 and expected in result.stderr, f"{name}: exit {result.returncode}: {result.stderr}")
    code, _, errors = run_failing("sometimes", "run", folder / "crashes.txt", "--ranks", 1)
    expect(code == 2 and "is neither 'call N' nor 'launch N'" in errors, f"exit {code}: {errors}")


def check_stale_library(folder):
    graph = folder / "crashes.txt"
    for variable, found in (
        ("EPWEAVE_STALE_CUDA", r"is of build 0123456789abcdef"),
        ("EPWEAVE_UNNAMED_CUDA", r"does not say what it is built of"),
    ):
        code, output, errors = run("run", graph, "--device", "cuda", "--json", EPWEAVE_CUDA=os.environ[variable])
        expect(code == 4, f"{variable}: exit {code}: {errors}")
        error = json.loads(output)["error"]
        problem = f"{re.escape(os.environ[variable])} {found}; this program needs build [0-9a-f]{{16}}(-[0-9a-f]{{8}})? of the device sources"
        expect(error["id"] == "replay.stale-device" and re.search(problem, error["problem"]), output)
        expect("targets epweave_cuda and epweave-replay" in error["remedy"], output)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        check_any_call(pathlib.Path(name))
        check_crash(pathlib.Path(name))
        check_no_second_run(pathlib.Path(name))
        check_stale_library(pathlib.Path(name))
    print("failing devices: all as expected")
