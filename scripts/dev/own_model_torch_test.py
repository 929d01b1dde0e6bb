#!/usr/bin/env python3
"""Models that epweave does not know, traced by epweave.trace and rewritten: on two gloo ranks, one step equals the
unrewritten one. Needs torch, torchtitan and transformers.

Each rank traces, rewrites, proves, loads and runs all models in one process; the ranks' graphs are then checked against
each other and replayed.

    own_model_torch_test.py [TEST...]   run the tests
    own_model_torch_test.py --update    write testdata/own_model/step.epw.gz, the step that docs/own_model.md shows
"""
import functools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "scripts/examples")]
import epweave  # noqa: E402
from check_docs import shown  # noqa: E402
from epweave.files import read_file, write_file  # noqa: E402

RANKS = 2
DOCUMENTED = ROOT / "testdata/own_model/step.epw.gz"
ROOTS = {"own": "blocks.*.moe", "transformers": "model.layers.*.mlp", "torchtitan": "layers.*.moe"}


# ------------------------------------------------------------------------------------------ models
def make_own(torch, group):
    import own_moe
    tokens = torch.randint(64, (4, 8))
    inputs = {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}
    return own_moe.Model(group), own_moe.step, inputs


def make_transformers(torch, group):
    """Qwen3-MoE with random weights; its experts are divided among the ranks and their tokens exchanged."""
    import own_moe
    import torch.nn.functional as F
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    class ExpertParallel(torch.nn.Module):
        def __init__(self, experts):
            super().__init__()
            self.count, self.act = experts.num_experts, experts.act_fn
            local = slice(group.rank() * self.count // RANKS, (group.rank() + 1) * self.count // RANKS)
            self.gate_up_proj = torch.nn.Parameter(experts.gate_up_proj.detach()[local].clone())
            self.down_proj = torch.nn.Parameter(experts.down_proj.detach()[local].clone())

        def forward(self, tokens, chosen, weights):
            return own_moe.exchange(tokens, chosen, weights, self.run, self.count, group)

        def run(self, rows, counts):
            ends = torch.cumsum(counts, 0, dtype=torch.int32)
            gate_up = self.gate_up_proj.bfloat16().transpose(-2, -1)
            gate, up = torch._grouped_mm(rows.bfloat16(), gate_up, offs=ends).chunk(2, -1)
            down = self.down_proj.bfloat16().transpose(-2, -1)
            return torch._grouped_mm(self.act(gate) * up, down, offs=ends).type_as(rows)

    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, moe_intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2,
        max_position_embeddings=64, attn_implementation="eager", use_cache=False))
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.mlp.gate.weight, std=0.5)
        layer.mlp.experts = ExpertParallel(layer.mlp.experts)

    def step(model, tokens, labels):
        return F.cross_entropy(model(input_ids=tokens).logits.flatten(0, 1).float(), labels.flatten())

    tokens = torch.randint(64, (4, 17))
    return model, step, {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}


def make_torchtitan(torch, group):
    """Kimi K2.5's language model, which torchtitan's graph_trainer does not have, with its own expert parallelism."""
    import torch.nn.functional as F
    from epweave.train_on_cpu import use_cpu
    use_cpu()
    from torch.nn.attention.flex_attention import flex_attention
    from torchtitan.models.common.attention import FlexAttention
    FlexAttention._compiled_flex_attn = staticmethod(flex_attention)  # Inductor compiles no such kernel for the CPU
    from torchtitan.distributed import ParallelDims
    from torchtitan.distributed.utils import set_spmd_backend
    from torchtitan.models.deepseek_v3.config_registry import deepseek_v3_debugmodel
    from torchtitan.models.kimi_k2_7 import model_registry

    dims = ParallelDims(dp_shard=RANKS, dp_replicate=1, cp=1, tp=1, pp=1, ep=RANKS, world_size=RANKS,
                        spmd_backend="default")
    set_spmd_backend("default")
    dims.build_mesh()
    job = deepseek_v3_debugmodel()
    job.model_spec = model_registry("debugmodel", attn_backend="flex")
    job.training.local_batch_size, job.training.seq_len, job.parallelism.expert_parallel_degree = 4, 16, RANKS
    config = job.model_spec.model
    config.layers = config.layers[:2]  # one dense, one of experts
    config.update_from_config(config=job)
    model = config.build()
    model.parallelize(dims)
    model.init_states(buffer_device=torch.device("cpu"))
    model.to(torch.bfloat16)
    positions = torch.arange(16, dtype=torch.int32).expand(4, -1).contiguous()
    masks = model.get_attention_masks(positions=positions)

    def step(model, tokens, labels):
        logits = model(tokens, positions=positions, attention_masks=masks)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    tokens = torch.randint(200, (4, 17))
    return model, step, {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}


# ------------------------------------------------------------------------------------------ a rank
def largest_difference(torch, a, b):
    """The largest difference of gradients, relative to the norm of each."""
    worst = 0.0
    for name, x in a.items():
        x, y = (getattr(t, "_local_tensor", t).double() for t in (x, b[name]))
        worst = max(worst, ((x - y).norm() / x.norm().clamp(min=1e-30)).item())
    return worst


def run_model(torch, name, make, group, folder):
    torch.manual_seed(7)
    model, step, inputs = make(torch, group)
    before, after = (f"{folder}/{name}.{part}{group.rank()}.epw" for part in ("in", "out"))
    traced = epweave.trace(step, model, inputs, groups={"ep": group})
    traced.export(before)
    result = epweave.rewrite(before, output=after, preset="ep-overlap", roots=ROOTS[name], symbolize="yes")
    proof = epweave.verify(before, result)
    loss = step(model, **inputs)
    loss.backward()
    eager = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    traced_loss, traced_gradients = traced(model, inputs)
    module = result.graph
    epweave.create_process_groups(module)
    new_loss, new_gradients = traced.with_graph(module)(model, inputs)
    return {"losses": [x.item() for x in (loss, traced_loss, new_loss)], "proved": bool(proof),
            "gradients": [len(eager), len(traced_gradients), len(new_gradients)],
            "traced": largest_difference(torch, eager, traced_gradients),
            "rewritten": largest_difference(torch, traced_gradients, new_gradients)}


def run_rank(rank, folder):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    makers = {"own": make_own, "transformers": make_transformers, "torchtitan": make_torchtitan}
    report = {name: run_model(torch, name, make, dist.group.WORLD, folder) for name, make in makers.items()}
    pathlib.Path(f"{folder}/report{rank}.json").write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


# ------------------------------------------------------------------------------------------- tests
class OwnModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        environment = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", **os.environ, "OMP_NUM_THREADS": "1"}
        logs = [open(cls.folder / f"log{rank}", "wb") for rank in range(RANKS)]
        workers = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--rank", str(rank), str(cls.folder)],
                                    stdout=logs[rank], stderr=subprocess.STDOUT, env=environment)
                   for rank in range(RANKS)]
        codes = []
        try:
            codes = [worker.wait(timeout=600) for worker in workers]
        finally:
            for worker, log in zip(workers, logs):
                worker.kill()
                log.close()
        said = "\n".join((cls.folder / f"log{rank}").read_text(errors="replace")[-3000:] for rank in range(RANKS))
        if any(codes):
            raise RuntimeError(f"exit codes {codes}:\n{said}")
        cls.reports = [json.loads((cls.folder / f"report{rank}.json").read_text()) for rank in range(RANKS)]

    def test_one_step_equals_the_unrewritten_one(self):
        for name in ROOTS:
            for rank, report in enumerate(self.reports):
                with self.subTest(model=name, rank=rank):
                    row = report[name]
                    self.assertTrue(row["proved"])
                    self.assertEqual(row["losses"][0], row["losses"][1])  # eager and traced
                    self.assertAlmostEqual(row["losses"][2] / row["losses"][1], 1, delta=1e-6)
                    self.assertEqual(len(set(row["gradients"])), 1)
                    self.assertEqual(row["traced"], 0)
                    self.assertLess(row["rewritten"], 1e-2)  # bf16 sums of parts

    def test_ranks_match_and_the_replay_finds_the_same(self):
        for name in ROOTS:
            with self.subTest(model=name):
                ins, outs = ([str(self.folder / f"{name}.{part}{rank}.epw") for rank in range(RANKS)]
                             for part in ("in", "out"))
                self.assertTrue(epweave.verify_ranks(*outs))
                self.assertEqual(epweave.replay_check(ins[0], outs[0])["verdict"], "same")

    def test_doctor_misses_the_token_symbol_alone(self):
        for name in ROOTS:
            with self.subTest(model=name):
                code, report = doctor(self.folder / f"{name}.in0.epw")
                self.assertEqual(code, 1)
                self.assertEqual([x["topic"] for x in report["findings"] if x["state"] == "lacks"], ["tokens"])


