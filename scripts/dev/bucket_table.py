#!/usr/bin/env python3
"""`bucket` beside torchtitan's bucketing pass, on each NAME.4_bucket dump (*.json.gz, format fx-dump-1) of a folder.

Starts from NAME.3_pg, or from the last stage before that was kept, with the passes between (isolate-ep-pg, dce, reassign-pgs) that
the dump says torchtitan ran. The two graphs are compared node by node in the order of execution: op, target, arguments,
types, module, labels, direction, chunk fields and the bucket that a node belongs to. Names may differ, of nodes and of
the process groups that were added; so may numbers that nothing reads (docs/differences.md), and what torch notes for debugging (bucketing_*_sources, from_node, stacks of modules).

  order      places at which another node stands; 0: the same graph
  verify     what `epweave verify A B` says of the stage before and our result
  numerics   how many outputs have which class
  seconds    `bucket` by itself, without verification (the fastest of --repeat runs), and torchtitan's

Prints a Markdown table. Exit code 1 if a graph differs or is not proved, 2 for a wrong command line.
"""
import argparse
import collections
import gzip
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONVERTER = ROOT / "scripts" / "epweave_fx.py"
REFERENCE = "joint_transformer_block_bucketing_reordering_pass"
STAGES = ("3_pg", "2_chunk_batch", "2_chunk_seq", "2_eagerchunk", "1b_remat")
OURS = {
    "isolate_ep_process_group_pass": "isolate-ep-pg",
    "eliminate_dead_code_pass": "dce",
    "reassign_collective_pgs_pass": "reassign-pgs",
}
META = ("val", "custom", "autograd_backward", "fsdp_bucket", "seq_nr", "recompute", "unbacked_bindings")
HEAD = ("graph", "from", "nodes", "order", "first difference", "verify", "numerics", "s", "torchtitan s")


def read_dump(path):
    with gzip.open(path) as file:
        return json.load(file)


def list_passes(before, after):
    """What ran between two dumps, but for the bucketing pass, by our names."""
    done = len(before["meta"]["passes_run"])
    names = [run["pass"] for run in after["meta"]["passes_run"][done:]]
    return [OURS[name] for name in names if name != REFERENCE]


def visit_names(value, visit):
    if isinstance(value, dict):
        if "n" in value:
            visit(value["n"])
        for item in value.values():
            visit_names(item, visit)
    elif isinstance(value, list):
        for item in value:
            visit_names(item, visit)


def drop_unread_numbers(ours, theirs):
    """Ours without numbers that nothing reads: torchtitan's dead-code elimination drops them, ours keeps those that types name."""
    used, names = set(), {n["name"] for n in theirs}
    for node in ours:
        visit_names([node["args"], node["kwargs"]], used.add)
    return [n for n in ours if n["name"] in used or n["name"] in names or n["target"] != "aten._local_scalar_dense.default"]


class Comparison:
    """Two graphs, up to names."""

    def __init__(self, ours, theirs):
        self.theirs = theirs["graphs"][""]["nodes"]
        self.ours = drop_unread_numbers(ours["graphs"][""]["nodes"], self.theirs)
        self.places = [{n["name"]: i for i, n in enumerate(nodes)} for nodes in (self.ours, self.theirs)]
        self.groups = {}  # ours -> theirs, as first met

    def find_differences(self):
        found = [abs(len(self.ours) - len(self.theirs))] if len(self.ours) != len(self.theirs) else []
        count, first = 0, ""
        for i, (x, y) in enumerate(zip(self.ours, self.theirs)):
            what = self.compare(x, y)
            if what:
                count += 1
                first = first or f"{i}: {x['name']} / {y['name']}: {what}"
        return count + sum(found), first

    def compare(self, x, y):
        if (x["op"], x["target"]) != (y["op"], y["target"]) and x["op"] != "placeholder":
            return f"{x['target']} / {y['target']}"
        for key in ("args", "kwargs"):
            if not self.same(x[key], y[key]):
                return f"{key} {json.dumps(x[key])[:160]} / {json.dumps(y[key])[:160]}"
        keys = {k for k in (*x["meta"], *y["meta"]) if k in META or k.startswith("chunk")}
        for key in sorted(keys):
            if x["meta"].get(key) != y["meta"].get(key):
                return f"{key} {json.dumps(x['meta'].get(key))[:160]} / {json.dumps(y['meta'].get(key))[:160]}"
        return ""

    def same(self, x, y):
        if isinstance(x, dict) and isinstance(y, dict):
            if "n" in x and "n" in y:
                return self.places[0].get(x["n"]) == self.places[1].get(y["n"])
            return x.keys() == y.keys() and all(self.same(x[k], y[k]) for k in x)
        if isinstance(x, list) and isinstance(y, list):
            return len(x) == len(y) and all(self.same(p, q) for p, q in zip(x, y))
        if isinstance(x, str) and isinstance(y, str) and x != y:
            return (x.endswith("_extra") or x in self.groups) and self.groups.setdefault(x, y) == y
        return x == y and isinstance(x, bool) == isinstance(y, bool)


