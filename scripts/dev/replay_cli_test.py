#!/usr/bin/env python3
"""Tests of the epweave-replay command line: exit codes, messages, reports, what each option does.

The program is $EPWEAVE_REPLAY, else build/release/bin/epweave-replay; $EPWEAVE or the one beside it makes some of its inputs.
"""
import errno
import json
import os
import pathlib
import re
import resource
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPLAY = os.environ.get("EPWEAVE_REPLAY") or str(ROOT / "build/release/bin/epweave-replay")
EPWEAVE = os.environ.get("EPWEAVE") or str(ROOT / "build/release/bin/epweave")
LARGE = ROOT / "testdata/graphs/dsv3_671b_ep64.1b_remat.epw.gz"

def read_safetensors(path):
    """name -> (dtype, shape, numbers) of a file with F32 and I64 tensors, read by the format's description."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header, data = json.loads(data[8:8 + length]), data[8 + length:]
    forms = {"F32": "f", "I64": "q"}
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        form = forms[entry["dtype"]]
        numbers = struct.unpack(f"<{(last - first) // struct.calcsize('<' + form)}{form}", data[first:last])
        tensors[name] = entry["dtype"], entry["shape"], numbers
    return tensors


def safetensors_of(tensors):
    """The bytes of a file of F32 tensors: name -> (shape, numbers)."""
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        more = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(more)]}
        data += more
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


SMALL = """epweave text 1
group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[4, 4] role=user which=x
  %mm = aten.mm.default(%x, %x) : f32[4, 4] @layers.0.moe src="model.py:3 in forward: x @ x"
  %g = _c10d_functional.all_reduce.default(%mm, "sum", "7") : f32[4, 4]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[4, 4]
  output([%w])
"""


class ReplayCommandLineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("small.txt", SMALL)

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def changed(self, *changes):
        text = SMALL
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        return self.write("changed.txt", text)

    def run_tool(self, *arguments):
        return subprocess.run([REPLAY, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              timeout=300, check=False)

    def report(self, *arguments):
        result = self.run_tool(*arguments, "--json", "-q")
        return json.loads(result.stdout)

    def fails(self, code, *arguments):
        result = self.run_tool(*arguments)
        self.assertEqual((result.returncode, result.stdout), (code, ""))
        self.assertTrue(result.stderr.startswith("epweave-replay: error: "), result.stderr)
        return result.stderr

    def test_no_thread_or_memory_for_a_rank(self):
        """The system gives fewer threads than there are ranks, or too little memory: an error that names the rank."""
        many = self.write("many.txt", SMALL.replace("[0, 1]", str(list(range(256)))))

        def run_within(megabytes, *arguments):
            def limit():
                resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, 64 << 20))  # of each thread
                resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
            return subprocess.run([REPLAY, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                                  timeout=300, check=False, preexec_fn=limit)

        if run_within(2000, "--version").returncode != 0:
            self.skipTest("the program itself needs more (a sanitizer)")
        result = run_within(2000, "run", many)
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertRegex(result.stderr, r"^epweave-replay: error: rank \d+: the system gives no thread to run it, \d+ being there: ")
        large = self.write("large.txt", """epweave text 1
graph
  %x = placeholder : f32[1024] role=user which=x
  %y = aten.expand.default(%x, [600000, 1024]) : f32[600000, 1024]{0, 1}
  %z = aten.clone.default(%y) : f32[600000, 1024]{1024, 1} src="model.py:3 in forward: y.clone()"
  %s = aten.sum.default(%z) : f32[]
  output([%s])
