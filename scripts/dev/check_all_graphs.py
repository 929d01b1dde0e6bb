#!/usr/bin/env python3
"""Check what must hold for any graph on every dump (*.json.gz, format fx-dump-1) of a folder.

For each dump:
  forms    dump -> binary -> text -> binary -> JSON -> binary: all binary files are the same bytes
  dump     binary -> dump gives equal JSON, `meta_keys_seen` apart
  verify   `epweave verify` finds nothing; else how many violations, of which invariants. What it finds in
           graphs that torchtitan's own chunk pass wrote is real (KNOWN below) and not counted as wrong here
  preset   on graphs with a token exchange: the preset ep-overlap works and its result verifies, or it
           declines the graph (exit 4) for the reason given
Prints a table. Exit codes: 0 nothing wrong, 1 something is, 2 usage.
"""
import argparse
import collections
import concurrent.futures
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONVERTER = ROOT / "scripts" / "epweave_fx.py"
# torchtitan's pass -> the invariants that its results break. Its chunk pass copies recorded types
# to parts: storage offsets of the second part and the symbols of data-dependent sizes are those of
# the whole.
KNOWN = {"ep_overlap_chunk_pass": {"type", "symbols-bound"}}


class Failed(Exception):
    """What went wrong, in a line."""


def run(*command, allowed=(0,)):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode not in allowed:
        lines = result.stderr.strip().splitlines() or ["no message"]
        raise Failed(f"exit {result.returncode}: {lines[-1] if 'Traceback' in lines[0] else lines[0]}")
    return result


def check_forms(epweave, graph, folder):
    text, back = folder / "g.txt", folder / "back.epw"
    document, again = folder / "g.json", folder / "again.epw"
    run(epweave, "convert", graph, text)
    run(epweave, "convert", text, back)
    run(epweave, "convert", back, document)
    run(epweave, "convert", document, again)
    original = graph.read_bytes()
    for path in (back, again):
        if path.read_bytes() != original:
            raise Failed(f"{path.name} differs")
    return "same bytes"


def read_dump(path):
    dump = json.loads(gzip.decompress(path.read_bytes()))
    dump.pop("meta_keys_seen", None)
    return dump


def check_dump(original, graph, folder):
    run(sys.executable, CONVERTER, "to-dump", graph, folder / "again.json.gz")
    if read_dump(original) != read_dump(folder / "again.json.gz"):
        raise Failed("the dump differs")
    return "equal"


def known_findings(dump):
    """Invariants that a pass of torchtitan is known to have broken in the dump."""
    return set().union(*(KNOWN.get(run["pass"], set()) for run in dump["meta"].get("passes_run", [])))


def check_verify(epweave, graph, known=frozenset()):
    result = run(epweave, "verify", graph, "--json", allowed=(0, 1))
    violations = json.loads(result.stdout)["violations"]
    if violations:
        kinds = collections.Counter(violation["invariant"] for violation in violations)
        found = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items()))
        if kinds.keys() - known:
            raise Failed(found)
        return "known: " + found
    return "clean"


def has_exchange(graph_dump):
    return any("EP_token_exchange" in node["meta"].get("custom", {}) for node in graph_dump["graphs"][""]["nodes"]
               if node["target"].startswith("_c10d_functional.all_to_all"))


def check_preset(epweave, preset, graph, folder):
    output, again = folder / "out.epw", folder / "out2.epw"
    result = run(epweave, "rewrite", graph, "--preset", preset, "-o", output, "--json", allowed=(0, 4))
    if result.returncode == 4:
        if output.exists():
            raise Failed("declined, but wrote its output")
        return "declined: " + json.loads(result.stdout)["error"]["id"]
    run(epweave, "rewrite", graph, "--preset", preset, "-o", again)
    if output.read_bytes() != again.read_bytes():
        raise Failed("two runs give different bytes")
    check_verify(epweave, output)
    check_forms(epweave, output, folder)
    return f"{json.loads(result.stdout)['output']['nodes']} nodes"


def check_graph(options, dump):
    """One row: name, nodes, then (outcome, whether it is right) for each check."""
    row = {"name": dump.name.removesuffix(".json.gz"), "nodes": 0}
    with tempfile.TemporaryDirectory() as name:
        folder, graph = pathlib.Path(name), pathlib.Path(name) / "g.epw"
        content = read_dump(dump)
        row["nodes"] = len(content["graphs"][""]["nodes"])
        checks = {"forms": lambda: check_forms(options.epweave, graph, folder),
                  "dump": lambda: check_dump(dump, graph, folder),
                  "verify": lambda: check_verify(options.epweave, graph, known_findings(content))}
        if has_exchange(content):
            checks["preset"] = lambda: check_preset(options.epweave, options.preset, graph, folder)
        try:
            run(sys.executable, CONVERTER, "from-dump", dump, graph)
        except Failed as error:
            checks = {}
            row["forms"] = f"from-dump: {error}", False
        for check, function in checks.items():
            try:
                row[check] = function(), True
            except Failed as error:
                row[check] = f"FAILED {error}", False
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="folder with dumps")
    parser.add_argument("--epweave", type=os.path.abspath, default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--preset", default="ep-overlap{roots=layers.*.moe,dim=batch,parts=2}")
    parser.add_argument("--only", default="", metavar="REGEX", help="only dumps whose name matches")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="dumps at the same time (%(default)s)")
    options = parser.parse_args()
    dumps = [path for path in sorted(options.folder.glob("*.json.gz")) if re.search(options.only, path.name)]
    if not dumps:
        parser.error(f"no dumps in {options.folder}")

    width = max(len(path.name) for path in dumps) - len(".json.gz") + 2
    print(f"{'graph':{width}}{'nodes':>8}  {'forms':12}{'dump':10}{'verify':38}preset")
    right = wrong = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda dump: check_graph(options, dump), dumps):
            cells = {check: row.get(check, ("-", True)) for check in ("forms", "dump", "verify", "preset")}
            print(f"{row['name']:{width}}{row['nodes']:>8}  {cells['forms'][0]:12}{cells['dump'][0]:10}"
                  f"{cells['verify'][0]:38}{cells['preset'][0]}", flush=True)
            fine = all(ok for _, ok in cells.values())
            right, wrong = right + fine, wrong + (not fine)
    print(f"{right} of {right + wrong} graphs passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
