#!/usr/bin/env python3
"""How much of what `schedule` gains stays when the step meets other costs than it was scheduled for.

    python3 scripts/dev/sensitivity_table.py --graphs DIR [--epweave BIN] [--effort fast|best] [--only TEXT]

The rows are those of overlap_table.py, scheduled for their cluster as it is. Then the graph in front of `schedule` and
the scheduled one are both simulated on other clusters. Prints a Markdown table: how much shorter the scheduled step is,
in percent of the step in front of it; negative where it is longer.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from overlap_table import ROOT, list_rows, run

CONDITIONS = [
    ("as made for", []),
    ("compute -30 %", ["compute_scale=0.7"]),
    ("compute +30 %", ["compute_scale=1.3"]),
    ("comm. -30 %", ["comm_scale=0.7"]),
    ("comm. +30 %", ["comm_scale=1.3"]),
    ("`nic` halved", ["nic={half_nic}"]),
    ("`host_us=10`", ["host_us=10"]),
    ("`host_us=34`", ["host_us=34"]),
    ("contention", ["compute_rate=0.8", "comm_rate=0.9"]),
    ("shared links", ["share_links=1"]),
]


def simulate(epweave, graph, row, changes):
    command = [epweave, "simulate", graph, "--cluster", row.cluster(), "--json"]
    for change in changes:
        command += ["--set", change.format(half_nic=row.nic / 2)]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)["makespan_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=pathlib.Path, required=True, action="append")
    parser.add_argument("--epweave", default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--effort", default="fast", choices=("fast", "best"))
    parser.add_argument("--only", default="", help="rows whose name has this")
    options = parser.parse_args()
    fx = [sys.executable, ROOT / "scripts/epweave_fx.py"]
    print("| graph | " + " | ".join(name for name, _ in CONDITIONS) + " |")
    print("|---" * (len(CONDITIONS) + 1) + "|")
    with tempfile.TemporaryDirectory() as folder:
        source, before, after = (pathlib.Path(folder) / f for f in ("source.epw", "before.epw", "after.epw"))
        for row, dump in list_rows(options.graphs, options.only):
            run([*fx, "from-dump", dump, source])
            run([options.epweave, "rewrite", source, "-p", row.passes or "dce", "-o", before, "--verify", "off"])
            schedule = f"schedule{{cluster={row.cluster()},{row.searched},effort={options.effort}}}"
            run([options.epweave, "rewrite", before, "-p", schedule, "-o", after, "--verify", "off"])
            cells = []
            for _, changes in CONDITIONS:
                given, found = (simulate(options.epweave, graph, row, changes) for graph in (before, after))
                cells.append(f"{round(100 * (1 - found / given), 1) + 0.0:.1f}")  # no -0.0
            print(f"| {row.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
