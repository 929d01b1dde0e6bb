#!/usr/bin/env python3
"""scripts/gpu_test.sh where no GPU is, and with the emulated device in the GPU's place.

EPWEAVE and EPWEAVE_REPLAY name the programs, EPWEAVE_CUBLASLT and EPWEAVE_NCCL the libraries that take cuBLASLt's and NCCL's
place.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from replay_device_test import COLLECTIVES
from replay_tool import expect

ROOT = pathlib.Path(__file__).resolve().parents[2]
EPWEAVE, REPLAY = os.environ["EPWEAVE"], os.environ["EPWEAVE_REPLAY"]

# Two kernels behind one another, so that there is something to launch as a graph.
STEP = COLLECTIVES.replace("%mm = ", "%product = ", 1).replace(
    "  %g = ", "  %mm = aten.neg.default(%product) : f32[4, 4]\n  %g = ", 1
)
# `rewrite G --preset ep-overlap -o OUT`: a copy, or what epweave says of a graph without a mixture
# of experts.
REWRITE = '#!/bin/bash\n[ "$1" = rewrite ] || exit 2\n'

# epweave-replay with `cuda` read as `emulated`; what MODE says goes wrong goes wrong.
PROGRAM = """#!/bin/bash
arguments=()
for argument in "$@"; do arguments+=("${{argument/#cuda/{device}}}"); done
{before}
exec {replay} "${{arguments[@]}}"
"""


def bundle(folder, device="emulated", before="", declines=False):
    """A folder as gpu_bundle.sh packs it, with one small graph as the whole step."""
    for name in ("bin", "testdata/graphs", "testdata/gpu"):
        (folder / name).mkdir(parents=True)
    text = folder / "step.txt"
    text.write_text(STEP)
    graph = folder / "testdata/graphs/small.epw.gz"
    subprocess.run([EPWEAVE, "convert", text, graph], check=True, capture_output=True)
    found = subprocess.run([REPLAY, "run", graph, "-q"], check=True, capture_output=True, text=True).stdout
    (folder / "testdata/gpu/small.txt").write_text(found)
    (folder / "testdata/gpu/absent.txt").write_text(found)
    programs = {
        "epweave": REWRITE + (f'exec {EPWEAVE} "$@"\n' if declines else 'cp "$2" "${@: -1}"\n'),
        "epweave-replay": PROGRAM.format(device=device, before=before, replay=REPLAY),
        "replay_kernels_device_test": '#!/bin/bash\necho "device: $EPWEAVE_TEST_DEVICE"\n',
        "replay_cublas_test": '#!/bin/bash\necho "products: $*"\n',
    }
    for name, script in programs.items():
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    return folder


def gpu_test(folder, *options, **variables):
    """Exit code, the summary, the logs by name. What is printed has the summary."""
    logs = folder / "logs"
    result = subprocess.run(
        [ROOT / "scripts/gpu_test.sh", *options, "--logs", logs, folder],
        capture_output=True, text=True, check=False, env={**os.environ, **variables},
    )  # fmt: skip
    summary = (logs / "summary.txt").read_text() if (logs / "summary.txt").exists() else ""
    expect(set(summary.splitlines()) <= set(result.stdout.splitlines()), f"printed:\n{result.stdout}summary:\n{summary}")
    return result.returncode, summary + result.stderr, {path.name: path.read_text() for path in logs.glob("*.log")}


def check_usage(place):
    for options, message in ((["--only", "all"], "--only takes one of: kernels"), (["--fast"], "unknown option --fast"),
                             (["--call", "5"], "--call takes one of: 1 2 3 4"), (["--total", "x"], "--total takes a whole number"),
                             (["--logs"], "--logs needs a folder"), (["--seconds", "0"], "--seconds takes a whole number")):  # fmt: skip
        result = subprocess.run([ROOT / "scripts/gpu_test.sh", *options], capture_output=True, text=True, check=False)
        expect(result.returncode == 2 and message in result.stderr, f"{options}: {result}")


def check_no_gpu(place):
    code, summary, _ = gpu_test(bundle(place / "none", "cuda"), EPWEAVE_CUDA="/nonexistent.so")
    expect(code == 77, f"no GPU: exit {code}: {summary}")
    expect("nothing was run on a GPU: there is none. Not run: kernels steps memcheck rewrite graphs nccl native measure torch" in summary, summary)
    code, summary, _ = gpu_test(bundle(place / "stale", "cuda"), "--only", "kernels", EPWEAVE_CUDA=os.environ["EPWEAVE_STALE_CUDA"])
    expect(code == 1 and "the first run on the GPU: FAILED (exit 4)" in summary, f"stale: exit {code}: {summary}")


def check_all(place):
    code, summary, logs = gpu_test(bundle(place / "all"), "--bare")
    expect(code == 0 and "FAILED" not in summary, f"all: exit {code}: {summary}{logs}")
    lines = re.sub(r", \d+ s: .*", "", summary).splitlines()
    expect(lines[-1].startswith("passed on the GPU: 17 steps"), summary)
    for line in (
        "kernels, bits of the CPU: passed",
        "small, hashes of the CPU: passed",
        "small, ep-overlap: passed",
        "attention on tensor cores beside that of portable math: passed",
        "small twice in native math: passed",
        "small, ep-overlap, native, pinned rows: passed",
        "small with CUDA graphs: passed",
        "small with CUDA graphs, native math: passed",
        "a measured step: passed",
        "one rank over NCCL: passed",
        "one rank over NCCL, check: passed",
        "a rank that stands still: passed",
        "small over NCCL: passed",
        "small, ep-overlap, check over NCCL: passed",
        "not run: torch: --bare",
        "not run: rates: no python3, or --bare",
        "not run: ranks, a GPU for each of 4 ranks: 1 GPUs are known of; ranks share them",
    ):
        expect(line in lines, f"no '{line}' in:\n{summary}")
    expect(any(line.startswith("not run: absent: ") for line in lines), summary)
    expect(logs["01-kernels--bits-of-the-CPU.log"] == "device: cuda\n", logs)


def check_declined(place):
    code, summary, _ = gpu_test(bundle(place / "declined", declines=True), "--bare", "--only", "rewrite")
    expect(code == 0 and "passed on the GPU: 0 steps" in summary, f"declined: exit {code}: {summary}")
    expect(re.search(r"not run: small, ep-overlap: .*no call of the graph says which module it belongs to", summary), summary)


def check_part_and_libraries(place):
    code, summary, _ = gpu_test(
        bundle(place / "part"), "--bare", "--only", "native", "--only", "nccl", EPWEAVE_CUBLASLT="/none.so", EPWEAVE_NCCL="/none.so"
    )
    expect(code == 0 and "passed on the GPU: 1 steps" in summary, f"parts: exit {code}: {summary}")
    for line in ("attention on tensor cores beside that of portable math: passed", "not run: native: cuBLASLt is not installed", "not run: nccl: NCCL is not installed", "not run: steps (not asked for)"):
        expect(line in summary, f"no '{line}' in:\n{summary}")


def check_limits(place):
    """Behind a failing kernel whole steps alone are run; behind a first run that hangs nothing; behind --total nothing is begun, and
    what it cuts short is no failure."""
    folder = bundle(place / "kernels")
    kernels = folder / "bin/replay_kernels_device_test"
    kernels.write_text("#!/bin/bash\nexit 1\n")
    code, summary, logs = gpu_test(folder, "--bare", "--call", "1")
    expect(code == 1 and "something failed on the GPU: 1 of 2 steps" in summary, f"kernels: exit {code}: {summary}")
    expect("small, hashes of the CPU: passed" in summary and "not run: memcheck (a kernel fails)" in summary, summary)
    expect("not run: native (not asked for)" in summary and "  with CUDA_LAUNCH_BLOCKING=1: FAILED (exit 1)" in summary, summary)
    # Tests alone, named with what separates names: all fail behind the second, which fails by
    # itself.
    kernels.write_text("""#!/bin/bash
