#!/usr/bin/env python3
"""Tests of epweave.load(rank=, meshes=), save_artifact and load_artifact in one process; needs torch and torchtitan."""
import dataclasses
import functools
import os
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard
from torch.nn.attention import flex_attention
from torch.utils import _pytree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import epweave_fx  # noqa: E402
import epweave  # noqa: E402
from epweave import calling, job  # noqa: E402

CASE = (ROOT / "testdata/specialize/r1_rank_3.test").read_text(encoding="utf-8")
GENERAL = re.search(r"=== g.txt ===\n(.*?)=== stdout", CASE, re.S)[1]
GENERAL = GENERAL.replace("cuda:0", "cpu").replace('"cuda"', '"cpu"')


def setUpModule():
    dist.init_process_group("fake", rank=3, world_size=4)


def tearDownModule():
    dist.destroy_process_group()


class Folder(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, text: str) -> str:
        """The path of a graph file of this text."""
        source, path = self.folder / "graph.txt", str(self.folder / "graph.epw")
        source.write_text(text, encoding="utf-8")
        epweave.programs.run("epweave", "convert", str(source), path)
        return path


def calls(module, part: str) -> list:
    return [node for node in module.graph.nodes if part in str(node.target)]


class LoadForRank(Folder):
    def test_rank(self):
        module = epweave.load(self.write(GENERAL), rank=3)
        gather, = calls(module, "all_gather_into_tensor")
        self.assertEqual(gather.args[2], "24")
        self.assertEqual([node.args[1] for node in calls(module, "ge.Scalar")], [8])
        self.assertEqual(calls(module, "mesh_get_process_group"), [])
        self.assertEqual(epweave.load(self.write(GENERAL), rank=0).graph.nodes.__len__(), len(module.graph.nodes))

    def test_live_meshes_name_groups(self):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
        module = epweave.load(self.write(GENERAL), meshes=[mesh])
        gather, = calls(module, "all_gather_into_tensor")
        reduce, = calls(module, "all_reduce")
        self.assertEqual(gather.args[2], mesh.get_group("fsdp").group_name)
        self.assertEqual(reduce.args[2], mesh.get_group("tp").group_name)
        recorded, = (node.meta["val"] for node in module.graph.nodes if node.name == "mesh")
        self.assertIs(recorded, mesh)
        self.assertEqual({row["name"] for row in module.meta[epweave_fx.FILE_FACTS]["process_groups"]},
                         {mesh.get_group("fsdp").group_name, mesh.get_group("tp").group_name})

    def test_a_group_in_none_of_the_meshes(self):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
        with self.assertRaises(epweave.GraphFileError) as caught:
            epweave.load(self.write(GENERAL), meshes=[mesh["tp"]])
        said = str(caught.exception)
        self.assertIn("uses process group 24 (fsdp; ranks [1, 3]), which is in none of the meshes", said)
        self.assertEqual(caught.exception.node, "g")

    def test_meshes_of_another_rank_and_what_are_none(self):
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
        path = self.write(GENERAL)
        for given, said in (({"rank": 1, "meshes": [mesh]}, "the meshes are rank 3's, and the graph of rank 1 is asked for"),
                            ({"meshes": mesh}, f"meshes is a list of DeviceMeshes, and {mesh!r} was given"),
                            ({"meshes": ["tp"]}, "meshes is a list of DeviceMeshes, and ['tp'] was given")):
            with self.subTest(given=given), self.assertRaises(epweave.UsageError) as caught:
                epweave.load(path, **given)
            self.assertEqual(str(caught.exception), said)
        with mock.patch.object(dist, "is_initialized", lambda: False), self.assertRaises(epweave.UsageError) as caught:
            epweave.load(path, rank=3, meshes=[mesh])
        self.assertEqual((str(caught.exception), caught.exception.remedy),
                         ("this process has no rank", "call torch.distributed.init_process_group, or give rank= and no meshes"))

    def test_no_such_rank_and_one_ranks_graph(self):
        with self.assertRaises(epweave.DeclinedError) as caught:
            epweave.load(self.write(GENERAL), rank=4)
        self.assertEqual(caught.exception.id, "specialize.rank")
        with self.assertRaises(epweave.DeclinedError) as caught:
            epweave.load(self.write(GENERAL.replace("on_one_rank = True", "on_one_rank = False")), rank=1)
        self.assertEqual(caught.exception.id, "specialize.one-rank")


