#!/usr/bin/env python3
"""Tests of verify, diff and explain on the command line: what is refused, and the keys of their JSON documents.

The keys are those of docs/command_line.md. The program is $EPWEAVE, else build/release/bin/epweave.
"""
import json
import re
import unittest

from cli_test import DSV3, GRAPHS, ROOT, SMALL, CommandLineTest

RANK = """epweave text 1
info rank = {rank}
group a ranks=[0, 1]
group b ranks=[0, 1]

graph
  %x = placeholder : f32[4]
  %p = _c10d_functional.all_reduce.default(%x, "sum", "{first}") : f32[4]
  %p_done = _c10d_functional.wait_tensor.default(%p) : f32[4]
  %q = _c10d_functional.all_reduce.default(%x, "sum", "{second}") : f32[4]
  %q_done = _c10d_functional.wait_tensor.default(%q) : f32[4]
  output([%p_done, %q_done])
"""

COPY = """epweave text 1
device cuda:0

graph
  %x = placeholder : i64[2]
  %h = aten._to_copy.default(%x, device=@cpu, non_blocking={flag}) : i64[2]@cpu
  %s = aten.select.int(%h, 0, 0) : i64[]@cpu
  %n = aten._local_scalar_dense.default(%s) : SymInt(u0) bind(u0)
  output([%n])
"""


def keys(value):
    """Names of the keys of a JSON document, those of a list's elements taken together."""
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    if isinstance(value, list):
        merged = {}
        for item in map(keys, value):
            if item is not None:
                merged |= item
        return merged or None
    return None


class JsonTest(CommandLineTest):
    VIOLATION = {name: None for name in ("invariant", "message", "node", "op", "module", "source", "graph")}

    def document(self, *arguments):
        document = json.loads(self.run_tool(*arguments, "--json", "-q").stdout)
        self.assertEqual((next(iter(document)), document.pop("schema")), ("schema", 1))
        return keys(document)

    def rewritten(self):
        self.output_of("rewrite", DSV3, "-p", "chunk", "-o", "out.txt", "-q")
        return "out.txt"

    def test_verify_rewrite(self):
        out = self.rewritten()
        expected = {"a": {"file": None}, "b": {"file": None}, "ok": None, "violations": None,
                    "outputs": {"output": None, "node": None, "numerics": None}, "assumptions": None,
                    "whole": None, "divided": None, "joins": None, "splits": None}
        self.assertEqual(self.document("verify", DSV3, out), expected)
        text = (self.folder / out).read_text()
        self.write("bad.txt", re.sub(r"(%mm_11_chunk0 = aten\.mm\.default\()(%\w+), (%\w+)\)", r"\1\3, \2)", text))
        self.assertEqual(self.document("verify", DSV3, "bad.txt"), expected | {"violations": self.VIOLATION})

    def test_verify(self):
        self.write("early.txt", COPY.format(flag="True"))
        self.assertEqual(self.document("verify", "early.txt"),
                         {"file": None, "ok": None, "violations": self.VIOLATION})

    def test_verify_ranks(self):
        self.write("r0.txt", RANK.format(rank=0, first="a", second="b"))
        self.write("r1.txt", RANK.format(rank=1, first="b", second="a"))
        cycle = {name: None for name in ("rank", "at", "launch", "group", "misses", "never")}
        counts = {name: None for name in ("ok", "ranks", "groups", "collectives", "as_traced", "not_compared",
                                          "not_given")}
        self.assertEqual(self.document("verify", "--ranks", "r0.txt", "r1.txt"),
                         counts | {"inputs": {"file": None}, "violations": {"invariant": None, "message": None, "ranks": None, "nodes": None,
                                                  "cycle": cycle}})

    def test_diff(self):
        node = {name: None for name in ("a", "b", "target", "module", "direction", "changes", "about", "details")}
        self.assertEqual(self.document("diff", DSV3, self.rewritten()),
                         {"a": {"file": None}, "b": {"file": None}, "same": None, "paired_by": None,
                          "tables": {"table": None, "before": None, "after": None},
                          "graphs": {"name": None, "same_nodes": None, "nodes": node}})

    def test_explain(self):
        out = self.rewritten()
        node = {name: None for name in ("file", "name", "op", "target", "inputs", "module", "direction", "origin", "graph",
                                        "position", "roles", "users", "source", "provenance")}
        chunk = {name: None for name in ("root", "role", "part", "parts")}
        kind = {name: None for name in ("dtype", "shape", "stride", "device")}
        divided = {name: None for name in ("region", "direction", "parts", "origin", "placement", "why", "numerics",
                                           "rejoined_by")}
        expected = node | {"chunk": chunk, "type": kind, "divided": divided}
        self.assertEqual(self.document("explain", out, "mm_11_chunk0"), expected)
        self.assertEqual(self.document("explain", out, "all_to_all_single_1_chunk0"),
                         expected | {"exchange": {"launch": None, "wait": None, "runs_meanwhile": None}})

    def test_keys_are_documented(self):
        text = (ROOT / "docs/command_line.md").read_text()
        for key in ("numerics", "divided", "as_traced", "not_given", "runs_meanwhile", "misses", "paired_by", "position"):
            self.assertIn(f"`{key}`", text)


