#!/usr/bin/env python3
"""Write the seeds of the fuzz targets to testdata/fuzz: small graphs of the goldens in every form.

One folder for each target of fuzz/. Binary graphs are written without their checksum, which the target adds.
Run again where a form has changed; old seeds stay valid as inputs.
"""
import argparse
import os
import pathlib
import re
import subprocess
import zipfile

import fuzz

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Graphs of the goldens, before and after a rewrite: symbols, backward, provenance, nested graphs.
GOLDENS = ("chunk/d6_plumbing", "chunk/uneven_sizes", "chunk/attention_batch", "chunk/c18_unbacked_bindings")
FORMS = {"text": "seed.txt", "binary": "seed.epw", "json": "seed.json", "onnx": "seed.onnx"}
PIPELINES = ("dce", "canonicalize , dedup-unshard", "chunk{roots=[layers.*.moe:4,layers.0:2],dim=batch,parts=2},overlap-ep",
             "ep-overlap{roots=layers.*.moe,parts=3}", 'chunk{roots="layers.\\"0",require-exchange=false}')
EXPRESSIONS = ("u0*(u1 + 1) - 3", "8*((u0 + 7)//8)", "Mod(u0, 8)", "Min(u0, Max(3, -s1))", "Eq(Mod(2*u0, 4), 0)",
               "u0 <= 1024", "(u0 < 3) & ~(u1 > 2)", "int_oo", "u0**2/4", "CeilToInt(IntTrueDiv(u0, 8))")


def graphs_in(golden):
    """The graphs among the sections of a golden."""
    sections = re.split(r"^=== .* ===$", (ROOT / "testdata" / (golden + ".test")).read_text(), flags=re.M)
    return [text.lstrip("\n") for text in sections if text.lstrip("\n").startswith("epweave text 1")]


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epweave", type=os.path.abspath, default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "testdata/fuzz", metavar="DIR")
    options = parser.parse_args()
    graphs = [fuzz.SMALL]
    graphs += [graph for golden in GOLDENS for graph in graphs_in(golden)]
    write(options.to / "text" / "everything.txt", (ROOT / "testdata/text/everything.txt").read_bytes())
    for number, graph in enumerate(graphs):
        for form, name in FORMS.items():
            data = subprocess.run([options.epweave, "convert", "-", "-", "--from", "text", "--to", form, "--force"],
                                  input=graph.encode(), capture_output=True, check=False)
            if data.returncode == 0:
                seed = data.stdout[:-5] if form == "binary" else data.stdout
                write(options.to / form / f"{number:02}_{name}", seed)
            else:
                print(f"graph {number} has no {form} form: {data.stderr.decode().splitlines()[0]}")
    archive = ROOT / "testdata/pt2/small.pt2"
    write(options.to / "pt2" / "archive.pt2", archive.read_bytes())
    with zipfile.ZipFile(archive) as entries:
        write(options.to / "pt2" / "program.json", entries.read("small/models/model.json"))
    for folder, texts in (("pipeline", PIPELINES), ("expression", EXPRESSIONS)):
        for number, text in enumerate(texts):
            write(options.to / folder / f"{number:02}_seed.txt", text.encode())


if __name__ == "__main__":
    main()
