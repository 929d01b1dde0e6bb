#!/usr/bin/env python3
"""Measure `epweave-replay run` on a graph: seconds of each op, of all ranks together, without waiting.

    scripts/bench_replay.py GRAPH [--runs 3] [--replay BIN] [--top 20] [--with-torch] [--device cuda [--math native]]

The fastest of the runs is taken for each op, so that other programs on the machine disturb little.
--with-torch: also PyTorch on the CPU running the same graph on the same inputs (compare_with_torch.py; one thread in each of
its processes, a process for each rank), once. Needs torch, safetensors, protobuf; torchtitan where compare_with_torch.py says so.
--device cuda: events on the GPU's streams (epweave-replay run --costs), the mean of the runs after two to warm up. With
--with-torch, beside it PyTorch's ops on the same GPU, one at a time, also by events, as many runs after one to warm up; the
ranks are processes that take turns on the GPU, so only few of them give its times. Collectives are not compared.
Exit codes: 0 measured, 1 a run failed, 2 usage.
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def measure(replay, graph):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(replay), "run", "--json", "-q", str(graph)], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{graph}: exit {done.returncode}: {done.stderr.strip()}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), processor


def measure_torch(args):
    """Processor seconds of computing, of all ranks, and wall seconds of the slowest rank."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import compare_with_torch
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        report = compare_with_torch.run_replay(argparse.Namespace(replay=args.replay, seed=0), args.graph, folder)
        seconds = compare_with_torch.run_torch(args.graph.resolve(), folder, len(report["ranks"]))
    return sum(rank["processor"] for rank in seconds), max(rank["wall"] for rank in seconds)


def measure_device(args, graph):
    """target -> [calls of a step, seconds of a step], all ranks together, what was measured on, seconds of steps without spans."""
    with tempfile.TemporaryDirectory() as folder:
        costs = pathlib.Path(folder) / "costs.json"
        command = [str(args.replay), "run", str(graph), "-q", "--device", args.device, "--math", args.math, "--warm-up", "2",
                   "--repeat", str(args.runs), "--costs", str(costs)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{graph}: exit {done.returncode}: {done.stderr.strip()}")
        report = json.loads(costs.read_text())
        command[command.index("--costs"):] = ["--json"]
        steps = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["ranks"][0]["step_seconds"]
    ops = {}
    for entry in report["ops"]:
        calls, seconds = ops.get(entry["op"], (0, 0.0))
        ops[entry["op"]] = (calls + entry["samples"] / args.runs,
                            seconds + entry["samples"] * entry["mean"] / args.runs / 1e6)
    return ops, report, steps


def measure_torch_ops(args, world):
    """The same of PyTorch: ops, and seconds of steps where there is one rank."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import compare_with_torch
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        report = compare_with_torch.run_replay(argparse.Namespace(replay=args.replay, seed=0), args.graph, folder)
        assert len(report["ranks"]) == world
        device = "cpu" if args.device == "emulated" else args.device
        ranks = compare_with_torch.run_torch(args.graph.resolve(), folder, world, device, args.runs)
    ops = {}
    for rank in ranks:
        for target, (calls, seconds) in rank["ops"].items():
            before = ops.get(target, (0, 0.0))
            ops[target] = (before[0] + calls, before[1] + seconds)
    return ops, ranks[0].get("steps", [])


def print_device(args):
    ours, report, steps = measure_device(args, args.graph)
    theirs, their_steps = measure_torch_ops(args, report["ranks"]) if args.with_torch else ({}, [])
    total = sum(seconds for _, seconds in ours.values())
    print(f"{args.graph.name}: {report['measured_on']['device']['name']}, {report['measured_on']['math']} math, "
          f"{report['ranks']} ranks: {total * 1e3:.2f} ms of ops in a step, all ranks")
    beside = f", PyTorch {statistics.median(their_steps) * 1e3:.2f} ms" if their_steps else ""
    print(f"a step, the median of {len(steps)}: {statistics.median(steps) * 1e3:.2f} ms{beside}")
    shared = [target for target in ours if target in theirs]
    if shared:
        a, b = (sum(ops[target][1] for target in shared) for ops in (ours, theirs))
        print(f"the {len(shared)} ops that PyTorch has under the same name: {a * 1e3:.2f} ms, PyTorch {b * 1e3:.2f} ms "
              f"({a / b:.2f} times as long)")
    print(f"{'op':55} {'calls':>7} {'ms':>9} {'us/call':>9} {'PyTorch':>9}")
    for target, (calls, seconds) in sorted(ours.items(), key=lambda item: -item[1][1])[:args.top]:
        other = f"{theirs[target][1] * 1e6 / theirs[target][0]:9.1f}" if target in theirs else f"{'':9}"
        print(f"{target:55} {calls:7.0f} {seconds * 1e3:9.2f} {seconds * 1e6 / calls:9.1f} {other}")


def run_count(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=pathlib.Path, metavar="GRAPH", help="graph file")
    parser.add_argument("--runs", type=run_count, default=3, metavar="N", help="of which the fastest counts (default 3)")
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "build/release/bin/epweave-replay", metavar="BIN",
                        help="the program (default: that of build/release)")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="rows of the table (default 20)")
    parser.add_argument("--with-torch", action="store_true", help="PyTorch beside it")
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda, cuda:N")
    parser.add_argument("--math", default="portable", choices=("portable", "native"), help="on a GPU (default portable)")
    args = parser.parse_args()
    if args.device != "cpu":
        return print_device(args)
    runs = [measure(args.replay, args.graph) for _ in range(args.runs)]
    ops = {}
    for report, _ in runs:
        for op in report["ops"]:
            calls, seconds = ops.get(op["target"], (op["calls"], op["seconds"]))
            ops[op["target"]] = (calls, min(seconds, op["seconds"]))
    wall = min(report["seconds"] for report, _ in runs)
    processor = min(seconds for _, seconds in runs)
    print(f"{args.graph.name}: {wall:.2f} s of running, {processor:.2f} s of processor time with inputs and hashes, "
          f"{max(report['peak_bytes'] for report, _ in runs) / 2**20:.0f} MiB at most (best of {args.runs})")
    if args.with_torch:
        ours = sum(seconds for _, seconds in ops.values())
        theirs, slowest = measure_torch(args)
        print(f"computing, all ranks: {ours:.2f} s of processor time; PyTorch on the CPU: {theirs:.2f} s "
              f"({theirs / ours:.1f} times as long), {slowest:.2f} s of running")
    print(f"{'op':55} {'calls':>6} {'ms':>9} {'ms/call':>9}")
    for target, (calls, seconds) in sorted(ops.items(), key=lambda item: -item[1][1])[:args.top]:
        print(f"{target:55} {calls:6} {seconds * 1e3:9.1f} {seconds * 1e3 / calls:9.3f}")


if __name__ == "__main__":
    sys.exit(main())
