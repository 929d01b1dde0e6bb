#!/usr/bin/env python3
"""Imports of torch.export archives compared with what torch.export.load gives, node by node; needs torch.

--write FILE: writes the archive that is committed as testdata/pt2/small.pt2, without paths of this machine.
"""
import json
import linecache
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

import torch

sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.path.dirname(os.path.abspath(__file__))]
import epweave_fx  # noqa: E402
from epweave_fx_torch_test import describe  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
EPWEAVE = os.environ.get("EPWEAVE", ROOT / "build/release/bin/epweave")

# Compiled under a name of its own, which is what stack traces show.
SMALL = '''
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        hidden = torch.relu(self.linear(x))
        values, indices = hidden.topk(2, dim=-1)
        first, _, _ = hidden.split([4, 4, 8], dim=-1)
        wide = self.norm(hidden).reshape(x.shape[0] * 2, -1)
        return {"wide": wide.to(torch.bfloat16), "values": values * 0.1}, (first + 1, indices)
'''


def small_model():
    scope = {"__name__": "model"}
    linecache.cache["model.py"] = len(SMALL), None, SMALL.splitlines(keepends=True), "model.py"
    exec(compile(SMALL, "model.py", "exec"), scope)  # noqa: S102
    return scope["Small"]()


def export_small():
    batch = torch.export.Dim("batch", min=2, max=64)
    return torch.export.export(small_model(), (torch.randn(4, 8),), dynamic_shapes={"x": {0: batch}})


class Unbacked(torch.nn.Module):
    """Sizes that depend on data, numbers read from tensors, lists with None, every kind of scalar argument."""

    def forward(self, x, where):
        found = torch.nonzero(where)
        count = found.shape[0]
        number = x.sum().int().item()
        torch._check(number >= 2)
        torch._check(number < 100)
        rows = torch.zeros(number, 3, dtype=torch.float64, device="cpu")
        picked = x[:, where.long()]
        scaled = torch.full((2,), float("inf")) * 1e-3 + torch.clamp(x, min=None, max=2.5).mean()
        return found.sum(), rows, picked, scaled, torch.arange(count) + count // 2, None, 3


class Branch(torch.nn.Module):
    """Nested graphs."""

    def forward(self, x):
        def above(y):
            return y.sin(), y + 1

        def below(y):
            return y.cos(), y - 1

        first, second = torch.cond(x.sum() > 0, above, below, (x,))
        return first * second


class Tagged(torch.nn.Module):
    def forward(self, x):
        with torch.fx.traceback.annotate({"EP": "dispatch", "module_fqn": "layers.0.moe", "tag": [1, 2.5, None]}):
            y = x * 2
        return y + 1


def describe_value(value):
    """Without what torch loses: a storage offset, and that several outputs may be a list."""
    if isinstance(value, (tuple, list)):
        return tuple(describe_value(item) for item in value)
    return describe(value)[:-1] if isinstance(value, torch.Tensor) else describe(value)


def describe_node(node):
    is_call = node.op == "call_function"
    return {"name": node.name, "op": node.op, "target": str(node.target), "args": describe(node.args),
            "kwargs": describe(dict(node.kwargs)), "val": describe_value(node.meta.get("val")) if is_call else None,
            "stack": node.meta.get("torch_fn"), "custom": node.meta.get("custom", {}).get("tag")}


class ImportTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_tool(self, *arguments):
        result = subprocess.run([EPWEAVE, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def check(self, program):
        archive, graph = self.path("m.pt2"), self.path("m.epw")
        torch.export.save(program, archive)
        self.run_tool("convert", archive, graph)
        expected = torch.export.load(archive)
        actual = epweave_fx.load(graph)
        self.compare(expected.graph_module, actual)
        return expected, self.run_tool("convert", graph, "-", "--to", "text")

    def compare(self, expected, actual):
        ours = {node.name: describe_node(node) for node in actual.graph.nodes}
        self.assertEqual([node.name for node in expected.graph.nodes], list(ours))
        for node in expected.graph.nodes:
            with self.subTest(node=node.name):
                self.assertEqual(describe_node(node), ours[node.name])
            if node.op == "get_attr":
                nested = getattr(expected, node.target)
                if isinstance(nested, torch.fx.GraphModule):
                    self.compare(nested, getattr(actual, node.target))

    def test_roles_buffers_several_outputs_and_a_dynamic_batch(self):
        program, text = self.check(export_small())
        self.assertIn("role=parameter fqn=linear.weight", text)
        self.assertIn("role=buffer fqn=count more{persistent=True}", text)
        self.assertIn("@linear", text)
        self.assertRegex(text, r"symbol s\d+ range=\[2, 64\] hint=4 backed")
        self.assertIn("model.py:13 in forward: hidden = torch.relu(self.linear(x))", text)
        self.assertEqual(len(program.graph_signature.input_specs), text.count("= placeholder"))

    def test_unbacked_symbols(self):
        _, text = self.check(torch.export.export(Unbacked(), (torch.randn(3, 4), torch.tensor([1, 0, 1]))))
        self.assertRegex(text, r"aten.item.default\(.*\) : SymInt\(u\d+\).* bind\(u\d+\)")

    def test_nested_graphs(self):
        _, text = self.check(torch.export.export(Branch(), (torch.randn(3),)))
        self.assertIn("graph true_graph_0", text)

    def test_custom_metadata(self):
        with torch.fx.traceback.preserve_node_meta():
            program = torch.export.export(Tagged(), (torch.randn(3),))
        _, text = self.check(program)
        self.assertRegex(text, r"aten.mul.Tensor\(%x, 2\) : f32\[3\] @layers.0.moe .*ep=dispatch")

    def test_decomposed_program(self):
        self.check(export_small().run_decompositions())


def without_paths(text):
    """The program without folders of this machine: torch/nn/modules/linear.py."""
    def strip(match):
        return match[0].replace(match[1], "")
    return re.sub(r'File \\"(/[^"\\]*?/)(?=torch/|torch\\")', strip, text)


def write_archive(path):
    with tempfile.TemporaryDirectory() as folder:
        saved = os.path.join(folder, "small.pt2")
        torch.manual_seed(0)
        torch.export.save(export_small(), saved)
        with zipfile.ZipFile(saved) as source, zipfile.ZipFile(path, "w") as out:
            for entry in source.infolist():
                data = source.read(entry)
                if entry.filename.endswith("/models/small.json") or entry.filename.endswith("/models/model.json"):
                    data = without_paths(json.dumps(json.loads(data))).encode()
                out.writestr(zipfile.ZipInfo(entry.filename), data)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--write":
        write_archive(sys.argv[2])
    else:
        unittest.main()