class Example(unittest.TestCase):
    """scripts/examples/train_own_moe.py, as docs/own_model.md shows it."""

    def test_it_prints_what_the_page_shows(self):
        folder = ROOT / "scripts/examples"
        environment = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", **os.environ, "PYTHONPATH": str(ROOT / "python")}
        done = subprocess.run([sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                               str(RANKS), "train_own_moe.py"], cwd=folder, env=environment, capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(done.stdout.splitlines(keepends=True)[-1], shown("docs/own_model.md", "cd scripts/examples && PYTHONPATH=../../python torchrun --nproc-per-node 2 train_own_moe.py"))

    def test_it_is_traced_as_the_page_shows(self):
        with tempfile.TemporaryDirectory() as folder:
            printed = subprocess.run([sys.executable, "-W", "ignore", "scripts/examples/own_moe.py", f"{folder}/step.epw"], cwd=ROOT,
                                     check=True, env={**os.environ, "PYTHONPATH": "python"}, capture_output=True, text=True).stdout
        self.assertEqual(printed.replace(f"{folder}/", ""),
                         shown("docs/own_model.md", "PYTHONPATH=python python scripts/examples/own_moe.py step.epw"))


class Checkpointed(unittest.TestCase):
    """Blocks whose forward backward computes again (torch.utils.checkpoint)."""

    def test_exchanges_that_backward_makes_again_are_labelled_and_divided(self):
        import own_moe
        import torch
        from torch.testing._internal.distributed.fake_pg import FakeStore
        from torch.utils.checkpoint import checkpoint
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
        self.addCleanup(torch.distributed.destroy_process_group)
        group = torch.distributed.group.WORLD
        model, step, inputs = make_own(torch, group)
        for block in model.blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        traced = epweave.trace(step, model, inputs, groups={"ep": group}, tokens={"tokens": 0, "labels": 0})
        labels = [[node.meta["custom"].get("EP_token_exchange", "counts"), bool(node.meta.get("autograd_backward"))]
                  for node in traced.graph.graph.nodes if "all_to_all_single" in str(node.target)]
        forward = [["counts", False], ["dispatch", False], ["combine", False]] * len(model.blocks)
        # Of each block the three again, and the gradients of the combine and of the dispatch.
        backward = [["counts", True], ["dispatch", True], ["combine", True], ["combine", True], ["dispatch", True]]
        self.assertEqual(labels, forward + backward * len(model.blocks))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "step.epw"
            traced.export(path)
            divided = epweave.rewrite(path, "chunk{roots=blocks.*.moe}")
            self.assertTrue(epweave.verify(path, divided.path))
        for block in model.blocks:
            block.forward = functools.partial(block.forward.func, *block.forward.args, use_reentrant=True)
        with self.assertRaises(epweave.UsageError) as caught:
            epweave.trace(step, model, inputs, groups={"ep": group})
        self.assertEqual(caught.exception.remedy, "give checkpoint use_reentrant=False")


    def test_exchanges_of_equal_shares_that_backward_makes_again_are_labelled(self):
        import torch
        from torch.distributed._functional_collectives import all_to_all_single_autograd
        from torch.testing._internal.distributed.fake_pg import FakeStore
        from torch.utils.checkpoint import checkpoint
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
        self.addCleanup(torch.distributed.destroy_process_group)
        group = torch.distributed.group.WORLD

        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.up = torch.nn.Linear(4, 4)

            def forward(self, x):
                sent = all_to_all_single_autograd(x, None, None, group)
                return all_to_all_single_autograd(self.up(sent).relu(), None, None, group).sin()

        class AtEnd(Layer):
            def forward(self, x):
                sent = self.send(x)
                return self.send(Gathered.apply(self.up(sent).relu()))

            def send(self, x):
                return all_to_all_single_autograd(x, None, None, group)

        class OfMethod(Layer):
            def forward(self, x):
                return checkpoint(super().forward, x, use_reentrant=False)

        class Exchange(torch.nn.Module):
            def forward(self, x):
                return all_to_all_single_autograd(x, None, None, group).sin()

        class OfOneLine(Layer):
            def __init__(self):
                super().__init__()
                self.exchange = Exchange()

            def forward(self, x):
                sent = checkpoint(self.exchange, x, use_reentrant=False)
                return checkpoint(self.exchange, self.up(sent).relu(), use_reentrant=False)

        class Gathered(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                return all_to_all_single_autograd(gradient, None, None, group)

        def of_module(model, x):
            return checkpoint(model[1], model[0](x), use_reentrant=False).sum()

        def of_layer(model, x):
            return model[1](model[0](x)).sum()

        # Of AtEnd the combine is not computed again, as no gradient needs it; Gathered's exchange
        # is of backward alone.
        for layer, step, wanted in ((Layer, of_module, ["dispatch", "combine", "combine", "dispatch"]),
                                    (AtEnd, of_module, ["combine", None, "dispatch", "dispatch"]),
                                    (OfMethod, of_layer, ["dispatch", "combine", "combine", "dispatch"]),
                                    (OfOneLine, of_layer, ["combine", "combine", "dispatch", "dispatch"])):
            with self.subTest(layer.__name__):
                model = torch.nn.ModuleList([torch.nn.Linear(4, 4), layer()])
                traced = epweave.trace(step, model, {"x": torch.randn(6, 4)}, groups={"ep": group})
                labels = [[node.meta["custom"].get("EP_token_exchange"), node.meta["custom"].get("module_fqn", "")[:1]]
                          for node in traced.graph.graph.nodes if "all_to_all_single" in str(node.target)]
                self.assertEqual(labels, [[label, "1"] for label in ["dispatch", "combine", *wanted]])


class GivenInputs(unittest.TestCase):
    """What a traced step does with other inputs than those that it was traced with."""

    def setUp(self):
        import torch
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.Linear(8, 16))
        self.tokens, self.others = torch.arange(6), torch.arange(6).flip(0)

    @staticmethod
    def step(model, tokens, labels, scale=1.0):
        import torch
        return torch.nn.functional.cross_entropy(model(tokens), labels) * scale

    def test_one_tensor_that_is_given_twice_is_two_inputs(self):
        for sizes in (None, {"tokens": 0, "labels": 0}):
            traced = epweave.trace(self.step, self.model, {"tokens": self.tokens, "labels": self.tokens}, tokens=sizes)
            for labels in (self.tokens, self.others):
                inputs = {"tokens": self.tokens, "labels": labels}
                self.assertEqual(traced(self.model, inputs)[0].item(), self.step(self.model, **inputs).item())

    def test_a_step_function_that_does_not_take_the_inputs(self):
        for step, inputs, message in (
                (5, {"tokens": self.tokens}, "the step function is a int"),
                (self.step, {"token": self.tokens}, "the step function does not take the inputs: missing a required argument: 'tokens'"),
                (self.step, [self.tokens] * 5, "the step function does not take the inputs: too many positional arguments")):
            with self.assertRaises(epweave.UsageError) as caught:
                epweave.trace(step, self.model, inputs)
            self.assertEqual(str(caught.exception), message)
            self.assertTrue(caught.exception.remedy)

    def test_a_parameter_that_has_two_names_is_one_value(self):
        self.model[1].weight = self.model[0].weight
        traced = epweave.trace(self.step, self.model, {"tokens": self.tokens, "labels": self.tokens})
        self.step(self.model, self.tokens, self.others).backward()
        loss, gradients = traced(self.model, {"tokens": self.tokens, "labels": self.others})
        self.assertEqual(gradients["0.weight"].tolist(), self.model[0].weight.grad.tolist())

    def test_a_number_is_that_of_the_trace(self):
        given = {"tokens": self.tokens, "labels": self.others, "scale": 0.5}
        traced = epweave.trace(self.step, self.model, given)
        self.assertEqual(traced(self.model, given)[0].item(), self.step(self.model, **given).item())
        for scale in (2.0, 1):
            with self.assertRaises(epweave.UsageError) as caught:
                traced(self.model, {**given, "scale": scale})
            self.assertEqual(str(caught.exception).splitlines()[0],
                             f"input 'scale' is {scale!r}; the step was traced with 0.5, which its graph holds")
            self.assertEqual(caught.exception.remedy, "trace the step again, or give a tensor")


class SumsOfGradients(unittest.TestCase):
    """Gradients that autograd adds up, where a module of the model computes the loss."""

    def test_they_belong_to_no_module(self):
        import torch
        from torch.testing._internal.distributed.fake_pg import FakeStore

        class WithLoss(torch.nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner, self.criterion = inner, torch.nn.CrossEntropyLoss()

            def forward(self, tokens, labels):
                return self.criterion(self.inner(tokens).flatten(0, 1), labels.flatten())

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
        self.addCleanup(torch.distributed.destroy_process_group)
        group = torch.distributed.group.WORLD
        model, _, inputs = make_own(torch, group)
        traced = epweave.trace(lambda model, tokens, labels: model(tokens, labels), WithLoss(model), inputs,
                               groups={"ep": group})
        sums = [x for x in traced.graph.graph.nodes if x.op == "call_function" and x.meta.get("is_gradient_acc")]
        self.assertEqual([("custom" in node.meta, "stack_trace" in node.meta) for node in sums], [(False, False)] * 4)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "step.epw"
            traced.export(path)
            divided = epweave.rewrite(path, "symbolize,chunk{roots=inner.blocks.*.moe}")
            self.assertTrue(epweave.verify(path, divided.path))


class OwnFunction(unittest.TestCase):
    """An exchange in an autograd.Function of the model's own, by functional collectives."""

    def test_exchanges_and_their_waits_alone_have_labels(self):
        import own_moe
        import torch
        from torch.distributed._functional_collectives import all_to_all_single
        from torch.testing._internal.distributed.fake_pg import FakeStore

        class Exchange(torch.autograd.Function):
            @staticmethod
            def forward(ctx, rows, received, sent, group):
                ctx.facts = received, sent, group
                return all_to_all_single(rows, received, sent, group) * 1

            @staticmethod
            def backward(ctx, gradient):
                received, sent, group = ctx.facts
                return all_to_all_single(gradient.contiguous(), sent, received, group) * 1, None, None, None

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
        self.addCleanup(torch.distributed.destroy_process_group)
        group = torch.distributed.group.WORLD
        model, step, inputs = make_own(torch, group)
        with mock.patch.object(own_moe, "all_to_all_single_autograd", Exchange.apply):
            traced = epweave.trace(step, model, inputs, groups={"ep": group}, tokens={"tokens": 0, "labels": 0})
        labelled = {str(node.target) for node in traced.graph.graph.nodes
                    if "EP_token_exchange" in node.meta.get("custom", {})}
        self.assertEqual(labelled, {"_c10d_functional.all_to_all_single.default", "_c10d_functional.wait_tensor.default"})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "step.epw"
            traced.export(path)
            scheduled = epweave.rewrite(path, preset="ep-overlap", roots="blocks.*.moe")
            self.assertTrue(epweave.verify(path, scheduled.path))


class Optimizer(unittest.TestCase):
    """Gradient clipping and AdamW in the step, by operators on lists of tensors or tensor by tensor."""

    @staticmethod
    def make(torch, on_lists):
        from torch.optim.adamw import adamw

        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.SiLU(), torch.nn.Linear(16, 4))

        def step(model, x, wanted, means, squares, counts):
            loss = torch.nn.functional.mse_loss(model(x), wanted)
            gradients = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
            with torch.no_grad():
                # The replay's numbers have any sign.
                state = [[t.detach().clone() for t in model.parameters()], [t.clone() for t in means],
                         [t.abs() for t in squares], [t.abs() + 1 for t in counts], [t.abs() for t in squares]]
                for parameter, gradient in zip(state[0], gradients):
                    parameter.grad = gradient
                norm = torch.nn.utils.clip_grad_norm_(state[0], 0.1, foreach=on_lists)
                adamw(state[0], [p.grad for p in state[0]], state[1], state[2], state[4], state[3], foreach=on_lists,
                      amsgrad=on_lists, beta1=0.9, beta2=0.95, lr=1e-3, weight_decay=0.1, eps=1e-8, maximize=False)
            return (loss, norm, *(t for tensors in state for t in tensors))

        likes = list(model.parameters())
        return model, step, {"x": torch.randn(32, 8), "wanted": torch.randn(32, 4),
                             "means": [torch.randn_like(p) for p in likes],
                             "squares": [torch.rand_like(p) for p in likes],
                             "counts": [torch.tensor(3.0) for _ in likes]}

    def test_a_step_with_it_is_traced_proved_and_replayed(self):
        import torch
        for on_lists in (True, False):
            with self.subTest(on_lists=on_lists), tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(7)
                model, step, inputs = self.make(torch, on_lists)
                traced = epweave.trace(step, model, inputs)
                self.assertEqual([], [n.target for n in traced.graph.graph.nodes if "_foreach" in str(n.target)])
                found, _ = traced(model, inputs)
                for a, b in zip(step(model, **inputs), found):
                    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
                path = f"{folder}/step.epw"
                traced.export(path)
                code, report = doctor(path)
                self.assertNotIn("operators", [x["topic"] for x in report["findings"] if x["state"] == "lacks"], code)
                changed = epweave.rewrite(path, "canonicalize,dce")
                self.assertTrue(epweave.verify(path, changed.path))
                self.assertEqual(epweave.replay_check(path, changed.path)["verdict"], "same")


class TracedTest(unittest.TestCase):
    """Of steps that have no exchange: traced, divided, proved and executed."""

    def assert_computes(self, traced, model, step, inputs, **within):
        """Loss and gradients are torch's own."""
        import torch
        loss, gradients = traced(model, inputs)
        wanted = torch.autograd.grad(step(model, **inputs), list(model.parameters()))
        torch.testing.assert_close(loss, step(model, **inputs), **within)
        for (name, _), gradient in zip(model.named_parameters(), wanted):
            torch.testing.assert_close(gradients[name], gradient, **within)

    def assert_knows_operators(self, traced):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/step.epw"
            traced.export(path)
            found = {x["topic"]: x["found"] for x in doctor(path)[1]["findings"]}
        self.assertEqual(found["operators"], "all are in the op table")

    def assert_divided(self, traced, pipeline, folder):
        path = f"{folder}/step.epw"
        traced.export(path)
        changed = epweave.rewrite(path, pipeline)
        self.assertTrue(epweave.verify(path, changed.path))
        self.assertEqual(epweave.replay_check(path, changed.path)["verdict"], "same")


def residual_model(width, make_layer):
    """An embedding of 32 tokens and two layers, each of which adds to what it reads."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(32, width)
            self.layers = torch.nn.ModuleList([make_layer(), make_layer()])

        def forward(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = x + layer(x)
            return x

    return Model()


class GroupNorm(TracedTest):
    """Of tokens, as of a recurrence's heads, and over the sequence: divided, proved and executed as what it is made of."""

    @staticmethod
    def make(torch, over_sequence, affine):
        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.up = torch.nn.Linear(8, 8)
                self.norm = torch.nn.GroupNorm(4, 8, affine=affine)
                for parameter in self.norm.parameters():
                    torch.nn.init.normal_(parameter)

            def forward(self, x):
                y = self.up(x)
                if over_sequence:
                    return self.norm(y.transpose(1, 2)).transpose(1, 2)
                return self.norm(y.reshape(-1, 8)).view_as(x)

        model = residual_model(8, Layer).double()  # with few channels in a group, single precision loses much
        return model, lambda model, tokens: model(tokens).square().mean(), {"tokens": torch.randint(32, (4, 6))}

    def test_is_kept_where_its_decomposition_is_none(self):
        import torch
        model, step, inputs = self.make(torch, over_sequence=False, affine=True)
        kept = [torch.ops.aten.native_group_norm.default, torch.ops.aten.native_group_norm_backward.default]
        traced = epweave.trace(step, model, inputs, decompositions=dict.fromkeys(kept))
        found = [n.target for n in traced.graph.graph.nodes if n.target in kept]
        self.assertEqual([kept[0]] * 2 + [kept[1]] * 2, found)

    def test_is_traced_divided_proved_and_replayed(self):
        import torch
        for over_sequence, affine, tokens in ((False, True, None), (True, True, {"tokens": 0}), (False, False, {"tokens": 0})):
            with self.subTest(over_sequence=over_sequence, affine=affine), tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(7)
                model, step, inputs = self.make(torch, over_sequence, affine)
                traced = epweave.trace(step, model, inputs, tokens=tokens)
                self.assert_computes(traced, model, step, inputs)
                self.assert_divided(traced, ("" if tokens else "symbolize,") + "chunk{roots=layers.*,dense}", folder)


class BatchNorm(TracedTest):
    """Of means that are given, as of frozen layers: divided, proved and executed as what it is made of."""

    def test_of_given_means_is_traced_divided_proved_and_replayed(self):
        import torch

        class Layer(torch.nn.Module):
            def __init__(self, affine):
                super().__init__()
                self.conv, self.up = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Linear(9, 9)
                self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(4, affine=affine), torch.nn.BatchNorm1d(9, affine=affine)])

            def forward(self, x):
                return self.norms[1](self.up(self.norms[0](self.conv(x)).relu().mean(1).flatten(1)))

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Embedding(32, 4)
                self.layers = torch.nn.ModuleList([Layer(True), Layer(False)])

            def forward(self, tokens):
                x = self.embed(tokens).transpose(1, 2).unflatten(-1, (3, 3))
                return sum(layer(x) for layer in self.layers)

        def step(model, tokens):
            return model(tokens).square().mean()

        torch.manual_seed(7)
        model, inputs = Model().eval(), {"tokens": torch.randint(32, (4, 9))}
        for name, x in [*model.named_buffers(), *model.named_parameters()]:
            if "norms" in name and x.is_floating_point():
                torch.nn.init.uniform_(x, 0.5, 1.5)
        for tokens in (None, {"tokens": 0}):
            with self.subTest(tokens=tokens), tempfile.TemporaryDirectory() as folder:
                traced = epweave.trace(step, model, inputs, tokens=tokens)
                self.assertEqual([], [n for n in traced.graph.graph.nodes if "batch_norm" in str(n.target)])
                self.assert_computes(traced, model, step, inputs)
                self.assert_divided(traced, ("" if tokens else "symbolize,") + "chunk{roots=layers.*,dense}", folder)


