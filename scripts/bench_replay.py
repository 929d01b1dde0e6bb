#!/usr/bin/env python3
"""Measure `epweave-replay run` on a graph: seconds of each op, of all ranks together, without waiting.

    scripts/bench_replay.py GRAPH [--runs 3] [--replay BIN] [--top 20]

The fastest of the runs is taken for each op, so that other programs on the machine disturb little.
Exit codes: 0 measured, 1 a run failed, 2 usage.
"""
import argparse
import json
import pathlib
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def measure(replay, graph):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(replay), "run", "--json", "-q", str(graph)], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{graph}: exit {done.returncode}: {done.stderr.strip()}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), processor


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "build/release/bin/epweave-replay")
    parser.add_argument("--top", type=int, default=20)
    args = parser.parse_args()
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
    print(f"{'op':55} {'calls':>6} {'ms':>9} {'ms/call':>9}")
    for target, (calls, seconds) in sorted(ops.items(), key=lambda item: -item[1][1])[:args.top]:
        print(f"{target:55} {calls:6} {seconds * 1e3:9.1f} {seconds * 1e3 / calls:9.3f}")


if __name__ == "__main__":
    main()
