#!/usr/bin/env python3
"""Parameters that are DTensors: traced, with their placements in the file, they lie on the replay's ranks as on torch's.

A step that gathers a parameter is traced on rank 0 of four, by a fake process group. Each rank of the replay must hold what
torch gives that rank, and compute the loss of the whole parameter. Needs torch and safetensors; EPWEAVE and
EPWEAVE_REPLAY name the programs.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import epweave  # noqa: E402
from epweave.roles import expand_role  # noqa: E402
from epweave.subclasses import unwrap  # noqa: E402

REPLAY = os.environ.get("EPWEAVE_REPLAY") or str(ROOT / "build/release/bin/epweave-replay")
EPWEAVE = os.environ.get("EPWEAVE") or str(ROOT / "build/release/bin/epweave")
RANKS = 4
NO_HINT = ("first", "second")  # names that tell nothing
ROWS = [
    # HSDP, whatever the axis of replicas is called; FSDP; replicas alone.
    ("hsdp", NO_HINT, [Replicate(), Shard(0)]),
    ("hsdp, the axes exchanged", NO_HINT, [Shard(0), Replicate()]),
    ("an axis that is cut, and is called like one of replicas", ("replicate", "tp"), [Shard(0), Shard(1)]),
    ("replicated", NO_HINT, [Replicate(), Replicate()]),
    # FSDP over tensor parallelism: two dimensions, in both orders, and one.
    ("columns by tp", ("fsdp", "tp"), [Shard(0), Shard(1)]),
    ("rows by tp", ("fsdp", "tp"), [Shard(1), Shard(0)]),
    ("one dimension by tp, then by fsdp", ("fsdp", "tp"), [_StridedShard(0, split_factor=2), Shard(0)]),
    ("one dimension by fsdp, then by tp", ("fsdp", "tp"), [Shard(0), Shard(0)]),
    ("the second dimension by tp, then by fsdp", ("fsdp", "tp"), [_StridedShard(1, split_factor=2), Shard(1)]),
    # Rows that do not follow one another.
    ("strided rows of replicas", NO_HINT, [_StridedShard(0, split_factor=2), Replicate()]),
    ("strided rows, cut again", NO_HINT, [_StridedShard(0, split_factor=4), Shard(0)]),
]


class Model(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)


def gathered(model, x):
    """All of the parameter, on each rank."""
    return (model.weight.full_tensor() * x).sum()


def own(model, x):
    """A rank's shard: of these placements torch gathers none by collectives that a graph can hold."""
    return (model.weight.to_local().sum() * x).sum()


class PlacementsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def on_rank(self, rank, names, work):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
        try:
            return work(init_device_mesh("cpu", (2, 2), mesh_dim_names=names))
        finally:
            dist.destroy_process_group()

    def replay(self, command, *arguments):
        result = subprocess.run([REPLAY, command, *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_ranks_hold_what_torch_gives_them(self):
        weight = torch.arange(64.0).reshape(8, 8)
        x = torch.linspace(-1, 1, 64).reshape(8, 8)
        save_file({"weight": weight, "x": x}, self.folder / "in.safetensors")
        graph, given, results = (self.folder / name for name in ("g.epw", "given.safetensors", "out.safetensors"))
        for name, axes, placements in ROWS:
            is_strided = name.startswith("strided")
            with self.subTest(name):
                def cut(mesh, placements=placements):
                    return distribute_tensor(weight, mesh, placements, src_data_rank=None)

                def trace(mesh, step=own if is_strided else gathered):
                    epweave.trace(step, Model(cut(mesh)), {"x": x}).export(graph)

                self.on_rank(0, axes, trace)
                self.replay("run", graph, "--inputs", self.folder / "in.safetensors", "--save-inputs", given, "--outputs", results)
                held, made = load_file(given), load_file(results)
                for rank in range(RANKS):
                    local = self.on_rank(rank, axes, lambda mesh: cut(mesh).to_local().clone())
                    self.assertTrue(torch.equal(held[f"rank{rank}/weight"], local), f"rank {rank}: {held[f'rank{rank}/weight']}")
                    expected = local.sum() * x.sum() if is_strided else (weight * x).sum()
                    self.assertTrue(torch.allclose(made[f"rank{rank}/loss"], expected, atol=1e-3), f"rank {rank}")
                self.assertEqual(self.replay("check", graph, graph, "-q").splitlines()[-1], "same")

    def test_the_file_says_what_the_tensor_says(self):
        def roles_of(mesh, placements, order=None):
            tensor = distribute_tensor(torch.zeros(8, 8), mesh, placements, src_data_rank=None)
            if order is not None:
                tensor._spec.shard_order = order
            return expand_role({"role": "parameter", "fqn": "w"}, unwrap(tensor)[1])

        def compare(mesh):
            tensor, axes = roles_of(mesh, [_StridedShard(0, split_factor=2), Shard(0)])
            self.assertEqual([role["inner"] for role in (tensor, axes)], ["_local_tensor", "device_mesh"])
            self.assertEqual((tensor["global_shape"], tensor["placements"]), ([8, 8], [["_StridedShard", 0, 2], ["Shard", 0]]))
            self.assertNotIn("shard_order", tensor)
            tensor, _ = roles_of(mesh, [Replicate(), Shard(1)])
            self.assertEqual(tensor["placements"], [["Replicate"], ["Shard", 1]])
            self.assertNotIn("shard_order", tensor)
            order = DTensor.from_local(torch.zeros(2, 8), mesh, [Shard(0), Shard(0)])._spec.shard_order
            self.assertNotIn("shard_order", roles_of(mesh, [Shard(0), Shard(0)], order)[0])
            against = tuple(entry._replace(mesh_dims=tuple(reversed(entry.mesh_dims))) for entry in order)
            self.assertEqual(roles_of(mesh, [Shard(0), Shard(0)], against)[0]["shard_order"], [[0, [1, 0]]])

        self.on_rank(0, NO_HINT, compare)

    def test_a_file_that_is_loaded_and_saved_keeps_them(self):
        graph, again = self.folder / "g.epw", self.folder / "again.epw"

        def trace(mesh):
            model = Model(distribute_tensor(torch.zeros(8, 8), mesh, [Replicate(), Shard(0)], src_data_rank=None))
            epweave.trace(gathered, model, {"x": torch.zeros(8, 8)}).export(graph)
            module = epweave.load(graph)
            epweave.export(module, again)

        self.on_rank(0, NO_HINT, trace)
        texts = [subprocess.run([EPWEAVE, "convert", path, "-", "--to", "text"], check=True,
                                capture_output=True, text=True).stdout for path in (graph, again)]
        self.assertEqual(*[[line for line in text.splitlines() if "placements=" in line] for text in texts])
        self.assertEqual(texts[0].count('placements=[["Replicate"], ["Shard", 0]]'), 4, texts[0])  # tensor and mesh, of parameter and gradient
        self.assertEqual(json.loads(self.replay("run", graph, "--json"))["loss_is_finite"], True)


if __name__ == "__main__":
    unittest.main()