class DiffTest(CommandLineTest):
    # As traced, and as torchtitan's passes left them: parts, merged collectives, a schedule.
    GRAPHS = ("dsv3_debug_ep2.1b_remat", "dsv3_debug_ep2.3_pg", "dsv3_debug_ep2_eagerchunk.5_schedule",
              "dsv3_debug_ep4.2_chunk_batch", "dsv3_debug_ep4.4_bucket", "qwen3_moe_ep2.2_chunk_batch")

    def assert_same(self, a, b):
        result = self.run_tool("diff", a, b, "--json", "-q")
        self.assertEqual(result.returncode, 0, (a, b))
        document = json.loads(result.stdout)
        for body in document["graphs"]:
            del body["same_nodes"]  # how many the graph has
        self.assertEqual(document, {"schema": 1, "a": {"file": str(a)}, "b": {"file": str(b)}, "same": True,
                                    "paired_by": "names", "tables": [],
                                    "graphs": [{"name": "", "nodes": []}]})

    def test_a_graph_and_itself(self):
        for name in self.GRAPHS:
            self.assert_same(GRAPHS / f"{name}.epw.gz", GRAPHS / f"{name}.epw.gz")

    def test_a_graph_and_its_other_forms(self):
        graph = GRAPHS / "dsv3_debug_ep4.2_chunk_batch.epw.gz"
        for form in ("txt", "onnx"):
            self.output_of("convert", graph, f"other.{form}", "-q")
            self.assert_same(graph, f"other.{form}")
            self.assert_same(f"other.{form}", graph)


class VerifyTest(CommandLineTest):
    def test_a_rewrite_of_a_rewrite_that_divides_and_computes_again(self):
        """Against the first rewrite, which has each node whole, in either order of the two."""
        self.output_of("rewrite", DSV3, "-p", "dce", "-o", "first.epw", "-q")
        for passes in ("chunk,memory-policy{policy=full},recompute", "memory-policy{policy=full},recompute,chunk"):
            with self.subTest(passes):
                self.output_of("rewrite", "first.epw", "-p", passes, "-o", "second.epw", "-q")
                proofs = [json.loads(self.output_of("verify", a, "second.epw", "--json", "-q"))
                          for a in (DSV3, "first.epw")]
                self.assertEqual([proof["violations"] for proof in proofs], [[], []])
                self.assertGreater(proofs[0]["divided"], 100)
                self.assertEqual(*(proof["assumptions"] for proof in proofs))

    def test_ranks_name_themselves_apart(self):
        self.write("r0.txt", RANK.format(rank=0, first="a", second="b"))
        self.write("r1.txt", RANK.format(rank=1, first="a", second="b"))
        anonymous = RANK.format(rank=0, first="a", second="b").replace("info rank = 0\n", "")
        self.write("any.txt", anonymous)
        self.assertEqual(self.run_tool("verify", "--ranks", "r0.txt", "r1.txt").returncode, 0)
        twice = self.run_tool("verify", "--ranks", "r0.txt", "r0.txt")
        self.assertEqual(twice.returncode, 3)
        self.assertIn(b"both of rank 0", twice.stderr)
        mixed = self.run_tool("verify", "--ranks", "r0.txt", "any.txt")
        self.assertEqual(mixed.returncode, 3)
        self.assertIn(b"r0.txt says its rank", mixed.stderr)
        neither = self.run_tool("verify", "--ranks", "any.txt", "any.txt")
        self.assertEqual(neither.returncode, 0)
        self.assertIn(b"the first is taken for rank 0", neither.stderr)

    def test_host_reads_a_copy_that_may_not_have_arrived(self):
        self.write("early.txt", COPY.format(flag="True"))
        result = self.run_tool("verify", "early.txt", "-q")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout.decode(), r"^host-reads: n .* reads %h before anything made the host wait")
        self.write("waits.txt", COPY.format(flag="False"))
        self.assertEqual(self.run_tool("verify", "waits.txt", "-q").returncode, 0)

    def test_type_messages_tell_kinds_of_scalars_apart(self):
        self.write("scalar.txt", "epweave text 1\nsymbol u\n\ngraph\n  %x = placeholder : f32[u]\n"
                                 "  %n = aten.sym_size.int(%x, 0) : SymFloat(u)\n  output([%n])\n")
        result = self.run_tool("verify", "scalar.txt", "-q")
        self.assertIn(b"recorded SymFloat(u), the arguments give SymInt(u)", result.stdout)

    def test_what_one_node_breaks_excuses_no_other(self):
        # The first graph has a wrong type; so has the second, at another node.
        wrong = SMALL.replace("%dead = aten.neg.default(%x) : f32[4, 4]", "%dead = aten.neg.default(%x) : f32[4, 8]")
        self.write("a.txt", wrong)
        self.output_of("rewrite", "a.txt", "-p", "canonicalize", "-o", "b.txt", "-q")
        self.assertEqual(self.run_tool("verify", "a.txt", "b.txt", "-q").returncode, 0)
        text = (self.folder / "b.txt").read_text()
        changed = re.sub(r"(%mm = aten\.mm\.default\(%x, %x\) : f32\[4, )4\]", r"\g<1>4]+1", text)
        self.assertNotEqual(text, changed)
        self.write("c.txt", changed)
        result = self.run_tool("verify", "a.txt", "c.txt", "-q")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout.decode(), r"^type: mm ")


if __name__ == "__main__":
    unittest.main()
