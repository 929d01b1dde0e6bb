#!/usr/bin/env python3
"""Run our rewrites of every graph of a folder against the original, and write a table of the verdicts.

    scripts/dev/replay_rewrites.py FOLDER --results FILE [--set NAME=N]... [--graph GLOB] [--rewrite GLOB] [--table FILE]

FOLDER holds NAME.STAGE.epw or .epw.gz; the last of the stages 0_traced, 1_norm and 1b_remat of a name is taken. --set makes it
smaller by `epweave resize` (a size that a graph does not have is left out). A row is a graph and a rewrite of it:

- the preset ep-overlap (chunked and scheduled) of roots `layers.*.moe` and `layers.*` in 2, 3 and 4 parts, with `attention=independent`
  too where the graph was made for whole blocks. Where 3 parts would cut a mask's block, parts of whole blocks stand for them; where
  the token count is a plain number, it is given a symbol;
- chunk of whole blocks, without exchanges, in 2 parts;
- buckets, memory policies, async-tp, groups of their own and cleaning.

Each is one `epweave-replay check --json`; ep-overlap in 2 parts of a graph in its own size is also compared with torchtitan's own chunked
graph of that name (stage 2_chunk_*), if the roots are those that it has.

A row is appended to FILE (JSON lines) when it is done, and rows that are there are not run again, so that a run may be
stopped and taken up. --table writes what FILE has as a Markdown table. Wrong is a verdict other than `same`.
Exit codes: 0 nothing wrong, 1 something is, 2 usage.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAGES = ("1b_remat", "1_norm", "0_traced")  # the first that a graph has
BLOCK = 128  # rows of a mask's block
DECLINED = 4
OTHER_REWRITES = (
    "symbolize,chunk{roots=[layers.*],parts=2,require-exchange=false}",
    "bucket{plan=blocks}",
    "bucket{plan=overlap}",
    "memory-policy{policy=full},recompute",
    "memory-policy{policy=sac-and-offload},cpu-offload,recompute",
    "async-tp",
    "isolate-ep-pg,reassign-pgs",
    "dedup-unshard,canonicalize,dce",
)
INTRODUCTION = """\
# Rewrites against their originals, executed

Rows of `scripts/dev/replay_rewrites.py` that were run; each rewrite is proved by `verify A B`, too. *Size*: what `--set` made of the graph, nothing where it is as traced; those "as traced,
buffers of zeros" were run by an earlier build ([replay.md](replay.md#inputs)). Outputs are loss, gradients and buffers of all ranks. *Equal*: the same bits. *Sum-order*: gradients that are added up in other groups, each
element within the bound that follows from its own summands; *share of bound* is the largest part of it that was used. Only gradients are sum-order in any row. The last column counts
outputs that have the bits of torchtitan's own result of that chunking (`2_chunk_*`). Its chunking of whole blocks on flat tokens (`dsv3_debug_ep2_block`) divides the sequence wrongly under
attention ([replay.md](replay.md)); ours is held to the original there.

"""


def chunk_dim(name):
    return ",dim=seq" if "_seq" in name else ""


def roots_of_reference(name):
    return "layers.*" if "_block" in name else "layers.*.moe"


def token_count(args):
    return next((int(text.split("=")[1]) for text in args.set if text.startswith("tokens=")), 1024)


def list_rewrites(name, tokens):
    """Pipelines; `ep-overlap` is the preset."""
    for parts in (2, 3, 4):
        for roots in ("layers.*.moe", "layers.*"):
            yield f"ep-overlap{{roots={roots},parts={parts}{chunk_dim(name)}}}"
    if "_block" in name and tokens >= 2 * BLOCK:  # a block table says which tokens attend to one another
        yield f"ep-overlap{{roots=layers.*,parts=2{chunk_dim(name)},attention=independent}}"
    yield from OTHER_REWRITES


def find_reference(folder, name, rewrite):
    """torchtitan's result of the same chunking, or none."""
    if f"ep-overlap{{roots={roots_of_reference(name)},parts=2" not in rewrite:
        return None
    return next(iter(sorted(folder.glob(f"{name}.2_chunk_*.epw*"))), None)