""")
        result = run_within(2000, "run", large)
        self.assertEqual(
            (result.returncode, result.stdout, result.stderr),
            (1, "", "epweave-replay: error: rank 0: %z = aten.clone.default (model.py:3 in forward: y.clone()): the host has no "
                    "more memory to give\n"))

    def test_errors_name_the_program(self):
        self.assertIn("nothing.epw", self.fails(3, "run", "nothing.epw"))
        for option, more in (("--recipe", []), ("--costs-from", ["--dry-run"])):
            self.assertEqual(self.fails(3, "run", "small.txt", *more, option, "none.json"),
                             f"epweave-replay: error: {option} none.json: cannot open: No such file or directory\n")
        self.fails(2, "run", "small.txt", "--what")
        self.fails(2, "run")

    def test_usage_errors_say_what_would_be_right(self):
        for arguments, message in (
                (("chek", "a", "b"), "unknown command 'chek'; did you mean 'check'? The commands are run, check, steps, recipe, "
                 "completion, help."),
                ((), "give a command: run, check, steps, recipe, completion, help; --help says more"),
                (("check", "-", "-"), "only one input can be standard input"),
                (("run", "-", "--recipe", "-"), "only one input can be standard input"),
                (("run", "small.txt", "--colr", "never"), "epweave-replay run does not take '--colr'; did you mean '--color'?"),
                (("check", "small.txt"), "epweave-replay check needs B: what it was rewritten to, - for standard input"),
                (("run", "small.txt", "--timeline", ""), "--timeline needs a value: FILE"),
                (("run", ""), "epweave-replay run needs G: graph to run, - for standard input"),
                (("run", "small.txt", "--report-dir", "-"),
                 "--report-dir -: standard output is no folder; it gets a file for each rank"),
                (("run", "small.txt", "--from", "pickle"),
                 "--from: 'pickle' is none of binary, text, json, onnx, onnx-ir10, pt2"),
                (("run", "small.txt", "--ranks", "0"), "--ranks: '0' is not a whole number from 1 to 65536"),
                (("run", "small.txt", "--ranks", "-1"), "--ranks: '-1' is not a whole number from 1 to 65536"),
                (("run", "small.txt", "--seed", "-1"), "--seed: '-1' is not a whole number from 0 to 18446744073709551615"),
                (("run", "small.txt", "--jitter", "1.5"), "--jitter: '1.5' is not a whole number from 0 to 18446744073709551615"),
                (("run", "small.txt", "--deadline", "nan"), "--deadline: 'nan' is not a number above 0, up to 1000000000"),
                (("run", "small.txt", "--memory", "0"), "--memory: '0' is not a number above 0, up to 1000000000"),
                (("run", "small.txt", "--repeat", "0"), "--repeat: '0' is not a whole number from 1 to 100000"),
                (("run", "small.txt", "--rank", "1"), "--rank is for ranks that are processes: --transport nccl"),
                (("run", "small.txt", "--seed", "1", "--seed", "2"), "--seed is given more than once")):
            self.assertEqual(self.fails(2, *arguments), f"epweave-replay: error: {message}\n")

    def test_the_form_of_the_input_can_be_said(self):
        (self.folder / "small.txt").rename(self.folder / "small.bin")
        for command in (("run", "small.bin"), ("steps", "small.bin"), ("check", "small.bin", "small.bin")):
            self.assertEqual(self.run_tool(*command, "--from", "text").returncode, 0)
            self.assertIn("small.bin", self.fails(3, *command, "--from", "json"))

    def test_help_manual_page_and_docs_agree(self):
        text = self.run_tool("--help").stdout
        codes = re.findall(r"(?m)^  (\d+) +(.*)$", text)
        self.assertEqual([code for code, _ in codes], ["0", "1", "2", "3", "4", "5", "77"])
        page = self.run_tool("completion", "man").stdout
        docs = (ROOT / "docs/command_line.md").read_text(encoding="utf-8")
        table = {code: meaning for code, meaning in re.findall(r"(?m)^\| (\d+) \|.*\| (.*?) ?\|$", docs)}
        for code, meaning in codes:
            self.assertEqual(table[code], meaning)
            self.assertIn(f"  {code:4} {meaning}\n", page)
        commands = re.findall(r"(?m)^  ([a-z]+)  ", text)
        self.assertEqual(commands, ["run", "check", "steps", "recipe", "completion", "help"])
        self.assertEqual(self.run_tool("help", "run").stdout, self.run_tool("run", "--help").stdout)
        for command in commands:
            self.assertRegex(self.run_tool(command, "--help").stdout, r"(?m)^Examples?:\n  (source <\()?epweave-replay ")
            self.assertNotIn("\n\n\n", self.run_tool(command, "--help").stdout)
        self.assertRegex(self.run_tool("--version").stdout, r"^epweave-replay \d+\.\d+\.\d+ \(graph format 1; .*, CLI11 \S+\)\n$")

    def test_the_same_numbers_each_time(self):
        plain = self.report("run", "small.txt")["ranks"]
        for options in ([], ["--poison"], ["--jitter", "3"]):
            self.assertEqual(self.report("run", "small.txt", *options)["ranks"], plain)
        self.assertNotEqual(self.report("run", "small.txt", "--seed", "1")["ranks"], plain)

    def test_integer_data_is_exact(self):
        for rank in self.report("run", "small.txt", "--data", "integer")["ranks"]:
            square = rank["results"][0]["norm"] ** 2
            self.assertAlmostEqual(square, round(square), delta=1e-9)

    def test_graphs_that_return_other_things_are_not_run(self):
        (self.folder / "more.txt").write_text(SMALL.replace("output([%w])", "output([%w, %x])"))
        message = self.fails(3, "check", "small.txt", "more.txt")
        self.assertEqual(message, "epweave-replay: error: the graphs return 1 and 2 values: B is no rewrite of A\n")

    def test_a_large_graph_is_refused_with_the_bytes_it_needs(self):
        message = self.fails(4, "run", LARGE, "--memory", "64")
        self.assertRegex(message, r"256 ranks need \d+\.\d\d TiB of the host's memory \(\d+\.\d\d TiB of inputs, \d+\.\d\d TiB of values\), "
                                  r"64\.00 GiB are allowed; each rank needs most at %")
        self.assertIn("remedy: no module of it and no smaller size was found that fits", message)
        self.assertIn("[replay.memory]", message)
        self.assertIn("2 ranks need", self.fails(4, "run", "small.txt", "--memory", "1e-9"))

    def test_an_op_without_a_kernel_is_refused(self):
        name = self.changed(("aten.mm.default(%x, %x)", "mine.op.default(%x, %x)"))
        self.assertIn("mine.op.default", self.fails(4, "run", name))
        result = self.run_tool("run", name, "--json")
        self.assertEqual(result.returncode, 4)
        self.assertEqual(json.loads(result.stdout)["error"]["ops"], ["mine.op.default"])

    def test_progress_is_one_line_on_a_terminal(self):
        def on_terminal(*arguments):
            master, terminal = os.openpty()
            with subprocess.Popen([REPLAY, *arguments, "small.txt"], cwd=self.folder, stdout=subprocess.DEVNULL,
                                  stderr=terminal) as program:
                os.close(terminal)
                text = b""
                try:
                    while piece := os.read(master, 1 << 16):
                        text += piece
                except OSError as error:  # Linux: nobody writes to the terminal any more
                    self.assertEqual(error.errno, errno.EIO)
            os.close(master)
            self.assertEqual(program.returncode, 0)
            return text.decode()

        text = on_terminal("run")
        self.assertRegex(text, r"^\d+ % of (\d+) steps, 0 s\r\x1b\[K")
        self.assertRegex(text, r"\r\x1b\[K100 % of \d+ steps, 0 s\r\x1b\[K2 ranks")
        text = on_terminal("check", "small.txt")  # one bar for all runs, of which nothing regrouped needs none with bounds
        self.assertRegex(text, r"33 % \(A\), 0 s.*67 % \(B\), 0 s.*100 % \(A, run 2\), 0 s")
        percents = [int(percent) for percent in re.findall(r"(\d+) % \(", text)]
        self.assertEqual(percents, sorted(percents))
        self.assertNotIn("steps", self.run_tool("run", "small.txt", "-v").stderr)  # over before there is a line

    def test_recorded_types_that_do_not_hold(self):
        name = self.changed(("(%g) : f32[4, 4]", "(%g) : f32[4, 5]"))
        result = self.run_tool("run", name)
        if result.returncode == 3:
            self.skipTest("the file is refused before it runs")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.report("run", name, "--report-types")["contradicted_types"], 2)

    def test_check_finds_the_node(self):
        report = self.report("check", "small.txt", "small.txt")
        self.assertTrue(report["same"])
        self.assertEqual([rank["nodes"]["differs"] for rank in report["ranks"]], [0, 0])
        name = self.changed(('"sum"', '"avg"'))
        result = self.run_tool("check", "small.txt", name)
        self.assertEqual(result.returncode, 1)
        self.assertIn("first node that differs: rank 0: %w", result.stdout)
        first = self.report("check", "small.txt", name)["first_divergence"]
        self.assertEqual((first["rank"], first["origin"], first["difference"]["index"]), (0, "w", 0))
        self.assertEqual(len(first["difference"]["bits"]), 2)

    def test_check_with_a_reference(self):
        self.assertNotIn("reference", self.report("check", "small.txt", "small.txt"))
        equal = self.report("check", "small.txt", "small.txt", "--reference", "small.txt")
        self.assertEqual(equal["reference"], {"outputs": 2, "equal_to_a": 2, "equal_to_b": 2, "largest_relative_error": 0.0,
                                              "largest_relative_error_of_b": 0.0, "first_unlike_b": None})
        other = self.changed(('"sum"', '"avg"'))
        report = self.report("check", "small.txt", "small.txt", "--reference", other)
        self.assertEqual((report["verdict"], report["reference"]["equal_to_b"]), ("same", 0))
        self.assertEqual(report["reference"]["largest_relative_error"], 0.5)
        self.assertTrue(report["reference"]["first_unlike_b"].startswith("rank 0: output 0: first at 0: "))
        result = self.run_tool("check", "small.txt", other, "--reference", other)
        self.assertEqual(result.returncode, 1)
        self.assertIn("reference: 0 of 2 outputs equal to A's, 2 to B's; largest relative error to A: its 0.5, B's 0.5",
                      result.stdout)
        self.assertTrue(result.stdout.endswith("different\n"))

    def test_what_is_not_verified_is_not_called_different(self):
        whole = """epweave text 1
