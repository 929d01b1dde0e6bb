#!/usr/bin/env python3
"""Compare chunk{grad-accumulation=eager,join=regions} with what torchtitan traces when it chunks in eager mode.

    scripts/dev/compare_eager_chunking.py FOLDER             Markdown: the tables of docs/eager_chunking.md
    scripts/dev/compare_eager_chunking.py FOLDER --replay    ... and the bits of both, on all ranks

FOLDER holds NAME.1b_remat and NAME_eagerchunk.2_eagerchunk, or NAME_eagerchunk.1b_remat (.epw or .epw.gz; "_eagerchunk" and
"_eagerchunk_block" may stand anywhere in the name), traces of the same model on the same mesh. For each such pair the plain
trace is chunked, by the same modules, and compared with the eager one:

  regions      the calls of each module and direction, counted by operator: which are in one of the two only
  gradients    of each parameter of a chunked module, the calls from the product that makes it to the output of the step,
               with the part of each product: where are the casts, reductions and sums, and in which order
  replay       every output of both graphs on every rank, by name, as hashes

Wrong is: a region of one only; another number of calls that take what depends on the tokens and are no views, cuts or
sizes (what weights alone go through, an eager run may do for each part again); a gradient that is made by other calls or in
another order; an output with other bits.
Exit codes: 0 nothing wrong, 1 something is, 2 usage.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import epweave_fx  # noqa: E402

CHUNK = "chunk{roots=ROOTS,grad-accumulation=eager,join=regions}"  # ROOTS: the modules that the eager trace has in parts
# Calls that run no kernel: an eager run cuts gradients by slices, and has plain numbers for sizes.
FREE = {
    "aten.t.default", "aten.transpose.int", "aten.unsqueeze.default", "aten.alias.default", "aten.reshape.default",
    "aten.view.default", "aten.split_with_sizes.default", "aten.slice.Tensor", "operator.getitem",
    "aten.sym_size.int", "operator.mul", "operator.floordiv", "operator.add", "operator.sub",
}
SHOWN = [  # of which operators the table shows counts
    ("mm", "aten.mm.default"), ("grouped mm", "aten._grouped_mm.default"),
    ("exchanges", "_c10d_functional.all_to_all_single.default"),
    ("gathers", "_c10d_functional.all_gather_into_tensor.default"),
    ("reduce-scatters", "_c10d_functional.reduce_scatter_tensor.default"), ("casts", "aten._to_copy.default"),
    ("adds", "aten.add.Tensor"), ("cats", "aten.cat.default"),
]
# Where the way from a gradient back to its product ends.
PRODUCTS = {"aten.mm.default": "mm", "aten._grouped_mm.default": "grouped_mm"}


def list_references(value):
    kind, content = value
    if kind == "node":
        yield content
    elif kind in ("list", "tuple"):
        for item in content:
            yield from list_references(item)


def list_inputs(node):
    values = [*node.get("args", ()), *(keyword["value"] for keyword in node.get("kwargs", ()))]
    return [name for value in values for name in list_references(value)]


class Step:
    """The nodes of a chunked step, by region: (module, direction)."""

    def __init__(self, path):
        file = epweave_fx.read_file(str(path))
        self.nodes = {node["name"]: node for node in file["graphs"][0]["nodes"]}
        self.outputs = file["outputs"]
        self.of_tokens = {entry["name"] for entry in file["inputs"] if entry.get("role") == "user"}
        self.roots = {node["chunk"]["region"] for node in self.nodes.values() if node.get("chunk")}
        self.region, self.part = {}, {}
        for node in self.nodes.values():
            self.place(node)

    def place(self, node):
        """A region has what is marked, what its module runs for all parts, and gradients that autograd adds up there."""
        if self.of_tokens.intersection(list_inputs(node)):
            self.of_tokens.add(node["name"])
        if node.get("kind", "CALL") != "CALL":
            return
        chunk, module, backward = node.get("chunk", {}), node.get("module") or "", node.get("backward", False)
        name = node["name"]
        if chunk:
            self.region[name] = (chunk["region"], chunk.get("backward", backward))
            self.part[name] = chunk.get("part")
        elif module:
            root = next((root for root in self.roots if f"{module}.".startswith(f"{root}.")), None)
            if root:
                self.region[name] = (root, backward)
        elif backward:
            of_inputs = {self.region.get(i) for i in list_inputs(node)}
            cuts = {self.nodes[i].get("chunk", {}).get("role") == "split_boundary" for i in list_inputs(node)}
            if len(of_inputs) == 1 and None not in of_inputs and True not in cuts:
                self.region[name] = of_inputs.pop()

    def pattern_of_roots(self):
        """layers.1.moe, layers.2.moe -> layers.*.moe"""
        patterns = {".".join("*" if part.isdecimal() else part for part in root.split(".")) for root in self.roots}
        return "[" + ",".join(sorted(patterns)) + "]"

    def count_calls(self, names=None):
        counts = collections.defaultdict(collections.Counter)
        for name, region in self.region.items():
            if names is None or name in names:
                counts[region][self.nodes[name]["target"]] += 1
        return counts

    def list_gradients(self):
        """Parameter -> how its gradient is made, for parameters of chunked modules."""
        returned = list_references(self.nodes["output"]["args"][0])
        gradients = {}
        for name, output in zip(returned, self.outputs):
            fqn = output.get("fqn", "")
            if output["role"] != "grad" or self.nodes[name].get("kind", "CALL") != "CALL":
                continue
            if any(fqn.startswith(f"{root}.") for root in self.roots):
                gradients[fqn] = self.describe(name)
        return gradients

    def describe(self, name):
        calls = []
        while True:
            node = self.nodes[name]
            if node["target"] in PRODUCTS:
                return " -> ".join([f"{PRODUCTS[node['target']]}[{self.part.get(name)}]", *reversed(calls)])
            inputs = [i for i in list_inputs(node) if self.nodes[i].get("kind", "CALL") == "CALL"]
            if node["target"] == "aten.add.Tensor" and len(inputs) == 2:
                terms = " + ".join(f"({self.describe(i)})" for i in inputs)
                return " -> ".join([f"[{terms}]", *reversed(calls)])
            if len(inputs) != 1:
                return " -> ".join([node["target"], *reversed(calls)])
            if node["target"] not in FREE:
                calls.append(shorten(node["target"]) + print_dtype(node))
            name = inputs[0]


def shorten(target):
    if target.startswith("operator."):
        return target
    return target.rsplit(".", 1)[0].rsplit(".", 1)[-1].lstrip("_").removesuffix("_tensor")


def print_dtype(node):
    kind, content = node.get("type") or ("", {})
    is_cast = node["target"] == "aten._to_copy.default"
    return f" {content['dtype'].removeprefix('torch.')}" if is_cast and kind == "tensor" else ""


def compare_regions(ours, theirs):
    counts_a, counts_b = ours.count_calls(), theirs.count_calls()
    essential_a, essential_b = (step.count_calls(step.of_tokens) for step in (ours, theirs))
    problems, rows = [], collections.defaultdict(list)
    names = [name for name, _ in SHOWN]
    print(f"| regions | direction | {' | '.join(names)} | all | differ |")
    print(f"|---|---|{'---|' * (len(names) + 2)}")
    for region in sorted(counts_a.keys() | counts_b.keys()):
        a, b = counts_a[region], counts_b[region]
        differing = {t: (a[t], b[t]) for t in sorted(a.keys() | b.keys()) if a[t] != b[t]}
        title = f"{region[0]} {'backward' if region[1] else 'forward'}"
        essential = (essential_a[region], essential_b[region])
        problems += [f"{title}: {t} {essential[0][t]}, eager {essential[1][t]}" for t in differing
                     if t not in FREE and essential[0][t] != essential[1][t]]
        if not a or not b:
            problems.append(f"{title}: in one of the graphs only")
        cells = [str(a[t]) if a[t] == b[t] else f"{a[t]}, {b[t]}" for _, t in SHOWN]
        others = "; ".join(f"`{shorten(t)}` {x}, {y}" for t, (x, y) in differing.items())
        rows[f"{'backward' if region[1] else 'forward'} | {' | '.join(cells)} | {a.total()}, {b.total()} | {others} |"].append(
            f"`{region[0]}`")
    for row, regions in rows.items():
        print(f"| {', '.join(regions)} | {row}")
    return problems


def compare_gradients(ours, theirs):
    a, b = ours.list_gradients(), theirs.list_gradients()
    problems = [f"gradient of {fqn}: {a.get(fqn)}, eager {b.get(fqn)}"
                for fqn in sorted(a.keys() | b.keys()) if a.get(fqn) != b.get(fqn)]
    print("| gradients | made by |\n|---|---|")
    for made_by, count in sorted(collections.Counter(a.values()).items(), key=lambda item: -item[1]):
        print(f"| {count} | `{made_by}` |")
    print(f"\n{sum(a.get(fqn) == made_by for fqn, made_by in b.items())} of {len(b)} gradients are made by the same calls in "
          "the same order.")
    return problems


def read_bits(replay, path):
    done = subprocess.run([str(replay), "run", "--json", "--quiet", str(path)], stdout=subprocess.PIPE, check=True)
    return {(rank["rank"], result["name"]): result["hash"]
            for rank in json.loads(done.stdout)["ranks"] for result in rank["results"]}


def compare_bits(bin_folder, ours, theirs):
    a, b = (read_bits(bin_folder / "epweave-replay", path) for path in (ours, theirs))
    differing = [key for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]
    print(f"\nReplay: {len(a) - len(differing)} of {len(b)} outputs (loss, gradients, buffers, of "
          f"{len({rank for rank, _ in b})} ranks) have the same bits.")
    return [f"rank {rank}: {name} has other bits" for rank, name in differing]


def find_pairs(folder):
    """The plain and the eager trace; the latter as late in torchtitan's passes as there is."""
    latest = {}
    for stage in ("1b_remat", "2_eagerchunk"):
        for eager in sorted(folder.glob(f"*_eagerchunk*.{stage}.epw*")):
            latest[eager.name.split(".")[0]] = eager
    for name, eager in sorted(latest.items()):
        for plain in folder.glob(f"{re.sub('_eagerchunk(_block)?', '', name)}.1b_remat.epw*"):
            yield name, plain, eager


