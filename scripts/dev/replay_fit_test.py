#!/usr/bin/env python3
"""Tests of what epweave-replay says of memory before it runs: --dry-run against measured runs, refusals, words.

The program is $EPWEAVE_REPLAY, else build/release/bin/epweave-replay; $EPWEAVE or the one beside it makes its inputs.
"""
import json
import math
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPLAY = os.environ.get("EPWEAVE_REPLAY") or str(ROOT / "build/release/bin/epweave-replay")
EPWEAVE = os.environ.get("EPWEAVE") or str(ROOT / "build/release/bin/epweave")
GRAPHS = ROOT / "testdata/graphs"
DEBUG = GRAPHS / "dsv3_debug_ep2.1b_remat.epw.gz"
LARGE = GRAPHS / "dsv3_16b_ep8.1b_remat.epw.gz"
GIB = 1 << 30


class FitTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_tool(self, *arguments, program=REPLAY):
        return subprocess.run([program, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, check=False)

    def report(self, *arguments):
        result = self.run_tool(*arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def extract(self, graph, module):
        result = self.run_tool("extract", GRAPHS / f"{graph}.epw.gz", "--module", module, "-o", "part.epw", "-q",
                               program=EPWEAVE)
        self.assertEqual(result.returncode, 0, result.stderr)
        return "part.epw"

    def test_a_device_takes_what_was_said(self):
        """Parts of real graphs, four ranks, on the emulated device: its pool counts what it asked of the device."""
        for graph, module in (("dsv3_debug_ep2.1b_remat", "layers.1.moe"), ("llama3_debug_fsdp4.1_norm", "lm_head")):
            with self.subTest(graph=graph, module=module):
                part = self.extract(graph, module)
                said = self.report("run", part, "--device", "emulated", "--dry-run")["memory"]["device"]
                measured = self.report("run", part, "--device", "emulated")["peak_bytes"]
                self.assertGreaterEqual(said["bytes"], measured)
                self.assertLessEqual(said["bytes"], 2 * measured)
                self.assertLess(said["least"], measured)

    def test_nothing_is_made(self):
        result = self.run_tool("run", DEBUG, "--dry-run", "--outputs", "out", "--save-inputs", "in", "--costs", "costs")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertRegex(result.stdout, r"(?m)^memory of the host +\d+\.\d\d [MG]iB at most, of \d+\.\d\d [GT]iB free: it fits$")
        self.assertIn("by assumed rates\n", result.stdout)
        self.assertIn("\n20 symbols without a number: rows that experts get are taken to be balanced\n", result.stdout)

    def test_the_report_adds_up(self):
        report = self.report("run", DEBUG, "--dry-run", "--memory", "64")
        self.assertEqual((report["schema"], report["fits"], report["ranks"], report["processes"]), (1, True, 4, 1))
        host = report["memory"]["host"]
        self.assertEqual((host["limit"], host["is_allowed"]), (64 * GIB, True))
        self.assertEqual(host["bytes"], sum(host["parts"].values()))
        # Ranks need most at different times: certain is what all hold at one.
        self.assertLessEqual(host["least"], host["parts"]["inputs"] + host["parts"]["values"])
        self.assertGreaterEqual(host["least"], host["parts"]["inputs"] + host["parts"]["values"] / 4)
        (graph,) = report["graphs"]
        self.assertEqual(host["parts"].pop("program"), 16 << 20)
        self.assertEqual(host["parts"], {name: 4 * graph["rank"][name] for name in ("inputs", "values", "scratch", "rounding")})
        self.assertEqual((graph["runs"], graph["runs_with_bounds"], graph["copied_bytes"]), (1, 0, 0))
        self.assertEqual(graph["peak"]["module"], "layers.5.attention.inner_attention")
        sizes = [value["bytes"] for value in graph["largest"]]
        self.assertEqual(sizes, sorted(sizes, reverse=True))

    def test_a_rank_waits_for_several_steps_as_they_are_predicted(self):
        small = self.extract("llama3_debug_fsdp4.1_norm", "lm_head")
        self.assertEqual(self.report("run", small, "--dry-run")["deadline"], 60)
        self.assertEqual(self.report("run", small, "--dry-run", "--deadline", "2.5")["deadline"], 2.5)
        (graph,) = (report := self.report("run", LARGE, "--dry-run", "--memory", "2000"))["graphs"]
        self.assertGreater(report["deadline"], 60)
        self.assertEqual(report["deadline"], math.ceil(10 * graph["seconds"]))
        often = self.report("run", LARGE, "--dry-run", "--memory", "2000", "--repeat", "3")
        self.assertEqual(often["deadline"], report["deadline"])
        # A run with bounds computes more than one without.
        self.assertEqual(self.run_tool("rewrite", DEBUG, "--preset", "ep-overlap", "-o", "b.epw", "-q", program=EPWEAVE).returncode, 0)
        bounded, plain = (self.report("check", DEBUG, "b.epw", "--dry-run", "--bounds", bounds)["deadline"] for bounds in ("cpu", "none"))
        self.assertGreater(bounded, plain)

    def test_a_step_of_enormous_hints_has_the_longest_deadline(self):
        """The hint says what memory is planned for; the run's own number is small."""
        hint = 10**16
        chain = "".join(f"  %k{i} = aten.mul.Tensor(%{f'k{i - 1}' if i else 'n'}, 2) : i64[u0, 1]{{1, u0}}\n" for i in range(4000))
        (self.folder / "hints.txt").write_text(f"""epweave text 1
symbol u0 range=[0, {2 * hint}] hint={hint} unbacked
group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[4] role=user which=x
  %m = placeholder : f32[4] role=user which=m
  %n = aten.nonzero.default(%m) : i64[u0, 1]{{1, u0}} bind(u0, {{"kind": "CallMethodKey", "name": "size"}}, {{"kind": "SequenceKey", "idx": 0}})
{chain}  %g = _c10d_functional.all_reduce.default(%x, "sum", "7") : f32[4]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[4]
  output([%w, %k3999])
""")
        words = ("run", "hints.txt", "--memory", "900000000")
        self.assertEqual(self.report(*words, "--dry-run")["deadline"], 1e9)
        self.assertEqual(len(self.report(*words)["ranks"]), 2)

    def test_only_inputs_that_a_run_writes_are_copied_for_the_next(self):
        once = self.report("run", DEBUG, "--dry-run")
        often = self.report("run", DEBUG, "--dry-run", "--repeat", "3", "--warm-up", "2")
        self.assertEqual(often["graphs"][0]["flops"], 5 * once["graphs"][0]["flops"])
        parts = [report["memory"]["host"]["parts"] for report in (once, often)]
        self.assertNotIn("copies", parts[0])
        self.assertLess(parts[1].pop("copies"), parts[0]["inputs"] / 10)  # buffers
        self.assertGreater(parts[1].pop("gaps"), 0)
        self.assertEqual(*parts)

    def test_a_gpu_that_is_not_here(self):
        """A dry run needs no GPU; without --memory there is nothing to compare with."""
        report = self.report("run", DEBUG, "--dry-run", "--device", "cuda:99")
        device = report["memory"]["device"]
        self.assertIsNone(device["limit"])
        self.assertIsNone(report["memory"]["host"]["limit"])
        self.assertEqual(device["parts"]["context"], GIB // 2)
        self.assertNotIn("workspace", device["parts"])
        native = self.report("run", DEBUG, "--dry-run", "--device", "cuda:99", "--math", "native")
        self.assertEqual(native["memory"]["device"]["parts"]["workspace"], 4 * 32 << 20)
        self.assertGreater(report["graphs"][0]["copied_bytes"], 0)
        text = self.run_tool("run", DEBUG, "--dry-run", "--device", "cuda:99").stdout
        self.assertIn(" at most; no such device is here: --memory GIB says how much there is\n", text)
        refused = self.run_tool("run", LARGE, "--dry-run", "--device", "cuda:99", "--memory", "80")
        self.assertEqual(refused.returncode, 4)
        self.assertIn(" of the device's memory (", refused.stderr)
        self.assertIn("80.00 GiB are allowed", refused.stderr)
        # --memory is the device's: the host of another machine is compared with nothing.
        allowed = self.report("run", DEBUG, "--dry-run", "--device", "cuda:99", "--memory", "80")["memory"]
        self.assertEqual((allowed["device"]["limit"], allowed["host"]["limit"]), (80 * GIB, None))

    def test_the_library_s_rate_is_that_of_the_dtype(self):
        """Of 16-bit products, of others, and none of what the library does not compute."""
        seconds = {}
        for dtype in ("bf16", "f32", "f64"):
            for name, call in (("product", "aten.mm.default(%a, %b)"),
                               ("solve", "aten.linalg_solve_triangular.default(%a, %b, upper=False)")):
                if (dtype, name) == ("bf16", "solve"):
                    continue
                (self.folder / "g.txt").write_text(f"""epweave text 1
graph
  %a = placeholder : {dtype}[8192, 8192] role=parameter fqn=a
  %b = placeholder : {dtype}[8192, 8192] role=parameter fqn=b
  %y = {call} : {dtype}[8192, 8192]
  output([%y])
""")
                for math in ("portable", "native"):
                    report = self.report("run", "g.txt", "--dry-run", "--device", "cuda:99", "--math", math)["graphs"][0]
                    seconds[dtype, name, math] = report["seconds"] - report["copied_bytes"] / 20e9
        flops, launch = 2 * 8192**3, 5e-6
        self.assertAlmostEqual(seconds["bf16", "product", "native"], flops / 400e12 + launch)
        for dtype in ("f32", "f64"):
            self.assertAlmostEqual(seconds[dtype, "product", "native"], flops / 50e12 + launch)
            self.assertAlmostEqual(seconds[dtype, "product", "portable"], flops / 35e12 + launch)
            self.assertAlmostEqual(seconds[dtype, "solve", "native"], seconds[dtype, "solve", "portable"])

    def test_symbols_of_both_graphs_are_counted_once(self):
        alone, beside = (self.run_tool(*words, "--dry-run").stdout.splitlines()[-1] for words in (("run", DEBUG), ("check", DEBUG, DEBUG)))
        self.assertRegex(alone, "^20 symbols without a number: ")
        self.assertEqual(alone, beside)

    def test_a_negative_extent_takes_nothing(self):
        (self.folder / "g.txt").write_text("""epweave text 1
graph
  %y = aten.zeros.default([-4], dtype=f32) : f32[-4]
  output([%y])
""")
        result = self.run_tool("run", "g.txt")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("%y = aten.zeros.default: a tensor of -4 elements along dimension 0", result.stderr)

    def test_native_math_is_of_products_and_attention(self):
        for module, faster in (("layers.5.attention.inner_attention", True), ("lm_head", True), ("norm", False)):
            with self.subTest(module=module):
                part = self.extract("dsv3_debug_ep2.1b_remat", module)
                portable, native = (self.report("run", part, "--dry-run", "--device", "cuda:99", "--math", math)["graphs"][0]["seconds"]
                                    for math in ("portable", "native"))
                if faster:
                    self.assertLess(native, portable)
                else:
                    self.assertEqual(native, portable)

    def test_what_does_not_fit_is_refused_before_it_starts(self):
        for command in (("run", LARGE), ("run", LARGE, "--dry-run"), ("check", LARGE, LARGE)):
            result = self.run_tool(*command, "--memory", "64", "--json")
            self.assertEqual(result.returncode, 4)
            error = json.loads(result.stdout)["error"]
            self.assertEqual((error["id"], error["node"], error["module"]),
                             ("replay.memory", "_log_softmax_backward_data_1", "loss"))
            self.assertRegex(error["problem"], r"8 ranks need \d+\.\d\d [GT]iB of the host's memory \(\d+\.\d\d GiB of inputs, "
                                               r"\d+\.\d\d [GT]iB of values\), 64\.00 GiB are allowed; each rank needs most at "
                                               r"%_log_softmax_backward_data_1 = .*; the largest values there: 800\.00 MiB %")
            ways = re.findall(r"\(epweave ((?:extract|resize) [^()]+ -o (\w+\.epw))\)", error["remedy"])
            self.assertEqual([way.split()[0] for way, _ in ways], ["extract", "resize"][:len(ways)], error["remedy"])
            self.assertIn(len(ways), (1, 2) if command[0] == "check" else (2,), error["remedy"])
            for way, made in ways:  # they are what they say
                self.assertEqual(self.run_tool(*way.split(), program=EPWEAVE).returncode, 0)
                fits = self.report(command[0], *([made] * (2 if command[0] == "check" else 1)), "--dry-run", "--memory", "64")
                self.assertTrue(fits["fits"], made)

    def test_what_does_not_help_is_not_proposed(self):
        """The graph is the module; nothing as small as is allowed."""
        part = self.extract("dsv3_debug_ep2.1b_remat", "layers.1.moe")
        result = self.run_tool("run", part, "--memory", "0.01")
        self.assertEqual(result.returncode, 4)
        self.assertNotIn("epweave extract", result.stderr)
        result = self.run_tool("run", DEBUG, "--memory", "0.001")
        self.assertIn("remedy: no module of it and no smaller size was found that fits; ", result.stderr)

    def test_what_may_not_fit_is_warned_of(self):
        host = self.report("run", DEBUG, "--dry-run")["memory"]["host"]
        between = (host["least"] + host["bytes"]) / 2 / GIB
        report = self.report("run", DEBUG, "--dry-run", "--memory", f"{between:.6f}")
        self.assertFalse(report["fits"])
        self.assertRegex(self.run_tool("run", DEBUG, "--dry-run", "--memory", f"{between:.6f}").stdout,
                         r"(?m)^memory of the host +\d+\.\d\d [MG]iB at most, of \d+\.\d\d [MG]iB allowed: it may not fit$")
        run = self.run_tool("run", DEBUG, "--memory", f"{between:.6f}")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, r"^epweave-replay: warning: this may need up to \d+\.\d\d [MG]iB of the host's memory, of which "
                                     r"\d+\.\d\d [MG]iB are allowed: \d+\.\d\d [MG]iB for inputs and values, the rest at most; "
                                     r"--dry-run lists it\n")

    def test_what_fits_where_a_rank_has_a_host_of_its_own(self):
        result = self.run_tool("run", LARGE, "--memory", "100")
        self.assertIn("give each rank a process of its own", result.stderr)

    def test_measured_costs_go_before_rates(self):
        self.assertEqual(self.run_tool("run", DEBUG, "--costs-from", "x").returncode, 2)
        part = self.extract("llama3_debug_fsdp4.1_norm", "lm_head")
        self.assertEqual(self.run_tool("run", part, "--costs", "costs.json").returncode, 0)
        report = self.report("run", part, "--dry-run", "--costs-from", "costs.json")
        self.assertGreater(report["graphs"][0]["measured"], 0)
        self.assertIn("by measured costs\n", self.run_tool("run", part, "--dry-run", "--costs-from", "costs.json").stdout)
        self.assertEqual(self.run_tool("run", part, "--dry-run", "--costs-from", "part.epw").returncode, 3)
        (self.folder / "no.json").write_text("hello")
        self.assertIn("no.json: not JSON: unexpected text at line 1, column 1\n",
                      self.run_tool("run", part, "--dry-run", "--costs-from", "no.json").stderr)

    def test_check_counts_both_graphs(self):
        report = self.report("check", DEBUG, DEBUG, "--dry-run", "--memory", "64")
        # No sum is regrouped: A runs again instead of both with bounds.
        self.assertEqual([(graph["runs"], graph["runs_with_bounds"]) for graph in report["graphs"]], [(2, 0), (1, 0)])
        host = report["memory"]["host"]["parts"]
        self.assertGreater(host["outputs"], 0)
        self.assertNotIn("kept", host)

    def test_check_lists_two_devices(self):
        """What each graph takes is counted where it runs."""
        part = self.extract("dsv3_debug_ep2.1b_remat", "layers.1.moe")
        said = {}
        for devices in (("cuda:98", "cuda:99"), ("cuda:98", "emulated"), ("cpu", "cuda:99")):
            arguments = ("check", part, part, "--dry-run", "--device-a", devices[0], "--device-b", devices[1])
            text = self.run_tool(*arguments).stdout
            lines = re.findall(r"(?m)^memory of (.*?) +[\d.]+ [KMG]iB at most(.*)$", text)
            said[devices] = sorted(self.report(*arguments)["memory"]), lines
        absent = "; no such device is here: --memory GIB says how much there is"
        self.assertEqual(said["cuda:98", "cuda:99"],
                         (["device", "device_b", "host"], [("A's device", absent), ("B's device", absent), ("the host", "")]))
        self.assertEqual(said["cuda:98", "emulated"],
                         (["device", "device_b", "host"], [("A's device", absent), ("B's device", ", of the host's"), ("the host", "")]))
        self.assertEqual(said["cpu", "cuda:99"], (["device", "host"], [("the device", absent), ("the host", "")]))

    def chunk(self, part, to):
        made = self.run_tool("rewrite", part, "-p", "chunk{roots=[layers.1.moe],parts=2}", "-o", to, "-q", program=EPWEAVE)
        self.assertEqual(made.returncode, 0, made.stderr)

    def test_names_of_one_gpu_are_one_device(self):
        """Also for where bounds are made."""
        part = self.extract("dsv3_debug_ep2.1b_remat", "layers.1.moe")
        self.chunk(part, "parts.epw")
        told = [self.run_tool("check", part, "parts.epw", "--dry-run", "--device-a", a, "--device-b", b).stdout
                for a, b in (("cuda", "cuda"), ("cuda", "cuda:0"), ("cuda:0", "cuda:00"))]
        self.assertIn("memory of the device", told[0])
        self.assertEqual(told[1:], told[:1] * 2)

    def test_check_counts_bounds_where_they_are_made(self):
        part = self.extract("dsv3_debug_ep2.1b_remat", "layers.1.moe")
        self.chunk(part, "parts.epw")
        kept = {}
        for place in (("cpu", "cpu"), ("emulated", "device"), ("emulated", "cpu")):
            device, bounds = place
            report = self.report("check", part, "parts.epw", "--dry-run", "--device", device, "--bounds", bounds)
            kept[place] = {memory: parts["parts"].get("kept", 0) for memory, parts in report["memory"].items()}
        on_host = kept["cpu", "cpu"]["host"]
        self.assertGreater(on_host, 0)
        self.assertEqual(kept["emulated", "cpu"], {"host": on_host, "device": 0})
        self.assertEqual(kept["emulated", "device"]["host"], 0)
        self.assertGreater(kept["emulated", "device"]["device"], on_host / 2)


if __name__ == "__main__":
    unittest.main()
