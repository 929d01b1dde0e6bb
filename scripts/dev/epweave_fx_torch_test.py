#!/usr/bin/env python3
"""Tests of epweave_fx.export and .load and of trace_torchtitan; needs torch and torchtitan."""
import collections
import contextlib
import enum
import importlib.util
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (CallMethodKey, ConvertIntKey, DivideByKey,
                                                   InnerTensorKey, ShapeEnv)
from torch.utils._pytree import GetAttrKey, MappingKey, SequenceKey
from torch.utils.checkpoint import CheckpointPolicy

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, SCRIPTS)
import epweave_fx  # noqa: E402
import trace_torchtitan  # noqa: E402

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
Pair = collections.namedtuple("Pair", "left right")


def describe(x):
    """A comparable form of an argument or metadata value that keeps Python types apart.

    A symbolic scalar that is a known number counts as that number.
    """
    if isinstance(x, torch.fx.Node):
        return "node", x.name
    if isinstance(x, torch.SymInt) and x.node.expr.is_number:
        return "int", str(x.node.expr)
    if isinstance(x, SYMBOLIC):
        return type(x).__name__, str(x.node.expr)
    if isinstance(x, torch.Tensor):
        facts = (str(x.dtype), str(x.device), str(x.layout), x.requires_grad,
                 [describe(e) for e in x.shape], [describe(e) for e in x.stride()],
                 describe(x.storage_offset()))
        return facts if isinstance(x, FakeTensor) else (facts, type(x).__name__, repr(x.tolist()))
    if isinstance(x, torch.fx.GraphModule):
        return describe_module(x)
    if isinstance(x, torch._ops.HigherOrderOperator):  # copies of one operator are the same
        return "operator", x.name()
    if isinstance(x, set):
        return "set", sorted(map(describe, x))
    if isinstance(x, DeviceMesh):  # loads as a placeholder
        return describe(epweave_fx.MeshPlaceholder(
            list(x.mesh_dim_names), list(x.shape), x.mesh.tolist(), x.device_type))
    if isinstance(x, epweave_fx.MeshPlaceholder):
        return "mesh", str(vars(x))
    if isinstance(x, slice):
        return "slice", describe(x.start), describe(x.stop), describe(x.step)
    if isinstance(x, (tuple, list)):
        return type(x).__name__, getattr(x, "_fields", None), [describe(y) for y in x]
    if isinstance(x, dict):
        return "dict", [(describe(k), describe(v)) for k, v in sorted(x.items(), key=repr)]
    if dataclass_fields := getattr(x, "__dataclass_fields__", None):
        return type(x).__name__, [(f, describe(getattr(x, f))) for f in dataclass_fields]
    return type(x).__name__, repr(x)


def describe_module(module, without=()):
    """All that the file must preserve of a GraphModule; `without` are metadata keys."""
    out = []
    for node in module.graph.nodes:
        attribute = epweave_fx.attribute_at(module, node.target) if node.op == "get_attr" else None
        out.append({
            "name": node.name, "op": node.op, "target": (node.target, id(node.target)
                                                         if callable(node.target) else None),
            "args": [describe(a) for a in node.args], "type": node.type,
            "kwargs": [(k, describe(a)) for k, a in node.kwargs.items()],
            "attribute": describe_module(attribute, without)
                         if isinstance(attribute, torch.fx.GraphModule) else describe(attribute),
            "meta": {k: describe(v) for k, v in node.meta.items() if k not in without}})
    return out


def environment_of(module):
    """The ShapeEnv of a module's recorded values, as text."""
    exporter = epweave_fx.Exporter(module)
    return exporter.symbols()


class GraphTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "graph.epw")

    def export(self, module, **facts):
        """What `export` says on stderr."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            epweave_fx.export(module, self.path, **facts)
        return said.getvalue()

    def check(self, module, without=(), **facts):
        """Export, load, compare everything, and export again: the same bytes."""
        said = self.export(module, **facts)
        loaded = epweave_fx.load(self.path)
        mine, theirs = describe_module(loaded), describe_module(module, without)
        self.assertEqual(len(mine), len(theirs))
        for a, b in zip(mine, theirs):
            self.assertEqual(a, b)
        self.assertEqual(environment_of(loaded), environment_of(module))
        with open(self.path, "rb") as f:
            first = f.read()
        self.export(loaded)
        with open(self.path, "rb") as f:
            self.assertEqual(f.read(), first)
        return loaded, said


class RoundTrip(GraphTest):
    def test_traced_with_numbers_and_with_symbols(self):
        def step(x, w):
            a, b = torch.relu(x @ w).split(2, 1)
            values, _ = torch.topk(a, 1)
            return [a.sum() + b[:, 1:].mean() + torch.tensor([1.5, 2.0]).sum(), values,
                    torch.cat([a, b], 1).to(torch.float16), torch.full((2,), -math.inf),
                    x.t().contiguous(memory_format=torch.contiguous_format)]

        inputs = torch.randn(6, 4), torch.randn(4, 4)
        for mode in ("real", "fake", "symbolic"):
            with self.subTest(mode):
                module = make_fx(step, tracing_mode=mode)(*inputs)
                loaded, said = self.check(module)
                self.assertEqual(said, "")
                self.assertEqual(loaded.code, module.code)
                for mine, theirs in zip(loaded(*inputs), module(*inputs)):
                    self.assertTrue(torch.equal(mine, theirs))

    def test_every_kind_of_argument(self):
        environment = ShapeEnv()
        unbacked = environment.create_unbacked_symint()
        torch._check(unbacked >= 2)
        torch._check(unbacked % 4 == 0)
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        x.meta["val"] = unbacked
        tuples = graph.call_function(max, (
            x, [1, True, 1.0, "1", None], (2, (3,)), slice(x, None, 2), Ellipsis, -0.0, math.inf,
            math.nan, 1e300, 1 + 2j, torch.bfloat16, torch.device("cuda:3"), torch.strided,
            torch.channels_last, torch.Size([2, 3]), Pair(1, [x]), {"k": x, 3: (4,)}, unbacked,
            unbacked // 2 + 1, 2 ** 64 - 1, -(2 ** 63), "", epweave_fx.MeshPlaceholder(
                ["dp", "ep"], [2, 2], [[0, 1], [2, 3]], "cuda"),
            epweave_fx.ProcessGroupPlaceholder("7"), torch.ops.aten.mm.default, torch.tensor([1, 2])),
            {"dtype": torch.int64, "flag": False})
        for target in (torch.ops.aten.add.Tensor, torch.sym_max, math.floor, torch.ops.aten.add):
            graph.call_function(target, (tuples, 1))
        graph.output((tuples,))
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        loaded, said = self.check(module)
        self.assertEqual(said, "")
        entry = environment_of(loaded)[0]
        self.assertEqual((entry["name"], entry["lower"], entry["unbacked"]), ("u0", "2", True))

    def test_metadata(self):
        environment = ShapeEnv()
        mode = FakeTensorMode(shape_env=environment)
        size = environment.create_unbacked_symint()
        torch._check(size >= 0)
        with mode:
            base = torch.empty((size, 6), device="cuda:0", dtype=torch.bfloat16)
            view = torch.empty_strided((3, 2), (8, 2), device="cuda:0")
            shifted = torch.empty(40).as_strided((2, 2), (4, 1), 5)
            wanting = torch.empty(3, requires_grad=True)
        symbol = size.node.expr
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        y = graph.call_function(torch.ops.aten.relu.default, (x,))
        graph.output([y])
        x.meta.update({
            "val": base, "example_value": (view, [shifted, None, size, 3, size * 2.5, size > 3],
                                           wanting),
            "recompute": CheckpointPolicy.PREFER_RECOMPUTE, "seq_nr": 5, "autograd_backward": True,
            "unbacked_bindings": {symbol: (CallMethodKey("size"), SequenceKey(0), DivideByKey(4),
                                           ConvertIntKey(), InnerTensorKey("a"), MappingKey("k"),
                                           GetAttrKey("b"), DivideByKey(size))},
            "torchtitan_chunk_symbol_hints": {symbol: 16},
            "custom": {"module_fqn": "layers.1.moe", "EP": "dispatch", "chunk_id": 0,
                       "compile_with_inductor": {"inductor_configs": {"a": (1, [2.0])}}},
            "chunked_region_fqn": "layers.1.moe", "chunk_id": 0, "chunked_region_role": "body",
            "chunked_region_is_backward": False, "chunked_region_producer": "graph",
            "chunked_original_name": "y", "chunked_materialization_proof": "symbolic_size",
            "nn_module_stack": {"L['self']": ("layers.1", torch.nn.Linear)},
            "stack_trace": '  File "/a/model.py", line 3, in forward\n    return x + 1\n',
            "original_aten": torch.ops.aten.relu.default,
            "source_fn_stack": [("flex", torch.ops.higher_order.flex_attention), ("s", "s")],
            "fsdp_bucket": {"plan_fqns": ("a", "b"), "direction": "fwd"}, "plain_set": {"z", "a"},
        })
        # Values whose class is not that of the key's field, and empty containers.
        y.meta.update({"seq_nr": "5", "recompute": "kept", "autograd_backward": None, "chunk_id": True,
                       "unbacked_bindings": {}, "torchtitan_chunk_symbol_hints": {}, "custom": {
                           "module_fqn": 3, "EP": None}, "stack_trace": "no frames", "val": None})
        _, said = self.check(torch.fx.GraphModule(torch.nn.Module(), graph))
        self.assertEqual(said, "")
        message = epweave_fx.read_file(self.path)["graphs"][0]["nodes"][0]
        self.assertEqual(message["source"], "/a/model.py:3 in forward: return x + 1")

    def test_nested_graphs_and_constants(self):
        inner = torch.fx.Graph()
        inner.output(inner.call_function(torch.ops.aten.relu.default, (inner.placeholder("a"),)))
        root = torch.nn.Module()
        root.body = torch.fx.GraphModule(torch.nn.Module(), inner)
        root.same_body = root.body
        root.block = torch.nn.Module()
        root.block.weight = torch.nn.Parameter(torch.randn(2, 3).t(), requires_grad=True)
        root.register_buffer("flags", torch.tensor([[True, False]]))
        root.register_buffer("halves", torch.tensor([1.5, -math.inf], dtype=torch.bfloat16))
        root.register_buffer("scalar", torch.tensor(2 ** 62 + 1))
        root.register_buffer("nothing", torch.empty(0, 4))
        root.register_buffer("complexes", torch.tensor([1 + 2j]))
        graph = torch.fx.Graph()
        graph.output([graph.get_attr(name) for name in (
            "body", "same_body", "block.weight", "flags", "halves", "scalar", "nothing",
            "complexes")])
        loaded, _ = self.check(torch.fx.GraphModule(root, graph))
        self.assertIs(loaded.body, loaded.same_body)
        self.assertEqual([g.get("name") for g in epweave_fx.read_file(self.path)["graphs"]],
                         [None, "body"])

    def test_names_order_and_roles_survive(self):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        two = graph.create_node("call_function", torch.ops.aten.neg.default, (x,), name="neg_2")
        one = graph.create_node("call_function", torch.ops.aten.neg.default, (two,), name="neg")
        odd = graph.create_node("call_function", torch.ops.aten.neg.default, (one,), name="t")
        odd.name = "neg_1_1"
        graph.output(odd)
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        groups = [{"name": "0", "ranks": [0, 1], "desc": None, "axes": ["ep"], "priority": "high"}]
        loaded, _ = self.check(module, inputs=[{"role": "parameter", "fqn": "w", "shape": (2,)}],
                               outputs=[{"role": "loss"}], process_groups=groups,
                               info={"model": "toy", "layers": 2})
        self.assertEqual([n.name for n in loaded.graph.nodes],
                         ["x", "neg_2", "neg", "neg_1_1", "output"])
        dump = epweave_fx.dump_from_file(epweave_fx.read_file(self.path))
        self.assertEqual(dump["inputs"], [{"name": "x", "role": "parameter", "fqn": "w",
                                           "shape": {"t": [2]}}])
        self.assertEqual((dump["outputs"], dump["process_groups"], dump["meta"]),
                         ([{"role": "loss"}], groups, {"model": "toy", "layers": 2}))

    def test_groups_that_passes_added_stay_beside_the_groups_that_a_caller_gives(self):
        module = make_fx(torch.neg)(torch.ones(2))
        live = {"name": "0", "ranks": [0, 1], "desc": None}
        added = {"name": "0_ep_extra", "ranks": [0, 1], "desc": "extra", "split_from": "0"}
        gone = {"name": "1", "ranks": [0], "desc": None}
        self.export(module, process_groups=[live, added, gone])
        loaded = epweave_fx.load(self.path)
        for given, expected in (([live], [live, added]), ([live, added], [live, added]), (None, [live, added, gone])):
            self.export(loaded, process_groups=given)
            self.assertEqual(epweave_fx.dump_from_file(epweave_fx.read_file(self.path))["process_groups"], expected)

    def test_provenance_goes_with_the_nodes_it_is_about(self):
        module = make_fx(lambda x, y: (x + y) * y)(torch.ones(2), torch.ones(2))
        self.export(module)
        message = epweave_fx.read_file(self.path)
        nodes = message["graphs"][0]["nodes"]
        message["passes"] = [{"name": "dce", "tool": "epweave", "nodes_before": 5, "nodes_after": 5}]
        message["origins"] = [{"name": n["name"], "target": n["target"]} for n in nodes]
        for n in nodes:
            n["provenance"] = [{"pass": "dce", "origins": [n["name"]]}]
        epweave_fx.write_file(message, self.path)
        with open(self.path, "rb") as f:
            written = f.read()
        loaded = epweave_fx.load(self.path)
        self.assertEqual(self.export(loaded), "")
        with open(self.path, "rb") as f:
            # The producer is the last writer.
            self.assertEqual(epweave_fx.decode_file(f.read()) | {"version": message["version"]},
                             epweave_fx.decode_file(written))

    def load_with_provenance(self, function, *inputs):
        """A module as `dce` of epweave wrote it, and what the file says of its origins."""
        self.export(make_fx(function)(*inputs))
        message = epweave_fx.read_file(self.path)
        nodes = message["graphs"][0]["nodes"]
        message["passes"] = [{"name": "dce", "tool": "epweave", "nodes_before": len(nodes), "nodes_after": len(nodes)}]
        message["origins"] = [{"name": n["name"], "target": n["target"]} for n in nodes]
        for n in nodes:
            n["provenance"] = [{"pass": "dce", "role": "KEPT", "origins": [n["name"]]}]
        epweave_fx.write_file(message, self.path)
        return epweave_fx.load(self.path)

    def records(self, module):
        """{node: (role, origins)} of the one record that each node of the exported module has, and the log's names."""
        self.assertEqual(self.export(module), "")
        message = epweave_fx.read_file(self.path)
        records = {n["name"]: [(x.get("role", "KEPT"), x.get("origins", [])) for x in n["provenance"]]
                   for n in message["graphs"][0]["nodes"]}
        self.assertEqual({len(x) for x in records.values()}, {1})
        self.assertEqual([x["name"] for x in message["origins"]], ["x_1", "y_1", "add", "mul", "output"])
        return {name: x[0] for name, x in records.items()}, [x["name"] for x in message["passes"]]

    def test_provenance_survives_passes_of_others_node_by_node(self):
        """Behind a node of theirs, copies that take over metadata, other names, another module, and another type."""
        def load():
            return self.load_with_provenance(lambda x, y: (x + y) * y, torch.ones(2), torch.ones(2))

        def kept(*names):
            return {name: ("KEPT", [name]) for name in names}

        loaded = load()
        add = next(n for n in loaded.graph.nodes if n.name == "add")
        with loaded.graph.inserting_after(add):
            neg = loaded.graph.call_function(torch.ops.aten.neg.default, (add,))
            again = loaded.graph.node_copy(add, lambda n: n)  # the same call, its metadata with it
        neg.meta = dict(add.meta)
        self.assertEqual(self.records(loaded), ({**kept("x_1", "y_1", "add", "mul", "output"), neg.name: ("ADDED", ["add"]),
                                                 again.name: ("ADDED", ["add"])}, ["dce", "outside"]))
        # A new module of copied nodes, one under another name.
        loaded, graph, nodes = load(), torch.fx.Graph(), {}
        for node in loaded.graph.nodes:
            nodes[node] = graph.node_copy(node, nodes.__getitem__)
        nodes[next(n for n in nodes if n.name == "add")].name = "sum_of_both"
        moved = torch.fx.GraphModule(torch.nn.Module(), graph)
        self.assertEqual(self.records(moved), ({**kept("x_1", "y_1", "mul", "output"), "sum_of_both": ("KEPT", ["add"])},
                                               ["dce", "outside"]))
        # One call in the place of several: the target and the metadata of one of them, and more
        # rows.
        loaded = load()
        add = next(n for n in loaded.graph.nodes if n.name == "add")
        with loaded.graph.inserting_after(add):
            bucket = loaded.graph.call_function(torch.ops.aten.add.Tensor, add.args)
            bucket.meta = {**add.meta, "val": FakeTensorMode().from_tensor(torch.ones(6))}
        add.replace_all_uses_with(bucket)
        loaded.graph.erase_node(add)
        self.assertEqual(self.records(loaded), ({**kept("x_1", "y_1", "mul", "output"), bucket.name: ("ADDED", ["add"])},
                                                ["dce", "outside"]))

    def test_provenance_of_scalars_and_of_nodes_of_another_type(self):
        loaded = self.load_with_provenance(lambda x, y: (x + y) * y, torch.ones(()), torch.ones(()))
        add = next(n for n in loaded.graph.nodes if n.name == "add")
        add.meta["val"] = add.meta["val"].to(torch.float64)
        kept = {name: ("KEPT", [name]) for name in ("x_1", "y_1", "mul", "output")}
        self.assertEqual(self.records(loaded), ({**kept, "add": ("ADDED", ["add"])}, ["dce", "outside"]))
        with loaded.graph.inserting_after(add):
            neg = loaded.graph.call_function(torch.ops.aten.neg.default, (add,))
        neg.meta = dict(add.meta)
        self.assertEqual(self.records(loaded), ({**kept, "add": ("ADDED", ["add"]), neg.name: ("ADDED", ["add"])},
                                                ["dce", "outside"]))

    def test_provenance_of_none_of_the_nodes_is_left_out(self):
        loaded = self.load_with_provenance(lambda x, y: (x + y) * y, torch.ones(2), torch.ones(2))
        for node in loaded.graph.nodes:
            node.meta = {}
        loaded.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)[0].target = torch.ops.aten.add.Tensor
        self.assertEqual(self.export(loaded), "epweave: none of the module's nodes is one of those that were loaded; the"
                                              " pipeline log and provenance are left out\n")
        self.assertNotIn("passes", epweave_fx.read_file(self.path))

    def test_what_is_not_plain_data_is_named(self):
        class Colour(enum.Enum):
            RED = 1

        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        y = graph.call_function(torch.ops.aten.neg.default, (x,))
        graph.output(y)
        x.meta.update({"seq_nr": 1, "friend": [1, y], "colour": Colour.RED})
        y.meta.update({"friend": (x,), "values": torch.ones(2), 5: "five"})
        _, said = self.check(torch.fx.GraphModule(torch.nn.Module(), graph),
                             without=("friend", "colour", "values", 5))
        self.assertEqual(said, (
            'epweave: metadata "5" is not plain data (int); left out on 1 node\n'
            'epweave: metadata "colour" is not plain data (Colour); left out on 1 node\n'
            'epweave: metadata "friend" is not plain data (Node); left out on 2 nodes\n'
            'epweave: metadata "values" is not plain data (Tensor); left out on 1 node\n'))

    def failure(self, function, *arguments, **keywords):
        with self.assertRaises(epweave_fx.GraphFileError) as caught:
            function(*arguments, **keywords)
        return str(caught.exception).replace(self.path, "PATH")

    def test_what_cannot_be_written_or_loaded_is_an_error(self):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_method("relu", (x,)))
        self.assertEqual(
            self.failure(epweave_fx.export, torch.fx.GraphModule(torch.nn.Module(), graph), self.path),
            'graph "", node "relu": op call_method has no place in the file; trace with make_fx,'
            " which leaves calls of operators only")
        graph = torch.fx.Graph()
        graph.output(graph.call_function(lambda: 1))
        self.assertRegex(
            self.failure(epweave_fx.export, torch.fx.GraphModule(torch.nn.Module(), graph), self.path),
            r'^graph "", node "\w+": the target <function .*> cannot be found by name; define it at'
            " the top of a module or as a custom operator$")
        self.assertFalse(os.path.exists(self.path))

        def nodes(*nodes):
            output = {"name": "output", "kind": "OUTPUT", "target": "output", "args": [("none", True)]}
            epweave_fx.write_file({"version": {"format": 1, "min_reader": 1, "producer": "test"},
                                   "graphs": [{"nodes": [*nodes, output]}]}, self.path)
            return self.failure(epweave_fx.load, self.path)

        self.assertEqual(
            nodes({"name": "a", "target": "nowhere.op.default"}),
            'PATH: graph "", node "a": the operator nowhere.op.default is not registered; import'
            " the module that defines it first")
        self.assertEqual(
            nodes({"name": "a", "target": "aten.neg.default", "args": [("node", "b")]}),
            'PATH: graph "", node "a": refers to "b", which no earlier node of the graph is;'
            " `epweave verify` lists all such faults")
        twice = {"name": "a", "kind": "PLACEHOLDER", "target": "a"}
        self.assertEqual(nodes(twice, twice), 'PATH: graph "", node "a": the name occurs twice;'
                                              " `epweave verify` lists all such faults")

    def test_a_graph_for_cuda_runs_on_the_cpu(self):
        def step(x):
            mask = torch.ones(3, 4, device=x.device, dtype=torch.bool).tril()
            return torch.where(mask, x, torch.zeros((), device=x.device)).sum(0)

        with FakeTensorMode():
            module = make_fx(step)(torch.empty(3, 4, device="cuda:0"))
        self.check(module)
        loaded = epweave_fx.load(self.path, device="cpu")
        x = torch.randn(3, 4)
        self.assertTrue(torch.equal(loaded(x), step(x)))
        devices = {n.meta["val"].device for n in loaded.graph.nodes if "val" in n.meta}
        self.assertEqual(devices, {torch.device("cpu")})
        self.assertEqual(len({id(n.meta["val"].fake_mode) for n in loaded.graph.nodes
                              if "val" in n.meta}), 1)

    def test_a_graph_of_rank_0_runs_on_another_ranks_device(self):
        def step(x):
            places = torch.arange(4)  # on the host
            return torch.zeros(3, 4, device=x.device) + x, places

        with FakeTensorMode():
            module = make_fx(step)(torch.empty(3, 4, device="cuda:0"))
        self.check(module)
        loaded = epweave_fx.load(self.path, rank_device="cuda:3")
        given = [n.kwargs["device"] for n in loaded.graph.nodes if "device" in n.kwargs]
        self.assertEqual(given, [torch.device("cpu"), torch.device("cuda:3")])
        devices = [n.meta["val"].device for n in loaded.graph.nodes if "val" in n.meta]
        self.assertEqual([str(d) for d in devices], ["cuda:3", "cpu", "cuda:3", "cuda:3"])
        with self.assertRaisesRegex(ValueError, "'nowhere' is no device"):
            epweave_fx.load(self.path, rank_device="nowhere")


