#!/usr/bin/env python3
"""Graphs that epweave chunked, back in PyTorch: torchtitan's own scheduler takes them, and the process
groups that a pass asked for come into being. Needs torch, torchtitan and the program ($EPWEAVE, else
build/release/bin/epweave)."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing
from torchtitan.experiments.graph_trainer.ep_overlap_pass import ep_overlap_schedule_pass

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import epweave_fx  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
EPWEAVE = os.environ.get("EPWEAVE") or str(ROOT / "build/release/bin/epweave")
NORMALIZE = "dce,canonicalize,dedup-unshard"


class GraphTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rewrite(self, graph, pipeline, name):
        subprocess.run([EPWEAVE, "rewrite", str(graph), "-p", pipeline, "-q", "-o", str(self.folder / name)], check=True)
        return str(self.folder / name)


class Scheduler(GraphTest):
    """torchtitan's ep_overlap_schedule_pass on graphs that our `chunk` made."""

    def check_same_schedule(self, graph, roots, pair_first):
        chunked = self.rewrite(ROOT / "testdata/graphs" / graph,
                               f"{NORMALIZE},chunk{{roots={roots}}},isolate-ep-pg,dce", "chunked.epw")
        ours = epweave_fx.load(self.rewrite(chunked, "overlap-ep", "ours.epw"))
        before = epweave_fx.load(chunked)
        theirs = ep_overlap_schedule_pass(epweave_fx.load(chunked), module_pattern=roots,
                                          pair_first_token_exchange=pair_first)
        theirs.graph.lint()

        def order(module):
            return [node.name for node in module.graph.nodes]

        def flags(module):
            return {node.name: node.kwargs["non_blocking"] for node in module.graph.nodes
                    if "non_blocking" in node.kwargs}

        self.assertNotEqual(order(theirs), order(before))
        self.assertEqual(order(theirs), order(ours))
        self.assertEqual(flags(theirs), flags(ours))

    def test_moe_modules(self):
        for graph in ("dsv3_debug_ep2", "dsv3_debug_ep4", "qwen3_moe_ep2", "dsv3_debug_ep2_r030"):
            with self.subTest(graph):
                self.check_same_schedule(f"{graph}.1b_remat.epw.gz", "layers.*.moe", True)

    def test_blocks(self):
        self.check_same_schedule("dsv3_debug_ep2_r030.1b_remat.epw.gz", "layers.*", False)


def exchange_on_extra_group(rank, folder):
    """One of two ranks: loads the graph, makes its groups twice, and exchanges over the new one."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    module = epweave_fx.load(f"{folder}/isolated.epw")
    made = epweave_fx.create_process_groups(module)
    assert list(made) == ["0_ep_extra"], made
    assert epweave_fx.create_process_groups(module) == made
    assert made["0_ep_extra"] is not dist.distributed_c10d._resolve_process_group("0")
    assert made["0_ep_extra"].group_desc == "ep_extra", made["0_ep_extra"].group_desc
    ops = torch.ops._c10d_functional
    names = {node.args[3] for node in module.graph.nodes if node.target == ops.all_to_all_single.default}
    assert names == {"0_ep_extra"}, names
    sent = torch.tensor([10.0 * rank, 10.0 * rank + 1])
    received = ops.wait_tensor(ops.all_to_all_single(sent, [1, 1], [1, 1], "0_ep_extra"))
    assert received.tolist() == [rank, 10.0 + rank], received
    dist.destroy_process_group()


class Tutorial(GraphTest):
    def test_its_python_runs_on_a_laptop(self):
        self.rewrite(ROOT / "testdata/graphs/dsv3_debug_ep4.2_chunk_batch.epw.gz", "isolate-ep-pg", "overlapped.epw")
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/tutorial.md").read_text(encoding="utf-8"), re.S | re.M)
        self.assertTrue(blocks)
        subprocess.run([sys.executable, "-c", "".join(blocks)], check=True, cwd=self.folder,
                       env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, stdout=subprocess.DEVNULL)


class ProcessGroups(GraphTest):
    def isolate(self):
        # Its gathers and its token exchanges are on group "0", that of all ranks.
        return self.rewrite(ROOT / "testdata/graphs/dsv3_debug_ep4.2_chunk_batch.epw.gz", "isolate-ep-pg", "isolated.epw")

    def test_extra_groups_are_made_once(self):
        self.isolate()
        torch.multiprocessing.spawn(exchange_on_extra_group, (str(self.folder),), nprocs=2)

    def test_without_torch_distributed(self):
        module = epweave_fx.load(self.isolate())
        with self.assertRaisesRegex(epweave_fx.GraphFileError, "torch.distributed") as caught:
            epweave_fx.create_process_groups(module)
        self.assertIn("init_process_group", caught.exception.remedy)

    def test_an_unknown_source_is_named(self):
        module = epweave_fx.load(self.isolate())
        for row in module.meta[epweave_fx.FILE_FACTS]["process_groups"]:
            if "split_from" in row:
                row["split_from"] = "no such group"
        dist.init_process_group("gloo", init_method=f"file://{self.folder}/store", rank=0, world_size=1)
        try:
            with self.assertRaisesRegex(epweave_fx.GraphFileError, "no such group"):
                epweave_fx.create_process_groups(module)
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
