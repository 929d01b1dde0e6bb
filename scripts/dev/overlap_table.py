#!/usr/bin/env python3
"""What `schedule` reaches on real graphs, judged from outside.

    python3 scripts/dev/overlap_table.py --graphs DIR --judge JUDGE.py [--epweave BIN] [--effort fast|best] [--only TEXT]

Each row rewrites a dump (fx-dump-1) with a pipeline, writes the result as a dump again, and lets the judge price and
simulate that: a program that shares no code with epweave. Prints makespan and peak beside what they may be at most, the
time of the pass `schedule` alone and of the whole command, and exits 1 where a row is above its limits or `verify A B`
finds the schedule no legal order.
"""
import argparse
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NORM = "dce,canonicalize,dedup-unshard"
WHOLE = f"{NORM},isolate-ep-pg{{counts=own}}"
GIB = 2 ** 30


def chunked(options):
    return f"{NORM},chunk{{{options}}},bypass-joins,isolate-ep-pg{{counts=own}},dce"


BLOCKS = "roots=[layers.*,norm],dense=true,parts=2"
# Name, dump, passes in front of schedule, memory, cluster, what the judge is told, most ms, most
# GiB.
ROWS = [
    ("16B 2x4, independent", "dsv3_16b_ep8.1b_remat", chunked(f"{BLOCKS},attention=independent"), "47.6GiB", "h100-2x4",
     {"gpus_per_node": 4}, 900, 47.6),
    ("16B 2x4, prefix", "dsv3_16b_ep8.1b_remat", chunked(f"{BLOCKS},attention=prefix"), "48.5GiB", "h100-2x4",
     {"gpus_per_node": 4}, 920, 48.5),
    ("16B 2x4, joined between layers", "dsv3_16b_ep8.1b_remat",
     f"{NORM},chunk{{roots=layers.*,parts=2}},isolate-ep-pg{{counts=own}},dce", "47.6GiB", "h100-2x4", {"gpus_per_node": 4}, 963, 47.6),
    ("16B 2x4, moe", "dsv3_16b_ep8.1b_remat", chunked("roots=layers.*.moe,parts=2"), "47.6GiB", "h100-2x4",
     {"gpus_per_node": 4}, 974, 47.6),
    ("16B 2x4, bucketed, order only", "dsv3_16b_ep8.4_bucket", "", "47.65GiB", "h100-2x4", {"gpus_per_node": 4}, 981, 47.65),
    ("16B one node", "dsv3_16b_ep8.1b_remat", WHOLE, "47.6GiB", "h100", {}, 879, 47.6),
    ("671B, independent", "dsv3_671b_ep64.1b_remat", chunked(f"{BLOCKS},attention=independent"), "410GiB", "h100", {}, 12000, 410),
    ("671B, torchtitan's, order only", "dsv3_671b_ep64.6_concrete", "", "410GiB", "h100", {}, 13290, 410),
    ("llama3 8B, 32.1", "llama3_8b_fsdp8.1b_remat", NORM, "32.1GiB", "h100", {}, 809, 32.1),
    ("llama3 8B, 33.8", "llama3_8b_fsdp8.1b_remat", NORM, "33.8GiB", "h100", {}, 802, 33.8),
    ("llama3 debug TP, order only", "llama3_debug_fsdp2_tp2.4_bucket", "", "2%", "h100", {}, 2.70, None),
    ("qwen3 debug", "qwen3_moe_ep2.1b_remat", WHOLE, "2%", "h100", {}, 10.2, None),
]


def run(command):
    start = time.monotonic()
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stderr}")
    return done.stderr, time.monotonic() - start


def pass_seconds(report, name):
    rows = [line.split() for line in report.splitlines()]
    return next(float(row[1]) / 1000 for row in rows if row and row[0] == name)


def judge_dump(judge, path, settings):
    graph = judge.load(path, judge.Config(**settings))
    return judge.simulate(graph).makespan * 1e3, judge.peak_memory(graph)[0] / GIB


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=pathlib.Path, required=True)
    parser.add_argument("--judge", type=pathlib.Path, required=True)
    parser.add_argument("--epweave", default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--effort", default="fast", choices=("fast", "best"))
    parser.add_argument("--only", default="", help="rows whose name has this")
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("judge", options.judge)
    judge = importlib.util.module_from_spec(spec)
    sys.modules["judge"] = judge
    spec.loader.exec_module(judge)
    fx = [sys.executable, ROOT / "scripts/epweave_fx.py"]
    print(f"{'graph':32} {'given':>9} {'result':>9} {'most':>8} {'peak':>7} {'most':>7} {'pass s':>7} {'all s':>6}")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for name, dump, passes, memory, cluster, settings, most_ms, most_gib in ROWS:
            if options.only not in name:
                continue
            source, before, after, out = (work / f for f in ("source.epw", "before.epw", "after.epw", "after.json.gz"))
            run([*fx, "from-dump", options.graphs / f"{dump}.json.gz", source])
            run([options.epweave, "rewrite", source, "-p", passes or "dce", "-o", before])
            schedule = f"schedule{{cluster={cluster},memory={memory},effort={options.effort}}}"
            report, seconds = run([options.epweave, "rewrite", before, "-p", schedule, "-o", after, "--time-passes",
                                   "--verify", "off"])
            run([options.epweave, "verify", before, after])
            run([*fx, "to-dump", before, out])
            given_ms, given_gib = judge_dump(judge, out, settings)
            run([*fx, "to-dump", after, out])
            ms, gib = judge_dump(judge, out, settings)
            limit = most_gib or given_gib * 1.02
            wrong = ms > most_ms or gib > limit
            failed |= wrong
            print(f"{name:32} {given_ms:9.2f} {ms:9.2f} {most_ms:8.2f} {gib:7.3f} {limit:7.3f} "
                  f"{pass_seconds(report, 'schedule'):7.2f} {seconds:6.2f}{'  ABOVE' if wrong else ''}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
