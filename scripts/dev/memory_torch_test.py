#!/usr/bin/env python3
"""Tags for regional_inductor, fused products of async TP, and halves of a partition, in PyTorch. Needs torch and torchtitan.

Tags are compared node by node with torchtitan's own passes on traces of Llama 3 and DeepSeek-V3, and so are the modules that
torch's regional_inductor takes out. Halves are executed, each on its own, wired by their roles.
"""
import contextlib
import copy
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
import epweave  # noqa: E402
from epweave.halves import join_halves  # noqa: E402
from epweave.operators import attribute_at  # noqa: E402

LLAMA = ROOT / "testdata/graphs/llama3_debug_fsdp4.1_norm.epw.gz"
DEEPSEEK = ROOT / "testdata/graphs/dsv3_debug_ep2_static.1b_remat.epw.gz"
LLAMA_TP = ROOT / "testdata/graphs/llama3_debug_fsdp2_tp2.1_norm.epw.gz"
DEEPSEEK_TP = ROOT / "testdata/graphs/dsv3_debug_fsdp2_tp2_ep4.1b_remat.epw.gz"
NORM = """epweave text 1
device cpu

graph
  %x = placeholder : f32[8, 64] role=user which=x
  %w = placeholder : f32[64] role=parameter fqn=w
  %norm = aten._fused_rms_norm.default(%x, [64], %w, 1e-05) : (f32[8, 64], f32[8, 1])
  %getitem = operator.getitem(%norm, 0) : f32[8, 64]
  %exp = aten.exp.default(%getitem) : f32[8, 64]
  output((%exp,))
"""
CONFIGS = {"max_autotune": True, "coordinate_descent_tuning": True, "triton.cudagraphs": False}


def list_metadata(module):
    """`custom` of all nodes, those in nested graphs, too."""
    found = []
    for node in module.graph.nodes:
        found.append((node.name, node.meta.get("custom")))
        if node.op == "get_attr" and isinstance(nested := attribute_at(module, node.target), torch.fx.GraphModule):
            found += [(f"{node.target}.{name}", custom) for name, custom in list_metadata(nested)]
    return found


def list_regions(module):
    """The nodes of each module that regional_inductor compiles."""
    from torch.fx.passes.regional_inductor import _create_inductor_marked_regions
    module = _create_inductor_marked_regions(module)
    return [[(node.op, node.name, str(node.target)) for node in region.graph.nodes] for name, region in
            module.named_children() if name.startswith("__marked_inductor_submod")]


def list_fused(module):
    """Calls over symmetric memory: target and arguments by name, without the strides that torch asks for."""
    def name(value):
        while isinstance(value, torch.fx.Node) and "force_stride_order" in str(value.target):
            value = value.args[0]
        return value.name if isinstance(value, torch.fx.Node) else value
    return sorted(
        (str(node.target), repr([[name(item) for item in arg] if isinstance(arg, (list, tuple)) else name(arg) for arg in node.args]),
         repr(dict(node.kwargs))) for node in module.graph.nodes if str(node.target).startswith("symm_mem.fused"))