case $1 in
  --list-test-names-only) printf '%s\\n' 'maps, [dense]' 'products' 'sums' ;;
  'maps\\, \\[dense\\]' | sums) echo "All tests passed" ;;
  *) printf 'a_test.cc:3: FAILED:\\n  CHECK( a == b )\\nwith expansion:\\n' && exit 1 ;;
esac
""")
    code, summary, logs = gpu_test(folder, "--bare", "--only", "kernels", "--only", "memcheck")
    expect(code == 1 and "  alone, too: products: FAILED (exit 1): a_test.cc:3: FAILED: CHECK( a == b )" in summary, f"alone: exit {code}: {summary}")
    expect("  tests that fail alone: 1 of 3" in summary and "01-kernels--bits-of-the-CPU.alone-2.blocking.log" in logs, f"{summary}{logs}")
    expect(summary.count("alone, too") == 1 and summary.count("with CUDA_LAUNCH_BLOCKING=1") == 1, summary)
    # One file has the summary with what failed.
    report = (folder / "logs/report.txt").read_text()
    expect([line for line in report.splitlines() if line in summary.splitlines()] == summary.splitlines(), report)
    for text in ("---- 01-kernels--bits-of-the-CPU.alone-2.log, 3 lines\na_test.cc:3: FAILED:\n  CHECK( a == b )\nwith expansion:\n----\n",
                 "---- 01-kernels--bits-of-the-CPU.alone-2.blocking.log, 3 lines\n"):  # fmt: skip
        expect(text in report, report)
    # A first run that does not end: the tests of kernels that do not end either are named.
    folder = bundle(place / "first", before="sleep 60")
    (folder / "bin/replay_kernels_device_test").write_text("""#!/bin/bash