class OtherNorms(TracedTest):
    """Instance norm, which torch makes a batch norm of all images' channels, and weight norm."""

    def test_are_traced_divided_proved_and_replayed(self):
        import torch
        from torch.nn.utils.parametrizations import weight_norm

        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = weight_norm(torch.nn.Linear(4, 4)), weight_norm(torch.nn.Conv1d(4, 4, 1), dim=2)
                self.norms = torch.nn.ModuleList([torch.nn.InstanceNorm1d(4, affine=True), torch.nn.InstanceNorm2d(4)])

            def forward(self, x):
                return self.norms[1](self.down(self.norms[0](self.up(x).transpose(1, 2))).unflatten(2, (3, 2))).flatten(2)

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Embedding(32, 4)
                self.layers = torch.nn.ModuleList([Layer(), Layer()])

            def forward(self, tokens):
                return sum(layer(self.embed(tokens)) for layer in self.layers)

        def step(model, tokens):
            return model(tokens).tanh().square().mean()

        torch.manual_seed(7)
        model, inputs = Model().double(), {"tokens": torch.randint(32, (4, 6))}
        whole = torch.nn.functional.instance_norm
        for tokens in (None, {"tokens": 0}):
            with self.subTest(tokens=tokens), tempfile.TemporaryDirectory() as folder:
                traced = epweave.trace(step, model, inputs, tokens=tokens)
                self.assert_knows_operators(traced)
                self.assert_computes(traced, model, step, inputs)
                self.assert_divided(traced, ("" if tokens else "symbolize,") + "chunk{roots=layers.*,dense}", folder)
        self.assertIs(torch.nn.functional.instance_norm, whole)
        with self.assertRaisesRegex(ValueError, "more than 1 spatial element"):
            epweave.trace(lambda model, x: whole(model(x)).sum(), torch.nn.Conv1d(4, 4, 1), {"x": torch.randn(2, 4, 1)})


class Counts(TracedTest):
    """A router that counts its choices with `bincount`."""

    def test_of_numbers_below_a_length_are_divided_proved_and_replayed(self):
        import torch

        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.router = torch.nn.Linear(4, 3)

            def forward(self, x):
                scores = self.router(x.flatten(0, 1)).softmax(-1)
                chosen = scores.argmax(-1)
                self.counts = torch.bincount(chosen, minlength=3)
                self.weighed = torch.bincount(chosen, x.detach().flatten(0, 1)[:, 0], minlength=3)
                self.means = scores.mean(0)
                return x * scores.amax(-1).view_as(x[..., 0]).unsqueeze(-1)

        def step(model, tokens):
            loss = model(tokens).square().mean()
            return loss + sum((x.means * x.counts * x.weighed).sum() for x in model.layers)

        torch.manual_seed(7)
        model, inputs = residual_model(4, Layer), {"tokens": torch.randint(32, (4, 6))}
        traced = epweave.trace(step, model, inputs)
        self.assertEqual([], [n for n in traced.graph.graph.nodes if "bincount" in str(n.target)])
        self.assert_computes(traced, model, step, inputs)
        with tempfile.TemporaryDirectory() as folder:
            self.assert_divided(traced, "symbolize,chunk{roots=layers.*,dense}", folder)

    def test_of_any_numbers_stay_a_call_and_larger_ones_are_an_error(self):
        import torch

        def step(model, x, y, length):
            return model(x).sum() * torch.bincount(y, minlength=length).sum()

        model, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
        traced = epweave.trace(step, model, {"x": x, "y": torch.tensor([1, 5]), "length": 0})
        self.assertIn("aten.bincount.default", [str(n.target) for n in traced.graph.graph.nodes])
        given = {"x": x, "y": torch.tensor([1, 5]), "length": 4}
        with self.assertRaisesRegex(RuntimeError, "index 5 is out of bounds"):
            epweave.trace(step, model, given)(model, given)


class GroupedExperts(TracedTest):
    """transformers' own mixture of experts, which on a CPU counts rows in floating point and casts the counts."""

    def test_are_divided_proved_and_replayed(self):
        import torch
        from transformers import MixtralConfig, MixtralForCausalLM
        torch.manual_seed(7)
        model = MixtralForCausalLM(MixtralConfig(
            vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
            num_local_experts=4, max_position_embeddings=64, use_cache=False)).eval()
        inputs = {"tokens": torch.randint(64, (4, 8)), "labels": torch.randint(64, (4, 8))}

        def step(model, tokens, labels):
            return torch.nn.functional.cross_entropy(model(input_ids=tokens).logits.flatten(0, 1), labels.flatten())

        traced = epweave.trace(step, model, inputs)
        self.assertIn("aten.histc.default", [str(n.target) for n in traced.graph.graph.nodes])
        self.assert_computes(traced, model, step, inputs)
        with tempfile.TemporaryDirectory() as folder:
            self.assert_divided(traced, "symbolize,dce,canonicalize,chunk{roots=model.layers.*.mlp,dense}", folder)