class Torchtitan(GraphTest):
    """A DeepSeek-V3 step of two layers with expert parallelism, traced in this process."""

    @classmethod
    def setUpClass(cls):
        options = trace_torchtitan.parse_options(
            ["--ep", "2", "--layers", "2", "--normalize", "-o", "unused"])
        cls.module, cls.facts = trace_torchtitan.trace_step(options)
        from torchtitan.experiments.graph_trainer.ep_chunk_pass import populate_chunk_dim_metadata_pass
        populate_chunk_dim_metadata_pass(cls.module, mode="batch")

    def test_round_trip_and_chunking(self):
        loaded, said = self.check(self.module, ("eager_input_vals", "from_node"), **self.facts)
        self.assertRegex(said, r'^epweave: metadata "eager_input_vals" is not plain data'
                               r' \(FakeTensor\); left out on \d+ nodes\n'
                               r'epweave: metadata "from_node" is not plain data'
                               r' \(NodeSource\); left out on \d+ nodes\n$')
        keys = {key for node in loaded.graph.nodes for key in node.meta}
        self.assertLessEqual({"val", "custom", "seq_nr", "autograd_backward", "recompute",
                              "unbacked_bindings", "torchtitan_chunk_symbol_hints", "stack_trace",
                              "original_aten"}, keys)
        targets = {str(node.target) for node in loaded.graph.nodes}
        self.assertIn("torchtitan.deterministic_scatter_add.default", targets)

        self.check_chunking(loaded)

    def test_a_rewrite_loaded_and_exported_is_proved_as_before(self):
        """Sums that sympy writes in another order, and what chunk took for granted of symbols, survive."""
        self.export(self.module, **self.facts)
        rewritten, again = (f"{self.path}.{name}.epw" for name in ("rewritten", "again"))
        epweave = os.path.join(SCRIPTS, "../build/release/bin/epweave")
        subprocess.run([epweave, "rewrite", self.path, "-p", "chunk{parts=3}", "-o", rewritten, "-q"], check=True)
        with contextlib.redirect_stderr(io.StringIO()):
            epweave_fx.export(epweave_fx.load(rewritten), again)
        before, after = map(epweave_fx.read_file, (rewritten, again))
        noted = [[(s["name"], s.get("assumptions"), s.get("part_of")) for s in x["symbols"]] for x in (before, after)]
        self.assertEqual(*map(sorted, noted))
        records = [[(n["name"], n.get("provenance")) for n in x["graphs"][0]["nodes"]] for x in (before, after)]
        self.assertEqual(*records)
        proofs = [subprocess.run([epweave, "verify", self.path, graph, "--json", "-q"], check=True, capture_output=True,
                                 text=True).stdout for graph in (rewritten, again)]
        self.assertEqual(*(json.loads(proof)["assumptions"] for proof in proofs))

    def test_sources_are_the_files(self):
        """A graph that was traced under other folders: this machine would name other lines."""
        self.export(self.module)
        file = epweave_fx.read_file(self.path)
        nodes = [node for node in file["graphs"][0]["nodes"]
                 if any(entry["name"] == "stack_trace" for entry in node.get("meta", ()))]
        for i, node in enumerate(nodes):
            node["source"] = f"model.py:{i} in forward: ..."
            entry = next(entry for entry in node["meta"] if entry["name"] == "stack_trace")
            entry["value"] = ("text", f'  File "/elsewhere/{i}.py", line 1, in forward\n    x\n')
        self.assertGreater(len(nodes), 10)
        epweave_fx.write_file(file, self.path)
        epweave_fx.export(epweave_fx.load(self.path), self.path)
        self.assertEqual(epweave_fx.read_file(self.path)["graphs"], file["graphs"])

    def test_bare_symbols_are_bound_where_torch_does_not_say_so(self):
        """As at coordinates that torch computes while it ignores fresh symbols."""
        def step(x):
            return x[: x.sum().long().item()]

        module = make_fx(step, tracing_mode="symbolic")(torch.ones(4))
        self.export(module)
        bound = epweave_fx.read_file(self.path)
        item = module.graph.find_nodes(op="call_function", target=torch.ops.aten._local_scalar_dense.default)[0]
        self.assertEqual(list(item.meta.pop("unbacked_bindings").values()), [()])
        self.export(module)
        self.assertEqual(epweave_fx.read_file(self.path)["graphs"], bound["graphs"])

    def check_chunking(self, loaded):
        """torchtitan's chunker does the same to the loaded graph as to the traced one.

        Names of new nodes depend on names that were ever used in the Graph object, so nodes
        are named by their place.
        """
        from torchtitan.experiments.graph_trainer.ep_chunk_pass import ep_overlap_chunk_pass
        results = []
        for module in (loaded, self.module):
            chunked = ep_overlap_chunk_pass(
                module, mode="batch", module_pattern="layers.*.moe",
                num_static_inputs=self.facts["info"]["num_static_inputs"],
                optimize_grad_live_out=True, require_all_to_all=True)
            nodes = list(chunked.graph.nodes)
            place = {node: i for i, node in enumerate(nodes)}
            results.append([
                (str(n.target) if n.op == "call_function" else n.op,
                 describe(torch.fx.node.map_arg((n.args, dict(n.kwargs)), lambda m: place[m])),
                 describe(n.meta.get("val")), n.meta.get("custom"), n.meta.get("chunk_id"))
                for n in nodes])
        self.assertEqual(*results)