class JointExport(unittest.TestCase):
    """What AOTAutograd exports, split and run."""

    def build_model(self):
        from torchtitan.experiments.graph_trainer.llama3 import model_registry
        model = model_registry("debugmodel", attn_backend="sdpa").model
        model.layers = model.layers[:2]
        torch.manual_seed(0)
        model = model.build()
        model.init_states(buffer_device=torch.device("cpu"))
        return model, torch.randint(2048, (2, 64))

    def test_the_debug_model_by_its_descriptors(self):
        from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
        model, tokens = self.build_model()
        logits = model(tokens)
        seed = torch.randn_like(logits)
        logits.backward(seed)
        parameters = dict(model.named_parameters())
        want = {name: parameter.grad for name, parameter in parameters.items()}
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/joint.epw"
            said = io.StringIO()
            with contextlib.ExitStack() as stack, contextlib.redirect_stderr(said):
                epweave.export(aot_export_joint_with_descriptors(stack, model, (tokens,)).graph_module, path)
            self.assertNotIn("desc", said.getvalue())
            for policy, budget in (("min-cut", None), ("min-cut", "0.4"), ("min-cut", "0"), ("exact", None), ("exact", "0"),
                                   ("tags", None)):
                halves = epweave.partition(path, policy, budget=budget)
                self.assertTrue(halves.verify(path))
                joined = halves.join()
                roles = joined.meta["epweave"]
                self.assertEqual({x["fqn"] for x in roles["inputs"] if x["role"] == "parameter"}, set(parameters))
                values = [parameters[x["fqn"]].detach() if x["role"] == "parameter"
                          else dict(model.named_buffers())[x["fqn"]] if x["role"] == "buffer"
                          else seed if x["role"] == "tangent" else tokens for x in roles["inputs"]]
                with torch.no_grad():
                    results = torch.utils._pytree.tree_leaves(joined(*values))
                found = {x["fqn"]: result for x, result in zip(roles["outputs"], results) if x["role"] == "grad"}
                self.assertEqual(set(found), set(want))
                for name, gradient in want.items():
                    self.assertTrue(torch.equal(found[name], gradient), (policy, budget, name))


    def test_memory_budgets_save_what_torch_saves(self):
        from torch._functorch import config, partitioners
        from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
        model, tokens = self.build_model()
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            path = f"{folder}/joint.epw"
            state = len(list(model.parameters())) + len(list(model.buffers()))
            joint = aot_export_joint_with_descriptors(stack, model, (tokens,)).graph_module
            with contextlib.redirect_stderr(io.StringIO()):
                epweave.export(joint, path)
            found = {}
            for budget in (1, 0.9, 0.7, 0.5, 0.3, 0.1, 0):
                with config.patch(activation_memory_budget=budget):
                    forward, _ = partitioners.min_cut_rematerialization_partition(
                        copy.deepcopy(joint), None, num_fwd_outputs=1, static_lifetime_input_indices=list(range(state)))
                output = next(iter(reversed(forward.graph.nodes)))
                theirs = {node.name for node in output.args[0][1:] if node.op != "placeholder"}
                report = epweave.partition(path, "min-cut", budget=str(budget)).report
                mine = {row["name"] for row in report["saved"] if row["why"] != "an input of the step"}
                self.assertEqual(mine, theirs, budget)
                found[budget] = len(mine)
            self.assertGreater(len(set(found.values())), 3, found)

    def test_a_traced_step_has_the_cut_of_torch(self):
        """The script traces, and torch sizes the meshes among the inputs."""
        script = ROOT / "scripts/compare_partition.py"
        report = json.loads(subprocess.run(
            [sys.executable, "-W", "ignore", script, "--model", "llama3", "--size", "debug", "--layers", "2", "--json",
             "--budget", "1", "0.3"], check=True, stdout=subprocess.PIPE).stdout)
        for at in report["budgets"]:
            self.assertEqual((at["only_torch"], at["only_epweave"]), ([], []))
            self.assertEqual(at["torch_cut"], at["min_cut"])
            self.assertLess(at["exact_same_bytes"]["recompute_seconds"], at["torch_cut"]["recompute_seconds"])


class AsyncTp(unittest.TestCase):
    def test_as_torch(self):
        """The same calls with the same arguments as torch's pass, told that the TP groups have symmetric memory."""
        from torch._inductor.fx_passes.micro_pipeline_tp import micro_pipeline_tp_pass
        for graph, calls in ((LLAMA_TP, 42), (DEEPSEEK_TP, 36)):
            with self.subTest(graph=graph.name):
                theirs = epweave.load(str(graph))
                with unittest.mock.patch("torch.distributed.is_nccl_available", lambda: True), \
                        unittest.mock.patch("torch.distributed._symmetric_memory.is_symm_mem_enabled_for_group",
                                            lambda group: group in ("11", "25")):
                    micro_pipeline_tp_pass(theirs.graph)
                mine = list_fused(epweave.rewrite(graph, "async-tp").graph)
                self.assertEqual(mine, list_fused(theirs))
                self.assertEqual(len(mine), calls)