def list_graphs(folder, pattern):
    """Names, and the file of the last stage of each."""
    found = {}
    for stage in STAGES:
        for path in sorted(folder.glob(f"*.{stage}.epw*")):
            found.setdefault(path.name.split(f".{stage}.")[0], path)
    return {name: path for name, path in sorted(found.items()) if fnmatch.fnmatch(name, pattern)}


def run_json(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    try:
        return done.returncode, json.loads(done.stdout)
    except json.JSONDecodeError:
        return done.returncode, {"error": {"message": done.stderr.strip() or "no message"}}


def read_code(report):
    return re.search(r"\[([a-z.-]+)\]", json.dumps(report)) or re.search(r'"code": "([a-z.-]+)"', json.dumps(report))


def list_sizes(args, graph):
    """The sizes asked for that the graph has."""
    code, report = run_json([args.epweave, "resize", graph, "--list", "--json"])
    names = {size["name"] for size in report["sizes"]} if code == 0 else set()
    return [text for text in args.set if text.split("=")[0] in names]


def make_smaller(args, graph, sizes, out):
    """The graph in these sizes, or none and the code of what declined them."""
    if not sizes:
        return graph, None
    words = [word for text in sizes for word in ("--set", text)]
    command = [args.epweave, "resize", graph, *words, "-o", out, "--json"]
    code, report = run_json(command)
    match = read_code(report)
    if match and match.group(1) == "resize.conflict":  # its remedy
        numbers = out.with_suffix(".numbers.epw")
        run_json([args.epweave, "rewrite", graph, "-p", "concretize", "-o", numbers, "--json"])
        code, report = run_json([*command[:2], numbers, *command[3:]])
        match = read_code(report)
    return (out, None) if code == 0 else (None, match.group(1) if match else json.dumps(report)[:200])


def block_sizes(tokens):
    """Three parts of whole blocks of a mask."""
    blocks = tokens // BLOCK
    middle = max(1, blocks // 4)
    first = (blocks - middle) // 2
    return f"sizes=[{first * BLOCK},{middle * BLOCK},{(blocks - middle - first) * BLOCK}]"


def rewrite_graph(args, graph, rewrite, out):
    """The pipeline that worked, or none and the code of what declined it."""
    tokens = token_count(args)
    tried = [rewrite]
    while True:
        pipeline = tried[-1]
        how = "--preset" if pipeline.startswith("ep-overlap") else "-p"
        code, report = run_json([args.epweave, "rewrite", graph, how, pipeline, "-o", out, "--json"])
        if code == 0:
            return pipeline, None
        match = read_code(report)
        reason = match.group(1) if match else json.dumps(report)[:200]
        if how == "--preset" and reason == "chunk.no-token-symbol":
            pipeline = pipeline[:-1] + ",symbolize=yes}"
        elif reason == "chunk.block-border":
            pipeline = pipeline.replace("parts=3", block_sizes(tokens))
        if code != DECLINED or pipeline in tried:
            return None, reason
        tried.append(pipeline)


def check_row(args, name, original, sizes, rewrite):
    with tempfile.TemporaryDirectory() as folder:
        graph, reason = make_smaller(args, original, sizes, pathlib.Path(folder) / "in.epw")
        if reason:
            return {"declined": reason}
        out = pathlib.Path(folder) / "out.epw"
        options, reason = rewrite_graph(args, graph, rewrite, out)
        if options is None:
            return {"declined": reason}
        proof, _ = run_json([args.epweave, "verify", graph, out, "--json"])
        reference = None if sizes else find_reference(args.folder, name, rewrite)
        command = [args.replay, "check", "--json", "-q", graph, out]
        if reference:
            command += ["--report-types", "--reference", reference]
        before = os.times()
        code, report = run_json(command)
        after = os.times()
    row = {"options": options, "proved": proof == 0, "code": code, "processor": after.children_user - before.children_user
           + after.children_system - before.children_system}
    if "verdict" not in report:
        return {**row, "failed": report.get("error", report)}
    return {**row, "reference": report.get("reference"), **summarize(report)}


def summarize(report):
    outputs, nodes = {}, {}
    for output in report["outputs_not_equal"]:
        outputs[output["verdict"]] = outputs.get(output["verdict"], 0) + 1
    outputs["equal"] = report["outputs"] - sum(outputs.values())
    for rank in report["ranks"]:
        for verdict, count in rank["nodes"].items():
            nodes[verdict] = nodes.get(verdict, 0) + count
    regrouped = {o["name"] for o in report["outputs_not_equal"] if o["verdict"] == "sum-order"}
    return {"verdict": report["verdict"], "outputs": outputs, "nodes": nodes,
            "share": report["largest_share_of_bound"], "first_divergence": report["first_divergence"],
            "not_gradients": sorted(name for name in regrouped if not name.startswith("grad")),
            "without_bound": report["ops_without_bound"]}


def is_wrong(row):
    return "declined" not in row and (row.get("verdict") != "same" or not row["proved"] or bool(row.get("not_gradients")))


def describe_reference(row):
    reference = row.get("reference")
    return "" if not reference else f"{reference['equal_to_b']} of {reference['outputs']}"


def describe(name, rewrite, row):
    first = f"| `{name}` | {row['sizes']} "
    if "declined" in row:
        return f"{first}| `{rewrite}` | declined: `{row['declined']}` | | | | |"
    if "failed" in row:
        return f"{first}| `{row['options']}` | failed: {json.dumps(row['failed'])[:200]} | | | | |"
    outputs, nodes = row["outputs"], row["nodes"]
    rest = "".join(f", {outputs[v]} {v}" for v in ("reordered", "unverified", "differs") if outputs.get(v))
    share = "" if row["share"] is None else f"{row['share']:.3f}"
    counts = " / ".join(str(nodes.get(v, 0)) for v in ("equal", "reordered", "sum-order", "unverified", "differs"))
    verdict = row["verdict"] if row["proved"] else f"{row['verdict']}, not proved"
    return (f"{first}| `{row['options']}` | {verdict} | {outputs['equal']} equal, "
            f"{outputs.get('sum-order', 0)} sum-order{rest} | {share} | {counts} | {describe_reference(row)} |")


def read_results(path):
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(row["graph"], row["sizes"], row["rewrite"]): row for row in rows}


def make_table(results):
    lines = ["| graph | size | rewrite | verdict | outputs of all ranks | share of bound | "
             "nodes: equal / reordered / sum-order / unverified / differs | outputs with torchtitan's bits |",
             "|---|---|---|---|---|---|---|---|"]
    lines += [describe(graph, rewrite, row) for (graph, _, rewrite), row in sorted(results.items()) if "declined" not in row]
    declined = [row["declined"] for row in results.values() if "declined" in row]
    reasons = ", ".join(f"`{reason}` {declined.count(reason)}" for reason in sorted(set(declined)))
    if declined:
        lines += ["", f"{len(declined)} rows more were declined by a pass: {reasons}."]
    lines += ["", "Rows that are not here (other parts and graphs) have not been run."]
    return INTRODUCTION + "\n".join(lines) + "\n"


def run_rows(args, results):
    for name, graph in list_graphs(args.folder, args.graph).items():
        sizes = list_sizes(args, graph)
        for rewrite in list_rewrites(name, token_count(args)):
            key = name, ",".join(sizes), rewrite
            if key in results or not fnmatch.fnmatch(rewrite, args.rewrite):
                continue
            row = {"graph": name, "sizes": key[1], "rewrite": rewrite, **check_row(args, name, graph, sizes, rewrite)}
            results[key] = row
            with args.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(describe(name, rewrite, row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=N",
                        help="a smaller size, as of `epweave resize`: tokens=512; may be repeated")
    parser.add_argument("--graph", default="*debug_[ef]*", help="names to take (default *debug_[ef]*: of debug size)")
    parser.add_argument("--rewrite", default="*", help="rewrites to take, such as '*parts=2*'")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE", help="write the table of all results here")
    parser.add_argument("--epweave", type=pathlib.Path, default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "build/release/bin/epweave-replay")
    args = parser.parse_args()
    if not args.folder.is_dir():
        parser.error(f"{args.folder} is no folder")
    results = read_results(args.results)
    run_rows(args, results)
    if args.table:
        args.table.write_text(make_table(results))
    wrong = [f"{graph} {sizes} {rewrite}" for (graph, sizes, rewrite), row in results.items() if is_wrong(row)]
    print(f"{len(results)} rows, {len(wrong)} wrong", *wrong, sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