case $1 in
  --list-test-names-only) printf '%s\n' maps products sums ;;
  products) sleep 60 ;;
  *) echo "All tests passed" ;;
esac
""")
    code, summary, _ = gpu_test(folder, "--bare", "--seconds", "1")
    expect(code == 1 and "the first run on the GPU: FAILED (ran past 1 s)" in summary and "nothing else was run: kernels" in summary, summary)
    expect("  alone, too: products: FAILED (ran past 1 s): " in summary and "  tests that fail alone: 1 of 3" in summary, summary)
    folder = bundle(place / "total")
    (folder / "bin/replay_kernels_device_test").write_text("#!/bin/bash\nsleep 60\n")
    code, summary, _ = gpu_test(folder, "--bare", "--only", "kernels", "--only", "steps", "--total", "8")
    expect(code == 0 and "not run: kernels, bits of the CPU: cut short after" in summary, f"total: exit {code}: {summary}")
    expect("not run: small, hashes of the CPU: no time is left (--total 8)" in summary, summary)


def check_sanitizers(place):
    """With a program in compute-sanitizer's place: the tools and tests that are asked for."""
    folder, path = bundle(place / "sanitizer"), place / "path"
    path.mkdir()
    (path / "compute-sanitizer").write_text('#!/bin/bash\necho "tool $2, $3 $4: ${*: -1}"\n')
    (path / "compute-sanitizer").chmod(0o755)
    code, summary, logs = gpu_test(folder, "--bare", "--only", "memcheck", "--only", "racecheck", "--only", "initcheck",
                                   PATH=f"{path}:{os.environ['PATH']}")  # fmt: skip
    expect(code == 0 and "passed on the GPU: 3 steps" in summary, f"sanitizers: exit {code}: {summary}")
    for text in ("tool memcheck, --error-exitcode 9: ", "tool racecheck, --error-exitcode 9: *products*,*softmax*", "tool initcheck, "):
        expect(any(text in log for log in logs.values()), f"{text}: {logs}")
    code, summary, _ = gpu_test(folder, "--bare", "--only", "memcheck")
    expect(code == 0 and "not run: memcheck: compute-sanitizer is not installed" in summary, summary)


