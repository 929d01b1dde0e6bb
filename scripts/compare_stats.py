#!/usr/bin/env python3
"""Show what a rewrite changed: compare_stats.py EPWEAVE BEFORE AFTER."""
import json
import subprocess
import sys

# What overlap is about: communication, the compute that hides it, and what chunking adds.
ROWS = [
    ("all_to_all_single", ["_c10d_functional.all_to_all_single.default"]),
    ("mm", ["aten.mm.default"]),
    ("_grouped_mm", ["aten._grouped_mm.default"]),
    ("split_with_sizes", ["aten.split_with_sizes.default"]),
    ("cat", ["aten.cat.default"]),
    ("add (part sums)", ["aten.add.Tensor"]),
    ("sum", ["aten.sum.dim_IntList"]),
]


def read_stats(epweave, path):
    return json.loads(subprocess.run([epweave, "stats", path, "--json"], check=True, stdout=subprocess.PIPE).stdout)


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    epweave, before_path, after_path = sys.argv[1:]
    before, after = read_stats(epweave, before_path), read_stats(epweave, after_path)
    rows = [("nodes", before["nodes"], after["nodes"])]
    for label, targets in ROWS:
        rows.append((label, *(sum(s["targets"].get(t, 0) for t in targets) for s in (before, after))))
    rows.append(("regions", len(before["regions"]), len(after["regions"])))
    rows.append(("exchanges in regions", *(sum(r["exchanges"] for r in s["regions"]) for s in (before, after))))
    print(f"{'':22}{'before':>9}{'after':>9}")
    for label, a, b in rows:
        print(f"{label:22}{a:>9}{b:>9}")
    print(f"{'with provenance':22}{before['provenance_coverage']:>9.0%}{after['provenance_coverage']:>9.0%}")
    print("\nwhat ran")
    for run in after["passes"]:
        options = "{" + run["options"] + "}" if run["options"] else ""
        print(f"  {run['nodes_before']:>6} -> {run['nodes_after']:<6} {run['name']}{options}")
    print(f"\nthe result: {after_path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