class Tool:
    def __init__(self, epweave, folder):
        self.epweave, self.folder = epweave, folder

    def run(self, *words):
        return subprocess.run([self.epweave, *map(str, words)], capture_output=True, text=True, check=False)

    def rewrite(self, source, passes, target, *more):
        result = self.run("rewrite", source, "-p", ",".join(passes), "-o", target, *more)
        if result.returncode != 0:
            raise SystemExit(f"rewrite {source} {passes}: exit {result.returncode}: {result.stderr.strip()}")
        return result

    def load(self, dump):
        path = self.folder / (dump.name.removesuffix(".json.gz") + ".epw")
        subprocess.run([sys.executable, CONVERTER, "from-dump", dump, path], check=True)
        return path

    def measure(self, source, target, repeat):
        seconds = []
        for _ in range(repeat):
            text = self.rewrite(source, ["bucket"], target, "--time-passes", "--verify", "off").stderr
            seconds.append(float(re.search(r"^bucket\s+([0-9.]+)", text, re.M).group(1)) / 1000)
        return min(seconds)


def find_source(folder, name):
    for stage in STAGES:
        path = folder / f"{name}.{stage}.json.gz"
        if path.exists():
            return path
    raise SystemExit(f"{folder}: there is no stage before {name}.4_bucket")


def judge(tool, before, after):
    result = tool.run("verify", before, after, "--json")
    report = json.loads(result.stdout)
    if result.returncode != 0:
        violations = report.get("violations") or report.get("rewrite", {}).get("violations") or []
        first = violations[0] if violations else report
        return f"{len(violations)} violations: {json.dumps(first)[:200]}", ""
    outputs = report.get("outputs") or report.get("rewrite", {}).get("outputs") or []
    classes = collections.Counter(output["numerics"] for output in outputs)
    return "proved", ", ".join(f"{n} {name}" for name, n in sorted(classes.items()))


def compare_one(tool, folder, name, repeat):
    source, reference = find_source(folder, name), folder / f"{name}.4_bucket.json.gz"
    theirs = read_dump(reference)
    between = list_passes(read_dump(source), theirs)
    start = tool.load(source)
    if between:
        prepared = tool.folder / f"{name}.prepared.epw"
        tool.rewrite(start, between, prepared)
        start = prepared
    result = tool.folder / f"{name}.bucket.epw"
    tool.rewrite(start, ["bucket"], result)
    seconds = tool.measure(start, tool.folder / "timed.epw", repeat)
    dumped = tool.folder / f"{name}.bucket.json.gz"
    subprocess.run([sys.executable, CONVERTER, "to-dump", result, dumped], check=True)
    count, first = Comparison(read_dump(dumped), theirs).find_differences()
    verdict, classes = judge(tool, start, result)
    reference_seconds = [run["seconds"] for run in theirs["meta"]["passes_run"] if run["pass"] == REFERENCE][0]
    nodes = f"{len(theirs['graphs']['']['nodes'])}"
    stage = source.name.removesuffix(".json.gz").removeprefix(name + ".")
    row = (name, "+".join([stage, *between]), nodes, count, first, verdict, classes, f"{seconds:.3f}", f"{reference_seconds:.2f}")
    return row, count == 0 and verdict == "proved"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="graphs (default: all)")
    parser.add_argument("--epweave", default=ROOT / "build" / "release" / "bin" / "epweave", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the files that are made")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    names = options.names or sorted(p.name.removesuffix(".4_bucket.json.gz") for p in options.folder.glob("*.4_bucket.json.gz"))
    if not names:
        parser.error(f"{options.folder}: there is no *.4_bucket.json.gz")
    good = True
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        tool = Tool(options.epweave, folder)
        for name in names:
            row, is_good = compare_one(tool, options.folder, name, options.repeat)
            good = good and is_good
            print("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