graph
  %x = placeholder : f32[64, 8] role=user which=x
  %s = aten.sum.dim_IntList(%x, [0]) : f32[8]
  %y = aten.tan.default(%s) : f32[8]
  output([%y])
"""
        parts = """epweave text 1
origins %s = aten.sum.dim_IntList, %y = aten.tan.default
graph
  %x = placeholder : f32[64, 8] role=user which=x
  %a = aten.slice.Tensor(%x, 0, 0, 21) : f32[21, 8]
  %b = aten.slice.Tensor(%x, 0, 21, 64) : f32[43, 8]+168
  %s0 = aten.sum.dim_IntList(%a, [0]) : f32[8] from(chunk body %s 0/2)
  %s1 = aten.sum.dim_IntList(%b, [0]) : f32[8] from(chunk body %s 1/2)
  %s = aten.add.Tensor(%s0, %s1) : f32[8] from(chunk materialize %s)
  %y = aten.tan.default(%s) : f32[8] from(chunk kept %y)
  output([%y])
"""
        result = self.run_tool("check", self.write("whole.txt", whole), self.write("parts.txt", parts))
        self.assertEqual((result.returncode, result.stderr), (1, ""), result.stdout)
        self.assertTrue(result.stdout.endswith("not verified\n"), result.stdout)
        self.assertIn("ops without a bound for regrouped sums: aten.tan.default\n", result.stdout)
        report = self.report("check", "whole.txt", "parts.txt")
        self.assertEqual((report["verdict"], report["same"], report["ops_without_bound"], report["first_divergence"]),
                         ("not verified", False, ["aten.tan.default"], None))
        # Without bounds the distance is said: a sum in parts is near A's, a sum that lacks a part
        # is not.
        near = self.report("check", "whole.txt", "parts.txt", "--bounds", "none")
        self.assertEqual(near["verdict"], "not verified")
        (output,) = near["outputs_not_equal"]
        self.assertEqual(near["largest_unverified_error"], output["relative_error"])
        self.assertLess(near["largest_unverified_error"], 1e-5)
        self.write("lost.txt", parts.replace("add.Tensor(%s0, %s1)", "add.Tensor(%s0, %s0)"))
        lost = self.run_tool("check", "whole.txt", "lost.txt", "--bounds", "none")
        self.assertEqual(lost.returncode, 1)
        self.assertRegex(lost.stdout, r"(?m)^unverified outputs: a relative error of at most [0-9.]+ \(rank 0, .*\)$")
        self.assertGreater(self.report("check", "whole.txt", "lost.txt", "--bounds", "none")["largest_unverified_error"], 0.1)
        self.assertIsNone(self.report("check", "whole.txt", "whole.txt")["largest_unverified_error"])

    def test_inputs_and_outputs_in_files(self):
        numbers = [float(i) for i in range(16)]
        (self.folder / "in.safetensors").write_bytes(safetensors_of({"x": ([4, 4], numbers)}))
        files = ["--inputs", "in.safetensors", "--save-inputs", "saved.safetensors", "--outputs", "out.safetensors"]
        result = self.run_tool("run", "small.txt", *files)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(read_safetensors(self.folder / "saved.safetensors"),
                         {f"rank{rank}/x": ("F32", [4, 4], tuple(numbers)) for rank in (0, 1)})
        square = [2 * sum(numbers[4 * i + k] * numbers[4 * k + j] for k in range(4)) for i in range(4) for j in range(4)]
        self.assertEqual(read_safetensors(self.folder / "out.safetensors"),
                         {f"rank{rank}/output/0": ("F32", [4, 4], tuple(square)) for rank in (0, 1)})
        # What was saved is what was taken: the same results, whatever the seed.
        again = self.run_tool("run", "small.txt", "--seed", "9", "--inputs", "saved.safetensors")
        self.assertEqual(again.stdout, result.stdout)
        self.assertEqual(self.run_tool("check", "small.txt", "small.txt", "--inputs", "in.safetensors").returncode, 0)

    def test_an_extract_computes_what_the_step_computes(self):
        golden = (ROOT / "testdata/extract/module.test").read_text()
        step = self.write("step.txt", golden.split("=== input.txt ===\n")[1].split("=== stdout ===\n")[0])
        for module in ("layers.1.moe", "layers.0", "layers.*.moe"):
            for direction in ("fwd", "bwd", "both"):
                made = subprocess.run([EPWEAVE, "extract", step, "--module", module, "--direction", direction, "-o", "part.txt",
                                       "--json", "-q"], cwd=self.folder, capture_output=True, check=True)
                self.check_part(json.loads(made.stdout), (module, direction))

    def check_part(self, report, case):
        """The whole step returns what goes into the part and what comes out of it, too."""
        names = report["entering"] + report["leaving"]
        text = (self.folder / "step.txt").read_text()
        text = text.replace("\n\ngraph\n", "".join(f"\noutput other fqn={name}" for name in names) + "\n\ngraph\n")
        self.write("whole.txt", text.replace("%gw1])", "".join(f"%{name}, " for name in ["gw1", *names])[:-2] + "])"))
        result = self.run_tool("run", "whole.txt", "--save-inputs", "in.safetensors", "--outputs", "whole.safetensors")
        self.assertEqual(result.returncode, 0, (case, result.stderr))
        whole = read_safetensors(self.folder / "whole.safetensors")
        values = read_safetensors(self.folder / "in.safetensors") | {
            name.replace("/other/", "/"): tensor for name, tensor in whole.items() if "/other/" in name}
        wanted = re.findall(r"(?m)= placeholder .* (?:fqn|which)=(\S+)", (self.folder / "part.txt").read_text())
        (self.folder / "in.safetensors").write_bytes(safetensors_of(
            {name: tensor[1:] for name, tensor in values.items() if name.split("/", 1)[1] in wanted}))
        result = self.run_tool("run", "part.txt", "--inputs", "in.safetensors", "--outputs", "part.safetensors", "--seed", "7")
        self.assertEqual(result.returncode, 0, (case, result.stderr))
        part = read_safetensors(self.folder / "part.safetensors")
        self.assertEqual(part, {name: whole[name] for name in part}, case)
        self.assertEqual(len([name for name in part if "/other/" in name]), 2 * len(report["leaving"]), case)

    def test_inputs_of_a_part_of_a_step(self):
        """Without the embedding and the tokens: the size of the tokens, and their number, are all that is asked of them."""
        sized = ("epweave text 1\ninfo world_size = 1\nsymbol u0 hint=6 backed\n\ngraph\n"
                 "  %tokens = placeholder : i64[u0] role=user which=tokens\n"
                 "  %n = aten.sym_size.int(%tokens, 0) : SymInt(u0)\n"
                 "  %o = aten.ones.default([%n], dtype=f32) : f32[u0]\n  output([%o])\n")
        result = self.run_tool("run", self.write("sized.txt", sized))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.write("read.txt", sized.replace("output([%o])", "%t = aten.mul.Tensor(%tokens, 2) : i64[u0]\n  output([%t])"))
        self.assertIn("no parameter's name tells the vocabulary", self.fails(3, "run", "read.txt"))
        starts = ("epweave text 1\ninfo world_size = 1\n\ngraph\n"
                  "  %p = placeholder : i32[600] role=user which=kwargs.positions\n"
                  "  %s = placeholder : i32[4] role=user which=attention_masks._closure_1\n  output([%p, %s])\n")
        result = self.run_tool("run", self.write("starts.txt", starts), "--save-inputs", "in.safetensors", "--recipe",
                               self.write("recipe.json", '{"document": 256}'))
        self.assertEqual(result.returncode, 0, result.stderr)
        data = (self.folder / "in.safetensors").read_bytes()
        self.assertIn(struct.pack("<4i", 0, 256, 512, 600), data)
        self.write("starts.txt", starts.replace("i32[600] role=user which=kwargs.positions", "f32[600] role=user which=x"))
        self.assertIn("the graph has no input `tokens` or `input_ids`, nor another that has a number for each token",
                      self.fails(3, "run", "starts.txt"))

    def test_input_files_that_do_not_fit_are_refused(self):
        (self.folder / "in.safetensors").write_bytes(safetensors_of({"y": ([4, 4], [0.0] * 16)}))
        self.assertIn("tensor `y` is no input of the graph", self.fails(3, "run", "small.txt", "--inputs", "in.safetensors"))
        (self.folder / "in.safetensors").write_bytes(b"\xff" * 8 + b"{}")
        self.assertIn("the format allows 100000000", self.fails(3, "run", "small.txt", "--inputs", "in.safetensors"))
        self.assertIn("cannot open", self.fails(3, "check", "small.txt", "small.txt", "--inputs", "none.safetensors"))

    def test_a_failed_run_leaves_outputs_alone(self):
        (self.folder / "out.safetensors").write_text("as it was")
        name = self.changed(('"sum"', '"what"'))
        self.assertNotEqual(self.run_tool("run", name, "--outputs", "out.safetensors").returncode, 0)
        self.assertEqual((self.folder / "out.safetensors").read_text(), "as it was")
        message = self.fails(3, "run", "small.txt", "--outputs", "no/folder.safetensors")
        self.assertIn("no/folder.safetensors", message)

    def test_recipes(self):
        shipped = self.run_tool("recipe")
        self.assertEqual(shipped.returncode, 0)
        self.assertIn({"name": "tokens", "make": "tokens"}, json.loads(shipped.stdout)["inputs"])
        self.write("shipped.json", shipped.stdout)
        plain = self.run_tool("run", "small.txt").stdout
        self.assertEqual(self.run_tool("run", "small.txt", "--recipe", "shipped.json").stdout, plain)
        self.write("ones.json", '{"inputs": [{"name": "x", "make": "constant", "value": 1}]}')
        for rank in self.report("run", "small.txt", "--recipe", "ones.json")["ranks"]:
            self.assertEqual(rank["results"][0]["norm"], 32)  # 16 elements of 2 ranks * 4
        self.write("bad.json", '{"inputs": [{"name": "x", "make": "one"}]}')
        self.assertIn("row 1 of `inputs`", self.fails(3, "run", "small.txt", "--recipe", "bad.json"))

    def test_steps(self):
        result = self.run_tool("steps", "small.txt")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stdout.splitlines(), [
            "input  %x", "launch %mm = aten.mm.default on compute", "free   %x", "record e0 on compute",
            "join   e0 on comm:7", "comm   %g = _c10d_functional.all_reduce.default on comm:7", "record e1 on comm:7",
            "free   %mm", "join   e1 on compute", "wait   %w = _c10d_functional.wait_tensor.default on compute",
            "free   %g", "output"])
        report = json.loads(self.run_tool("steps", "small.txt", "--json").stdout)
        self.assertEqual((report["streams"], report["events"]), (["compute", "comm:7"], 2))
        self.assertEqual(report["steps"][:4], [
            {"kind": "input", "node": "x"},
            {"kind": "launch", "node": "mm", "target": "aten.mm.default", "stream": "compute"},
            {"kind": "free", "node": "x"}, {"kind": "record", "stream": "compute", "event": 0}])
        self.assertEqual(len(report["steps"]), 12)

    def test_files_that_cannot_be_written_are_found_before_the_run(self):
        before = sorted(self.folder.iterdir())
        for option in ("--outputs", "--save-inputs", "--timeline", "--costs"):
            self.assertIn("missing/file: there is no folder missing",
                          self.fails(3, "run", "small.txt", option, "missing/file"))
            self.assertIn(f"{option} - shares standard output with the report", self.fails(2, "run", "small.txt", option, "-"))
            self.assertIn(f"{option} small.txt would replace an input", self.fails(2, "run", "small.txt", option, "small.txt"))
        self.assertIn("--save-inputs all would replace what --outputs writes",
                      self.fails(2, "run", "small.txt", "--outputs", "all", "--save-inputs", "all"))
        self.assertIn("missing/rank0.json: there is no folder missing", self.fails(3, "run", "small.txt", "--report-dir", "missing"))
        self.assertEqual(sorted(self.folder.iterdir()), before)


if __name__ == "__main__":
    unittest.main()
