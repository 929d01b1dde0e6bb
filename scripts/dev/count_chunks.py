#!/usr/bin/env python3
"""Count what chunking adds to real graphs, beside torchtitan's own result: the table of docs/chunking.md, part 6.

    scripts/dev/count_chunks.py FOLDER     FOLDER holds NAME.1b_remat and, for the comparison, NAME.2_chunk_batch or
                                       NAME.2_chunk_seq (.epw or .epw.gz); rows whose graph is missing are left out

Nodes are counted after dead-code elimination; splits, cats and sums are those that cut values into parts and rejoin them.
"needless" is how many nodes dead-code elimination removes from our result (from torchtitan's in brackets).
Exit codes: 0 fine, 1 a graph cannot be chunked or something is needless, 2 usage.
"""
import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import epweave_fx  # noqa: E402

ROWS = [  # graph, passes before chunk, options of chunk, stage of torchtitan's result
    ("dsv3_debug_ep2", "", "", "2_chunk_batch"),
    ("dsv3_debug_ep2", "", "grad-accumulation=eager", None),
    ("dsv3_debug_ep2", "", "parts=3", None),
    ("dsv3_debug_ep2", "", "parts=4", None),
    ("dsv3_debug_ep4", "", "", "2_chunk_batch"),
    ("dsv3_debug_ep2_full", "", "", "2_chunk_batch"),
    ("dsv3_debug_ep2_static", "symbolize", "", None),
    ("dsv3_debug_fsdp2_tp2_ep4", "symbolize", "", None),
    ("dsv3_debug_fsdp2_tp2_ep4", "symbolize", "roots=layers.*", None),
    ("dsv3_debug_ep2_seq_r030", "", "dim=seq", "2_chunk_seq"),
    ("qwen3_moe_ep2", "", "", "2_chunk_batch"),
    ("dsv3_16b_ep8", "", "", "2_chunk_batch"),
    ("dsv3_671b_ep64", "", "", None),
    ("dsv3_debug_ep2_block", "", "roots=layers.*", None),
    ("dsv3_debug_ep2_block", "", "roots=layers.*,attention=independent", "2_chunk_batch"),
    ("dsv3_debug_ep2_block", "", "roots=layers.*,attention=independent,join=regions", "2_chunk_batch"),
]


class Counts:
    def __init__(self, nodes):
        border = collections.Counter(
            (node["chunk"]["role"], node["target"]) for node in nodes if node.get("chunk"))
        self.nodes = len(nodes)
        self.splits = border["split_boundary", "aten.split_with_sizes.default"]
        self.cats = border["materialization", "aten.cat.default"]
        self.sums = border["materialization", "aten.add.Tensor"]
        self.regions = len({(node["chunk"]["region"], node["chunk"].get("backward", node.get("backward", False)))
                            for node in nodes if node.get("chunk", {}).get("role") == "body"})


def read_nodes(path):
    return epweave_fx.read_file(str(path))["graphs"][0]["nodes"]


def find_graph(folder, name):
    return next((path for path in (folder / f"{name}.epw.gz", folder / f"{name}.epw") if path.exists()), None)


def rewrite(args, graph, pipeline, result):
    subprocess.run([str(args.epweave), "rewrite", str(graph), "-p", pipeline, "--verify", "off", "-q", "-o", str(result)],
                   check=True)
    return read_nodes(result)


def count_row(args, row, folder):
    name, before, options, stage = row
    graph = find_graph(args.folder, f"{name}.1b_remat")
    if graph is None:
        return 0
    chunked = folder / "chunked.epw"
    pipeline = ",".join(filter(None, [before, f"chunk{{{options}}}" if options else "chunk"]))
    nodes = rewrite(args, graph, pipeline, chunked)
    ours = Counts(nodes)
    needless = ours.nodes - len(rewrite(args, chunked, "dce", folder / "dce.epw"))
    reference = find_graph(args.folder, f"{name}.{stage}") if stage else None
    theirs = Counts(rewrite(args, reference, "dce", folder / "reference.epw")) if reference else None
    removed = f" ({len(read_nodes(reference)) - theirs.nodes})" if theirs else ""

    def pair(field):
        number = getattr(ours, field)
        return f"{getattr(theirs, field):,} -> {number:,}" if theirs else f"{number:,}"

    title = f"`{name}`" + (f", {before}" if before else "") + (f", `{options}`" if options else "")
    print(f"| {title} | {len(read_nodes(graph)):,} | {pair('nodes')} | {pair('splits')} | {pair('cats')} | {pair('sums')} | "
          f"{pair('regions')} | {needless}{removed} |", flush=True)
    return needless


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--epweave", type=pathlib.Path, default=ROOT / "build/release/bin/epweave")
    args = parser.parse_args()
    if not args.folder.is_dir():
        parser.error(f"{args.folder} is no folder")
    print("| graph, options | nodes | torchtitan -> chunked | splits | cats | sums | regions | needless |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        needless = sum(count_row(args, row, pathlib.Path(folder)) for row in ROWS)
    return 1 if needless else 0


if __name__ == "__main__":
    sys.exit(main())
