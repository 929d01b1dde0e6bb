#!/usr/bin/env python3
"""Tests of epweave.torchtitan: debug models trained on CPU ranks with and without it. Needs torch and torchtitan."""
import contextlib
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import train_entry_on_cpu

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = ("--cpu", "--layers", "2", "--steps", "2", "--sequence", "32")
CHUNKED = "dce,canonicalize,dedup-unshard,symbolize,chunk{roots=layers.*.moe},dce,concretize"

MODEL = ("--module", "graph_trainer.llama3", "--config", "graph_trainer_llama3_debugmodel")
POLICY = "dce,canonicalize,dedup-unshard,memory-policy,recompute"


def train(*words, **variables):
    """(exit code, rows, what was said) of a training comparison."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **variables}
        done = subprocess.run([sys.executable, "-W", "ignore", "-m", "epweave.torchtitan", *SMALL, *words, "--json",
                               str(report)], capture_output=True, text=True, env=environment, cwd=folder, timeout=1200)
        rows = json.loads(report.read_text()) if report.exists() else {}
    return done.returncode, rows, done.stdout + done.stderr


def run_ranks(*words, program, **variables):
    """[(exit code, what was said, whether it trained, seconds)] of two ranks, without what ends a rank that waits for another
    one; `program` is a shell script in the place of epweave, which gets it as $EPWEAVE_ITSELF."""
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "epweave").write_text(f"#!/bin/sh\nexport EPWEAVE_ITSELF=${{EPWEAVE_ITSELF:-{ROOT}/build/release/bin/epweave}}\n{program}")
        (here / "epweave").chmod(0o755)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2",
                       "EPWEAVE_ITSELF": os.environ.get("EPWEAVE", ""), "EPWEAVE": str(here / "epweave"), **variables}
        command = [sys.executable, "-W", "ignore", "-m", "epweave.train_on_cpu", *SMALL, *words, "--pipeline", "epweave",
                   "--rank-of", folder]
        logs = [(here / f"log{rank}").open("w+b") for rank in range(2)]
        ranks = [subprocess.Popen(command, stdout=logs[rank], stderr=subprocess.STDOUT, cwd=folder,
                                  env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2)]
        ended = [None, None]
        try:
            began = time.monotonic()
            while None in ended and time.monotonic() < began + 600:
                for rank, process in enumerate(ranks):
                    if ended[rank] is None and process.poll() is not None:
                        ended[rank] = time.monotonic()
                time.sleep(0.1)
        finally:
            for process, log in zip(ranks, logs):
                process.kill()
                process.wait()
                log.close()
        return [(process.returncode, (here / f"log{rank}").read_text(), (here / f"report{rank}.json").exists(), ended[rank])
                for rank, process in enumerate(ranks)]


def one_of_two(client, store, meeting, rank):
    """A rank that meets another one through the store, without process groups."""
    made = object.__new__(client.Ranks)
    made.rank, made.size, made.is_alone, made.store, made.round = rank, 2, False, store, meeting
    return made


class Training(unittest.TestCase):
    def test_dense_model_has_the_bits_of_no_passes_and_of_torchtitan(self):
        code, rows, said = train("--model", "llama3", "--tokens", "64", "--compare", "none,epweave,reference,halves",
                                 "--rewrite", POLICY, "--partition", "exact:0.5", EPWEAVE_VERIFY="1")
        self.assertEqual(code, 0, said)
        self.assertEqual(len({row["hash"] for row in rows.values()}), 1, said)
        self.assertEqual(list(rows), ["none", "epweave-1", "reference", "halves-1"])
        self.assertLess(rows["epweave-1"]["nodes"], rows["halves-1"]["nodes"])  # which compute more again
        self.assertIn("epweave-1 and none: all parameters bitwise equal", said)

    def test_mixture_of_experts(self):
        words = ("--model", "deepseek_v3", "--tokens", "128", "--rewrite", CHUNKED)
        with tempfile.TemporaryDirectory() as folder:
            code, _, said = train(*words, "--precompile", folder)
            self.assertEqual(code, 0, said)
            code, rows, said = train(*words, "--rewrite", "ep-overlap{symbolize=yes}", "--compare", "none,artifact,epweave",
                                     "--artifact", folder, "--tolerance", "1e-4", "--by-step", EPWEAVE_VERIFY="1")
        self.assertEqual(code, 0, said)
        none, artifact, chunked, scheduled = rows.values()
        self.assertEqual((artifact["traces"], chunked["traces"]), (0, 1))  # one artifact for all ranks has the bits of traces
        for key in ("hash", "losses", "norms"):
            self.assertEqual(artifact[key], chunked[key], said)
        for step, (loss, norm) in enumerate(zip(none["losses"], none["norms"]), 1):
            self.assertIn(f"step {step}: loss={loss:.5f} grad_norm={norm:.4f}\n", said)
        self.assertEqual(chunked["hash"], scheduled["hash"], said)  # only the order differs
        self.assertEqual(chunked["losses"][0], none["losses"][0])  # forward has the same bits; gradients are sums of parts
        self.assertAlmostEqual(chunked["norms"][0] / none["norms"][0], 1, delta=1e-7)

    def test_tensor_parallelism_has_the_bits_of_no_passes_and_of_torchtitan(self):
        code, rows, said = train("--model", "llama3", "--tp", "2", "--layers", "1", "--tokens", "64", "--compare", "none,epweave,reference")
        self.assertEqual(code, 0, said)
        self.assertEqual(list(rows), ["none", "epweave", "reference"])
        for key in ("hash", "losses", "norms"):
            self.assertEqual(rows["none"][key], rows["epweave"][key], said)
            self.assertEqual(rows["none"][key], rows["reference"][key], said)

    def test_qwen3_moe(self):
        code, rows, said = train("--model", "qwen3", "--layers", "1", "--tokens", "64", "--compare", "none,epweave",
                                 "--rewrite", CHUNKED, "--rewrite", "ep-overlap{symbolize=yes}", "--tolerance", "1e-3")
        self.assertEqual(code, 0, said)
        none, chunked, scheduled = rows.values()
        for key in ("hash", "losses", "norms"):
            self.assertEqual(chunked[key], scheduled[key], said)
        self.assertNotEqual(chunked["hash"], none["hash"])  # it was divided
        self.assertEqual(chunked["losses"][0], none["losses"][0])
        self.assertAlmostEqual(chunked["norms"][0] / none["norms"][0], 1, delta=1e-7)

    def test_a_second_pipeline_behind_torchtitans_bucketing_knows_the_groups_that_the_first_added(self):
        code, rows, said = train("--model", "deepseek_v3", "--tokens", "128", "--compare", "epweave",
                                 EPWEAVE_AFTER="joint_transformer_block_bucketing_reordering_pass",
                                 EPWEAVE_THEN="schedule", EPWEAVE_VERIFY="1")
        self.assertEqual(code, 0, said)
        self.assertEqual(len(rows["epweave"]["losses"]), 2)

    def test_one_artifact_for_all_ranks_has_the_bits_of_traces_and_nothing_is_traced(self):
        words = ("--model", "llama3", "--tokens", "64", "--tp", "2", "--layers", "1")
        with tempfile.TemporaryDirectory() as folder:
            code, _, said = train(*words, "--repair", "--precompile", folder)
            self.assertEqual(code, 0, said)
            self.assertIn(f"epweave: wrote {folder}/step.epw", said)
            code, rows, said = train(*words, "--compare", "artifact,none", "--artifact", folder)
            self.assertEqual(code, 0, said)
            # The same of the ranks' own traces.
            code, _, said = train(*words, "--precompile", folder, "--ranks", "0,1")
            self.assertEqual(code, 0, said)
            code, joined, said = train(*words, "--compare", "artifact", "--artifact", folder)
        self.assertEqual(code, 0, said)
        self.assertEqual((joined["artifact"]["hash"], joined["artifact"]["traces"]), (rows["artifact"]["hash"], 0))
        self.assertEqual(rows["artifact"]["hash"], rows["none"]["hash"], said)
        for key in ("losses", "norms"):
            self.assertEqual(rows["artifact"][key], rows["none"][key])
        self.assertEqual((rows["artifact"]["traces"], rows["none"]["traces"]), (0, 1))

    def test_a_rewrite_that_fails_stops_all_ranks_with_its_message(self):
        code, _, said = train("--model", "llama3", "--tokens", "64", "--compare", "epweave", EPWEAVE_PIPELINE="ep-overlap")
        self.assertEqual(code, 1, said)
        self.assertIn("no module matches 'layers.*.moe'", said)
        self.assertIn("[chunk.no-region]", said)
        self.assertRegex(said, r"reproducer: \S+/epweave-\w+\.reproducer\.epw\n")  # in the folder where it was called

    def test_ranks_with_different_graphs_stop_before_the_first_step(self):
        """Rank 1's program leaves out a pass, so that it gathers parameters more often."""
        without = 'for x; do shift; [ $RANK = 0 ] || x=$(echo "$x" | sed "s/^dce,canonicalize,dedup-unshard$/dce/"); set -- "$@" "$x"; done'
        ranks = run_ranks("--model", "llama3", "--layers", "1", "--tokens", "64", program=f'{without}\nexec "$EPWEAVE_ITSELF" "$@"')
        for rank, (code, said, trained, _) in enumerate(ranks):
            self.assertEqual((code, trained), (1, False), said)
            self.assertIn("the ranks' graphs do not match: rank 0 and rank 1: ", said)
            self.assertIn("remedy: EPWEAVE_KEEP=FOLDER keeps the ranks' graphs; `epweave verify --ranks` lists all that differs", said)
            self.assertEqual("another rank stopped: rank 0: " in said, rank == 1, said)

    def test_a_rewrite_that_fails_ends_the_ranks_whose_rewrite_runs_on(self):
        """Rank 1's rewrite would take an hour: it ends with rank 0's message and reproducer."""
        hangs = 'case "$RANK $*" in "1 "*" -o "*) exec sleep 3600 ;; esac\nexec "$EPWEAVE_ITSELF" "$@"'
        (code, said, _, first), (other_code, other_said, _, second) = run_ranks(
            "--model", "llama3", "--layers", "1", "--tokens", "64", program=hangs, EPWEAVE_PIPELINE="ep-overlap")
        self.assertEqual((code, other_code), (4, 1), said + other_said)
        self.assertLess(abs(second - first), 30)
        self.assertIn("another rank stopped: rank 0: ", other_said)
        (reproducer,) = re.findall(r"reproducer: (\S+/epweave-\w+\.reproducer\.epw)\n", said)
        for text in (said, other_said):
            self.assertIn("no module matches 'layers.*.moe'", text)
            self.assertIn(f"reproducer: {reproducer}\n", text)

    def test_a_pass_that_torchtitan_does_not_have(self):
        code, _, said = train("--model", "llama3", "--tokens", "64", "--compare", "epweave", EPWEAVE_BEFORE="none_such")
        self.assertEqual(code, 1, said)
        self.assertIn("torchtitan's list for this configuration has no pass none_such", said)


