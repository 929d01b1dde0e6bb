#!/usr/bin/env python3
"""Rewrite real graphs, check them with epweave-replay, and hold the counts of verdicts to testdata/replay/counts.json.

    scripts/dev/check_counts.py [--epweave BIN] [--replay BIN] [CASE...]       CASE: a key of counts.json; all if none is given

A value that stops being compared would not be noticed by its verdict: so the numbers of outputs and nodes of each verdict, and why
nodes are unverified or skipped, are fixed, for each rank. EPWEAVE_UPDATE_GOLDENS=1 writes the file instead.
Exit codes: 0 as in the file, 1 not, 2 usage.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "testdata/replay/counts.json"
TOKENS = 512  # half of the traces': the same ops and verdicts in less time
CASES = {  # name -> graph, its layers, arguments of `epweave rewrite`; three layers have all that six have
    "ep-overlap": ("dsv3_debug_ep2.1b_remat", 3, ["--preset", "ep-overlap"]),
    "tensor parallel": ("dsv3_debug_fsdp2_tp2_ep4.1b_remat", 3, ["--preset", "ep-overlap{symbolize=yes}"]),
    "whole blocks of tensor-parallel ranks": ("dsv3_debug_fsdp2_tp2_ep4.0_traced", 2, ["-p", "symbolize,chunk{roots=[layers.*],parts=2,dense=true}"]),
    "each attention call in parts": ("dsv3_debug_ep2.0_traced", 2, ["-p", "chunk{roots=[layers.*],parts=2,dense=true}"]),
    "shared keys": ("dsv3_debug_ep2_block.1b_remat", 2, ["-p", "chunk{roots=[layers.*],parts=2}"]),
}


def run(command, codes=(0,)):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}{done.stdout[-2000:]}")
    return done.stdout


def count(args, name):
    stem, layers, rewrite = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        graph, chunked = pathlib.Path(folder) / "graph.epw", pathlib.Path(folder) / "rewritten.epw"
        run([args.epweave, "resize", ROOT / f"testdata/graphs/{stem}.epw.gz", "--set", f"layers={layers}",
             "--set", f"tokens={TOKENS}", "-q", "-o", graph])
        run([args.epweave, "rewrite", graph, *rewrite, "-q", "-o", chunked])
        report = json.loads(run([args.replay, "check", graph, chunked, "--json", "-q"], codes=(0, 1)))
    outputs = collections.Counter(output["verdict"] for output in report["outputs_not_equal"])
    outputs["equal"] = report["outputs"] - sum(outputs.values())
    return {"graph": stem, "layers": layers, "rewrite": " ".join(rewrite), "verdict": report["verdict"],
            "outputs": dict(sorted(outputs.items())), "ops_without_bound": report["ops_without_bound"], "ranks": report["ranks"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--epweave", type=pathlib.Path, default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "build/release/bin/epweave-replay")
    args = parser.parse_args()
    if unknown := set(args.cases) - CASES.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    is_update = os.environ.get("EPWEAVE_UPDATE_GOLDENS") == "1"
    is_same = True
    for name in args.cases or CASES:
        found = count(args, name)
        if is_update:
            golden[name] = found
        elif found != golden.get(name):
            is_same = False
            print(f"{name}: not the counts in {GOLDEN.relative_to(ROOT)}; found\n{json.dumps(found, indent=1)}")
    if is_update:
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