class AllTokensForEachExpert(TracedTest):
    """Llama 4's own mixture of experts, which repeats the tokens for each expert."""

    def test_are_divided_proved_and_replayed(self):
        import torch
        from transformers import Llama4ForCausalLM, Llama4TextConfig
        torch.manual_seed(7)
        model = Llama4ForCausalLM(Llama4TextConfig(
            vocab_size=64, hidden_size=32, intermediate_size=32, intermediate_size_mlp=64, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=1,
            max_position_embeddings=64, attention_chunk_size=64, pad_token_id=0, attn_implementation="eager", use_cache=False))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        inputs = {"tokens": torch.randint(1, 64, (4, 8)), "labels": torch.randint(64, (4, 8))}

        def step(model, tokens, labels):
            return torch.nn.functional.cross_entropy(model(input_ids=tokens).logits.flatten(0, 1), labels.flatten())

        traced = epweave.trace(step, model, inputs)
        self.assert_computes(traced, model, step, inputs)
        with tempfile.TemporaryDirectory() as folder:
            self.assert_divided(traced, "symbolize,dce,canonicalize,chunk{roots=model.layers.*.feed_forward,dense}", folder)


class DeltaRule(TracedTest):
    """Qwen3-Next's linear attention, which solves a triangular system for each head and block of tokens."""

    def test_is_divided_proved_and_replayed(self):
        import torch
        from transformers import Qwen3NextConfig
        from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet
        torch.manual_seed(7)
        config = Qwen3NextConfig(hidden_size=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
                                 linear_value_head_dim=8)
        model, inputs = residual_model(16, lambda: Qwen3NextGatedDeltaNet(config, 0)), {"tokens": torch.randint(32, (4, 8))}

        def step(model, tokens):
            return model(tokens).square().mean()

        traced = epweave.trace(step, model, inputs)
        self.assertIn("aten.linalg_solve_triangular.default", [str(n.target) for n in traced.graph.graph.nodes])
        with tempfile.TemporaryDirectory() as folder:
            self.assert_divided(traced, "symbolize,dce,canonicalize,chunk{roots=layers.*,dense}", folder)


class BalancedRouter(TracedTest):
    """Experts that Sinkhorn's iteration over all tokens chooses, and a loss that grows as their loads differ."""

    def test_is_divided_proved_and_replayed(self):
        import torch
        torch.manual_seed(7)

        class Mixture(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.router = torch.nn.Linear(8, 4)
                self.experts = torch.nn.Parameter(torch.randn(4, 8, 8))

            def forward(self, x):
                tokens = x.reshape(-1, 8)
                scores = self.router(tokens)
                with torch.no_grad():
                    cost = scores.exp()
                    of_experts = torch.ones(4)
                    for _ in range(3):
                        of_tokens = 1 / ((of_experts * cost).sum(1) + 1e-8)
                        of_experts = len(tokens) / 4 / ((of_tokens[:, None] * cost).sum(0) + 1e-8)
                    chosen = (of_experts * cost * of_tokens[:, None]).argmax(1)
                weights = scores.sigmoid() * torch.nn.functional.one_hot(chosen, 4)
                load = weights.sum(0)
                self.loss = load.var() / (load.mean().square() + 1e-10)
                return torch.einsum("te,td,edh->th", weights, tokens, self.experts).view_as(x)

        model, inputs = residual_model(8, Mixture), {"tokens": torch.randint(32, (4, 8))}

        def step(model, tokens):
            return model(tokens).square().mean() + sum(layer.loss for layer in model.layers)

        traced = epweave.trace(step, model, inputs)
        self.assert_computes(traced, model, step, inputs)
        with tempfile.TemporaryDirectory() as folder:
            self.assert_divided(traced, "symbolize,chunk{roots=layers.*,dense}", folder)


class MicroBatches(TracedTest):
    """Gradients accumulated over pieces of one batch."""

    def test_are_found_divided_proved_and_replayed(self):
        import torch
        cases = (("pieces", (8, 6), lambda x: x.chunk(2), "tokens:0/2", ""),
                 ("slices", (8, 6), lambda x: (x[:4], x[4:]), "tokens:0/2", ""),
                 ("a dimension in front", (2, 4, 6), lambda x: list(x), "tokens:1", "dim=seq,"))
        for name, sizes, cut, tokens, along in cases:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(7)
                model, inputs = residual_model(8, lambda: torch.nn.Linear(8, 8)), {"tokens": torch.randint(32, sizes)}

                def step(model, tokens, cut=cut):
                    return sum(model(piece).square().mean() for piece in cut(tokens)) / 2

                traced = epweave.trace(step, model, inputs)
                self.assert_computes(traced, model, step, inputs)
                traced.export(f"{folder}/step.epw")
                found = {x["topic"]: x["add"] for x in doctor(f"{folder}/step.epw")[1]["findings"]}["tokens"]
                self.assertEqual(found[0].split("  # ")[0], f"symbolize{{inputs=[{tokens}]}}")
                self.assert_divided(traced, f"symbolize{{inputs=[{tokens}]}},chunk{{roots=layers.*,{along}dense}}", folder)


class TakenApart(TracedTest):
    """Functions that the op table lacks and torch takes apart."""

    def test_are_in_the_op_table(self):
        import torch
        import torch.nn.functional as F
        cases = [lambda x: torch.cdist(x.repeat(5, 1), x.repeat(5, 1)), lambda x: F.pairwise_distance(x, x + 1),
                 lambda x: x.norm(p=1), lambda x: torch.dist(x, x + 1), lambda x: x[:, torch.tril_indices(4, 4, -1)[0]],
                 lambda x: x[:, torch.triu_indices(4, 4)[1]], torch.diag_embed,
                 lambda x: x.index_fill(0, torch.tensor([1]), 0.5), lambda x: torch.block_diag(x, x), torch.rot90,
                 lambda x: torch.vdot(x[0], x[1]), lambda x: x.sum() / torch.count_nonzero(x), torch.deg2rad, torch.rad2deg,
                 torch.sinc, torch.special.entr, lambda x: torch.special.xlog1py(x, x), lambda x: torch.logaddexp2(x, x + 1),
                 lambda x: x.renorm(2, 0, 1.0), lambda x: F.triplet_margin_loss(x, x + 1, x * 2)]

        def step(model, x):
            return sum(case(model(x).sigmoid()).cos().sum() for case in cases)

        torch.manual_seed(7)
        model, inputs = torch.nn.Linear(4, 4).double(), {"x": torch.randn(6, 4, dtype=torch.float64)}
        traced = epweave.trace(step, model, inputs)
        self.assert_knows_operators(traced)
        self.assert_computes(traced, model, step, inputs)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/step.epw"
            traced.export(path)
            changed = epweave.rewrite(path, "canonicalize")
            self.assertEqual(epweave.replay_check(path, changed.path)["verdict"], "same")


    def test_functions_of_kernels_alone_keep_dtypes_and_strides_and_edges(self):
        import torch
        from epweave.functions import function_decompositions
        aten, table = torch.ops.aten, function_decompositions()
        torch.manual_seed(7)
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            x = (torch.randn(3, 4) * 10).to(dtype)
            spoilt, halves = x.masked_fill(x < -5, math.nan), torch.arange(-9, 9, dtype=dtype).reshape(1, -1) / 4
            scales, zeros = torch.tensor([0.1, 0.3, 0.5]), torch.tensor([0, 128, 7], dtype=torch.int32)
            calls = [(aten.angle.default, spoilt),
                     (aten.fake_quantize_per_tensor_affine_cachemask.default, x, 0.3, 128, 0, 255),
                     (aten.fake_quantize_per_channel_affine_cachemask.default, x, scales, zeros, 0, 0, 255),
                     (aten.fake_quantize_per_tensor_affine_cachemask.default, halves, 0.5, 7, 0, 15),
                     *((aten.fake_quantize_per_channel_affine_cachemask.default, halves, scales[2:], zeros[2:].to(zero), 0, 0, 15)
                       for zero in (torch.int32, torch.float32)),
                     (aten.kthvalue.default, x, 2, 1), (aten.kthvalue.default, x.t(), 3, 1, True), (aten.kthvalue.default, x.reshape(2, 3, 2), 1, 1),
                     (aten.addbmm.default, spoilt, torch.ones(2, 3, 1, dtype=dtype), torch.ones(2, 1, 4, dtype=dtype), {"beta": 0, "alpha": 2}),
                     (aten._cdist_forward.default, x[:, :0].double(), x[:2, :0].double(), math.inf, None)]
            for op, *args in calls:
                named = args.pop() if isinstance(args[-1], dict) else {}
                with self.subTest(op=op, dtype=dtype):
                    torch.testing.assert_close(table[op](*args, **named), op(*args, **named), equal_nan=True, check_stride=True)

    def test_functions_of_kernels_alone_compute_what_torch_does(self):
        import torch
        import torch.nn.functional as F
        row, column = torch.tensor([4, 0, 2]), torch.tensor([[0, 3], [1, 1]])
        scale, zero = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0, 1, 2, 3], dtype=torch.int32)

        def complex_numbers(x):
            return torch.complex(x.float(), x.float() * 2 - 1)

        def spoilt(x):
            return x.masked_fill(torch.arange(6).unsqueeze(1) % 4 == 1, math.nan)
        cases = [lambda x: x.kthvalue(2, 0).values, lambda x: x.kthvalue(3, -1, True)[0], lambda x: x.median(), lambda x: x.median(1).values,
                 lambda x: spoilt(x).median(0).values.nan_to_num(2.0), lambda x: spoilt(x).nanmedian(0, True).values,
                 lambda x: spoilt(x).nanmedian(), lambda x: x.nanmedian(1)[0],
                 *(lambda x, p=p: torch.cdist(x, x[1:3] + 0.1, p=p) for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)),
                 lambda x: torch.cdist(x.reshape(2, 3, 4), x.reshape(2, 3, 4).flip(1), compute_mode="donot_use_mm_for_euclid_dist"),
                 lambda x: x.put(column, x[:2, :2]), lambda x: x.put(column, x[:2, :2], accumulate=True), lambda x: x.take(column),
                 *(lambda x, kind=kind: x.index_reduce(0, row, x[:3] + 0.2, kind) for kind in ("prod", "mean", "amax", "amin")),
                 lambda x: x.index_reduce(1, row % 2, x[:, :3], "mean", include_self=False),
                 lambda x: x.diagonal_scatter(x[:4, 0]), lambda x: x.diagonal_scatter(x[:3, 0], 1), lambda x: x.diagonal(-1),
                 lambda x: x.trace(), lambda x: torch.diag(x[0]), lambda x: x[:4].diag(1), lambda x: torch.linalg.diagonal(x),
                 lambda x: F.bilinear(x, x, x[:2].repeat(1, 4).reshape(2, 4, 4), x[0, :2]),
                 lambda x: torch.addbmm(x[:, :3], x.reshape(2, 6, 2)[:, :6], x[:4, :3].reshape(2, 2, 3), beta=0.5, alpha=2),
                 lambda x: torch.addmv(x[:, 0], x, x[0], alpha=2), lambda x: torch.addr(x[:4], x[0], x[1], beta=0.5),
                 lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7),
                 lambda x: torch.fake_quantize_per_channel_affine(x.float(), scale, zero, 1, 0, 7),
                 lambda x: x + x.round(decimals=1) + x.round(decimals=-1), lambda x: (x - 0.5).sgn() * x, lambda x: (x - 0.5).angle() * x,
                 lambda x: complex_numbers(x).abs(), lambda x: complex_numbers(x).angle(), lambda x: torch.view_as_real(complex_numbers(x).exp()),
                 lambda x: torch.view_as_real(complex_numbers(x).sgn()), lambda x: torch.view_as_real(complex_numbers(x) @ complex_numbers(x).mH),
                 lambda x: torch.view_as_real(complex_numbers(x.reshape(2, 3, 4)) @ complex_numbers(x.reshape(2, 4, 3))),
                 lambda x: complex_numbers(x).conj().imag, lambda x: F.affine_grid(x[:2, :3].repeat(1, 2).reshape(2, 2, 3), [2, 1, 2, 3]),
                 lambda x: x.quantile(0.3, dim=0), lambda x: spoilt(x).nanquantile(0.5, dim=0), lambda x: x.unsqueeze(0).clone().squeeze_(0), lambda x: x.clone().transpose_(0, 1) * x.clone().t_(),
                 lambda x: x * torch.hann_window(4), lambda x: torch.heaviside(x.detach() - 0.5, x[0, 0].detach()) * x,
                 lambda x: x * torch.isin(row.new_tensor([0, 1, 2, 3]), row), lambda x: x * (x / 0).isposinf(), lambda x: torch.ldexp(x, row[0]),
                 lambda x: x * torch.logspace(0, 1, 4), torch.log10, lambda x: (x + 1).acosh(), torch.asinh, lambda x: (x * 0.9).atanh(),
                 lambda x: torch.hypot(x, x + 1), lambda x: torch.copysign(x, x - 0.5), lambda x: x.copysign(-1), lambda x: x * (x - 0.5).signbit(),
                 lambda x: x * (row[0] ^ 3), lambda x: x * (row.sum() >> row[2]), lambda x: x * (row.sum() << row[2])]

        def step(model, x):
            return sum(case(model(x).sigmoid()).double().cos().sum() for case in cases)

        torch.manual_seed(7)
        model, inputs = torch.nn.Linear(4, 4).double(), {"x": torch.randn(6, 4, dtype=torch.float64)}
        for i, case in enumerate(cases):
            with self.subTest(i):
                one = lambda model, x, case=case: case(model(x).sigmoid()).double().cos().sum()  # noqa: E731
                traced = epweave.trace(one, model, inputs)
                self.assert_computes(traced, model, one, inputs, rtol=1e-5, atol=1e-5)
        traced = epweave.trace(step, model, inputs)
        self.assert_knows_operators(traced)
        self.assert_computes(traced, model, step, inputs, rtol=1e-5, atol=1e-4)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/step.epw"
            traced.export(path)
            changed = epweave.rewrite(path, "canonicalize")
            self.assertEqual(epweave.replay_check(path, changed.path)["verdict"], "same")


