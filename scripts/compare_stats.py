#!/usr/bin/env python3
"""Show what a rewrite changed: counts of two graphs side by side, and the passes between them."""
import argparse
import collections
import json
import subprocess
import sys

# Communication, and the compute that hides it.
TARGETS = [
    ("all_to_all_single", "_c10d_functional.all_to_all_single.default"),
    ("mm", "aten.mm.default"),
    ("_grouped_mm", "aten._grouped_mm.default"),
]
# What chunking puts at the border of a region: (chunk role, target).
BORDER = [
    ("splits into parts", ("split_boundary", "aten.split_with_sizes.default")),
    ("cats of parts", ("materialization", "aten.cat.default")),
    ("sums of parts", ("materialization", "aten.add.Tensor")),
]


def read_json(epweave, command, path):
    result = subprocess.run([epweave, command, path, "--json"], check=False, stdout=subprocess.PIPE)
    if result.returncode:
        sys.exit(result.returncode)  # the program has said why
    return json.loads(result.stdout)


def count_border(epweave, path):
    nodes = read_json(epweave, "print", path)["nodes"]
    return collections.Counter((node["chunk"]["role"], node["target"]) for node in nodes if node["chunk"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("epweave", metavar="EPWEAVE", help="the program")
    parser.add_argument("before", metavar="BEFORE", help="graph that was rewritten")
    parser.add_argument("after", metavar="AFTER", help="what epweave rewrite made of it")
    options = parser.parse_args()
    epweave, paths = options.epweave, [options.before, options.after]
    stats = [read_json(epweave, "stats", path) for path in paths]
    border = [count_border(epweave, path) for path in paths]

    rows = [("nodes", *(s["nodes"] for s in stats))]
    rows += [(label, *(s["targets"].get(target, 0) for s in stats)) for label, target in TARGETS]
    rows += [("regions", *(len(s["regions"]) for s in stats)),
             ("exchanges in regions", *(sum(region["exchanges"] for region in s["regions"]) for s in stats))]
    rows += [(label, *(counts[key] for counts in border)) for label, key in BORDER]
    rows += [("with provenance", *(f"{s['provenance_coverage']:.0%}" for s in stats))]
    print(f"{'':24}{'before':>9}{'after':>9}")
    for label, before, after in rows:
        print(f"{label:24}{before:>9}{after:>9}")

    print("\nwhat ran, with the number of nodes before and after")
    for run in stats[1]["passes"]:
        options = "{" + run["options"] + "}" if run["options"] else ""
        print(f"  {run['nodes_before']:>6} -> {run['nodes_after']:<6} {run['name']}{options}")
    print(f"\nthe result: {paths[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
