#!/usr/bin/env python3
"""Check the ONNX form of graphs: files and all graphs (*.epw, *.epw.gz) of folders.

For each graph, and with --passes for what each pass of a preset makes of it:
  - graph -> ONNX -> graph gives the same bytes in binary form, for IR versions 8 and 10
  - libonnx's checker (check_onnx, IR 8) accepts the model; so does the package `onnx`, where Python has it
Prints a line for each graph. Exit codes: 0 nothing wrong, 1 something is, 2 usage.
"""
import argparse
import gzip
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build/release/bin"

try:
    import onnx
except ImportError:
    onnx = None


class Failed(Exception):
    """What went wrong, in a line."""


def run(*command, allowed=(0,)):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode not in allowed:
        raise Failed(f"exit {result.returncode}: {(result.stderr.strip().splitlines() or ['no message'])[0]}")
    return result


def check_form(options, graph, folder):
    """The graph is a file in binary form."""
    original = graph.read_bytes()
    for form in ("onnx", "onnx-ir10"):
        model, back = folder / f"{form}.onnx", folder / "back.epw"
        run(options.epweave, "convert", graph, model, "--to", form)
        run(options.epweave, "convert", model, back)
        if back.read_bytes() != original:
            raise Failed(f"another graph comes back from {form}")
        if onnx:
            check_with_onnx(model, 8 if form == "onnx" else 10)
    run(options.checker, folder / "onnx.onnx")


def check_with_onnx(path, ir_version):
    model = onnx.load(path)
    if model.ir_version != ir_version:
        raise Failed(f"IR version {model.ir_version}, not {ir_version}")
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise Failed(f"onnx {onnx.__version__}: {str(error).splitlines()[0]}") from error


def check_passes(options, graph, folder):
    """How many results of passes were checked."""
    dumps = folder / "dumps"
    result = run(options.epweave, "rewrite", graph, "--preset", options.preset, "-o", folder / "out.epw",
                 "--dump-dir", dumps, allowed=(0, 4))
    files = sorted(dumps.glob("*.txt"))
    for dump in files:
        run(options.epweave, "convert", dump, folder / "pass.epw")
        try:
            check_form(options, folder / "pass.epw", folder)
        except Failed as error:
            raise Failed(f"{dump.stem}: {error}") from error
    return f"{len(files)} passes" + (", the next declined" if result.returncode == 4 else "")


def check_graph(options, path):
    with tempfile.TemporaryDirectory() as name:
        folder, graph = pathlib.Path(name), pathlib.Path(name) / "graph.epw"
        content = path.read_bytes()
        graph.write_bytes(gzip.decompress(content) if path.suffix == ".gz" else content)
        check_form(options, graph, folder)
        return check_passes(options, graph, folder) if options.passes else ""


def graphs_of(paths):
    for path in paths:
        if path.is_dir():
            yield from sorted(p for p in path.iterdir() if p.name.endswith((".epw", ".epw.gz")))
        else:
            yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=pathlib.Path, nargs="+", metavar="GRAPH", help="graph in binary form, or folder")
    parser.add_argument("--epweave", default=BIN / "epweave")
    parser.add_argument("--checker", default=BIN / "check_onnx")
    parser.add_argument("--passes", action="store_true", help="check the result of each pass of the preset too")
    parser.add_argument("--preset", default="ep-overlap{roots=layers.*.moe,dim=batch,parts=2}")
    parser.add_argument("--only", default="", metavar="REGEX", help="only graphs whose name matches")
    parser.add_argument("--need-onnx", action="store_true", help="fail where Python has no package `onnx`")
    options = parser.parse_args()
    options.epweave, options.checker = os.path.abspath(options.epweave), os.path.abspath(options.checker)
    if options.need_onnx and not onnx:
        parser.error("Python has no package `onnx`")
    graphs = [path for path in graphs_of(options.graphs) if re.search(options.only, path.name)]
    if not graphs:
        parser.error("no graphs")

    print(f"checkers: libonnx{f', onnx {onnx.__version__}' if onnx else ''}")
    wrong = 0
    for path in graphs:
        try:
            print(f"{path.name}: same bytes, accepted {check_graph(options, path)}".rstrip(), flush=True)
        except Failed as error:
            print(f"{path.name}: FAILED {error}", flush=True)
            wrong += 1
    print(f"{len(graphs) - wrong} of {len(graphs)} graphs passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
