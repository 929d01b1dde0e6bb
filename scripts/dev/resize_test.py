#!/usr/bin/env python3
"""Tests of `epweave resize` on real graphs: sound results, there and back, and resize and chunk in either order.

The programs are $EPWEAVE and $EPWEAVE_REPLAY, else those of build/release/bin.
"""
import json
import os
import pathlib
import re
import subprocess
import unittest

from cli_test import DSV3, ROOT, CommandLineTest

GRAPHS = ROOT / "testdata/graphs"
REPLAY = os.environ.get("EPWEAVE_REPLAY", str(ROOT / "build/release/bin/epweave-replay"))
CHUNK = "chunk{roots=layers.*.moe}"
# Symbols and plain numbers of tokens; dense and MoE; expert, tensor and data parallelism; whole
# recomputation.
REAL = ["dsv3_debug_ep2.1b_remat", "dsv3_debug_ep2_static.1b_remat", "dsv3_debug_fsdp2_tp2_ep4.1b_remat",
        "dsv3_debug_ep1_fsdp4.1b_remat", "dsv3_debug_ep2_sdpa_r030.1b_remat", "qwen3_moe_ep2.1b_remat",
        "llama3_debug_fsdp4.1b_remat", "llama3_debug_fsdp4_full.1b_remat", "llama3_debug_fsdp2_tp2.1_norm",
        "llama3_debug_fsdp2_tp2_coor.1_norm", "dsv3_debug_ep2_full.1b_remat", "dsv3_16b_ep8.1b_remat"]


def graph(name):
    return str(GRAPHS / f"{name}.epw.gz")


def lines_without_names(path):
    """Of a text form, without records and facts: symbols and nodes are numbered as they come."""
    names, lines = {}, []
    text = pathlib.Path(path).read_text()
    for line in text.splitlines():
        if re.match(r"(pass|origins|symbol) ", line):
            continue
        line = re.sub(r" from\(.*$", "", line)
        line = re.sub(r"%[A-Za-z_][\w.]*", lambda m: names.setdefault(m.group(0), f"%{len(names)}"), line)
        lines.append(re.sub(r"\bu\d+\b", lambda m: names.setdefault(m.group(0), f"U{len(names)}"), line))
    return lines