class Passes(unittest.TestCase):
    def run_passes(self, **variables):
        """What ran over a module, in order, with torchtitan's passes and rewrites of epweave stood in for."""
        sys.path.insert(0, str(ROOT / "python"))
        from epweave import torchtitan as client
        from torchtitan.experiments.graph_trainer import passes as titan
        ran = []

        def bucketing_pass(module, example_inputs):
            ran.append("bucketing_pass")
            return module + 1

        def rewrite_step(traced, dims, module, pipeline, stage=""):
            ran.append((pipeline, stage, module))
            return module + 1

        with mock.patch.dict(os.environ, variables), mock.patch.object(client, "rewrite_step", rewrite_step), \
                mock.patch.object(titan, "compile_time_passes", lambda *_, **__: [bucketing_pass]):
            module = 0
            for run_pass in client.construct_passes(None, None):
                module = run_pass(module, ())
        return ran

    def test_a_pipeline_split_in_two_stands_around_torchtitans_passes(self):
        self.assertEqual(self.run_passes(EPWEAVE_PIPELINE="dce", EPWEAVE_AFTER="bucketing_pass", EPWEAVE_THEN="schedule"),
                         [("dce", "", 0), "bucketing_pass", ("schedule", "then.", 2)])
        self.assertEqual(self.run_passes(EPWEAVE_BEFORE="bucketing_pass"),
                         ["bucketing_pass", ("dce,canonicalize,dedup-unshard", "", 1)])

    def test_each_step_is_rewritten_for_its_own_trainer(self):
        """Two models in one process: the first may be traced when the second was built."""
        from types import SimpleNamespace as N
        sys.path.insert(0, str(ROOT / "python"))
        from epweave import torchtitan as client
        class Trainer(N):
            __hash__ = object.__hash__
        with mock.patch.object(client, "_trainers", []), mock.patch.dict(os.environ, {"EPWEAVE_ARTIFACT": ""}):
            with self.assertRaisesRegex(ValueError, "has seen no trainer"):
                client._trainer_of(None)
            first, second = Trainer(_traced_step=None), Trainer(_traced_step=None)
            client.remember_trainer(first)
            client.remember_trainer(second)
            first._traced_step, second._traced_step = object(), object()
            self.assertIs(client._trainer_of(first._traced_step), first)
            self.assertIs(client._trainer_of(second._traced_step), second)
            self.assertIs(client._trainer_of(object()), second)
            step = second._traced_step
            del second
            self.assertIs(client._trainer_of(step), first)

    def test_ranks_that_are_told_different_passes_stop(self):
        from torch.distributed import HashStore
        sys.path.insert(0, str(ROOT / "python"))
        from epweave import torchtitan as client
        store = HashStore()
        ranks_of = functools.partial(one_of_two, client, store, 7)

        for rank, other in ((0, 1), (1, 0)):
            with mock.patch.dict(os.environ, {"EPWEAVE_THEN": "schedule"}):
                store.set("epweave/7/settings/0", json.dumps({f"EPWEAVE_{name}": "" for name in client._OF_THE_STEP}))
                store.set("epweave/7/settings/1", "{}")
                if rank == 0:
                    store.set("epweave/7/failed", "rank 1: is told other passes")
                with self.assertRaises(ValueError if rank else client.RunError) as caught, client.stopping_all(ranks_of(rank)):
                    client.check_settings(ranks_of(rank))
            self.assertEqual(str(caught.exception), "the ranks are told different passes:\n  EPWEAVE_THEN: rank 0 has none, rank 1 "
                             "has schedule" if rank else "another rank stopped: rank 1: is told other passes")
        self.assertEqual(store.get("epweave/7/failed").decode(), "rank 1: the ranks are told different passes:\n  EPWEAVE_THEN: "
                         "rank 0 has none, rank 1 has schedule\n  remedy: give all ranks the same environment")
        # All name the reproducer of the rank that fails first; the others' go with their folders.
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            named = []
            for rank in (1, 0):
                pathlib.Path(folder, f"rank{rank}").mkdir()
                path = pathlib.Path(folder, f"rank{rank}", "reproducer.epw")
                path.write_text(f"of rank {rank}")
                error = client.UsageError("declined", reproducer=str(path))
                ranks_of(rank).keep_one_reproducer(error, str(path.parent))
                named.append(error.reproducer)
            self.assertEqual(named[0], named[1])
            self.assertEqual([path.read_text() for path in pathlib.Path(folder).glob("*.epw")], ["of rank 1"])
            self.assertEqual(pathlib.Path(named[0]).read_text(), "of rank 1")

    def test_a_rank_that_hangs_stops_all(self):
        from torch.distributed import HashStore
        sys.path.insert(0, str(ROOT / "python"))
        from epweave import torchtitan as client
        store = HashStore()
        ranks_of = functools.partial(one_of_two, client, store, 8)

        with tempfile.TemporaryDirectory() as folder:
            slow = pathlib.Path(folder, "slow")
            slow.write_text("#!/bin/sh\nexec sleep 600\n")
            slow.chmod(0o755)
            with mock.patch.dict(os.environ, {"EPWEAVE": str(slow), "EPWEAVE_TIMEOUT": "0.5"}):
                with self.assertRaises(client.RunError) as late:  # rank 1 works on, in Python
                    ranks_of(0).meet("rewritten")
                with self.assertRaises(client.RunError) as hanging, client.stopping_all(ranks_of(1)):
                    client.rewrite(str(ROOT / "testdata/graphs/llama3_debug_fsdp4.1_norm.epw.gz"), "dce")
                with self.assertRaises(client.RunError) as other:
                    ranks_of(0).meet("rewritten")
        remedy = "\n  remedy: {}set EPWEAVE_TIMEOUT to more seconds, or give a shorter EPWEAVE_PIPELINE"
        self.assertEqual([client.full_text(x.exception) for x in (late, hanging, other)], [
            "ranks [1] did not come as far as this one in 1.5 seconds (rewritten)" + remedy.format("see what they say, or "),
            "epweave rewrite took more than 0.5 seconds" + remedy.format(""),
            "another rank stopped: rank 1: epweave rewrite took more than 0.5 seconds" + remedy.format("")])

    def test_the_entry_is_torchtitans_with_the_pipeline_registered(self):
        code = ("import runpy, torchtitan.train; from torchtitan.experiments.graph_trainer import registry;"
                "torchtitan.train.main = lambda: print('epweave' in registry.PASS_PIPELINE_REGISTRY);"
                "runpy.run_module('epweave.train', run_name='__main__')")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, *MODEL], capture_output=True, text=True, check=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        self.assertEqual(done.stdout.splitlines()[-1], "True")

    def test_an_installed_package_needs_the_option_alone(self):
        """The entry point, as pip writes it of pyproject.toml, registers the pipeline in torchtitan's own entry."""
        code = ("import sys, torch; before = [name for name in sys.modules if name.partition('.')[0] in ('epweave', 'torchtitan')];"
                "import torchtitan.train;"
                "from torchtitan.experiments.graph_trainer import registry, trainer;"
                "print(before, 'epweave' in registry.PASS_PIPELINE_REGISTRY, 'epweave' in registry.POST_INIT_HOOKS,"
                " 'epweave' in sys.modules)")
        with tempfile.TemporaryDirectory() as folder:
            train_entry_on_cpu.install_entry_points(pathlib.Path(folder))
            for autoload, is_known in (("1", True), ("0", False)):
                done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True,
                                      env={**os.environ, "PYTHONPATH": f"{folder}/site:{ROOT / 'python'}",
                                           "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload})
                self.assertEqual(done.stdout.splitlines()[-1], f"[] {is_known} {is_known} False")

    def test_the_entry_refuses_a_pipeline_that_nobody_registered(self):
        """J61: torchtitan would take its default passes."""
        code = ("import runpy, torchtitan.train; from types import SimpleNamespace as N;"
                "from torchtitan.experiments.graph_trainer import trainer;"
                "trainer.construct_default_graph_passes = lambda *_, **__: ['torchtitan'];"
                "torchtitan.train.main = lambda: [print(trainer.construct_default_graph_passes("
                "None, N(compile=N(pass_pipeline=name)), parallel_dims=None)) for name in ('default', 'epwaeve')];"
                "runpy.run_module('epweave.train', run_name='__main__')")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, *MODEL], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (1, "['torchtitan']"))
        self.assertIn("there is no pipeline 'epwaeve'; there are ", done.stderr)

    def test_an_artifact_holds_the_first_pipeline_alone(self):
        with self.assertRaises(ValueError) as caught:
            self.run_passes(EPWEAVE_PRECOMPILE="folder", EPWEAVE_THEN="schedule")
        self.assertIn("EPWEAVE_THEN names passes to run after", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