def check_torch(place):
    """What the comparison with PyTorch lacks is said, and it runs where nothing is lacking: here with modules that say so."""
    folder, modules = bundle(place / "torch"), place / "modules"
    (modules / "safetensors").mkdir(parents=True)
    (modules / "safetensors/__init__.py").write_text("")
    (modules / "torch.py").write_text("raise ImportError('no torch here')\n")
    code, summary, _ = gpu_test(folder, "--only", "torch", PYTHONPATH=str(modules))
    expect(code == 0 and "not run: torch: no torch here; No module named 'safetensors.torch'" in summary, summary)
    (modules / "torch.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n")
    (modules / "safetensors/torch.py").write_text("")
    code, summary, _ = gpu_test(folder, "--only", "torch", PYTHONPATH=str(modules))
    expect(code == 0 and "not run: torch: PyTorch sees no GPU" in summary, summary)
    code, summary, _ = gpu_test(folder, "--only", "train", PYTHONPATH=str(modules))
    expect(code == 0 and "not run: train: No module named 'torchtitan'" in summary, summary)


def check_train(place):
    """The table by steps is said, whichever way the training ends; with a GPU for each rank of the largest job that there are GPUs for."""
    folder, modules, programs = bundle(place / "train"), place / "training", place / "smi"
    for name in ("torch.py", "torchtitan.py", "epweave_fx.py"):
        modules.mkdir(exist_ok=True)
        (modules / name).write_text("class cuda:\n    is_available = staticmethod(lambda: True)\n    device_count = staticmethod(lambda: 4)\n")
    programs.mkdir()
    python = """#!/bin/bash
case "$*" in
  *train_artifact.py*) echo "DeepSeek-V3 debug, ${{@: -2}}"; echo "artifact:"; echo "step 1: loss=8.1 grad_norm=1.2"; echo "the end"; exit {code} ;;
esac
exec {python} "$@"
"""

    def run(gpus, code):
        (programs / "nvidia-smi").write_text(f"#!/bin/bash\n[ $1 = -L ] || exec echo a GPU\nseq {gpus}\n")
        (programs / "python3").write_text(python.format(code=code, python=shutil.which("python3")))
        for name in ("nvidia-smi", "python3"):
            (programs / name).chmod(0o755)
        return gpu_test(folder, "--only", "train", PYTHONPATH=str(modules), PATH=f"{programs}:{os.environ['PATH']}")

    few = subprocess.run(["python3", ROOT / "scripts/train_artifact.py", "--device", "cuda", "--world", "8"], check=False,
                         capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(modules)})  # fmt: skip
    expect((few.returncode, few.stderr) == (77, "train_artifact.py: 4 GPUs; 8 are needed\n"), few)
    code, summary, _ = run(1, 0)
    expect(code == 0 and "not run: train: 1 GPUs are known of, and the smallest job has 2 ranks" in summary, summary)
    for ends, said in ((0, "passed"), (1, "FAILED (exit 1)")):
        code, summary, _ = run(4, ends)
        expect(code == ends and "not run: train, DP 4 x TP 2 x EP 4 on 8 GPUs: 4 GPUs are known of; a smaller job is trained" in summary, summary)
        expect(re.search(rf"training with one artifact for all ranks: {re.escape(said)}, \d+ s: the end", summary), summary)
        expect("  DeepSeek-V3 debug, --device cuda\n  artifact:\n  step 1: loss=8.1 grad_norm=1.2\n" in summary, summary)