def document_mask(positions):
    documents = torch.cumsum((positions == 0).int(), dim=1) - 1

    def same_document(b, h, q, kv):
        return documents[b, q] == documents[b, kv]

    return same_document


def causal(b, h, q, kv):
    return q >= kv


def block_mask(mask):
    return flex_attention.create_block_mask(mask, 1, None, 128, 128, device="cpu")


class Calling(unittest.TestCase):
    def setUp(self):
        from torchtitan.experiments.graph_trainer.common_utils import maybe_register_blockmask_pytree_node
        maybe_register_blockmask_pytree_node()
        self.positions = torch.arange(128)[None]

    def spec(self, mask):
        return _pytree.tree_flatten((("tokens", [1, None]), {"mask": block_mask(mask), "scale": 0.5}))[1]

    def combined(self):
        return flex_attention.and_masks(causal, document_mask(self.positions))

    def test_masks_with_closures(self):
        spec = self.spec(self.combined())
        data = calling.encode(spec)
        found = calling.decode(data)
        self.assertEqual(found, self.spec(self.combined()))
        self.assertNotEqual(found, self.spec(causal))
        self.assertNotEqual(found, self.spec(flex_attention.or_masks(causal, document_mask(self.positions))))
        leaves = _pytree.tree_leaves((("tokens", [1, None]), {"mask": block_mask(self.combined()), "scale": 0.5}))
        mask = _pytree.tree_unflatten(leaves, found)[1]["mask"].mask_mod
        at = torch.tensor
        self.assertEqual([bool(mask(at(0), at(0), at(q), at(kv))) for q, kv in ((5, 3), (3, 5))], [True, False])

    def test_a_function_that_is_another_now_is_refused(self):
        data = calling.encode(self.spec(self.combined()))
        with mock.patch.object(calling, "code_digest", lambda code: "another"):
            with self.assertRaises(epweave.GraphFileError) as caught:
                calling.decode(data)
        self.assertIn("is not the one that was traced", str(caught.exception))

    def test_a_function_that_has_no_name_is_refused(self):
        namespace = {}
        exec("def hidden(b, h, q, kv):\n    return q > kv", namespace)
        with self.assertRaises(epweave.GraphFileError) as caught:
            calling.encode(self.spec(namespace["hidden"]))
        self.assertIn("hidden cannot be found by its name", str(caught.exception))

    def test_what_has_no_form_is_refused(self):
        with self.assertRaises(epweave.GraphFileError):
            calling.encode(object())
        with self.assertRaises(epweave.GraphFileError):
            calling.decode({"shell": "rm"})
        with self.assertRaises(epweave.GraphFileError):
            calling.decode({"named": "os.system", "items": ["true"]})