class Tags(unittest.TestCase):
    def check(self, graph, pipeline, annotate):
        mine, theirs = epweave.rewrite(graph, pipeline).graph, epweave.load(str(graph))
        annotate(theirs)
        self.assertEqual(list_metadata(mine), list_metadata(theirs))
        regions = list_regions(mine)
        self.assertEqual(regions, list_regions(theirs))
        return [node for region in regions for node in region]

    def test_flex_attention(self):
        from torchtitan.experiments.graph_trainer.inductor_passes import \
            annotate_flex_attention_for_regional_inductor_pass as annotate
        with tempfile.NamedTemporaryFile("w", suffix=".json") as configs:
            configs.write(str(CONFIGS).replace("'", '"').replace("True", "true").replace("False", "false"))
            configs.flush()
            for graph, calls in ((LLAMA, 12), (DEEPSEEK, 12)):
                with self.subTest(graph=graph.name):
                    taken = self.check(graph, f"tag-regional{{configs={configs.name}}}",
                                       lambda module: annotate(module, flex_compile_config=CONFIGS))
                    self.assertEqual(sum("flex_attention" in target for _, _, target in taken), calls)

    def test_rms_norm(self):
        from torchtitan.experiments.graph_trainer.performance_passes import \
            annotate_rmsnorm_for_regional_inductor_pass as annotate
        taken = self.check(LLAMA, "tag-regional{op=rms-norm}", annotate)
        self.assertEqual(sum("_fused_rms_norm" in target for _, _, target in taken), 26)

    def test_a_loaded_step_is_compiled_where_it_is_tagged(self):
        """J55: by torch's regional_inductor, on this machine's CPU."""
        from torch._guards import TracingContext, tracing
        from torch.fx.passes.regional_inductor import regional_inductor
        with tempfile.TemporaryDirectory() as folder:
            step = pathlib.Path(folder) / "step.txt"
            step.write_text(NORM)
            module = epweave.rewrite(step, "tag-regional{op=rms-norm}").graph
        self.assertEqual([len(region) for region in list_regions(copy.deepcopy(module))], [5])
        inputs = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
        values = [torch.randn(value.shape) for value in inputs]
        want = module(*values)
        with tracing(TracingContext(inputs[0].fake_mode)):
            compiled = regional_inductor(module, inputs)
        self.assertFalse([node for node in compiled.graph.nodes if "rms_norm" in str(node.target)])
        torch.testing.assert_close(compiled(list(values)), want)

    def test_copies_of_recomputation_keep_their_functions(self):
        """A graph among the inputs of a region would stop Inductor: each call finds its functions beside it."""
        module = epweave.rewrite(LLAMA, "tag-regional,memory-policy{policy=full},recompute").graph
        regions = list_regions(module)
        calls = sum("flex_attention" in target for region in regions for _, _, target in region)
        functions = sum(op == "get_attr" for region in regions for op, _, _ in region)
        self.assertEqual((calls, functions), (18, 6 * 2 + 6 * 2 + 6 * 3))  # score, mask; again; backward's three
        for node in module.graph.nodes:
            if node.op == "call_module":
                self.assertFalse([x for x in node.all_input_nodes if x.op == "get_attr"], node)


def describe(module):
    """What each call is, in order, and what backward does about its value."""
    def text(value):
        if isinstance(value, (list, tuple)):
            return [text(x) for x in value]
        if isinstance(value, dict):
            return {key: text(x) for key, x in value.items()}
        return str(value)
    return [(node.name, str(node.target), text(node.args), text(node.kwargs), bool(node.meta.get("autograd_backward")),
             node.meta["recompute"].name if "recompute" in node.meta else None) for node in module.graph.nodes]


