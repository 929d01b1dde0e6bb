#!/usr/bin/env python3
"""Run our rewrites of every expert-parallel graph of a folder against the original, and write a table of the verdicts.

    scripts/dev/replay_rewrites.py FOLDER --results FILE [--graph GLOB] [--rewrite TEXT] [--table FILE]

FOLDER holds NAME.STAGE.epw. A row is a graph (stage 1b_remat) and a rewrite of it with the preset ep-overlap (chunked and
scheduled): roots `layers.*.moe` and `layers.*`, 2, 3 and 4 parts, with `attention=independent` too where the graph was made for
whole blocks. Where 3 parts would cut a mask's block, the rows of 384, 256 and 384 tokens stand for them; where the token
count is a plain number, it is given a symbol. Each row is one `epweave-replay check --json`; 2 parts are also compared with torchtitan's own
chunked graph of that name (stage 2_chunk_*), if the roots are those that it has.

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
STAGE = ".1b_remat.epw"
BLOCK_SIZES = "sizes=[384,256,384]"  # three parts of 1,024 tokens that begin at multiples of a mask's block
DECLINED = 4
INTRODUCTION = """\
# Rewrites against their originals, executed

Rows of `scripts/dev/replay_rewrites.py` that were run: the preset `ep-overlap` (chunked and scheduled) on graphs of 4 ranks, seed 0. Outputs are loss,
gradients and buffers of all ranks. *Equal*: the same bits. *Sum-order*: gradients that are added up in other groups, each element within the bound
that follows from its own summands; *share of bound* is the largest part of it that was used. Only gradients are sum-order in any row. The last
column counts outputs that have the bits of torchtitan's own result of that chunking (`2_chunk_*`). Its chunking of whole blocks on flat tokens
(`dsv3_debug_ep2_block`) divides the sequence wrongly under attention ([replay.md](replay.md)); ours is held to the original there.

"""


def chunk_dim(name):
    return ",dim=seq" if "_seq" in name else ""


def roots_of_reference(name):
    return "layers.*" if "_block" in name else "layers.*.moe"


def list_rewrites(name):
    for parts in (2, 3, 4):
        for roots in ("layers.*.moe", "layers.*"):
            yield f"roots={roots},parts={parts}{chunk_dim(name)}"
    if "_block" in name:
        yield f"roots=layers.*,parts=2{chunk_dim(name)},attention=independent"


def find_reference(folder, name, rewrite):
    """torchtitan's result of the same chunking, or none."""
    if f"roots={roots_of_reference(name)},parts=2" not in rewrite:
        return None
    return next(iter(sorted(folder.glob(f"{name}.2_chunk_*.epw"))), None)


def run_json(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    try:
        return done.returncode, json.loads(done.stdout)
    except json.JSONDecodeError:
        return done.returncode, {"error": {"message": done.stderr.strip() or "no message"}}


def read_code(report):
    return re.search(r"\[([a-z.-]+)\]", json.dumps(report)) or re.search(r'"code": "([a-z.-]+)"', json.dumps(report))


def rewrite_graph(args, graph, rewrite, out):
    """The options that worked, or none and the code of what declined them."""
    tried = [rewrite]
    while True:
        code, report = run_json([args.epweave, "rewrite", graph, "--preset", f"ep-overlap{{{tried[-1]}}}", "-o", out, "--json"])
        if code == 0:
            return tried[-1], None
        match = read_code(report)
        reason = match.group(1) if match else json.dumps(report)[:200]
        options = tried[-1]
        if reason == "chunk.no-token-symbol":
            options = f"{options},symbolize=yes"
        elif reason == "chunk.block-border":
            options = options.replace("parts=3", BLOCK_SIZES)
        if code != DECLINED or options in tried:
            return None, reason
        tried.append(options)


def check_row(args, name, rewrite):
    graph = args.folder / (name + STAGE)
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.epw"
        options, reason = rewrite_graph(args, graph, rewrite, out)
        if options is None:
            return {"declined": reason}
        reference = find_reference(args.folder, name, rewrite)
        command = [args.replay, "check", "--json", "-q", graph, out]
        if reference:
            command += ["--report-types", "--reference", reference]
        before = os.times()
        code, report = run_json(command)
        after = os.times()
    row = {"options": options, "code": code, "processor": after.children_user - before.children_user
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
    return "declined" not in row and (row.get("verdict") != "same" or bool(row.get("not_gradients")))


def describe_reference(row):
    reference = row.get("reference")
    return "" if not reference else f"{reference['equal_to_b']} of {reference['outputs']}"


def describe(name, rewrite, row):
    if "declined" in row:
        return f"| `{name}` | `{rewrite}` | declined: `{row['declined']}` | | | | |"
    if "failed" in row:
        return f"| `{name}` | `{row['options']}` | failed: {json.dumps(row['failed'])[:200]} | | | | |"
    outputs, nodes = row["outputs"], row["nodes"]
    rest = "".join(f", {outputs[v]} {v}" for v in ("reordered", "unverified", "differs") if outputs.get(v))
    share = "" if row["share"] is None else f"{row['share']:.3f}"
    counts = " / ".join(str(nodes.get(v, 0)) for v in ("equal", "reordered", "sum-order", "unverified", "differs"))
    return (f"| `{name}` | `{row['options']}` | {row['verdict']} | {outputs['equal']} equal, "
            f"{outputs.get('sum-order', 0)} sum-order{rest} | {share} | {counts} | {describe_reference(row)} |")


def read_results(path):
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(row["graph"], row["rewrite"]): row for row in rows}


def make_table(results):
    lines = ["| graph | `ep-overlap{..}` | verdict | outputs of all ranks | share of bound | "
             "nodes: equal / reordered / sum-order / unverified / differs | outputs with torchtitan's bits |",
             "|---|---|---|---|---|---|---|"]
    lines += [describe(graph, rewrite, row) for (graph, rewrite), row in sorted(results.items())]
    lines += ["", "Rows that are not here (other parts and graphs) have not been run."]
    return INTRODUCTION + "\n".join(lines) + "\n"


def run_rows(args, results):
    graphs = sorted(path.name.removesuffix(STAGE) for path in args.folder.glob(args.graph + STAGE))
    for name in graphs:
        for rewrite in list_rewrites(name):
            if (name, rewrite) in results or not fnmatch.fnmatch(rewrite, args.rewrite):
                continue
            row = {"graph": name, "rewrite": rewrite, **check_row(args, name, rewrite)}
            results[name, rewrite] = row
            with args.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(describe(name, rewrite, row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, required=True, metavar="FILE")
    parser.add_argument("--graph", default="*ep[24]*", help="names to take (default *ep[24]*: with expert parallelism, debug size)")
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
    wrong = [f"{graph} {rewrite}" for (graph, rewrite), row in results.items() if is_wrong(row)]
    print(f"{len(results)} rows, {len(wrong)} wrong", *wrong, sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