class Artifacts(Folder):
    def trace(self):
        """A linear layer whose weight is a DTensor, traced as torchtitan traces a step."""
        from torchtitan.experiments.graph_trainer.make_fx_tracer import minimal_fx_tracer
        mesh = dist.init_device_mesh("cpu", (4,), mesh_dim_names=("fsdp",))
        model = torch.nn.Linear(4, 8, bias=False)
        weight = DTensor.from_local(torch.arange(8.0).reshape(2, 4), mesh, [Shard(0)])
        model.weight = torch.nn.Parameter(weight)

        def step(x, more):
            y = (model.weight.to_local() @ x).sum() * more["scale"]
            return [y, *torch.autograd.grad(y, [model.weight])]

        arguments = (torch.ones(4), {"scale": 2.0})
        return minimal_fx_tracer(step, module=model)(*arguments), model, arguments, mesh

    def test_what_is_saved_is_loaded_and_runs(self):
        from torchtitan.experiments.graph_trainer.make_fx_tracer import run_traced
        traced, model, arguments, mesh = self.trace()
        path = str(self.folder / "step.epw")
        made = epweave.save_artifact(traced, path, pipeline="dce,canonicalize", config={"loss": "sum", "model.layers": 2},
                                     info={"rank": 3, "world_size": 4})
        artifact = epweave.load_artifact(path, {"loss": "sum", "model.layers": 2}, meshes=[mesh])
        self.assertEqual(artifact.fingerprint, made)
        self.assertEqual(artifact.state_names, traced.state_fqns)
        self.assertEqual(artifact.num_static_inputs, traced.num_static_inputs)
        self.assertEqual(artifact.input_spec, traced.user_inputs_spec)
        self.assertEqual(artifact.output_spec, traced.output_spec)
        self.assertEqual(artifact.traced().output_subclass_layouts.keys(), traced.output_subclass_layouts.keys())
        loss, gradient = run_traced(artifact.traced(), module=model, _validate_runtime=True)(*arguments)
        expected, wanted = run_traced(traced, module=model)(*arguments)
        self.assertEqual(loss.item(), expected.item())
        self.assertTrue(torch.equal(gradient.to_local(), wanted.to_local()))
        self.assertEqual(gradient.placements, wanted.placements)
        self.assertEqual(pathlib.Path(path).read_bytes(), self.saved_again(traced))

    def saved_again(self, traced) -> bytes:
        path = str(self.folder / "again.epw")
        epweave.save_artifact(traced, path, pipeline="dce,canonicalize", config={"model.layers": 2, "loss": "sum"},
                              info={"rank": 3, "world_size": 4})
        return pathlib.Path(path).read_bytes()

    def test_what_no_artifact_is_made_of(self):
        path = str(self.folder / "step.epw")
        with self.assertRaises(epweave.UsageError) as caught:
            epweave.save_artifact(torch.nn.Linear(2, 2), path)
        self.assertEqual(str(caught.exception), "an artifact holds how torchtitan calls the step, which Linear does not say")
        case = (ROOT / "testdata/artifact/baked.test").read_text(encoding="utf-8")
        baked = self.write(re.search(r"=== \S+ ===\n(epweave text.*?)=== stdout", case, re.S)[1])
        with self.assertRaises(epweave.DeclinedError) as caught:
            epweave.make_artifact([baked], path)
        self.assertEqual((caught.exception.id, caught.exception.remedy),
                         ("artifact.baked", "repair=True (EPWEAVE_REPAIR=1, --repair) replaces such numbers; or give traces of several"
                                            " ranks"))
        self.assertIn(caught.exception.remedy, epweave.errors.full_text(caught.exception))
        self.assertFalse(os.path.exists(path))

    def test_a_calling_in_no_known_form_is_refused(self):
        traced, *_ = self.trace()
        known = calling.encode_calling(traced)
        for field, damaged in (("input_spec", {"spec": "builtins.tuple", "context": None, "children": ["leaf"]}),
                               ("output_spec", {"size": {}}), ("inputs", [[0]]), ("state", None)):
            path = str(self.folder / "damaged.epw")
            said = known | {field: damaged}
            if damaged is None:
                del said[field]
            with mock.patch.object(epweave.artifact, "encode_calling", lambda _, said=said: said):
                epweave.save_artifact(traced, path, info={"rank": 3, "world_size": 4})
            with self.subTest(field), self.assertRaises(epweave.GraphFileError) as caught:
                epweave.load_artifact(path)
            self.assertIn("says in no known form how the step is called", str(caught.exception))

    def test_a_mismatch_names_each_field_with_both_values(self):
        traced, *_ = self.trace()
        path = str(self.folder / "step.epw")
        epweave.save_artifact(traced, path, config={"loss": "sum", "tokens": 256}, info={"rank": 3, "world_size": 4})
        with self.assertRaises(epweave.MismatchError) as caught:
            epweave.load_artifact(path, {"loss": "mean"})
        self.assertEqual(caught.exception.mismatches,
                         [{"field": "config.loss", "artifact": "sum", "here": "mean"},
                          {"field": "config.tokens", "artifact": "256", "here": None}])
        self.assertEqual(str(caught.exception), f"{path}: does not fit this run:\n"
                         "  config.loss: the artifact has sum, here it is mean\n"
                         "  config.tokens: the artifact has 256, here it is nothing")
        allowed = epweave.load_artifact(path, {"loss": "mean"}, allow=["config.loss", "config.tokens"])
        self.assertEqual(allowed.path, path)
        with self.assertRaises(epweave.MismatchError) as caught:
            epweave.check_artifact(path, {"loss": "sum"}, allow="config.loss")  # one field, not its letters
        self.assertEqual([row["field"] for row in caught.exception.mismatches], ["config.tokens"])
        with self.assertRaises(epweave.GraphFileError) as caught:
            epweave.load_artifact(path, {"loss": "sum", "tokens": 256}, rank=1)
        self.assertIn("the graph is rank 3's alone, not rank 1's", str(caught.exception))