class Recurrent(TracedTest):
    """Recurrent layers: products and functions of elements, whichever library would run them as one kernel."""

    def test_is_traced_divided_proved_and_replayed(self):
        import torch
        cases = [("LSTM", {"num_layers": 2, "bidirectional": True}), ("LSTM", {"proj_size": 4, "bias": False}), ("GRU", {}),
                 ("RNN", {}), ("RNN", {"nonlinearity": "relu"})]

        class Layer(torch.nn.Module):
            def __init__(self, kind, options):
                super().__init__()
                self.inner = getattr(torch.nn, kind)(8, 8, batch_first=True, **options)

            def forward(self, x):
                return self.inner(x)[0].sum(-1)

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Embedding(32, 8)
                self.layers = torch.nn.ModuleList(Layer(*case) for case in cases)

            def forward(self, tokens):
                x = self.embed(tokens).detach()
                return sum(layer(x) for layer in self.layers) + self.embed(tokens).sum(-1)

        def step(model, tokens):
            return model(tokens).square().mean()

        torch.manual_seed(7)
        model, inputs = Model(), {"tokens": torch.randint(32, (4, 3))}
        for tokens in (None, {"tokens": 0}):
            with self.subTest(tokens=tokens), tempfile.TemporaryDirectory() as folder:
                traced = epweave.trace(step, model, inputs, tokens=tokens)
                self.assert_knows_operators(traced)
                self.assert_computes(traced, model, step, inputs)
                self.assert_divided(traced, ("" if tokens else "symbolize,") + "chunk{roots=layers.*,dense}", folder)
        self.assertTrue(torch._C._get_mkldnn_enabled())
        self.assertFalse({"lstm", "gru"} & set(vars(torch._VF)))

    def test_drops_between_layers_what_torch_drops(self):
        import torch

        def step(model, x):
            rows, ends = model(x)
            return rows.sin().sum() + sum(end.cos().sum() for end in (ends if isinstance(ends, tuple) else [ends]))

        for kind, options in (("LSTM", {"proj_size": 3}), ("GRU", {"batch_first": True}), ("RNN", {"bidirectional": True})):
            for tokens in (None, {"x": 0}):
                with self.subTest(kind=kind, tokens=tokens):
                    torch.manual_seed(7)
                    model = getattr(torch.nn, kind)(4, 6, num_layers=3, dropout=0.5, **options).double()
                    inputs = {"x": torch.randn(3, 2, 4).double()}
                    traced = epweave.trace(step, model, inputs, tokens=tokens)
                    torch.manual_seed(1)
                    expected = step(model, **inputs)
                    gradients = torch.autograd.grad(expected, list(model.parameters()))
                    torch.manual_seed(1)
                    loss, found = traced(model, inputs)
                    torch.testing.assert_close(loss, expected)
                    torch.testing.assert_close(list(found.values()), list(gradients))