class ResizeTest(CommandLineTest):
    def resize(self, source, out, **sizes):
        settings = [word for name, value in sizes.items() for word in ("--set", f"{name}={value}")]
        return json.loads(self.output_of("resize", source, *settings, "-o", out, "--json", "-q"))

    def sizes(self, source):
        return {row["name"]: row["value"] for row in json.loads(self.output_of("resize", source, "--list", "--json"))["sizes"]}

    def test_results_are_sound(self):
        for name in REAL:
            with self.subTest(name):
                sizes = self.sizes(graph(name))
                first = next(iter(sizes))  # tokens, or the batch of a grid
                small = sizes | {first: sizes[first] // 2, "layers": 2}
                self.resize(graph(name), "small.epw", **{first: small[first], "layers": 2})
                self.assertEqual(self.output_of("verify", "small.epw"), b"")
                self.assertEqual(self.sizes("small.epw"), small)

    def test_there_and_back(self):
        for name in REAL:
            with self.subTest(name):
                first, size = next(iter(self.sizes(graph(name)).items()))
                self.resize(graph(name), "small.epw", **{first: size // 2})
                self.resize("small.epw", "again.epw", **{first: size})
                self.output_of("diff", graph(name), "again.epw", "--ignore", "provenance")
                self.assertEqual(self.run_tool("diff", graph(name), "small.epw", "--ignore", "provenance").returncode, 1)

    def test_plain_numbers_in_either_order(self):
        """Symbols become numbers before or after: captured numbers of mask functions and layouts of grids follow."""
        for name, first, size in (("dsv3_debug_ep2.1b_remat", "tokens", 512), ("dsv3_debug_ep2_r030.1b_remat", "batch", 2)):
            with self.subTest(name):
                self.resize(graph(name), "small.epw", **{first: size})
                self.output_of("rewrite", "small.epw", "-p", "concretize", "-o", "small_numbers.epw", "-q")
                self.output_of("rewrite", graph(name), "-p", "concretize", "-o", "numbers.epw", "-q")
                self.resize("numbers.epw", "numbers_small.epw", **{first: size})
                self.output_of("diff", "small_numbers.epw", "numbers_small.epw", "--ignore", "provenance")

    def test_chunk_in_either_order(self):
        for name, tokens in (("dsv3_debug_ep2.1b_remat", 512), ("dsv3_16b_ep8.1b_remat", 8192)):
            with self.subTest(name):
                self.output_of("rewrite", graph(name), "-p", CHUNK, "-o", "chunked.epw", "-q")
                self.resize(graph(name), "small.epw", tokens=tokens)
                self.resize("chunked.epw", "a.epw", tokens=tokens)
                self.output_of("rewrite", "small.epw", "-p", CHUNK, "-o", "b.epw", "-q")
                self.output_of("diff", "a.epw", "b.epw", "--ignore", "provenance")
                # chunk names symbols after those that the graph has, and cuts after what they cut.
                self.resize(graph(name), "small.epw", tokens=tokens, layers=3)
                self.resize("chunked.epw", "a.txt", tokens=tokens, layers=3)
                self.output_of("rewrite", "small.epw", "-p", CHUNK, "-o", "b.txt", "-q")
                a, b = (lines_without_names(self.folder / file) for file in ("a.txt", "b.txt"))
                self.assertTrue(a == b, [pair for pair in zip(a, b) if pair[0] != pair[1]][:1])

    def test_an_original_of_fewer_layers(self):
        """Of 24 layers 12 have the inputs, results and regions of what torchtitan traces of 12."""
        self.resize(graph("dsv3_debug_L24.1b_remat"), "small.epw", layers=12)
        small, traced = (json.loads(self.output_of("stats", file, "--json"))
                         for file in ("small.epw", graph("dsv3_debug_L12.1b_remat")))
        for key in ("placeholders", "outputs", "regions"):
            self.assertEqual(small[key], traced[key], key)

    def test_a_result_runs_and_its_rewrite_computes_the_same(self):
        self.resize(DSV3, "small.epw", tokens=64, layers=2)
        self.output_of("rewrite", "small.epw", "-p", CHUNK, "-o", "chunked.epw", "-q")
        self.assertTrue(json.loads(self.output_of("verify", "small.epw", "chunked.epw", "--json", "-q"))["ok"])
        checked = subprocess.run([REPLAY, "check", "small.epw", "chunked.epw"], cwd=self.folder, capture_output=True)
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_a_batch_that_is_a_number_beside_a_symbol(self):
        """It is refused with what helps: symbols made numbers."""
        mixed = graph("dsv3_debug_ep2_seq_r030.1b_remat")
        result = self.run_tool("resize", mixed, "--set", "batch=2", "-o", "out.epw")
        self.assertEqual(result.returncode, 4)
        self.assertIn(b"make its symbols numbers first (epweave rewrite -p concretize)", result.stderr)
        self.output_of("rewrite", mixed, "-p", "concretize", "-o", "numbers.epw", "-q")
        self.resize("numbers.epw", "small.epw", batch=2)
        self.assertEqual(self.output_of("verify", "small.epw"), b"")

    def test_a_part_that_lacks_the_first_layer_has_no_number_of_layers(self):
        self.output_of("extract", DSV3, "--module", "layers.1.moe", "-o", "part.epw", "-q")
        self.assertEqual(self.sizes("part.epw").keys(), {"tokens"})

    def test_nothing_is_written_where_a_size_is_refused(self):
        result = self.run_tool("resize", DSV3, "--set", "tokens=100", "-o", "out.epw")
        self.assertEqual(result.returncode, 4)
        self.assertIn(b"tokens = 100 is not a multiple of 8 [resize.size]", result.stderr)
        self.assertFalse((self.folder / "out.epw").exists())


if __name__ == "__main__":
    unittest.main()