class TraceCommand(unittest.TestCase):
    def run_tool(self, *arguments):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "out.epw")
            done = subprocess.run([sys.executable, os.path.join(SCRIPTS, "trace_torchtitan.py"),
                                   *arguments, "-o", path], capture_output=True, text=True)
            graph = epweave_fx.load(path, device="cpu") if os.path.exists(path) else None
        return done.returncode, done.stdout, done.stderr.replace(path, "OUT"), graph

    def test_dense_model(self):
        code, out, err, graph = self.run_tool("--model", "llama3", "--layers", "1", "--static")
        self.assertEqual((code, out), (0, ""), err)
        self.assertTrue(err.endswith(f"trace_torchtitan: {len(graph.graph.nodes)} nodes in OUT\n"))

    def test_mixture_of_experts(self):
        code, _, err, graph = self.run_tool("--model", "qwen3", "--layers", "1", "--ep", "2")
        self.assertEqual(code, 0, err)
        exchanges = [n for n in graph.graph.nodes if "all_to_all" in str(n.target)]
        self.assertGreater(len(exchanges), 0)

    def test_errors(self):
        code, _, err, _ = self.run_tool("--model", "llama3", "--config", "none_such")
        self.assertEqual(code, 3)
        self.assertRegex(err, "^trace_torchtitan: llama3 has no configuration none_such; it has"
                              " graph_trainer_llama3_.*\n$")
        for output, message in (("x.txt", "x.txt: has the ending of another form, but only the binary form is written"
                                          " here\n  remedy: end the name in .epw (and .gz behind it), and use `epweave convert`"),
                                ("/none/x.epw", "/none/x.epw: cannot be written: there is no folder /none"),
                                ("/tmp", "/tmp: cannot be written: is a folder")):
            done = subprocess.run([sys.executable, os.path.join(SCRIPTS, "trace_torchtitan.py"), "-o", output],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (3, f"trace_torchtitan: {message}\n"))
        code, _, err, _ = self.run_tool("--tokens", "100")
        self.assertEqual(code, 2)
        self.assertTrue(err.endswith("error: --tokens 100 is not a multiple of --sequence 256\n"))
        for odd, what in ((["--tokens", "768"], "sequences (3)"),
                          (["--dim", "seq", "--tokens", "202", "--sequence", "101"], "tokens in a sequence (101)")):
            code, _, err, _ = self.run_tool(*odd)
            self.assertEqual(code, 2)
            self.assertTrue(err.endswith(f"error: an odd number of {what} cannot be a symbol, torchtitan says; trace an"
                                         " even number, or with --static\n"), err)

    def test_a_configuration_that_needs_what_is_not_installed(self):
        if importlib.util.find_spec("torchao") is not None:
            self.skipTest("torchao is installed")
        name = "graph_trainer_deepseek_v3_debugmodel_mxfp8"
        code, _, err, _ = self.run_tool("--config", name)
        self.assertEqual((code, err), (3, f"trace_torchtitan: torchtitan: {name} needs what is not installed: torchao is"
                                          " not installed. Please install it to use MXFP8 linear layers.\n"))


if __name__ == "__main__":
    unittest.main()