class Pooling(TracedTest):
    """Pooling, interpolation, unfolding and padding of images."""

    @staticmethod
    def make(torch, resample):
        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.up = torch.nn.Linear(4, 4)

            def forward(self, x):
                images = self.up(x).transpose(1, 2).reshape(-1, 4, 4, 4)
                return resample(images).tanh().flatten(2).mean(2, keepdim=True).transpose(1, 2)

        return (residual_model(4, Layer).double(), lambda model, tokens: model(tokens).square().mean(),
                {"tokens": torch.randint(32, (4, 16))})

    @staticmethod
    def resampling(traced):
        return [str(n.target) for n in traced.graph.graph.nodes if "pool" in str(n.target) or "upsample" in str(n.target)]

    def test_is_traced_divided_proved_and_replayed(self):
        import torch
        import torch.nn.functional as F
        cases = {"avg_pool": lambda x: F.avg_pool2d(x, (2, 4)), "avg_pool1d": lambda x: F.avg_pool1d(x.flatten(2), 4),
                 "avg_pool3d": lambda x: F.avg_pool3d(x.unsqueeze(1), 2),
                 "adaptive": lambda x: F.adaptive_avg_pool2d(x, (4, 2)),
                 "nearest": lambda x: F.interpolate(x, scale_factor=2.0), "sized": lambda x: F.interpolate(x, size=(12, 4)),
                 "exact": lambda x: F.interpolate(x, scale_factor=3.0, mode="nearest-exact")}
        for name, resample in cases.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(7)
                model, step, inputs = self.make(torch, resample)
                traced = epweave.trace(step, model, inputs)
                self.assertEqual([], self.resampling(traced))
                self.assert_computes(traced, model, step, inputs)
                self.assert_divided(traced, "symbolize,chunk{roots=layers.*,dense}", folder)

    def test_other_windows_are_products_or_chosen_elements(self):
        import torch
        import torch.nn.functional as F
        pool, biggest, resize = F.avg_pool2d, F.max_pool2d, F.interpolate
        innermost = torch.channels_last
        cases = {
            "padded": lambda x: pool(x, 2, padding=1), "overlapping": lambda x: pool(x, 2, 1), "a rest": lambda x: pool(x, 3),
            "without padding": lambda x: pool(x, (3, 2), 2, (1, 0), ceil_mode=True, count_include_pad=False),
            "rounded up": lambda x: pool(x, 3, 2, 1, ceil_mode=True), "divisor": lambda x: pool(x, 2, divisor_override=3),
            "pool3d": lambda x: F.avg_pool3d(x, 3, 1, 1), "uneven": lambda x: F.adaptive_avg_pool2d(x, 3),
            "broken scale": lambda x: resize(x, scale_factor=1.7), "exact": lambda x: resize(x, size=(3, 7), mode="nearest-exact"),
            "bilinear": lambda x: resize(x, size=(3, 7), mode="bilinear"),
            "corners": lambda x: resize(x, size=(3, 7), mode="bilinear", align_corners=True),
            "scaled": lambda x: resize(x, scale_factor=1.7, mode="bilinear"), "bicubic": lambda x: resize(x, size=(3, 7), mode="bicubic"),
            "linear": lambda x: resize(x.flatten(2), size=7, mode="linear"),
            "trilinear": lambda x: resize(x.unsqueeze(1), size=(3, 5, 7), mode="trilinear"),
            "max": lambda x: biggest(x, 2), "max of overlapping": lambda x: biggest(x, 3, 2, 1),
            "max of channels innermost": lambda x: biggest(x.contiguous(memory_format=innermost), 3, 2, 1),
            "max of gaps": lambda x: biggest(x, (2, 3), (2, 1), (1, 0), (2, 1), ceil_mode=True),
            "max1d": lambda x: F.max_pool1d(x.flatten(2), 3, 2, 1), "max3d": lambda x: F.max_pool3d(x.unsqueeze(1), 3, 2, 1),
            "adaptive max": lambda x: F.adaptive_max_pool2d(x, (2, 4)), "unfold": lambda x: F.unfold(x, 3, padding=1, stride=2).unflatten(1, (4, 9)),
            "fold": lambda x: F.fold(F.unfold(x, 3, padding=1), (4, 4), 3, padding=1),
            "reflect": lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect"), "replicate": lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"),
            "same scaled": lambda x: resize(x, scale_factor=1.2), "twice scaled": lambda x: resize(x, scale_factor=2.2),
            "same exact": lambda x: resize(x, scale_factor=1.2, mode="nearest-exact"),
            "same bilinear": lambda x: resize(x, scale_factor=1.2, mode="bilinear"), "batch norm": lambda x: F.batch_norm(x, None, None, training=True)}
        torch.manual_seed(7)
        model, step, inputs = self.make(torch, self.all_of(cases))
        traced = epweave.trace(step, model, inputs)
        self.assertEqual([], self.resampling(traced))
        self.assert_computes(traced, model, step, inputs)
        self.assert_knows_operators(traced)

    def test_infinities_have_the_gradients_that_torch_gives_them(self):
        import torch
        import torch.nn.functional as F
        cases = {"max": lambda x: F.max_pool2d(x, 3, 2, 1), "gaps": lambda x: F.max_pool2d(x, 2, 1, 1, 2),
                 "nearest": lambda x: F.interpolate(x, size=(3, 7)), "bilinear": lambda x: F.interpolate(x, size=(4, 7), mode="bilinear"),
                 "bicubic": lambda x: F.interpolate(x, size=(4, 7), mode="bicubic"), "same": lambda x: F.interpolate(x, size=(5, 5)).add_(1)}
        x = torch.randn(1, 1, 5, 5)
        x[0, 0, 1:, :2] = -math.inf
        model = torch.nn.ParameterList([x])

        def step(model):
            results = [resample(model[0]) for resample in cases.values()]
            return sum((result.nan_to_num(5, 5, -5) * torch.arange(result.numel()).view_as(result)).sum() for result in results)

        self.assert_computes(epweave.trace(step, model, {}), model, step, {})

    def test_results_lie_as_those_of_torch(self):
        import torch
        import torch.nn.functional as F
        cases = [lambda x: F.avg_pool3d(x, 2), lambda x: F.avg_pool3d(x, 3, 2, 1), lambda x: F.adaptive_avg_pool3d(x, 3),
                 lambda x: F.adaptive_max_pool3d(x, 2), lambda x: F.max_pool3d(x, 2)]
        x = torch.randn(2, 3, 4, 4, 4).contiguous(memory_format=torch.channels_last_3d)
        found = []

        def step(model, x):
            found.append([resample(model(x)).stride() for resample in cases])
            return sum(resample(model(x)).sum() for resample in cases)

        model = torch.nn.Conv3d(3, 3, 1).to(memory_format=torch.channels_last_3d)
        step(model, x)
        epweave.trace(step, model, {"x": x})
        self.assertEqual(found[0], found[1])

    def test_what_torch_refuses_is_refused_in_its_words(self):
        import logging
        import torch
        import torch.nn.functional as F
        logging.disable(logging.CRITICAL)  # torch logs what it raises
        self.addCleanup(logging.disable, logging.NOTSET)
        x = torch.zeros(1, 1, 4, 4)
        for call in (lambda x: F.pad(x, (4, 0), mode="reflect"), lambda x: F.max_pool2d(x, 5), lambda x: F.avg_pool2d(x, 5),
                     lambda x: F.avg_pool2d(x, 3, 1, 2), lambda x: F.max_pool2d(x, 3, 1, 2),
                     lambda x: F.max_pool2d(x, 3, 2, 2, dilation=2), lambda x: F.avg_pool3d(x.unsqueeze(2), (2, 2, 2), 1, 1),
                     lambda x: F.avg_pool2d(x, 2, divisor_override=0)):
            with self.assertRaises(RuntimeError) as eager:
                call(x)
            with self.assertRaises(RuntimeError) as traced:
                epweave.trace(lambda model, x: call(model(x)).sum(), torch.nn.Conv2d(1, 1, 1), {"x": x})
            self.assertEqual(str(traced.exception), str(eager.exception))

    def test_batch_norm_in_training_writes_what_it_has_seen(self):
        import torch
        x = torch.randn(6, 4, 3, 3)
        models = [torch.nn.Sequential(torch.nn.Conv2d(4, 4, 1), torch.nn.BatchNorm2d(4)) for _ in range(2)]
        models[1].load_state_dict(models[0].state_dict())

        def step(model, x):
            return model(x).square().sum()

        traced = epweave.trace(step, models[0], {"x": x})
        self.assertEqual(int(models[0][1].num_batches_tracked), 0)
        traced(models[0], {"x": x})
        step(models[1], x)
        for (name, found), wanted in zip(models[0].state_dict().items(), models[1].state_dict().values()):
            torch.testing.assert_close(found, wanted, msg=name)
        self.assertEqual(int(models[0][1].num_batches_tracked), 1)

    @staticmethod
    def all_of(cases):
        """One resampling of all: an element that one of them has wrong is in the loss."""
        import torch
        return lambda x: torch.cat([resample(x).flatten(1).unsqueeze(1) for resample in cases.values()], 2)

    def test_a_symbol_of_the_batch_stays_one_and_is_divided(self):
        import torch
        import torch.nn.functional as F
        cases = {"padded": lambda x: F.max_pool2d(x, 3, 2, 1), "nearest": lambda x: F.interpolate(x, size=(3, 7)),
                 "bilinear": lambda x: F.interpolate(x, size=(3, 7), mode="bilinear"), "overlapping": lambda x: F.avg_pool2d(x, 3, 2, 1),
                 "zeros": lambda x: F.pad(x, (1, 1)), "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect")}
        torch.manual_seed(7)
        model, step, inputs = self.make(torch, self.all_of(cases))
        traced = epweave.trace(step, model, inputs, tokens={"tokens": 0})
        self.assertEqual([], self.resampling(traced))
        tokens = [n for n in traced.graph.graph.nodes if n.op == "placeholder"][-1]
        self.assertIsInstance(tokens.meta["val"].shape[0], torch.SymInt)
        self.assert_computes(traced, model, step, inputs)
        with tempfile.TemporaryDirectory() as folder:
            self.assert_divided(traced, "chunk{roots=layers.*,dense}", folder)

    def test_are_kept_where_the_decomposition_is_none(self):
        import torch
        import torch.nn.functional as F
        aten = torch.ops.aten
        kept = [aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default]
        model, step, inputs = self.make(torch, lambda x: F.max_pool2d(x, 2))
        traced = epweave.trace(step, model, inputs, decompositions=dict.fromkeys(kept))
        self.assertEqual([str(kept[0])] * 2 + [str(kept[1])] * 2, self.resampling(traced))


class Bags(TracedTest):
    """Embedding bags: lookups, and the reduction of each bag."""

    def test_equal_and_other_bags(self):
        import torch
        x = torch.randint(20, (5, 4))
        x[0], x[1, 2:] = 3, 3
        begins = torch.tensor([0, 3, 3, 9])  # the second is empty
        ends = torch.tensor([0, 3, 3, 9, 20])
        cases = [("sum", None, None, True), ("sum", 3, None, True), ("sum", 3, begins, False), ("sum", None, ends, True),
                 ("mean", None, None, False), ("mean", 3, None, False), ("mean", 3, begins, False), ("max", None, None, False),
                 ("max", 3, None, False)]
        model = torch.nn.ModuleList([
            torch.nn.EmbeddingBag(20, 6, mode=mode, padding_idx=padding, include_last_offset=offsets is ends)
            for mode, padding, offsets, _ in cases]).double()

        def step(model, x, weights):
            flat = x.flatten(), weights.flatten()
            losses = []
            for bag, (_, _, offsets, is_weighed) in zip(model, cases):
                rows, weight = (x, weights) if offsets is None else flat
                losses.append((bag(rows, offsets, weight if is_weighed else None) * torch.arange(6)).cos().sum())
            return sum(losses)

        inputs = {"x": x, "weights": torch.rand(5, 4, dtype=torch.float64)}
        traced = epweave.trace(step, model, inputs)
        self.assert_computes(traced, model, step, inputs)
        self.assert_knows_operators(traced)

    def test_are_kept_where_the_decomposition_is_none(self):
        import torch
        model, kept = torch.nn.EmbeddingBag(20, 6), torch.ops.aten._embedding_bag.default
        traced = epweave.trace(lambda model, x: model(x).sum(), model, {"x": torch.randint(20, (5, 4))}, decompositions={kept: None})
        self.assertIn(kept, [n.target for n in traced.graph.graph.nodes])


    def test_what_torch_refuses_is_left_to_it(self):
        import torch
        import torch.nn.functional as F
        from epweave.bags import bags_taken_apart
        weight, rows = torch.zeros(4, 3), torch.zeros(2, 3, dtype=torch.int64)
        for options in ({"mode": "sum", "per_sample_weights": torch.ones(2, 1)}, {"padding_idx": 4},
                        {"mode": "sum", "per_sample_weights": torch.ones(2, 3, dtype=torch.float16)},
                        {"mode": "max", "scale_grad_by_freq": True}, {"input": rows[:, :0]}, {"weight": weight[0]},
                        {"input": rows[0], "offsets": torch.tensor([1, 2])}):
            given = {"input": rows, "weight": weight, **options}
            with self.subTest(**options):
                with self.assertRaises((RuntimeError, ValueError, AssertionError)) as eager:
                    F.embedding_bag(**given)
                with self.assertRaises(type(eager.exception)), bags_taken_apart():
                    F.embedding_bag(**given)

    def test_a_decomposition_of_the_users_own_is_used(self):
        import torch
        aten = torch.ops.aten
        calls = []

        def own(weight, indices, offsets, *more):
            calls.append(indices)
            return NotImplemented
        epweave.trace(lambda model, x: model(x).sum(), torch.nn.EmbeddingBag(20, 6), {"x": torch.randint(20, (5, 4))},
                      decompositions={aten._embedding_bag.default: own})
        self.assertEqual(len(calls), 1)


class Views(TracedTest):
    """Pixel shuffles, and a mean over images whose channels lie innermost."""

    def test_are_traced_divided_proved_and_replayed(self):
        import torch
        import torch.nn.functional as F

        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.up = torch.nn.Linear(4, 16)

            def forward(self, x):
                pixels = F.pixel_shuffle(self.up(x).transpose(1, 2).reshape(-1, 16, 3, 3), 2)
                return F.pixel_unshuffle(pixels.tanh(), 2).flatten(2).transpose(1, 2)[..., :4]

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = torch.nn.Embedding(32, 4), torch.nn.Conv2d(4, 4, 3)
                self.layers = torch.nn.ModuleList([Layer(), Layer()])

            def forward(self, tokens):
                x = self.embed(tokens)
                for layer in self.layers:
                    x = x + layer(x)
                image = self.head(x.transpose(1, 2).reshape(-1, 4, 3, 3))
                return F.adaptive_avg_pool2d(image.tile(1, 1, 2, 2).contiguous(memory_format=torch.channels_last), 1)

        model, inputs = Model(), {"tokens": torch.randint(32, (4, 9))}

        def step(model, tokens):
            return model(tokens).square().mean()

        traced = epweave.trace(step, model, inputs)
        taken_apart = ("pixel_shuffle", "pixel_unshuffle", "as_strided_.")
        self.assertFalse([n for n in traced.graph.graph.nodes if any(word in str(n.target) for word in taken_apart)])
        self.assert_computes(traced, model, step, inputs)
        with tempfile.TemporaryDirectory() as folder:
            self.assert_divided(traced, "symbolize,chunk{roots=layers.*,dense}", folder)


