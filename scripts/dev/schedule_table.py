#!/usr/bin/env python3
"""How overlap-ep schedules each dump (*.json.gz, format fx-dump-1) of a folder, beside torchtitan.

For each graph with token exchanges, from its stage 1b_remat (2_eagerchunk where PyTorch chunked it in eager
mode), with the roots and the dimension that its run.json says torchtitan was given:

  regions, exchanges   of the scheduled graph
  exposed              exchanges that nothing runs under, before overlap-ep and after
  light                those without a matrix product under them, after
  under one            kernels, and flops, under an exchange alone: the least and the median
  wait to use          nodes between the wait of an exchange and the first node that takes its value: the most
  order                nodes that overlap-ep places elsewhere than torchtitan's 5_schedule, among those that both
                       have; from the stage before, which torchtitan chunked
  seconds              chunk, isolate-ep-pg, overlap-ep and concretize: ours (the fastest of --repeat runs, without
                       verification) and torchtitan's (run.json)

Prints a Markdown table. Exit code 1 if an order differs, 2 for a wrong command line.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONVERTER = ROOT / "scripts" / "epweave_fx.py"
EXCHANGE = "_c10d_functional.all_to_all_single.default"
PASSES = ("chunk", "isolate-ep-pg", "overlap-ep", "concretize")
REFERENCE_PASSES = (
    "ep_overlap_chunk_pass",
    "isolate_ep_process_group_pass",
    "ep_overlap_schedule_pass",
    "concretize_ep_chunk_symbolic_shapes_pass",
)
HEAD = ("graph", "regions", "exchanges", "exposed", "light", "under one: kernels", "flops", "wait to use", "order", "s", "torchtitan s")


class Declined(Exception):
    """Why a pass declined a graph."""


class Tool:
    """The epweave program and a folder for its files."""

    def __init__(self, epweave, folder):
        self.epweave, self.folder = epweave, folder

    def run(self, *words):
        result = subprocess.run([self.epweave, *map(str, words)], capture_output=True, text=True, check=False)
        if result.returncode == 4:
            raise Declined(result.stderr.splitlines()[0].split(".epw: ")[-1])
        if result.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, words))}: exit {result.returncode}: {result.stderr.strip()}")
        return result

    def load(self, dump):
        path = self.folder / (dump.name.removesuffix(".json.gz") + ".epw")
        subprocess.run([sys.executable, CONVERTER, "from-dump", dump, path], check=True)
        return path

    def rewrite(self, graph, pipeline):
        path = self.folder / "rewritten.epw"
        self.run("rewrite", graph, "-p", pipeline, "--verify", "off", "-q", "-o", path)
        return path

    def seconds(self, graph, pipeline):
        words = ("rewrite", graph, "-p", pipeline, "--verify", "off", "--time-passes", "-o", "/dev/null")
        rows = [line.split() for line in self.run(*words).stderr.splitlines()]
        return sum(float(row[1]) for row in rows if len(row) > 1 and row[0] in PASSES) / 1000

    def overlap(self, graph):
        return json.loads(self.run("overlap", graph, "--json").stdout)

    def nodes(self, graph):
        return json.loads(self.run("print", graph, "--json").stdout)["nodes"]


def quote(number):
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:g}"


def options_of(run):
    """Roots and dimension that torchtitan's passes were given."""
    options = {"module_pattern": "layers.*.moe", "mode": "batch"}
    for step in run["passes"]:
        options.update({key: value.strip("'") for key, value in step.get("options", {}).items()})
    return options["module_pattern"], options["mode"]


def longest_wait(nodes, waits):
    place = {node["name"]: at for at, node in enumerate(nodes)}
    first_use = {}
    for at, node in enumerate(nodes):
        for name in node["inputs"]:
            first_use.setdefault(name, at)
    return max(first_use[wait] - place[wait] - 1 for wait in waits)