def compare(args, folder):
    problems = []
    for name, plain, eager in find_pairs(args.folder):
        chunked = pathlib.Path(folder) / f"{name}.ours.epw"
        tool = str(args.bin / "epweave")
        marked = pathlib.Path(folder) / f"{name}.marked.epw"
        subprocess.run([tool, "rewrite", str(eager), "-p", "mark-eager-chunks", "-q", "-o", str(marked)], check=True)
        theirs = Step(marked)
        pipeline = args.pipeline.replace("ROOTS", theirs.pattern_of_roots())
        subprocess.run([tool, "rewrite", str(plain), "-p", pipeline, "-q", "-o", str(chunked)], check=True)
        subprocess.run([tool, "verify", str(plain), str(chunked)], check=True, stdout=subprocess.DEVNULL)
        ours = Step(chunked)
        title = plain.name.split(".epw")[0]
        print(f"## `{title}` by `{pipeline}`, and `{eager.name.split('.epw')[0]}`\n")
        print(f"{len(ours.nodes):,} nodes, eager {len(theirs.nodes):,}.\n")
        found = compare_regions(ours, theirs)
        print()
        found += compare_gradients(ours, theirs)
        if args.replay:
            found += compare_bits(args.bin, chunked, eager)
        print()
        problems += [f"{name}: {problem}" for problem in found]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="where the programs are")
    parser.add_argument("--pipeline", default=CHUNK, help=f"what chunks the plain trace (default: {CHUNK})")
    parser.add_argument("--replay", action="store_true", help="execute both graphs, too")
    args = parser.parse_args()
    if not any(find_pairs(args.folder)):
        parser.error(f"{args.folder} has no plain trace beside an eager one")
    with tempfile.TemporaryDirectory() as folder:
        problems = compare(args, folder)
    for problem in problems:
        print(f"WRONG: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