def write_documented_step(path):
    """The example's step, with the frames of its stack traces in files named from site-packages or the example's folder."""
    subprocess.run([sys.executable, "-W", "ignore", str(ROOT / "scripts/examples/own_moe.py"), path], check=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, stdout=subprocess.DEVNULL)
    step = read_file(path)
    for node in step["graphs"][0]["nodes"]:
        for entry in node.get("meta", []):
            if entry["name"] == "stack_trace":
                kind, frames = entry["value"]
                entry["value"] = (kind, re.sub(r'File "[^"]*/(site-packages|examples)/', 'File "', frames))
    write_file(step, path)


class Draws(unittest.TestCase):
    """Dropout and noise in divided modules."""

    def test_parts_take_the_numbers_that_the_whole_draws(self):
        import torch
        import torch.nn.functional as F

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.router, self.up = torch.nn.Linear(8, 4), torch.nn.Linear(8, 8)

            def forward(self, x):
                logits = self.router(x * torch.empty_like(x).uniform_(0.9, 1.1))
                logits = logits + torch.randn_like(logits) * F.softplus(logits.detach())
                return x + F.dropout(self.up(x).tanh(), 0.5) * logits.softmax(-1).amax(-1, keepdim=True)

        torch.manual_seed(3)
        model = torch.nn.Sequential(Block(), Block())
        inputs = {"inputs": torch.randn(4, 6, 8)}
        traced = epweave.trace(lambda model, inputs: model(inputs).square().sum(), model, inputs, tokens={"inputs": 0})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "step.epw"
            traced.export(path)
            divided = epweave.rewrite(path, "chunk{roots=[0,1],dense=true}")
            self.assertTrue(epweave.verify(path, divided.path))
            self.assertEqual(epweave.replay_check(path, divided.path)["verdict"], "same")
            runs = []
            for step in (traced, traced.with_graph(divided.graph)):
                torch.manual_seed(5)
                runs.append(step(model, inputs))
        self.assertAlmostEqual(runs[0][0].item(), runs[1][0].item(), delta=1e-4)
        self.assertLess(largest_difference(torch, runs[0][1], runs[1][1]), 1e-5)
        self.assertEqual(sum("chunk" in node.name for node in divided.graph.graph.nodes if "bernoulli" in str(node.target)), 0)