def count_misplaced(tool, folder, name, roots):
    """Nodes of torchtitan's schedule at other places than in ours; none where it has no schedule."""
    reference = folder / f"{name}.5_schedule.json.gz"
    if not reference.exists():
        return None
    bucketed = folder / f"{name}.4_bucket.json.gz"
    before = bucketed if bucketed.exists() else folder / f"{name}.3_pg.json.gz"
    ours = [node["name"] for node in tool.nodes(tool.rewrite(tool.load(before), f"overlap-ep{{roots={roots}}}"))]
    theirs = [node["name"] for node in tool.nodes(tool.load(reference))]
    # Without buckets torchtitan removes dead code between the two stages.
    common = set(ours) & set(theirs)
    pairs = zip((name for name in ours if name in common), (name for name in theirs if name in common))
    return sum(a != b for a, b in pairs), len(common)


def reference_time(steps):
    failed = [step["pass"] for step in steps if "seconds" not in step]
    if failed:
        return f"{failed[0]} fails"
    return f"{sum(step['seconds'] for step in steps):.1f}" if steps else ""


def prepare(tool, folder, name, roots, dim):
    """The graph to schedule and the pipeline up to the schedule; none where there is no token exchange."""
    eager = folder / f"{name}.2_eagerchunk.json.gz"
    graph = tool.load(eager if eager.exists() else folder / f"{name}.1b_remat.json.gz")
    if EXCHANGE not in json.loads(tool.run("stats", graph, "--json").stdout)["targets"]:
        return None
    if eager.exists():
        return graph, "isolate-ep-pg"
    inputs = [node for node in tool.nodes(graph) if node["op"] == "placeholder"]
    # Traced with numbers for sizes: symbolize first.
    is_static = all(isinstance(size, int) for node in inputs for size in (node["type"] or {}).get("shape", ()))
    return graph, ("symbolize," if is_static else "") + f"chunk{{roots={roots},dim={dim}}},isolate-ep-pg,dce"


def describe(tool, folder, name, repeat):
    run = json.loads((folder / f"{name}.run.json").read_text())
    roots, dim = options_of(run)
    prepared = prepare(tool, folder, name, roots, dim)
    if prepared is None:
        return None
    graph, chunked = prepared
    scheduled = f"{chunked},overlap-ep{{roots={roots}}},concretize"
    try:
        before = tool.overlap(tool.rewrite(graph, chunked))
        result = tool.rewrite(graph, scheduled)
    except Declined as error:
        return [f"`{name}` {roots} {dim}", f"declined: {error}"]
    after = tool.overlap(result)
    exchanges = [exchange for region in after["regions"] for exchange in region["exchanges"]]
    kernels = [exchange["alone"]["kernels"] for exchange in exchanges]
    flops = [exchange["alone"]["flops"] for exchange in exchanges]
    waits = longest_wait(tool.nodes(result), [exchange["wait"] for exchange in exchanges])
    misplaced = count_misplaced(tool, folder, name, roots)
    seconds = min(tool.seconds(graph, scheduled) for _ in range(repeat))
    reference = [step for step in run["passes"] if step["pass"] in REFERENCE_PASSES]
    return [
        f"`{name}` {roots} {dim}",
        len(after["regions"]),
        after["exchanges"],
        f"{before['exposed']} → {after['exposed']}",
        after["light"],
        f"{min(kernels)}, {statistics.median(kernels):g}",
        f"{quote(min(flops))}, {quote(statistics.median(flops))}",
        waits,
        "" if misplaced is None else f"{misplaced[0]} of {misplaced[1]:,}",
        f"{seconds:.3f}",
        reference_time(reference),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="only these graphs")
    parser.add_argument("--epweave", default=str(ROOT / "build/release/bin/epweave"))
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    names = args.names or sorted(path.name.removesuffix(".run.json") for path in args.folder.glob("*.run.json"))
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    differs = False
    with tempfile.TemporaryDirectory() as temporary:
        tool = Tool(args.epweave, pathlib.Path(temporary))
        for name in names:
            row = describe(tool, args.folder, name, args.repeat)
            if row is None:
                continue
            differs = differs or str(row[8] if len(row) > 8 else "").startswith(tuple("123456789"))
            print("| " + " | ".join(map(str, row)) + " |", flush=True)
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