@dataclasses.dataclass
class Layer:
    width: int
    init: object = torch.nn.init.zeros_


@dataclasses.dataclass
class Model:
    layers: list
    dtype: torch.dtype = torch.float32


class Jobs(unittest.TestCase):
    def test_equal_layers_are_said_once_and_each_field_is_named(self):
        base = job.flatten("model", Model([Layer(4), Layer(4), Layer(8)]))
        self.assertEqual(base, {
            "model.is": "Model", "model.layers.count": "3", "model.layers.0.is": "Layer", "model.layers.0.width": "4",
            "model.layers.0.init": "torch.nn.init.zeros_", "model.layers.2.width": "8", "model.dtype": "torch.float32"})
        other = job.flatten("model", Model([Layer(4), Layer(8), Layer(8)]))
        self.assertEqual({k for k in {**base, **other} if base.get(k) != other.get(k)},
                         {"model.layers.1.width", "model.layers.2.width"})

    def test_what_differs_is_not_said_alike(self):
        class Scale:
            def __init__(self, by):
                self.by, self.me = by, self

        class Slots:
            __slots__ = ("by",)

            def __init__(self, by):
                self.by = by

        def scaled(by):
            return lambda x: x * by

        def again(n):
            return again(n - 1) if n else 0

        both = Scale(2)
        apart = [lambda x: x + 1, lambda x: x + 2, lambda x: x - 1, lambda x, y=1: x + y, lambda x, y=2: x + y, scaled(2),
                 scaled(3), Scale(2), Scale(3), Slots(2), Slots(3), again, torch.tensor([1, 2]), torch.tensor([1, 3]),
                 functools.partial(scaled(2)), both.__init__, torch.relu, torch.float32, len, Scale, [scaled(2)],
                 {1: "a"}, {"1": "a"}, ["a, b"], ["a", "b"], pathlib.PurePosixPath("a"), lambda x: x in {"a", "b"}, lambda x: x in {"a", "c"}]
        texts = [job.flatten("model", Layer(4, x))["model.init"] for x in apart]
        self.assertEqual(len(set(texts)), len(apart), texts)
        self.assertEqual([text for text in texts if " at 0x" in text], [])
        for make in (lambda: scaled(2), lambda: Scale(2), lambda: Slots(2), lambda: [scaled({"a": both})]):
            self.assertEqual(job.flatten("model", make()), job.flatten("model", make()))

    def test_what_has_no_text_is_refused_with_its_field(self):
        with self.assertRaises(epweave.UsageError) as caught:
            job.flatten("model", Model([Layer(4, (i for i in range(3)))]))
        self.assertEqual(str(caught.exception), "model.layers.0.init: a builtins.generator in it has no text that tells it from another "
                         "one, so that no artifact can say whether it fits")

    def test_two_ranks_with_different_artifacts(self):
        from epweave import torchtitan as client
        rows = [{"passes": "dce{}", "graph": "ab"}, {"passes": "dce{},chunk{}", "graph": "cd"}]
        ranks = mock.Mock(is_alone=False, size=2)
        ranks.get = lambda what, rank: epweave_json(rows[rank])
        with self.assertRaises(epweave.RunError) as caught:
            client.check_fingerprints(ranks)
        self.assertIn("passes: rank 0 has dce{}, rank 1 has dce{},chunk{}", str(caught.exception))
        self.assertEqual(len(set(re.findall(r"fingerprint (\w{16})|of (\w{16})", str(caught.exception)))), 2)
        rows[1] = rows[0]
        client.check_fingerprints(ranks)


def epweave_json(row: dict) -> bytes:
    import json
    return json.dumps(row).encode()


if __name__ == "__main__":
    unittest.main()