class Documented(unittest.TestCase):
    def test_the_step_that_docs_show_is_what_the_example_traces(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/step.epw"
            write_documented_step(path)
            self.assertTrue(epweave.diff(path, DOCUMENTED))
            self.check_sources(path)

    def check_sources(self, path):
        """Each call has the line of the model's file that makes it, also in a function that a module's `forward` calls."""
        with open(ROOT / "scripts/examples/own_moe.py", encoding="utf-8") as f:
            lines = f.read().splitlines()
        nodes = read_file(path)["graphs"][0]["nodes"]
        sources = {n["name"]: n.get("source", "") for n in nodes if "kind" not in n}  # calls
        # The loss's own gradient and sums of gradients are made by no line.
        self.assertEqual([name for name, source in sources.items() if not source.startswith("own_moe.py:")],
                         ["ones_like", "add_2", "add_3", "add_4", "add_5"])
        exchanges = [source for name, source in sources.items() if name.startswith("all_to_all_single")]
        said = {int(source.partition("own_moe.py:")[2].partition(" ")[0]) for source in exchanges}
        self.assertEqual(said, {i for i, line in enumerate(lines, 1) if line.startswith("    ") and "all_to_all_single" in line})


class Collectives(unittest.TestCase):
    """Exchanges that write into a tensor, as an autograd.Function around torch.distributed's does."""

    def setUp(self):
        import torch
        from torch.testing._internal.distributed.fake_pg import FakeStore
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
        self.addCleanup(torch.distributed.destroy_process_group)
        self.group = torch.distributed.group.WORLD

    @staticmethod
    def exchange(all_to_all, **options):
        import torch

        class Exchange(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, out, given, group):
                ctx.sizes, ctx.group = (out, given), group
                y = torch.empty_like(x) if out is None else x.new_empty(sum(out), x.shape[1])
                all_to_all()(y, x.contiguous(), out, given, group=group, **options)
                return y

            @staticmethod
            def backward(ctx, g):
                out, given = ctx.sizes
                y = torch.empty_like(g) if out is None else g.new_empty(sum(given), g.shape[1])
                all_to_all()(y, g.contiguous(), given, out, group=ctx.group, **options)
                return y, None, None, None
        return Exchange.apply

    def trace(self, exchange):
        import own_moe
        import torch
        model, step, inputs = make_own(torch, self.group)
        with mock.patch.object(own_moe, "all_to_all_single_autograd", exchange):
            return epweave.trace(step, model, inputs, groups={"ep": self.group})

    def check(self, error):
        self.assertIn("all_to_all_single_autograd", error.remedy)
        self.assertIn("own_model_torch_test.py", error.source)

    def test_by_name_they_are_functional(self):
        import torch
        written = self.trace(self.exchange(lambda: torch.distributed.all_to_all_single))
        functional = self.trace(torch.distributed._functional_collectives.all_to_all_single_autograd)
        count = {name: [sum(name in str(node.target) for node in traced.graph.graph.nodes)
                        for traced in (written, functional)]
                 for name in ("all_to_all_single", "wait_tensor", "copy_", "empty")}
        self.assertEqual(count, {"all_to_all_single": [10, 10], "wait_tensor": [12, 12], "copy_": [0, 0], "empty": [2, 2]})
        self.assertFalse([node for node in written.graph.graph.nodes if "collectives.py" in node.meta.get("stack_trace", "")])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "step.epw"
            written.export(path)
            divided = epweave.rewrite(path, preset="ep-overlap", roots="blocks.*.moe", symbolize="yes")
            self.assertTrue(epweave.verify(path, divided.path))

    def test_lists_are_one_exchange(self):
        import torch

        class Exchange(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, group):
                ctx.group = group
                given = [t.contiguous() for t in x.chunk(RANKS)]
                results = [torch.empty_like(t) for t in given]
                torch.distributed.all_to_all(results, given, group=group)
                return torch.cat(results)

            @staticmethod
            def backward(ctx, gradient):
                return Exchange.apply(gradient, ctx.group), None

        traced = epweave.trace(lambda model, x: Exchange.apply(model(x), self.group).square().sum(), torch.nn.Linear(4, 4),
                               {"x": torch.randn(6, 4)}, groups={"ep": self.group})
        found = [str(n.target) for n in traced.graph.graph.nodes if n.op == "call_function"]
        self.assertEqual([x for x in found if "split" in x or "cat" in x or "copy" in x or "empty" in x or "getitem" in x], [])
        self.assertEqual(len([x for x in found if "wait_tensor" in x]), 2)
        exchanges = [n for n in traced.graph.graph.nodes if "all_to_all_single" in str(n.target)]
        self.assertEqual([(n.args[0].meta["val"].shape, n.args[1:3]) for n in exchanges], [((6, 4), ([3, 3], [3, 3]))] * 2)

        def uneven(model, x):
            y = model(x).detach()
            results = [y.new_empty(2, 4), y.new_empty(5, 4)]
            torch.distributed.all_to_all(results, [y[:4], y[4:]], group=self.group)
            return (results[0].sum() * results[1].sum() * model(x)).sum()

        traced = epweave.trace(uneven, torch.nn.Linear(4, 4), {"x": torch.randn(6, 4)}, groups={"ep": self.group})
        exchanges = [n.args[1:3] for n in traced.graph.graph.nodes if "all_to_all_single" in str(n.target)]
        self.assertEqual(exchanges, [([2, 5], [4, 2])])
        self.assertFalse([n for n in traced.graph.graph.nodes if "copy" in str(n.target)])

    def test_a_copy_that_is_not_what_it_copies_stays(self):
        import torch
        from torch.distributed import _functional_collectives as functional

        def written(model, x):
            h = model(x)
            y = torch.cat(h.detach().chunk(2))
            y.mul_(0)
            return h.sum() + y.sum()

        def source_written(model, x):
            h = model(x).detach().clone()
            y = torch.cat(h.chunk(2))
            h.mul_(0)
            sent = functional.wait_tensor(functional.all_to_all_single(y, None, None, self.group))
            return (model(x) * sent.sum()).sum() + y.sum()

        def transposed(model, x):
            return (torch.cat(model(x).t().chunk(2)).view(-1) * torch.arange(x.numel())).sum()

        def read_twice(model, x):
            y = torch.empty_like(x)
            result = functional.wait_tensor(functional.all_reduce(model(x).detach(), "sum", self.group))
            view = result.view_as(y)
            y.copy_(view)
            return (model(x) * (y + view)).sum()

        model, x = torch.nn.Linear(4, 4), torch.randn(6, 4)
        for step in (written, source_written, transposed, read_twice):
            with self.subTest(step.__name__):
                loss, gradients = epweave.trace(step, model, {"x": x}, groups={"ep": self.group})(model, {"x": x})
                eager = step(model, x)
                torch.testing.assert_close(loss, eager)
                torch.testing.assert_close(gradients["weight"], torch.autograd.grad(eager, model.weight)[0])

    def test_reductions_keep_their_op(self):
        import torch
        from torch.distributed import ReduceOp

        def step(model, x):
            largest, share = x.detach().clone(), x.new_empty(x.shape[0] // RANKS, x.shape[1])
            torch.distributed.all_reduce(largest, op=ReduceOp.MAX, group=self.group)
            torch.distributed.reduce_scatter_tensor(share, x.detach(), ReduceOp.AVG, group=self.group)
            return (model(x) * largest).sum() + share.sum()

        traced = epweave.trace(step, torch.nn.Linear(4, 4), {"x": torch.randn(4, 4)}, groups={"ep": self.group})
        reductions = [(str(x.target), x.args[1]) for x in traced.graph.graph.nodes if "reduce" in str(x.target)]
        self.assertEqual(reductions, [("_c10d_functional.all_reduce.default", "max"),
                                      ("_c10d_functional.reduce_scatter_tensor.default", "avg")])

    def test_a_function_that_was_imported_is_refused_with_sizes_that_are_data(self):
        import torch
        imported = torch.distributed.all_to_all_single
        with self.assertRaisesRegex(epweave.UsageError, "dist.all_to_all_single cannot be traced") as caught:
            self.trace(self.exchange(lambda: imported))
        self.check(caught.exception)

    def test_a_function_that_was_imported_is_refused_with_equal_parts(self):
        import torch
        imported = torch.distributed.all_to_all_single
        model, exchange = torch.nn.Linear(4, 4), self.exchange(lambda: imported)
        with self.assertRaisesRegex(epweave.UsageError, "a process group that no graph can hold") as caught:
            epweave.trace(lambda m, x: exchange(m(x), None, None, self.group).sum(), model, [torch.ones(2, 4)])
        self.check(caught.exception)

    def test_what_runs_beside_the_caller_is_refused(self):
        import torch
        with self.assertRaisesRegex(epweave.UsageError, "a collective with async_op=True cannot be traced, at own_model") as caught:
            self.trace(self.exchange(lambda: torch.distributed.all_to_all_single, async_op=True))
        self.assertIn("leave async_op out", caught.exception.remedy)


class Meshes(unittest.TestCase):
    def test_only_those_in_order_of_ranks_are_recorded(self):
        """The file has a mesh's axes and shape alone: of one whose ranks are in another order these say something wrong."""
        import torch
        from torch.distributed.device_mesh import DeviceMesh
        from torch.testing._internal.distributed.fake_pg import FakeStore
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
        self.addCleanup(torch.distributed.destroy_process_group)
        ordered = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
        columns = DeviceMesh("cpu", [[0, 2], [1, 3]], mesh_dim_names=("a", "b"))

        def step(model, x):
            return model(x).sum()
        traced = epweave.trace(step, torch.nn.Linear(4, 4), {"x": torch.randn(6, 4)},
                               groups={"ordered": ordered, "columns": columns})
        self.assertEqual(traced.info["global_meshes"], {"ordered": {"axes": ["dp", "tp"], "shape": [2, 2]}})


class Exported(unittest.TestCase):
    """Graphs of torch.export: forward alone, and with backward."""

    def check(self, program, expected, lacking):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "program.epw"
            epweave.export(program, path)
            _, report = doctor(path)
            self.assertTrue(epweave.verify(path))
        found = {x["topic"]: x["found"] for x in report["findings"]}
        self.assertEqual({topic: found[topic] for topic in expected}, expected)
        self.assertEqual([x["topic"] for x in report["findings"] if x["state"] == "lacks"], lacking)

    def test_forward_and_joint_program(self):
        import torch
        from torch.export.experimental import _export_forward_backward

        class Layers(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)

            def forward(self, x):
                return self.second(torch.relu(self.first(x))).sum()

        program = torch.export.export(Layers(), (torch.randn(6, 4),))
        self.check(program, {"roles": "inputs: 4 parameter, 1 user; outputs: 1 other"},
                   ["directions", "roles", "operators"])  # aten.linear
        self.assertNotIn("custom", next(n for n in program.graph.nodes if n.op == "call_function").meta)
        program = program.run_decompositions()
        self.check(program, {}, ["directions", "roles"])
        # torch keeps neither modules nor directions in a joint program.
        self.check(_export_forward_backward(program),
                   {"roles": "inputs: 4 parameter, 1 user; outputs: 4 grad, 1 loss"},
                   ["modules", "directions"])


class Labels(unittest.TestCase):
    def test_of_an_exchange_only_its_own_calls_get_its_labels(self):
        import torch
        ops, copy = torch.ops._c10d_functional, torch.ops.aten._to_copy.default
        graph = torch.fx.Graph()
        nodes = {}

        def call(name, target, first, device="cpu", **meta):
            nodes[name] = graph.call_function(target, (first,))
            nodes[name].meta = {"seq_nr": 1, "val": torch.empty(4, device=device), **meta}
            return nodes[name]

        x = graph.placeholder("x")
        custom = {"EP": "dispatch", "EP_token_exchange": "dispatch", "EP_token_count_sync": "dispatch"}
        call("forward", ops.all_to_all_single.default, x, custom=custom)
        exchange = call("exchange", ops.all_to_all_single.default, x, autograd_backward=True)
        reduced = call("reduced", ops.all_reduce.default, x, autograd_backward=True)
        call("wait", ops.wait_tensor.default, exchange, autograd_backward=True)
        call("wait of another", ops.wait_tensor.default, reduced, autograd_backward=True)
        call("copy to the host", copy, x, autograd_backward=True)
        call("copy", copy, x, "meta", autograd_backward=True)
        graph.output(x)
        epweave.annotate(torch.fx.GraphModule(torch.nn.Module(), graph), label_exchanges=False)
        labels = {name: sorted(node.meta["custom"]) for name, node in nodes.items() if name != "forward"}
        tokens, counts = ["EP", "EP_token_exchange"], ["EP", "EP_token_count_sync"]
        self.assertEqual(labels, {"exchange": tokens, "reduced": ["EP"], "wait": tokens, "wait of another": ["EP"],
                                  "copy to the host": counts, "copy": ["EP"]})


class Refusals(unittest.TestCase):
    def test_what_cannot_be_traced_is_named(self):
        import torch
        model = torch.nn.Linear(4, 1)
        x = torch.randn(3, 4)
        for step, inputs, more, message in [
                (lambda m, x: m(x), {"x": x}, {}, "does not return a loss"),
                (lambda m, x: (m(x).sum(), "text"), {"x": x}, {}, "returns a str behind the loss"),
                (lambda m, x, y: m(x).sum(), {"x": x, "y": object()}, {}, "input 'y' of the step is a object"),
                (lambda m, x: m(x).sum(), {"x": x, "y": x}, {}, "does not take the inputs: got an unexpected .* 'y'"),
                (lambda m, x: m(x).sum(), {"x": x}, {"tokens": {"z": 0}}, "tokens= names 'z', which is no input"),
                (lambda m, x: m(x).sum(), {"x": x}, {"tokens": {"x": 2}}, "has 2 dimensions and none numbered 2"),
                (lambda m, x: m(x).sum(), {"x": x}, {"tokens": {"x": "0"}}, "has 2 dimensions and none numbered '0'"),
                (lambda m, x: m(x).sum(), x, {}, "inputs= is a Tensor"),
                (lambda m, x: m(x).sum(), {"x": x}, {"groups": ["ep"]}, "groups= is a list, not a dictionary"),
                (lambda m, x: m(x).sum(), {"x": x}, {"tokens": "x"}, "tokens= is a str, not a dictionary"),
                (lambda m, x: m(x).sum(), {"x": x}, {"groups": {"ep": None}}, "torch.distributed is not initialised")]:
            with self.subTest(message), self.assertRaisesRegex(epweave.UsageError, message):
                epweave.trace(step, model, inputs, **more)
        with self.assertRaisesRegex(epweave.UsageError, "the model is a function"):
            epweave.trace(model, lambda m, x: m(x).sum(), {"x": x})
        with self.assertRaisesRegex(epweave.UsageError, "Linear is not a graph"):
            epweave.export(model, "unused.epw")
        with self.assertRaisesRegex(epweave.UsageError, "Linear is not a graph"):
            epweave.annotate(model)

    def test_what_depends_on_what_tensors_hold_is_refused_with_its_line(self):
        import torch
        import torch.nn.functional as F
        model, x = torch.nn.Linear(4, 4), torch.randn(6, 4)

        def branch(model, x):
            loss = model(x).sum()
            if loss.isnan():
                raise ValueError
            return loss

        def alignment(model, x):
            rows = model(x).unsqueeze(1).log_softmax(-1)
            return F.ctc_loss(rows, torch.ones(1, 2, dtype=torch.int64), (6,), (2,))

        def packed(model, x):
            rows = torch.nn.utils.rnn.pack_padded_sequence(model(x).unsqueeze(0), torch.tensor([3]), batch_first=True)
            return rows.data.sum()

        for step, message, line, remedy in [
                (packed, "packed sequences cannot be traced: how many rows a step of the layer has is read from what the lengths hold",
                 "in packed: rows = torch.nn.utils.rnn.pack_padded_sequence", "give the layer the padded sequences"),
                (branch, "what runs depends on `Eq(u0, 1)`, a number that a tensor holds, and a graph has no branches",
                 "in branch: if loss.isnan():", "choose with torch.where"),
                (alignment, "aten._ctc_loss.default cannot be traced, as what it returns depends on what its tensors hold",
                 "in alignment: return F.ctc_loss", "leave it outside the step")]:
            with self.subTest(step.__name__):
                with self.assertRaises(epweave.UsageError) as caught:
                    epweave.trace(step, model, {"x": x})
                found = caught.exception
                self.assertEqual(str(found), f"{message}, at {found.source}")
                self.assertIn(line, found.source)
                self.assertIn(remedy, found.remedy)

    def test_what_hooks_do_is_refused(self):
        import torch
        from torch.distributed.fsdp import fully_shard
        from torch.testing._internal.distributed.fake_pg import FakeStore
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
        self.addCleanup(torch.distributed.destroy_process_group)

        def step(model, x):
            loss = model(x).sum()
            loss.backward()
            return loss

        inner = torch.nn.Linear(4, 4)
        sharded = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        fully_shard(sharded[1], mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (RANKS,)))
        for model, message, remedy in [
                (torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4)), "the model is a DistributedDataParallel", "model.module"),
                (sharded, "the module '1' is sharded by fully_shard", "trace the model before fully_shard"),
                (inner, "the step function runs backward itself", "retain_graph=True")]:
            with self.subTest(message), self.assertRaisesRegex(epweave.UsageError, message) as caught:
                epweave.trace(step, model, {"x": torch.randn(2, 4)})
            self.assertIn(remedy, caught.exception.remedy)

    def test_step_of_positional_inputs_runs_as_traced(self):
        import torch
        model = torch.nn.Linear(4, 1)
        x = torch.randn(3, 4)
        traced = epweave.trace(lambda model, rows: model(rows).sum(), model, [x], tokens={"rows": 0})
        self.assertEqual([role.get("which") for role in traced.inputs], [None, None, "rows"])
        loss, gradients = traced(model, [x])
        self.assertEqual(loss, model(x).sum())
        self.assertTrue(torch.equal(gradients["weight"], x.sum(0, keepdim=True)))
        with self.assertRaisesRegex(epweave.UsageError, "the inputs are"):
            traced(model, {"rows": x})
        with self.assertRaisesRegex(epweave.UsageError, "other parameters or buffers"):
            traced(torch.nn.Linear(4, 1, bias=False), [x])


def doctor(path):
    command = [epweave.find_program("epweave"), "doctor", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.returncode, json.loads(done.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        run_rank(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1:] == ["--update"]:
        write_documented_step(str(DOCUMENTED))
    else:
        unittest.main()
