#!/usr/bin/env python3
"""What `schedule` reaches on real graphs, judged from outside.

    python3 scripts/dev/overlap_table.py --graphs DIR [--graphs DIR2] --judge JUDGE.py [--effort fast|best] [--only TEXT]

Dumps (fx-dump-1) are looked for in each DIR; rows whose dump is in none are named and left out (trace_held_out.py makes
two of them). Without --effort each row has the least with which it reaches its limits. A row rewrites its dump with a
pipeline, writes the result as a dump again, and lets the judge price and simulate that: a program that shares no code
with epweave. Prints makespan and peak beside what they may be at most, the time of the pass `schedule` alone and of the
whole command, and exits 1 where a row is above its limits or `verify A B` finds the schedule no legal order.
"""
import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
NORM = "dce,canonicalize,dedup-unshard"
WHOLE = f"{NORM},isolate-ep-pg{{counts=own}}"
GIB = 2 ** 30


def chunked(options):
    return f"{NORM},chunk{{{options}}},bypass-joins,isolate-ep-pg{{counts=own}},dce"


BLOCKS = "roots=[layers.*,norm],dense=true,parts=2"


class Row(typing.NamedTuple):
    name: str
    dump: str
    passes: str  # in front of schedule
    searched: str  # options of schedule
    effort: str  # the least that reaches the limits
    most_ms: float
    most_gib: typing.Optional[float]  # by the judge; none: 2 % above what it says of the given graph
    gpus_per_node: int = 8
    nic: float = 50e9
    judged: bool = True  # not: the judge takes each symbol of a concretised graph to be 8192, so `simulate` prices it

    def cluster(self):
        return f"h100+gpus_per_node={self.gpus_per_node}+nic={self.nic}"


# torchtitan's blocks: the judge counts 1.6 GiB less than epweave, views whose sizes nodes compute
# (docs/overlap.md).
ROWS = [
    Row("16B 2x4, independent", "dsv3_16b_ep8.1b_remat", chunked(f"{BLOCKS},attention=independent"), "memory=47.6GiB", "fast", 900,
        47.6, gpus_per_node=4),
    Row("16B 2x4, prefix", "dsv3_16b_ep8.1b_remat", chunked(f"{BLOCKS},attention=prefix"), "memory=48.5GiB", "fast", 920, 48.5,
        gpus_per_node=4),
    Row("16B 2x4, joined between layers", "dsv3_16b_ep8.1b_remat",
        f"{NORM},chunk{{roots=layers.*,parts=2}},isolate-ep-pg{{counts=own}},dce", "memory=47.6GiB", "fast", 963, 47.6,
        gpus_per_node=4),
    Row("16B 2x4, torchtitan's blocks", "dsv3_16b_ep8_block.4_bucket", "", "memory=49.2GiB,recompute=free", "best", 961, 47.6,
        gpus_per_node=4),
    Row("16B 2x4, moe", "dsv3_16b_ep8.1b_remat", chunked("roots=layers.*.moe,parts=2"), "memory=47.6GiB", "fast", 974, 47.6,
        gpus_per_node=4),
    Row("16B 2x4, bucketed, order only", "dsv3_16b_ep8.4_bucket", "", "memory=47.65GiB", "best", 981, 47.65, gpus_per_node=4),
    Row("16B one node", "dsv3_16b_ep8.1b_remat", WHOLE, "memory=47.6GiB", "fast", 879, 47.6),
    Row("671B, independent", "dsv3_671b_ep64.1b_remat", chunked(f"{BLOCKS},attention=independent"), "memory=410GiB", "fast", 12000,
        410),
    Row("671B, torchtitan's, order only", "dsv3_671b_ep64.6_concrete", "", "memory=410GiB", "best", 13290, 410, judged=False),
    Row("llama3 8B, 32.1", "llama3_8b_fsdp8.1b_remat", NORM, "memory=32.1GiB", "fast", 809, 32.1),
    Row("llama3 8B, 33.8", "llama3_8b_fsdp8.1b_remat", NORM, "memory=33.8GiB", "best", 802, 33.8),
    Row("llama3 405B, nic=400e9", "llama3_405b_fsdp64_tp8.1b_remat", NORM, "memory=50.5GiB", "fast", 4550, 50.5, nic=400e9),
    Row("llama3 debug TP, order only", "llama3_debug_fsdp2_tp2.4_bucket", "", "memory=2%", "fast", 2.70, None),
    Row("qwen3 debug", "qwen3_moe_ep2.1b_remat", WHOLE, "memory=2%", "fast", 10.2, None),
]


def list_rows(folders, only):
    """The rows whose dump is in one of the folders, each with its path."""
    for row in ROWS:
        if only not in row.name:
            continue
        dumps = [path for folder in folders if (path := folder / f"{row.dump}.json.gz").exists()]
        if dumps:
            yield row, dumps[0]
        else:
            print(f"{row.name}: not run, there is no {row.dump}.json.gz", file=sys.stderr)


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


def simulate(epweave, graph, cluster):
    done = subprocess.run([epweave, "simulate", graph, "--cluster", cluster, "--json"], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    return report["makespan_ms"], report["peak_bytes"] / GIB


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=pathlib.Path, required=True, action="append")
    parser.add_argument("--judge", type=pathlib.Path, required=True)
    parser.add_argument("--epweave", default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--effort", choices=("fast", "best"), help="of all rows")
    parser.add_argument("--only", default="", help="rows whose name has this")
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("judge", options.judge)
    judge = importlib.util.module_from_spec(spec)
    sys.modules["judge"] = judge
    spec.loader.exec_module(judge)
    fx = [sys.executable, ROOT / "scripts/epweave_fx.py"]
    print(f"{'graph':32} {'effort':6} {'given':>9} {'result':>9} {'most':>8} {'peak':>7} {'most':>7} {'pass s':>7} {'all s':>6}")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        source, before, after, out = (work / f for f in ("source.epw", "before.epw", "after.epw", "after.json.gz"))
        for row, dump in list_rows(options.graphs, options.only):
            effort = options.effort or row.effort
            settings = {"gpus_per_node": row.gpus_per_node, "nic": row.nic}
            run([*fx, "from-dump", dump, source])
            run([options.epweave, "rewrite", source, "-p", row.passes or "dce", "-o", before])
            schedule = f"schedule{{cluster={row.cluster()},{row.searched},effort={effort}}}"
            report, seconds = run([options.epweave, "rewrite", before, "-p", schedule, "-o", after, "--time-passes",
                                   "--verify", "off"])
            run([options.epweave, "verify", before, after])
            values = []
            for graph in (before, after):
                if row.judged:
                    run([*fx, "to-dump", graph, out])
                    values.append(judge_dump(judge, out, settings))
                else:
                    values.append(simulate(options.epweave, graph, row.cluster()))
            (given_ms, given_gib), (ms, gib) = values
            limit = row.most_gib or given_gib * 1.02
            wrong = ms > row.most_ms or gib > limit
            failed |= wrong
            print(f"{row.name:32} {effort:6} {given_ms:9.2f} {ms:9.2f} {row.most_ms:8.2f} {gib:7.3f} {limit:7.3f} "
                  f"{pass_seconds(report, 'schedule'):7.2f} {seconds:6.2f}{'' if row.judged else '  by simulate'}{'  ABOVE' if wrong else ''}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