def check_packed(place):
    """What gpu_bundle.sh packs holds what scripts/compare_with_torch.py imports: it reads a graph, with nothing of this checkout."""
    programs, archive = place / "programs", place / "bundle.tar.gz"
    programs.mkdir()
    for name, target in (("epweave", EPWEAVE), ("epweave-replay", REPLAY), ("libepweave_cuda.so", os.environ["EPWEAVE_STALE_CUDA"]),
                         ("replay_kernels_device_test", REPLAY), ("replay_cublas_test", REPLAY)):  # fmt: skip
        (programs / name).symlink_to(target)
    subprocess.run([ROOT / "scripts/gpu_bundle.sh", archive, programs], check=True, capture_output=True)
    subprocess.run(["tar", "-C", place, "-xzf", archive], check=True)
    packed = place / "epweave-gpu"
    graph = sorted((packed / "testdata/graphs").glob("*.epw.gz"))[0]
    read = ("import sys; sys.path.insert(0, 'scripts'); import compare_with_torch, epweave_fx; "
            "print(compare_with_torch.list_names(epweave_fx.read_file(sys.argv[1]))[0][0], epweave_fx.read_file.__code__.co_filename)")  # fmt: skip
    result = subprocess.run(["python3", "-c", read, graph], cwd=packed, capture_output=True, text=True, check=False,
                            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"})  # fmt: skip
    expect(result.returncode == 0 and str(packed / "python") in result.stdout, f"the bundle's package: {result}")
    steps = {path.stem for path in (packed / "testdata/gpu").glob("*.txt")}
    expect(steps and steps < {path.name.removesuffix(".epw.gz") for path in (packed / "testdata/graphs").glob("*.epw.gz")}, steps)
    subprocess.run(["python3", packed / "scripts/dev/gpu_rates.py", "--help"], check=True, capture_output=True)
    subprocess.run(["python3", packed / "scripts/train_artifact.py", "--help"], check=True, capture_output=True)


def check_failures(place):
    """Other bits: `check` is asked for the node. A kernel that crashes: run again. A program that hangs: stopped."""
    folder = bundle(place / "bits")
    hashes = folder / "testdata/gpu/small.txt"
    hashes.write_text(hashes.read_text().replace("hash ", "hash f", 1))
    code, summary, logs = gpu_test(folder, "--bare", "--only", "steps")
    expect(code == 1 and "small, hashes of the CPU: FAILED (exit 1)" in summary, f"bits: exit {code}: {summary}")
    expect("  with CUDA_LAUNCH_BLOCKING=1: FAILED (exit 1)" in summary and "  under compute-sanitizer: " in summary, summary)
    found = re.search(r"small, hashes of the CPU: FAILED \(exit 1\), \d+ s: (.*)", summary)[1]
    expect(found.startswith("1 of 2 ranks are not as on the CPU: > rank "), summary)
    expect("small, the first node that differs: passed" in summary and "something failed on the GPU: 1 of 2 steps" in summary, summary)
    expect("01-small--hashes-of-the-CPU.blocking.log" in logs, logs.keys())

    folder = bundle(place / "hang", before='case " $* " in *" --poison "*) sleep 60 ;; esac')
    code, summary, _ = gpu_test(folder, "--bare", "--only", "rewrite", "--seconds", "2")
    expect(code == 1 and "small, ep-overlap: FAILED (ran past 2 s)" in summary, f"a hang: exit {code}: {summary}")

    crash = 'case "$CUDA_LAUNCH_BLOCKING $* " in *--poison*) export EPWEAVE_EMULATED_FAILURE="launch 2" ;; esac'
    code, summary, logs = gpu_test(bundle(place / "crash", before=crash), "--bare", "--only", "steps")
    expect(code == 1 and "small, hashes of the CPU: FAILED (exit 1)" in summary, f"a crash: exit {code}: {summary}")
    expect("once more with CUDA_LAUNCH_BLOCKING=1: rank " in logs["01-small--hashes-of-the-CPU.log"], logs)


if __name__ == "__main__":
    check_usage(None)
    with tempfile.TemporaryDirectory() as name:
        check_no_gpu(pathlib.Path(name))
        check_all(pathlib.Path(name))
        check_declined(pathlib.Path(name))
        check_part_and_libraries(pathlib.Path(name))
        check_limits(pathlib.Path(name))
        check_sanitizers(pathlib.Path(name))
        check_torch(pathlib.Path(name))
        check_train(pathlib.Path(name))
        check_packed(pathlib.Path(name))
        check_failures(pathlib.Path(name))
    print("gpu_test.sh: all as expected")