class Policies(unittest.TestCase):
    """Policies of which no pair of traces before and behind torchtitan's passes was recorded."""

    def check(self, pipeline, policy, *passes):
        from types import SimpleNamespace
        from torchtitan.experiments.graph_trainer.memory_policy import MEMORY_POLICY_REGISTRY
        config = SimpleNamespace(compile=SimpleNamespace(cpu_offload_budget_gb=0),
                                 parallelism=SimpleNamespace(fsdp_reshard_after_forward="default",
                                                             pipeline_parallel_degree=1))
        theirs = MEMORY_POLICY_REGISTRY[policy](epweave.load(str(LLAMA)), config=config)
        for run in passes:
            theirs = run(theirs)
        mine, theirs = describe(epweave.rewrite(LLAMA, pipeline).graph), describe(theirs)
        for a, b in zip(mine, theirs):
            self.assertEqual(a, b)
        self.assertEqual(len(mine), len(theirs))

    def test_eager(self):
        self.check("memory-policy{policy=eager}", "eager")

    def test_host(self):
        from torchtitan.experiments.graph_trainer.cpu_offload import apply_cpu_offload_pass
        self.check("memory-policy{policy=sac-and-offload},cpu-offload", "sac_and_offload", apply_cpu_offload_pass)


def make_step():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = (torch.nn.RMSNorm(16), torch.nn.Linear(16, 32),
                                             torch.nn.Linear(32, 16))

        def forward(self, x):
            return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layers, self.head = (torch.nn.Embedding(32, 16), torch.nn.ModuleList([Block(), Block()]),
                                                  torch.nn.Linear(16, 32, bias=False))
            self.head.weight = self.embed.weight  # tied

        def forward(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    def step(model, tokens, labels):
        return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())

    torch.manual_seed(0)
    model, tokens = Model(), torch.randint(32, (4, 9))
    inputs = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    traced = epweave.trace(step, model, inputs)
    state = dict(model.named_parameters(remove_duplicate=False))
    return traced, [*(state[name].detach() for name in traced.state), *inputs]


def run_halves(forward, backward, names, values):
    """Runs both as they stand: what a caller reads off their roles."""
    joint = dict(zip(names, values))
    facts = [half.meta["epweave"] for half in (forward, backward)]
    results = forward(*(joint[role["name"]] for role in facts[0]["inputs"]))
    outputs, saved = [], {}
    for role, value in zip(facts[0]["outputs"], results):
        if role["role"] == "saved":
            saved[role["fqn"]] = value
        else:
            outputs.append(value)
    given = []
    for role in facts[1]["inputs"]:
        kind = role["role"]
        given.append(saved[role["name"]] if kind == "saved" else torch.ones(()) if kind == "tangent"
                     else joint[role["name"]])
    return outputs, list(backward(*given)), saved


class HalvesRun(unittest.TestCase):
    def test_each_policy_has_the_bits_of_the_joint_graph(self):
        step, values = make_step()
        wanted = step.graph(*values)
        names = [node.name for node in step.graph.graph.nodes if node.op == "placeholder"]
        for words in (("min-cut",), ("exact",), ("exact", "0"), ("tags",)):
            with self.subTest(words):
                graph = step
                if words == ("tags",):
                    graph = epweave.rewrite(step, "memory-policy{policy=full}")
                halves = epweave.partition(graph, words[0], budget=words[1] if len(words) > 1 else None)
                outputs, gradients, saved = run_halves(*halves.to_fx(), names, values)
                joined = halves.join()(*values)
                self.assertEqual(len(outputs) + len(gradients), len(wanted))
                for a, b, c in zip(outputs + gradients, wanted, joined):
                    self.assertTrue(torch.equal(a, b) and torch.equal(b, c))
                self.assertGreater(len(saved), 0)

    def test_a_joined_step_says_what_its_inputs_and_outputs_are(self):
        """So that the replay gives it the inputs of the step, on four ranks, and finds its outputs the same."""
        graph = LLAMA
        joined = epweave.partition(graph, "min-cut").join()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "joined.epw"
            epweave.export(joined, path)
            report = epweave.replay_check(graph, path)
        self.assertEqual(report["verdict"], "same")

    def test_halves_of_another_graph_are_refused(self):
        step, _ = make_step()
        halves = epweave.partition(step, "min-cut")
        forward, backward = halves.to_fx()
        for other, outputs, said in ((forward, halves.outputs, "no half returns"), (backward, ["another"], "no half returns another")):
            with self.assertRaises(epweave.GraphFileError) as caught:
                join_halves(forward, other, halves.inputs, outputs)
            self.assertIn(said, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
