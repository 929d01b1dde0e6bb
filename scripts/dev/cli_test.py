#!/usr/bin/env python3
"""Tests of the epweave command line: exit codes, streams, bad input, atomic output, determinism.

The program is $EPWEAVE, else build/release/bin/epweave. Messages of single commands have goldens in testdata/cli.
"""
import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest
import zipfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
EPWEAVE = os.environ.get("EPWEAVE") or str(ROOT / "build/release/bin/epweave")
# How far apart the bytes are that are damaged. EPWEAVE_FAULTS, which a slow build sets: not each of
# them.
FAULT_STRIDE = 17 if "EPWEAVE_FAULTS" in os.environ else 1  # odd: each bit of a byte comes up
GRAPHS = ROOT / "testdata/graphs"
SMALL_ARCHIVE = ROOT / "testdata/pt2/small.pt2"
DSV3 = GRAPHS / "dsv3_debug_ep2.1b_remat.epw.gz"
PRESET = "ep-overlap{roots=layers.*.moe,dim=batch,parts=%d}"

SMALL = """epweave text 1

graph
  %x = placeholder : f32[4, 4] role=user which=x
  %mm = aten.mm.default(%x, %x) : f32[4, 4] @layers.0.moe src="model.py:3 in forward: x @ x"
  %neg = aten.neg.default(%mm) : f32[4, 4] @layers.0.moe
  %dead = aten.neg.default(%x) : f32[4, 4] @layers.1
  output([%neg])
"""


class CommandLineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("small.txt", SMALL)

    def write(self, name, content):
        data = content.encode() if isinstance(content, str) else content
        (self.folder / name).write_bytes(data)
        return name

    def run_tool(self, *arguments, stdin=b"", env=None):
        return subprocess.run([EPWEAVE, *map(str, arguments)], cwd=self.folder, input=stdin, capture_output=True,
                              env=os.environ | (env or {}), timeout=300, check=False)

    def output_of(self, *arguments, stdin=b""):
        result = self.run_tool(*arguments, stdin=stdin)
        verdict = rb"(?m)^\S+: (\d+ -> \d+ nodes, verified after each pass|proved to compute what \S+ computes, .*)\n"
        said = re.sub(verdict, b"", result.stderr)
        self.assertEqual((result.returncode, said), (0, b""), arguments)
        return result.stdout

    def files(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def small(self, *changes):
        """The text of the small graph with some pieces replaced."""
        text = SMALL
        for old, new in changes:
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        return text

    def assert_fails(self, code, message, *arguments, stdin=b"", details=None):
        """The command fails with the code and, as text and as JSON, this message; and writes no file."""
        before = self.files()
        plain = self.run_tool(*arguments, stdin=stdin)
        self.assertEqual((plain.returncode, plain.stdout, plain.stderr.decode()),
                         (code, b"", f"epweave: error: {message}\n"), arguments)
        report = self.run_tool(*arguments, "--json", stdin=stdin)
        self.assertEqual((report.returncode, report.stderr), (code, plain.stderr))
        kind = {2: "usage", 3: "invalid-input", 4: "declined", 5: "internal"}[code]
        error = {"kind": kind, "exit_code": code, "message": message} | (details or {})
        self.assertEqual(json.loads(report.stdout), {"schema": 1, "error": error})
        self.assertEqual(self.files(), before)


class UsageTest(CommandLineTest):
    def test_unknown_command(self):
        names = re.search(r"(?ms)^Subcommands:\n(.*?)^$", self.output_of("--help").decode())[1]
        names = ", ".join(line.split()[0] for line in names.splitlines())
        self.assert_fails(2, f"unknown command 'rewite'; did you mean 'rewrite'? The commands are {names}.", "rewite")

    def test_help_is_a_command(self):
        self.assertEqual(self.output_of("help"), self.output_of("--help"))
        for command in ("rewrite", "help"):
            self.assertEqual(self.output_of("help", command), self.output_of(command, "--help"))
        names = re.search(r"(?ms)^Subcommands:\n(.*?)^$", self.output_of("--help").decode())[1]
        names = ", ".join(line.split()[0] for line in names.splitlines())
        self.assert_fails(2, f"unknown command 'rewite'; did you mean 'rewrite'? The commands are {names}.", "help", "rewite")
        self.assert_fails(2, "help takes one command, and 'print' is one more", "help", "rewrite", "print")

    def test_unknown_option(self):
        self.assert_fails(2, "epweave stats does not take '--form'; did you mean '--from'?", "stats", "small.txt", "--form")
        self.assert_fails(2, "epweave rewrite does not take 'out.epw': the file to write stands behind -o: -o out.epw",
                          "rewrite", "small.txt", "out.epw", "-p", "dce")
        self.assert_fails(2, "--verbose is an option of the command and stands behind it: epweave stats --verbose",
                          "--verbose", "stats", "small.txt")

    def test_no_command(self):
        names = re.search(r"(?ms)^Subcommands:\n(.*?)^$", self.output_of("--help").decode())[1]
        names = ", ".join(line.split()[0] for line in names.splitlines())
        for words in ([], [""]):
            result = self.run_tool(*words)
            self.assertEqual((result.returncode, result.stderr.decode()),
                             (2, f"epweave: error: give a command: {names}; --help says more\n"))
        result = self.run_tool("--json")
        self.assertEqual((result.returncode, result.stderr.decode()), (
            2, "epweave: error: epweave does not take '--json': options stand behind a command; --help lists the commands\n"))

    def test_empty_values(self):
        """Such as "$OLD" of a variable that is not set: each would mean that the option was not given."""
        for value, words in (("FILE", ["rewrite", "small.txt", "-p", "dce", "-o", "out.epw", "--report"]),
                             ("REPORT", ["simulate", "small.txt", "--baseline"]), ("FILE", ["simulate", "small.txt", "--costs"]),
                             ("PIPELINE", ["rewrite", "small.txt", "--pipeline"]), ("REGEX", ["print", "small.txt", "--grep"]),
                             ("FILE", ["diff", "small.txt", "small.txt", "--html"]), ("FILE", ["stats", "small.txt", "--log-file"])):
            self.assert_fails(2, f"{words[-1]} needs a value: {value}", *words, "")
        self.assert_fails(2, "epweave explain needs NODE: the node's name", "explain", "small.txt", "")
        self.assert_fails(2, "epweave convert needs G: graph to convert, - for standard input", "convert", "", "out.epw")
        # Words of a command to run may be empty.
        self.assertEqual(self.run_tool("reduce", "small.txt", "-o", "out.txt", "--", "sh", "-c", "", "").returncode, 0)

    def test_files_of_options_that_cannot_be_read(self):
        for option in ("--costs", "--baseline", "--measured"):
            self.assert_fails(3, f"{option} none.json: cannot open: No such file or directory",
                              "simulate", "small.txt", "--unpriced", "free", option, "none.json")
        self.assert_fails(3, "--cluster none.json: cannot open: No such file or directory",
                          "simulate", "small.txt", "--cluster", "none.json")
        self.write("empty.json", "")
        for name, text in (("schedule", "costs"), ("schedule", "cluster"), ("tag-regional", "configs")):
            more = "op=rms-norm," if name == "tag-regional" else ""
            words = ("rewrite", "small.txt", "-o", "out.epw", "-p")
            self.assert_fails(3, f"option '{text}': none.json: cannot open: No such file or directory",
                              *words, f"{name}{{{more}{text}=none.json}}")
            self.assert_fails(3, f"option '{text}': ./: cannot read: Is a directory", *words, f"{name}{{{more}{text}=./}}")
            self.assert_fails(3, "empty.json: not JSON: it ends too early, at line 1, column 1",
                              *words, f"{name}{{{more}{text}=empty.json}}")

    def test_folders_are_no_streams(self):
        for option, why, words in (
                ("-o", "bisect writes the graphs before and after the pass there", ["bisect", "small.txt", "true", "-p", "dce", "-o", "-"]),
                ("-o", "traces are a file for each rank", ["convert", "small.txt", "--to", "chakra", "-o", "-"]),
                ("--dump-dir", "it gets a file for each pass", ["rewrite", "small.txt", "-p", "dce", "-o", "o.epw", "--dump-dir", "-"])):
            self.assert_fails(2, f"{option} -: standard output is no folder; {why}", *words)

    def test_what_prints_and_stops_takes_nothing_that_goes_on(self):
        for flag in ("--print-pipeline", "--print-plan"):
            for option, words in (("-o", ["-o", "out.epw"]), ("--report", ["--report", "r.json"]), ("--dump-dir", ["--dump-dir", "d"]),
                                  ("--time-passes", ["--time-passes"])):
                self.assert_fails(2, f"{flag} prints and stops: leave out {option}", "rewrite", "small.txt", "-p", "chunk", flag, *words)
        self.assert_fails(2, "--print-pipeline and --print-plan print and stop: give one of them",
                          "rewrite", "small.txt", "-p", "chunk", "--print-plan", "--print-pipeline")

    def test_output_does_not_steer_the_terminal(self):
        result = self.run_tool("explain", "small.txt", "\x1b[31m\x07\x85\x7f\u00e9\udc9b")
        self.assertEqual(result.stderr.decode(), "epweave: error: small.txt has no node '\\x1b[31m\\x07\\u0085\\u007f\u00e9\\x9b'; "
                                                 "`epweave print G --grep REGEX` finds names\n")
        module = "m\x1b[2J\x85\x7f\u00e9"
        self.write("odd.txt", self.small(("@layers.1", r'@"m\x1b[2J\u0085\x7f' + '\u00e9"')))
        self.assertIn("  m\\x1b[2J\\u0085\\u007f\u00e9\nnode 4 of 5\n", self.output_of("explain", "odd.txt", "dead").decode())
        nodes = self.output_of("print", "odd.txt", "--json")
        self.assertIsNone(re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", nodes.decode()))
        self.assertEqual(json.loads(nodes)["nodes"][3]["module"], module)
        text = self.output_of("print", "--full", "odd.txt")
        self.assertEqual(text, self.output_of("convert", "odd.txt", "-", "--to", "text"))
        self.assertIn(r'@"m\x1b[2J\u0085\x7f' + '\u00e9"', text.decode())
        self.write("again.txt", text)
        self.assertEqual(self.output_of("print", "again.txt", "--json"), nodes.replace(b"odd.txt", b"again.txt"))

    def test_options_that_do_nothing(self):
        self.assert_fails(2, "-o, --to and --force are for artifact make: a check writes no graph",
                          "artifact", "check", "small.txt", "-o", "out.epw")
        self.assert_fails(2, "--tolerance is for a comparison: give --baseline REPORT, too",
                          "simulate", "small.txt", "--tolerance", "0.01")
        result = self.run_tool("diff", "small.txt", "small.txt", "--summary", "--full")
        self.assertEqual((result.returncode, result.stdout, result.stderr.decode()),
                         (2, b"", "epweave: error: --summary counts and --full lists everything: give one of them\n"))

    def test_halves_share_no_output(self):
        partition = ("partition", "small.txt", "--fwd")
        self.assert_fails(2, "--fwd - and --bwd - share standard output: give one of them a file", *partition, "-", "--bwd", "-")
        for half, halves in (("--fwd", ("-", "--bwd", "b.epw")), ("--bwd", ("f.epw", "--bwd", "-"))):
            self.assert_fails(2, f"{half} - and --report - share standard output: give one of them a file",
                              *partition, *halves, "--report", "-")
            result = self.run_tool(*partition, *halves, "--json")
            self.assertEqual((result.returncode, json.loads(result.stdout)["error"]["message"]),
                             (2, "--json and the graph cannot both go to standard output: give --fwd F and --bwd B files"))
        result = self.run_tool(*partition, "f.epw", "--bwd", "b.epw", "--report", "-", "--json")
        self.assertEqual((result.returncode, json.loads(result.stdout)["error"]["message"]),
                         (2, "--report - shares standard output with --json: give it a file"))

    def test_exit_codes_of_all_commands(self):
        said = self.output_of("--help").decode()
        for what in ("doctor: something is missing", "generalize: a difference is not explained",
                     "artifact check: a field does not agree"):
            self.assertIn(what, said)

    def test_doctor_says_what_chunk_says(self):
        for name, roots, modules in (("dsv3_debug_ep2.1b_remat", ["layers.*.moe"], 5), ("qwen3_moe_ep2.1b_remat", ["layers.*.moe"], 8),
                                     ("llama3_debug_fsdp4.1b_remat", [], 0)):
            graph = str(GRAPHS / f"{name}.epw.gz")
            with self.subTest(name):
                result = self.run_tool("doctor", graph, "--json")
                report = json.loads(result.stdout)
                self.assertEqual((result.returncode, report["roots"]), (0, roots))
                chunk = next(row for row in report["passes"] if row["name"] == "chunk")
                self.assertEqual(chunk["idle"] is None, bool(roots))
                for root in roots:
                    division = next(row for row in report["findings"] if row["topic"] == "division")
                    self.assertEqual(division["found"], f"no module is divided; chunk{{roots={root}}} divides {modules} modules")
                    self.output_of("rewrite", graph, "-p", f"chunk{{roots={root}}}", "-o", "out.epw", "-q")
        graph = str(GRAPHS / "dsv3_debug_ep2.1b_remat.epw.gz")
        result = self.run_tool("rewrite", graph, "-p", "chunk{roots=layers.*.moe.routed_experts}", "-o", "out.epw", "--json")
        self.assertEqual(json.loads(result.stdout)["error"]["remedy"],
                         "the sizes must come from counts that each part can make of its own rows (sums of integers); layers.*.moe, "
                         "around it, can be divided: roots=layers.*.moe")

    def test_a_report_in_a_file_says_its_verdict(self):
        self.write("other.txt", SMALL.replace("%neg = aten.neg.default", "%neg = aten.relu.default"))
        for other, code, said in (("small.txt", 0, "small.txt: proved to compute what small.txt computes, without an assumption"),
                                  ("other.txt", 1, "other.txt: 1 violation; it is not shown to compute what small.txt computes")):
            result = self.run_tool("report", "small.txt", other, "-o", "page.html")
            self.assertEqual((result.returncode, result.stdout, result.stderr.decode()),
                             (code, b"", f"{said}; page.html shows it\n"))

    def test_braces_that_the_shell_expanded(self):
        expanded = ("--preset", "ep-overlaproots=layers.*.moe", "ep-overlapparts=2")
        for words in (("small.txt", *expanded), (*expanded, "small.txt")):
            self.assert_fails(2, f"epweave rewrite does not take '{words[-1]}': the shell expanded the braces of the pipeline;"
                                 " write it in quotes: 'chunk{parts=4}'", "rewrite", *words, "-o", "out.epw")

    def test_endings_that_name_no_form(self):
        for name, ending in (("o.TXT", "TXT"), ("o.xyz", "xyz"), ("o.txt.bz2", "bz2"), ("o.xyz.gz", "xyz")):
            self.assert_fails(2, f"{name}: the ending .{ending} names no form: end the name in .epw, .txt, .json or .onnx (and .gz"
                                 " behind it), or say --to", "convert", "small.txt", name)
            self.assertFalse((self.folder / name).exists())
        for name in ("o", "o.epw.gz", "tmp.Ab12Cd34"):
            self.output_of("convert", "small.txt", name)
        self.output_of("convert", "small.txt", "o.xyz", "--to", "json")

    def test_values_that_options_do_not_take(self):
        for arguments, message in (
                (("print", "small.txt", "--part", "x"), "--part: 'x' is not a whole number from 0 to 1000000"),
                (("print", "small.txt", "--part", "-1"), "--part: '-1' is not a whole number from 0 to 1000000"),
                (("print", "small.txt", "--color", "x"), "--color: 'x' is none of auto, always, never"),
                (("print", "small.txt", "--part", "1", "--part", "2"), "--part is given more than once"),
                (("diff", "small.txt", "small.txt", "--ignore", "order,x"),
                 "--ignore: 'x' is none of names, order, metadata, types, provenance"),
                (("print", "small.txt", "--json=x"), "--json takes no value"),
                (("convert", "small.txt"), "epweave convert needs OUT: file to write, - for standard output"),
                (("--versio",), "epweave does not take '--versio'; did you mean '--version'?")):
            result = self.run_tool(*arguments)
            self.assertEqual((result.returncode, result.stdout, result.stderr.decode()),
                             (2, b"", f"epweave: error: {message}\n"))
        result = self.run_tool("rewrite", "small.txt", "-p", "dce", "-o")
        self.assertEqual((result.returncode, result.stderr), (2, b"epweave: error: --output needs a value: OUT\n"))
        result = self.run_tool("reduce", "small.txt", "-o", "x", "--timeout", "nan", "--", "true")
        self.assertEqual((result.returncode, result.stderr),
                         (2, b"epweave: error: --timeout: 'nan' is not a number from 0, up to 1000000000\n"))

    def test_standard_input_is_read_once(self):
        for arguments in (("diff", "-", "-"), ("verify", "-", "-"), ("overlap", "-", "--before", "-")):
            self.assert_fails(2, "only one input can be standard input", *arguments)

    def test_explain_names_the_nearest_node(self):
        for name, guess in (("dea", "; did you mean 'dead'?"), ("something", ";")):
            self.assert_fails(2, f"small.txt has no node '{name}'{guess} `epweave print G --grep REGEX` finds names",
                              "explain", "small.txt", name)

    def test_missing_input(self):
        self.assert_fails(2, "give a graph to rewrite: IN, or - for standard input", "rewrite", "-p", "dce")

    def test_pipeline_is_needed_once(self):
        message = "give one of -p PIPELINE and --preset PRESET; `epweave passes` lists both"
        self.assert_fails(2, message, "rewrite", "small.txt")
        self.assert_fails(2, message, "rewrite", "small.txt", "-p", "dce", "--preset", "ep-overlap")

    def test_print_after_unknown_pass(self):
        self.assert_fails(2, "--print-after dec: the pipeline has no such pass: all, or one of dce", "rewrite", "small.txt",
                          "-p", "dce", "-o", "out.txt", "--print-after", "dec")

    def test_bad_regular_expression(self):
        self.assert_fails(2, "--grep '(': Unmatched ( or \\(", "print", "small.txt", "--grep", "(")

    def write_archive(self, name, entries, compression=zipfile.ZIP_STORED):
        with zipfile.ZipFile(self.folder / name, "w", compression) as archive:
            for entry, data in entries.items():
                archive.writestr(entry, data)

    def test_torch_export_archives(self):
        shutil.copy(SMALL_ARCHIVE, self.folder / "small.pt2")
        text = self.output_of("convert", "small.pt2", "-", "--to", "text")
        self.assertIn(b"%linear = aten.linear.default(%x, %p_linear_weight, %p_linear_bias)", text)
        (self.folder / "other.name").write_bytes(SMALL_ARCHIVE.read_bytes())
        self.assertEqual(self.output_of("convert", "other.name", "-", "--to", "text"), text)  # known by its content
        self.assertEqual(self.output_of("convert", "other.name", "-", "--from", "pt2", "--to", "text"), text)
        self.assert_fails(2, "out.pt2: archives of torch.export can only be read: write another form", "convert",
                          "small.txt", "out.pt2")

    def test_bad_archives_are_refused(self):
        def payload(name, **facts):
            return {f"m/data/weights/{name}_weights_config.json": json.dumps({"config": {"w": facts}})}

        model = {"m/models/m.json": "{}"}
        cases = {
            "pickled": (model | payload("m", use_pickle=True), "'w' is stored as a pickle; pickles are not read"),
            "object": (model | {"m/data/constants/custom_obj_0": "cbuiltins"},
                       "m/data/constants/custom_obj_0 is a pickled object; pickles are not read"),
            "two": (model | {"m/models/n.json": "{}"}, "has 2 programs, m/models/m.json and m/models/n.json among them"),
            "none": ({"../../etc/passwd": "x"}, "has no program (ROOT/models/NAME.json): was it written by "
                     "torch.export.save?"),
            "empty": (model, "lacks 'schema_version'"),
        }
        for name, (entries, message) in cases.items():
            self.write_archive(f"{name}.pt2", entries)
            self.assert_fails(3, f"{name}.pt2: {message}", "convert", f"{name}.pt2", "out.txt")
        (self.folder / "short.pt2").write_bytes(SMALL_ARCHIVE.read_bytes()[:-100])
        self.assert_fails(3, "short.pt2: damaged archive: its directory cannot be read", "convert", "short.pt2", "out.txt")

    def test_damaged_archives_are_refused(self):
        self.write_archive("packed.pt2", {"m/models/m.json": "{}" * 50}, zipfile.ZIP_BZIP2)
        self.assert_fails(3, "packed.pt2: m/models/m.json is packed by method 12: only stored and deflated files are read",
                          "convert", "packed.pt2", "out.txt")
        self.write_archive("whole.pt2", {"m/models/m.json": "{}" * 50}, zipfile.ZIP_DEFLATED)
        whole = (self.folder / "whole.pt2").read_bytes()
        entry = whole.index(b"PK\1\2")
        header = "m/models/m.json is damaged: its header is not what the directory says"
        unpacked = "m/models/m.json is damaged: it does not unpack to what its size and checksum say"
        for name, at, changed, message in (
                ("encrypted", entry + 8, b"\1", "m/models/m.json is encrypted"),
                ("checksum", entry + 16, b"\0\0\0\0", header),
                ("content", whole.index(b"m.json") + 6, b"\0", unpacked),
                ("method", entry + 10, b"\0", header),
                ("directory", entry, b"XX", "damaged archive: its directory cannot be read")):
            (self.folder / f"{name}.pt2").write_bytes(whole[:at] + changed + whole[at + len(changed):])
            self.assert_fails(3, f"{name}.pt2: {message}", "convert", f"{name}.pt2", "out.txt", "--from", "pt2")

    def test_archive_that_unpacks_to_too_much(self):
        bomb = {"m/models/m.json": "{}", "m/data/weights/m_weights_config.json": b" " * (70 << 20)}
        self.write_archive("bomb.pt2", bomb, zipfile.ZIP_DEFLATED)
        self.assertLess((self.folder / "bomb.pt2").stat().st_size, 1 << 17)
        self.assert_fails(3, "bomb.pt2: m/data/weights/m_weights_config.json has 73400320 bytes, more than 67108864",
                          "convert", "bomb.pt2", "out.txt")

    def test_onnx_form(self):
        self.output_of("convert", "small.txt", "out.onnx")
        self.output_of("convert", "small.txt", "new.out", "--to", "onnx-ir10")
        text = self.output_of("convert", "small.txt", "-", "--to", "text")
        self.assertEqual(self.output_of("convert", "out.onnx", "-", "--to", "text"), text)
        self.assertEqual(self.output_of("convert", "new.out", "-", "--to", "text"), text)  # known by its content

    def test_foreign_onnx_model_is_refused(self):
        (self.folder / "foreign.onnx").write_bytes(b"\x08\x08\x3a\x0a\x0a\x08\x1a\x01n\x22\x03Add")
        self.assert_fails(3, "foreign.onnx: not a graph that epweave wrote: its metadata has no pkg.epweave.format; node "
                          "'n' is Add. Other ONNX models cannot be read", "convert", "foreign.onnx", "out.txt")

    def test_json_report_and_graph_cannot_share_stdout(self):
        result = self.run_tool("rewrite", "small.txt", "-p", "dce", "--json")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(json.loads(result.stdout)["error"]["message"],
                         "--json and the graph cannot both go to standard output: give -o FILE")
        for flags in ([], ["-o", "out.epw", "--json"]):
            self.assertEqual(self.run_tool("rewrite", "small.txt", "-p", "dce", "--report", "-", *flags).returncode, 2)

    def test_files_beside_the_result_replace_nothing(self):
        (self.folder / "link.json").symlink_to("out.epw")
        (self.folder / "hard.txt").hardlink_to(self.folder / "small.txt")
        before = (self.folder / "small.txt").read_bytes()
        rewrite = ("rewrite", "small.txt", "-p", "dce", "-o", "out.epw")
        for command, option, path, what in (
                (rewrite, "--report", "out.epw", "the result"), (rewrite, "--report", "./out.epw", "the result"),
                (rewrite, "--report", "link.json", "the result"), (rewrite, "--report", "small.txt", "an input"),
                (rewrite, "--log-file", "out.epw", "the result"), (rewrite, "--keep-reproducer", "small.txt", "an input"),
                ((*rewrite, "--report", "r.json"), "--log-file", "r.json", "what --report writes"),
                (("verify", "small.txt"), "--log-file", "hard.txt", "an input"),
                (("overlap", "small.txt"), "--trace", "small.txt", "an input"),
                (("diff", "other.txt", "small.txt"), "--html", "small.txt", "an input")):
            result = self.run_tool(*command, option, path)
            self.assertEqual((result.returncode, result.stdout, result.stderr.decode()), (
                2, b"", f"epweave: error: {option} {path} would replace {what}: give it a file of its own\n"))
        self.assertEqual((self.folder / "small.txt").read_bytes(), before)
        self.assertFalse((self.folder / "out.epw").exists())
        for command in (("overlap", "small.txt", "--trace", "-"), ("verify", "small.txt", "--log-file", "-")):
            self.assertEqual(self.run_tool(*command).returncode, 2)

    def test_dump_folder_that_is_a_file(self):
        (self.folder / "file").write_text("")
        self.assert_fails(3, "file: not a folder", "rewrite", "small.txt", "-p", "dce", "--dump-dir", "file", "-o", "out.epw")
        self.assertFalse((self.folder / "out.epw.reproducer.epw").exists())

    def test_killed_while_writing_leaves_nothing(self):
        os.mkfifo(self.folder / "wait")
        (self.folder / "run").mkdir()
        child = subprocess.Popen([EPWEAVE, "rewrite", "../small.txt", "-p", "dce", "-o", "out.epw", "--report", "../wait"],
                                 cwd=self.folder / "run")
        with self.assertRaises(subprocess.TimeoutExpired):
            child.wait(0.5)  # for a reader of the report
        child.terminate()
        child.wait()
        self.assertEqual(list((self.folder / "run").iterdir()), [])

    def test_graph_and_report_are_written_both_or_neither(self):
        names = sorted(path.name for path in self.folder.iterdir())
        for output, report in (("out.epw", "missing/report.json"), ("missing/out.epw", "report.json"), ("-", "missing/r.json")):
            result = self.run_tool("rewrite", "small.txt", "-p", "dce", "-o", output, "--report", report)
            self.assertEqual((result.returncode, result.stdout), (3, b""))
            self.assertIn(b": there is no folder missing\n", result.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), names)

    def test_a_place_that_cannot_be_written_is_said_before_the_work(self):
        for code, words in ((3, ["rewrite", "-p", "dce", "-o", "no/x"]), (3, ["rewrite", "-p", "dce", "-o", "x.txt", "--report", "no/x"]),
                            (3, ["partition", "--fwd", "no/x", "--bwd", "b.epw"]), (3, ["partition", "--fwd", "f.epw", "--bwd", "no/x"]),
                            (3, ["simulate", "--trace", "no/x"]), (3, ["report", "small.txt", "-o", "no/x"]),
                            (2, ["diff", "small.txt", "--html", "no/x"]), (3, ["artifact", "make", "-o", "no/x"]),
                            (3, ["extract", "--module", "a", "-o", "no/x"]), (3, ["generalize", "-o", "no/x"])):
            at = 2 if words[0] == "artifact" else 1
            name = "no/x.html" if words[0] == "report" else "no/x"
            words = [name if word == "no/x" else word for word in words]
            self.assert_fails(code, f"{name}: there is no folder no", *words[:at], "missing.epw", *words[at:],
                              details={"kind": "trouble"} if code == 2 else None)
        self.assert_fails(3, f"{self.folder}: cannot open for writing: Is a directory", "convert", "missing.epw", str(self.folder))
        (self.folder / "file").write_text("")
        for words in (["specialize", "missing.epw", "--all"], ["convert", "missing.epw", "--to", "chakra"],
                      ["bisect", "missing.epw", "true", "-p", "dce"]):
            self.assert_fails(3, "file/at: cannot be made: Not a directory", *words, "-o", "file/at")
            self.assert_fails(3, "missing.epw: cannot open: No such file or directory", *words, "-o", "new/at")
        self.assertEqual(self.files(), ["file", "small.txt"])
        (self.folder / "out.partial/mine").mkdir(parents=True)  # a folder of somebody else
        self.assert_fails(3, "missing.epw: cannot open: No such file or directory", "specialize", "missing.epw", "--all", "-o", "out")
        too_long = "new/" + 300 * "x"
        self.assert_fails(3, f"{too_long}: cannot be made: File name too long", "specialize", "missing.epw", "--all", "-o", too_long)
        self.assertEqual(self.files(), ["file", "out.partial", "out.partial/mine", "small.txt"])

    def test_no_trace_is_left_where_the_baseline_is_none(self):
        self.assert_fails(3, "--baseline none.json: cannot open: No such file or directory", "simulate", "small.txt", "--unpriced", "free",
                          "--trace", "trace.json", "--baseline", "none.json")

    def test_trace_names_the_cluster_as_the_report_does(self):
        for changes in ([], ["--set", "nic=4e11", "--set", "host_us=3"]):
            report = json.loads(self.output_of("simulate", "small.txt", "--unpriced", "free", "--cluster", "h100-2x4", *changes,
                                                "--trace", "trace.json", "--json"))
            trace = json.loads((self.folder / "trace.json").read_text())
            self.assertEqual(trace["otherData"], {"assumptions": report["assumptions"], "cluster": report["cluster"]})
            self.assertEqual(report["cluster"]["nic"], 4e11 if changes else 50e9)

    def test_tracks_and_critical_path_of_a_trace(self):
        graph = os.path.join(GRAPHS, "dsv3_debug_ep2.5_schedule.epw.gz")
        for host_us in (0, 1.2345, 30):
            self.output_of("simulate", graph, "--set", f"host_us={host_us}", "--trace", "trace.json")
            with open(os.path.join(self.folder, "trace.json"), encoding="utf-8") as f:
                events = json.load(f)["traceEvents"]
            slices = {(x["tid"], x["ts"]): x["dur"] for x in events if x["ph"] == "X"}
            # One slice of a track at a time, to the nanosecond; Perfetto drops what overlaps.
            spans = sorted((tid, round(1000 * ts), round(1000 * ts) + round(1000 * duration)) for (tid, ts), duration in slices.items())
            self.assertEqual([(a, b) for a, b in zip(spans, spans[1:]) if a[0] == b[0] and b[1] < a[2]], [])
            end = max(ts + duration for (_, ts), duration in slices.items())
            arrows = {phase: [x for x in events if x.get("cat") == "critical path" and x["ph"] == phase] for phase in "sf"}
            # Each arrow leaves a slice at its end and meets the start of the next, which is then
            # there at once.
            self.assertEqual([x["id"] for x in arrows["s"]], [x["id"] for x in arrows["f"]])
            for start, finish in zip(arrows["s"], arrows["f"]):
                self.assertAlmostEqual(start["ts"], finish["ts"], places=2)
            last = arrows["f"][-1]
            self.assertAlmostEqual(last["ts"] + slices[last["tid"], last["ts"]], end, places=2)
            self.assertLess(arrows["s"][0]["ts"], 0.05 * end)
            self.assertEqual("host" in {x["args"].get("name") for x in events if x["ph"] == "M"}, host_us != 0)

    def test_help_and_version(self):
        self.assertIn(b"Exit codes", self.output_of("--help"))
        self.assertIn(b"Usage: epweave rewrite", self.output_of("rewrite", "--help"))
        self.assertRegex(self.output_of("--version").decode(),
                         r"^epweave \d+\.\d+\.\d+ \(graph format 1; protobuf \S+, fmt \S+, zlib \S+, OpenSSL \S+, "
                         r"nlohmann-json \S+, CLI11 \S+\)\n$")
        for command in re.findall(r"(?m)^  ([a-z]+)  ", self.output_of("--help").decode()):
            self.assertRegex(self.output_of(command, "--help").decode(), r"(?m)^Example.*[:?]\n  (source <\()?epweave ", command)

    def test_keys_of_json_are_written_down(self):
        docs = "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("command_line", "resize", "overlap"))
        self.output_of("artifact", "make", "small.txt", "-o", "a.epw")
        commands = [["stats", "small.txt"], ["stats", "small.txt", "small.txt"], ["print", "small.txt"], ["verify", "small.txt"],
                    ["verify", "small.txt", "small.txt"], ["verify", "--ranks", "small.txt", "--explain-literals"],
                    ["diff", "small.txt", "small.txt"], ["diff", "small.txt", "small.txt", "--summary"], ["doctor", "small.txt"],
                    ["explain", "small.txt", "mm"], ["overlap", "small.txt", "--before", "small.txt"], ["simulate", "small.txt"],
                    ["report", "small.txt", "small.txt"], ["reduce", "small.txt", "-o", "r.txt", "--", "true"], ["passes"],
                    ["bisect", "small.txt", "-p", "dce", "-o", "b", "--", "grep", "-q", "dead"],
                    ["extract", "small.txt", "--module", "layers.0.moe", "-o", "x.txt"], ["resize", "small.txt", "--list"],
                    ["generalize", "small.txt", "-o", "all.txt"], ["specialize", "small.txt", "--rank", "0", "-o", "x.txt"],
                    ["artifact", "make", "small.txt", "-o", "a.epw"], ["artifact", "check", "a.epw"], ["convert", "small.txt", "x.epw"],
                    ["convert", "small.txt", "--to", "chakra", "-o", "traces"], ["rewrite", "small.txt", "-p", "dce", "-o", "x.epw"],
                    ["rewrite", "-p", "dce", "--print-pipeline"], ["simulate", "none.json"]]
        for words in commands:
            at = words.index("--") if "--" in words else len(words)
            report = json.loads(self.run_tool(*words[:at], "--json", *words[at:]).stdout)
            self.assertEqual("error" in report, "none.json" in words, (words, report))
            for key in report:
                self.assertTrue(f"`{key}`" in docs or f'"{key}"' in docs or f"`{key}." in docs, (words, key))

    def test_files_stand_in_json_where_the_table_says(self):
        docs = (ROOT / "docs/command_line.md").read_text(encoding="utf-8")
        rows = {}  # of a command's one graph: its first row
        for row in (line.split("|") for line in docs.splitlines() if line.startswith("| `")):
            for name in re.findall(r"`([^`]+)`", row[1]):
                rows.setdefault(name, row[2])
        commands = {"stats": ["small.txt"], "print": ["small.txt"], "doctor": ["small.txt"], "explain": ["small.txt", "mm"],
                    "diff": ["small.txt", "small.txt"], "report": ["small.txt", "small.txt"], "simulate": ["small.txt"],
                    "resize": ["small.txt", "--set", "layers=1", "-o", "x.txt"], "convert": ["small.txt", "x.epw"],
                    "extract": ["small.txt", "--module", "layers.0.moe", "-o", "x.txt"],
                    "rewrite": ["small.txt", "-p", "dce", "-o", "x.epw"]}
        for command, words in commands.items():
            report = json.loads(self.run_tool(command, *words, "--json").stdout)
            for key in re.findall(r"`([a-z.]+)`", rows[command].partition("(")[0]):
                found = report
                for name in key.split("."):
                    self.assertIn(name, found, (command, key))
                    found = found[name]

    def test_exit_codes_are_written_down_once(self):
        """What --help says stands in the manual page and in docs/command_line.md, word for word."""
        docs = (ROOT / "docs/command_line.md").read_text(encoding="utf-8")
        table = {code: meaning for code, meaning in re.findall(r"(?m)^\| (\d+) \| (.*?) ?\|", docs)}
        codes = re.findall(r"(?m)^  (\d+) +(.*)$", self.output_of("--help").decode())
        self.assertEqual([code for code, _ in codes], ["0", "1", "2", "3", "4", "5", "130"])
        page = self.output_of("completion", "man").decode()
        for code, meaning in codes:
            self.assertEqual(table[code], meaning)
            self.assertIn(f"  {code:4} {meaning}\n", page)

    def on_terminal(self, columns, *words):
        """What the program shows on a terminal of so many columns."""
        reader, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with subprocess.Popen([EPWEAVE, *words], cwd=self.folder, stdout=terminal, stderr=terminal) as process:
            os.close(terminal)
            text = b""
            with contextlib.suppress(OSError):  # on Linux the end of a terminal
                while piece := os.read(reader, 65536):
                    text += piece
            self.assertEqual(process.wait(), 0)
        os.close(reader)
        return text.decode().replace("\r\n", "\n")

    def test_progress_says_how_long_a_pass_runs(self):
        shutil.copy(GRAPHS / "dsv3_debug_L96.1b_remat.epw.gz", self.folder / "in.epw.gz")
        begin = time.monotonic()
        shown = self.on_terminal(80, "rewrite", "in.epw.gz", "-p", "dce,choose-chunks{parts=2}", "-o", "out.epw")
        took = time.monotonic() - begin
        progress = re.findall(r"(?:^|\x1b\[K)(\[\d/2\] .*?)(?=\r)", shown)
        self.assertEqual(progress[:2], ["[1/2] dce ...", "[2/2] choose-chunks ..."])
        seconds = [int(re.fullmatch(r"\[2/2\] choose-chunks \.\.\. (\d+) s", line)[1]) for line in progress[2:]]
        self.assertEqual(seconds, list(range(2, 2 + len(seconds))))
        self.assertLessEqual(len(seconds), took)
        self.assertNotRegex(shown[shown.index("choice:"):], r"\[\d/\d\]")

    def test_help_is_as_wide_as_the_terminal(self):
        def help_on(columns, *words):
            return self.on_terminal(columns, *words, "--help")

        for words in ((), ("partition",), ("simulate",), ("bisect",)):
            whole = self.output_of(*words, "--help").decode()
            examples = [line for line in whole.splitlines() if line.startswith("  epweave ")]
            self.assertEqual(bool(examples), bool(words))
            for columns in (60, 80, 132):
                shown = help_on(columns, *words)
                self.assertEqual(shown.split(), whole.split())
                lines = shown.splitlines()
                self.assertLessEqual(set(examples), set(lines))
                for line in set(lines) - set(examples):
                    self.assertTrue(len(line) <= columns or "FORM:{" in line or len(line.split()) == 1, line)
            self.assertEqual(help_on(0, *words), whole)
        self.assertIn("  --trace FILE                Write streams, live bytes and the critical path\n"
                      f"{'':30}for ui.perfetto.dev\n", help_on(80, "simulate"))
        self.assertIn("  1    verify: there are violations; diff: the graphs differ; overlap: more is\n"
                      "       exposed than --max-exposed; report: not proved; simulate: worse than the\n", help_on(80))

    def test_binary_is_not_written_to_a_terminal(self):
        for extra, code in (([], 2), (["--force"], 0), (["--to", "text"], 0)):
            reader, terminal = pty.openpty()
            process = subprocess.Popen([EPWEAVE, "convert", "small.txt", "-", *extra], cwd=self.folder, stdout=terminal,
                                       stderr=subprocess.PIPE)
            _, stderr = process.communicate(timeout=60)
            os.close(terminal)
            os.close(reader)
            self.assertEqual(process.returncode, code, extra)
            if code:
                self.assertEqual(stderr, b"epweave: error: standard output is a terminal and the output is binary: give -o "
                                         b"FILE, --to text, or --force\n")


class StreamTest(CommandLineTest):
    def test_dash_is_stdin_and_stdout_in_every_command(self):
        binary = self.output_of("convert", "-", "-", stdin=SMALL.encode())
        self.assertEqual(self.output_of("convert", "-", "-", "--to", "text", stdin=binary).decode(), SMALL)
        self.assertEqual(self.output_of("rewrite", "-", "-p", "dce", stdin=binary),
                         self.output_of("rewrite", "small.txt", "-p", "dce", "-o", "-"))
        for command in ("print", "stats", "verify"):
            self.assertEqual(self.output_of(command, "-", stdin=binary), self.output_of(command, "small.txt"))

    def test_gzip_is_recognised_by_content(self):
        self.output_of("convert", "small.txt", "g.epw.gz")
        self.assertEqual(gzip.decompress((self.folder / "g.epw.gz").read_bytes()), self.output_of("convert", "small.txt", "-"))
        (self.folder / "g.epw.gz").rename(self.folder / "g")
        self.assertEqual(self.output_of("convert", "g", "-", "--to", "text").decode(), SMALL)

    def test_a_report_goes_to_standard_output(self):
        page = self.output_of("report", "small.txt", "small.txt", "-o", "-", "-o", "page.md")
        self.assertEqual(page, self.output_of("report", "small.txt", "small.txt"))
        self.assertEqual((self.folder / "page.md").read_bytes(), page)
        self.assert_fails(2, "--output - and --output - share standard output: give one of them a file",
                          "report", "small.txt", "small.txt", "-o", "-", "-o", "page.html", "-o", "-")
        result = self.run_tool("report", "small.txt", "small.txt", "-o", "-", "--json")
        self.assertEqual((result.returncode, result.stderr.decode()),
                         (2, "epweave: error: --output - shares standard output with --json: give it a file\n"))

    def test_a_graph_that_is_of_all_ranks_needs_one_line(self):
        self.assertEqual(self.run_tool("generalize", "small.txt", "-o", "all.txt").stderr, b"all.txt: a graph for all ranks\n")

    def test_closed_stdin_is_an_error(self):
        result = subprocess.run(["sh", "-c", '"$0" stats - <&-', EPWEAVE], capture_output=True, check=False)
        self.assertEqual((result.returncode, result.stderr.decode()),
                         (3, "epweave: error: standard input: cannot read: Bad file descriptor\n"))

    def test_closed_and_full_stdout_are_errors(self):
        for redirection, reason in ((">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")):
            result = subprocess.run(["sh", "-c", f'"$0" stats small.txt {redirection}', EPWEAVE], cwd=self.folder,
                                    stderr=subprocess.PIPE, check=False)
            self.assertEqual((result.returncode, result.stderr.decode()),
                             (3, f"epweave: error: standard output: cannot write: {reason}\n"))

    def test_a_reader_that_goes_away_ends_it_quietly(self):
        result = subprocess.run(["sh", "-c", f'"$0" print --full {DSV3} | head -n 1', EPWEAVE], capture_output=True,
                                check=False)
        self.assertEqual((result.stdout, result.stderr), (b"epweave text 1\n", b""))

    def test_listings_are_coloured_on_request(self):
        self.run_tool("rewrite", "small.txt", "-p", "canonicalize", "-o", "out.txt")
        plain, coloured = (self.run_tool("diff", "small.txt", "out.txt", "--color", when).stdout.decode()
                           for when in ("never", "always"))
        self.assertNotIn("\033", plain)
        self.assertIn("\033[1m--- small.txt", coloured)
        self.assertEqual(re.sub("\033\\[[0-9;]*m", "", coloured), plain)
        plain, coloured = (self.output_of("print", "small.txt", "--color", when).decode() for when in ("never", "always"))
        self.assertIn("  \033[1m%", coloured)
        self.assertEqual(re.sub("\033\\[[0-9;]*m", "", coloured), plain)

    def test_bash_completes_passes_and_presets(self):
        (self.folder / "completion.bash").write_bytes(self.output_of("completion", "bash"))

        def complete(*words):
            script = (f"epweave() {{ '{EPWEAVE}' \"$@\"; }}; source ./completion.bash; compopt() {{ :; }}; "
                      "COMP_WORDS=(epweave \"$@\"); COMP_CWORD=$#; _epweave;"
                      "printf '%s\\n' \"${COMPREPLY[@]}\"")
            return subprocess.run(["bash", "-c", script, "bash", *words], cwd=self.folder, capture_output=True, text=True,
                                  check=True).stdout.split()
        self.assertEqual(complete("rewrite", "-p", "dce,canon"), ["dce,canonicalize"])
        self.assertEqual(complete("rewrite", "--preset", "ep"), ["ep-overlap"])
        self.assertEqual(complete("print", "--color", "al"), ["always"])
        self.assertEqual(complete("diff", "--ignore", "names,or"), ["names,order"])
        self.assertEqual(complete("help", "rew"), ["rewrite"])
        # What a pass or preset takes in braces; a word that begins with a quote.
        self.assertEqual(complete("rewrite", "-p", "'dce,chunk{pa"), ["dce,chunk{parts="])
        self.assertEqual(complete("rewrite", "--preset", "'ep-overlap{parts=2,symbolize="),
                         ["ep-overlap{parts=2,symbolize=yes", "ep-overlap{parts=2,symbolize=no"])
        self.assertEqual(complete("rewrite", "-p", "chunk{parts=2},conc"), ["chunk{parts=2},concretize"])
        # Modules of the graph on the line.
        self.assertEqual(complete("rewrite", "small.txt", "-p", "'chunk{roots=layers.*"),
                         ["chunk{roots=layers.*", "chunk{roots=layers.*.moe"])
        self.assertEqual(complete("print", "small.txt", "--module", "layers.*."), ["layers.*.moe"])
        self.assertEqual(complete("extract", "small.txt", "--module", "layers."),
                         ["layers.*", "layers.*.moe", "layers.0", "layers.0.moe", "layers.1"])
        self.assertEqual(complete("print", "--module", "l"), [])
        # Names of a graph are no commands.
        self.write("named.txt", SMALL.replace("@layers.0.moe", '@"layers.$(touch${IFS}made).moe"'))
        self.assertEqual(complete("print", "named.txt", "--module", "l"), ["layers", "layers.*", "layers.1"])
        self.assertEqual(complete("rewrite", "named.txt", "-p", "chunk{roots=layers."),
                         ["chunk{roots=layers.*", "chunk{roots=layers.1"])
        self.assertFalse((self.folder / "made").exists())

    def test_passes_lists_what_is_named(self):
        whole = self.output_of("passes").decode()
        some = self.output_of("passes", "ep-overlap", "dce").decode()
        self.assertEqual(re.findall(r"(?m)^  (\S+)$", some), ["dce", "ep-overlap"])
        self.assertTrue(set(some.splitlines()) <= set(whole.splitlines()))
        self.assertEqual(self.output_of("passes", "dce").decode(),
                         "passes (-p 'NAME{option=value,...},...')\n  dce\n      drop nodes whose results nothing needs\n")
        self.assertEqual(json.loads(self.output_of("passes", "dce", "--json")), {"schema": 1, "presets": [], "passes": [
            {"name": "dce", "summary": "drop nodes whose results nothing needs", "options": []}]})
        self.assert_fails(2, "no pass or preset is called 'chnk'; did you mean 'chunk'? `epweave passes` lists them",
                          "passes", "dce", "chnk")

    def test_convert_takes_its_output_either_way(self):
        self.output_of("convert", "small.txt", "argument.epw")
        self.output_of("convert", "small.txt", "-o", "option.epw")
        self.assertEqual((self.folder / "option.epw").read_bytes(), (self.folder / "argument.epw").read_bytes())
        self.assertEqual(self.output_of("convert", "small.txt", "-o", "-", "--to", "binary"),
                         (self.folder / "argument.epw").read_bytes())
        self.assert_fails(2, "epweave convert writes one file: give OUT or -o OUT", "convert", "small.txt", "a.txt", "-o", "b.txt")
        self.assert_fails(2, "o.xyz: the ending .xyz names no form: end the name in .epw, .txt, .json or .onnx (and .gz behind "
                             "it), or say --to", "convert", "small.txt", "-o", "o.xyz")

    def test_binary_is_known_under_any_name(self):
        text = self.output_of("convert", "small.txt", "-", "--to", "text")
        for name in ("binary.txt", "binary.json", "binary.onnx"):
            self.output_of("convert", "small.txt", name, "--to", "binary")
            self.assertEqual(self.output_of("convert", name, "-", "--to", "text"), text, name)

    def test_a_broken_graph_of_a_dump_is_no_dump(self):
        version = '"version": {"format": 1, "minReader": 1, "producer": "fx-dump-1"}'
        self.write("short.json", f'{{"magic": "epweave", {version}, "graphs": [')
        result = self.run_tool("stats", "short.json")
        self.assertEqual((result.returncode, result.stderr.decode().splitlines()[0]),
                         (3, "epweave: error: short.json: not the JSON form of a graph: Unexpected end of string. "
                             "Expected a value or ] within an array."))

    def test_a_folder_that_makes_no_files_is_there(self):
        result = self.run_tool("convert", "small.txt", "/proc/made.epw")
        self.assertEqual((result.returncode, result.stderr.decode()),
                         (3, "epweave: error: /proc/made.epw: cannot be written: No such file or directory\n"))

    def test_a_dump_of_fx_is_named(self):
        (self.folder / "dump.json").write_text('{"format":"fx-dump-1","meta":{},"graphs":{"a":{}}}')
        self.assert_fails(3, "dump.json: a dump of torch.fx, not a graph: scripts/epweave_fx.py from-dump dump.json OUT.epw "
                             "makes one of it", "convert", "dump.json", "x.epw")

    def test_messages_go_to_the_log_file_without_colour(self):
        result = self.run_tool("print", "missing.epw", "--color", "always", "--log-file", "log.txt")
        self.assertEqual(result.stderr.decode(),
                         "\033[1;31mepweave: error: \033[0mmissing.epw: cannot open: No such file or directory\n")
        self.assertEqual((self.folder / "log.txt").read_text(),
                         "epweave: error: missing.epw: cannot open: No such file or directory\n")

    def test_a_log_file_that_takes_nothing_is_said_once(self):
        result = self.run_tool("rewrite", "small.txt", "-p", "dce", "-o", "out.epw", "--log-file", "/dev/full")
        self.assertEqual((result.returncode, result.stderr.decode()),
                         (0, "out.epw: 5 -> 4 nodes, verified after each pass\n"
                             "epweave: warning: /dev/full: cannot write the log file: No space left on device\n"))


class BadInputTest(CommandLineTest):
    def binary(self, text=SMALL):
        return self.output_of("convert", "-", "-", stdin=text.encode())

    def json_graph(self, change):
        """The small graph in JSON form, changed."""
        document = json.loads(self.output_of("convert", "small.txt", "-", "--to", "json"))
        change(document)
        return self.write("changed.json", json.dumps(document))

    def assert_unreadable(self, message, name):
        for command in (["print"], ["stats"], ["verify"], ["rewrite", "-p", "dce", "-o", "out.epw"]):
            self.assert_fails(3, message, command[0], name, *command[1:])
        self.assert_fails(3, message, "convert", name, "out.epw")

    def assert_broken(self, violations, text):
        """`verify` lists the violations, any other command refuses the graph."""
        self.write("broken.txt", text)
        # The text form reads broken graphs, and so do the others.
        (self.folder / "broken.json").unlink(missing_ok=True)
        result = self.run_tool("verify", "broken.txt", "-q")
        self.assertEqual((result.returncode, result.stdout.decode().splitlines(), result.stderr), (1, violations, b""))
        report = self.run_tool("verify", "broken.txt", "--json", "-q")
        self.assertEqual((report.returncode, len(json.loads(report.stdout)["violations"])), (1, len(violations)))
        count = "1 invariant" if len(violations) == 1 else f"{len(violations)} invariants"
        message = "\n  ".join([f"broken.txt: the graph breaks {count}:", *violations])
        for command in (["print"], ["stats"], ["rewrite", "-p", "dce", "-o", "out.epw"]):
            self.assert_fails(3, message, command[0], "broken.txt", *command[1:])
        self.assert_fails(3, message, "convert", "broken.txt", "out.epw")

    def test_missing_empty_and_foreign_files(self):
        self.assert_unreadable("none: cannot open: No such file or directory", "none")
        self.assert_unreadable("empty: empty", self.write("empty", ""))
        self.assert_unreadable("foreign: not an epweave graph in any form; epweave.export makes one of a torch.fx graph",
                               self.write("foreign", "\x7fELF whatever"))
        self.assert_unreadable(".: cannot read: Is a directory", ".")

    def test_truncated_anywhere(self):
        data = self.binary()
        for size in range(1, len(data), FAULT_STRIDE):
            result = self.run_tool("verify", "-", stdin=data[:size])
            self.assertEqual(result.returncode, 3, size)
            self.assertRegex(result.stderr, rb"^epweave: error: standard input: (truncated|not an epweave graph)")
        name = self.write("cut.epw", data[:-20])
        self.assert_unreadable("cut.epw: truncated or altered: it does not end with its checksum", name)
        self.assert_unreadable("cut.epw.gz: gzip data is truncated or damaged",
                               self.write("cut.epw.gz", gzip.compress(data)[:-9]))

    def test_gzip_of_several_members(self):
        data = self.binary()
        members = [gzip.compress(part) for part in (data[:200], b"", data[200:201], data[201:])]
        self.output_of("convert", self.write("members.epw.gz", b"".join(members)), "joined.epw", "-q")
        self.assertEqual((self.folder / "joined.epw").read_bytes(), data)
        last = members[-1]
        for damaged in (b"".join(members) + b"garbage", b"".join(members) + bytes(8), b"".join(members[:-1]) + last[:-9],
                        b"".join(members) + last[:5], members[0] + bytes(3) + b"".join(members[1:])):
            self.assert_unreadable("damaged.epw.gz: gzip data is truncated or damaged",
                                   self.write("damaged.epw.gz", damaged))

    def test_a_flipped_bit_anywhere(self):
        data = self.binary()
        for at in range(0, len(data), FAULT_STRIDE):
            flipped = bytearray(data)
            flipped[at] ^= 1 << at % 8
            result = self.run_tool("verify", "-", stdin=bytes(flipped))
            self.assertEqual(result.returncode, 3, at)
            self.assertRegex(result.stderr, rb"^epweave: error: standard input: (truncated or altered|not an epweave graph)")

    def test_not_a_message_behind_a_right_checksum(self):
        body = self.binary()[:-5].replace(b"placeholder"[:3], b"\xff\xff\xff") + b"\xff"
        data = body + b"\x7d" + zlib.crc32(body).to_bytes(4, "little")
        self.assert_unreadable("odd.epw: not a valid protobuf message", self.write("odd.epw", data))

    def test_newer_reader_needed(self):
        name = self.json_graph(lambda d: d["version"].update(format=9, minReader=9))
        result = self.run_tool("stats", name)
        self.assertEqual(result.returncode, 3)
        self.assert_unreadable(result.stderr.decode().removeprefix("epweave: error: ").rstrip("\n"), name)
        self.assertRegex(result.stderr.decode(), r"changed\.json: .*\b9\b.*\b1\b")

    def test_unknown_required_feature(self):
        name = self.json_graph(lambda d: d["version"].update(requiredFeatures=["teleport"]))
        self.assert_unreadable("changed.json: requires feature 'teleport', which this version does not know: use a newer "
                               "epweave", name)

    def test_reference_outside_a_table(self):
        name = self.json_graph(lambda d: d["graphs"][0]["nodes"][0].update(name=99))
        result = self.run_tool("stats", name)
        self.assertEqual(result.returncode, 3)
        self.assertRegex(result.stderr.decode(), r"^epweave: error: changed\.json: string 99 is outside the table of \d+\n$")

    def test_cyclic_order(self):
        self.assert_broken(
            ["defined-first: mm (aten.mm.default, layers.0.moe): executes before neg, which it refers to"],
            self.small(("mm.default(%x, %x)", "mm.default(%x, %neg)")))

    def test_duplicate_names(self):
        self.assert_broken(["unique-names: mm (aten.neg.default, layers.1): another node has the same name"],
                           self.small(("%dead", "%mm")))

    def test_dangling_reference(self):
        self.assert_broken(["resolved-refs: neg (aten.neg.default, layers.0.moe): refers to nowhere, which no node is named"],
                           self.small(("neg.default(%mm)", "neg.default(%nowhere)")))

    def test_wrong_type_is_for_verify_alone(self):
        name = self.write("typed.txt", self.small(("(%mm) : f32[4, 4]", "(%mm) : bf16[4, 4]")))
        result = self.run_tool("verify", name, "-q")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout.decode(), r"\Atype: neg \(aten\.neg\.default, layers\.0\.moe\): .*\n\Z")
        self.output_of("print", name)
        self.output_of("convert", name, "out.epw")


class RewriteTest(CommandLineTest):
    def test_the_same_command_gives_the_same_bytes(self):
        pipeline = ["rewrite", DSV3, "-p", "dce,canonicalize,dedup-unshard", "-o"]
        self.output_of(*pipeline, "a.epw")
        self.output_of(*pipeline, "b.epw")
        self.assertEqual((self.folder / "a.epw").read_bytes(), (self.folder / "b.epw").read_bytes())

    def test_specialize_all_writes_what_specialize_writes_for_each_rank(self):
        ranks = 17  # more than share a context
        self.write("general.txt", f"""epweave text 1
info global_meshes = {{"dense": {{"axes": ["ep"], "shape": [{ranks}]}}}}
info world_size = {ranks}
info compile_on_one_rank = True
info rank = 0
group 1 ranks={list(range(ranks))} description=mesh_ep axes=[ep]
symbol u0 range=[0, {ranks - 1}] size_like unbacked

graph
  %ids = placeholder : i64[6] role=user which=ids
  %ranks = get_attr : i32[{ranks}]@cpu attr=tensor("ranks", type(i32[{ranks}]@cpu), {list(range(ranks))})
  %c = device_mesh._runtime_compute_coordinate_on_dim.default(%ranks, 0) : SymInt(u0) bind(u0)
  %start = operator.mul(%c, 8) : SymInt(8*u0)
  %shifted = aten.sub.Tensor(%ids, %start) : i64[6]
  output([%shifted])
""")
        self.output_of("specialize", "general.txt", "--all", "-o", "all")
        self.assertEqual(len(list((self.folder / "all").iterdir())), ranks)
        for rank in (0, ranks - 2, ranks - 1):
            self.output_of("specialize", "general.txt", "--rank", rank, "-o", "one.epw")
            self.assertEqual((self.folder / f"all/rank-{rank:05}.epw").read_bytes(), (self.folder / "one.epw").read_bytes())

    def test_report(self):
        report = json.loads(self.output_of("rewrite", "small.txt", "-p", "dce,canonicalize", "-o", "out.epw", "--json"))
        self.assertEqual(report["input"].pop("sha256"), hashlib.sha256(self.output_of("convert", "small.txt", "-")).hexdigest())
        self.assertRegex(report.pop("tool"), r"^epweave \d+\.\d+\.\d+$")
        self.assertEqual(report, {
            "schema": 1, "pipeline": "dce,canonicalize", "verify": "each", "input": {"file": "small.txt", "nodes": 5},
            "output": {"file": "out.epw", "nodes": 4},
            "passes": [{"name": "dce", "options": "", "nodes_before": 5, "nodes_after": 4, "changed": True, "notes": []},
                       {"name": "canonicalize", "options": "", "nodes_before": 4, "nodes_after": 4, "changed": False,
                        "notes": []}]})
        stats = json.loads(self.output_of("stats", "out.epw", "--json"))
        self.assertEqual((stats["nodes"], stats["targets"], stats["provenance_coverage"]),
                         (4, {"aten.mm.default": 1, "aten.neg.default": 1}, 1))

    def test_print_json_says_where_nodes_come_from(self):
        self.output_of("rewrite", "small.txt", "-p", "dce", "-o", "out.epw")
        tensor = {"dtype": "torch.float32", "shape": [4, 4], "stride": [4, 1], "device": None}
        common = {"direction": "forward", "chunk": None}
        self.assertEqual(json.loads(self.output_of("print", "out.epw", "--json")), {"schema": 1, "file": "out.epw", "nodes": [
            {"name": "x", "op": "placeholder", "target": "x", "inputs": [], "module": None, "origin": ["x"],
             "type": tensor} | common,
            {"name": "mm", "op": "call_function", "target": "aten.mm.default", "inputs": ["x"], "module": "layers.0.moe",
             "origin": ["mm"], "type": tensor} | common,
            {"name": "neg", "op": "call_function", "target": "aten.neg.default", "inputs": ["mm"], "module": "layers.0.moe",
             "origin": ["neg"], "type": tensor} | common,
            {"name": "output", "op": "output", "target": "output", "inputs": ["neg"], "module": None, "origin": ["output"],
             "type": None} | common]})

    def test_print_says_that_it_shows_nothing(self):
        for words, said in ((("--module", "layers.*.mo", "--grep", "neg"),
                             "--module: no module matches 'layers.*.mo', did you mean 'layers.*.moe'?"),
                            (("--module", "layers.1.mo"), "--module: no module matches 'layers.1.mo', did you mean 'layers.0.moe'?"),
                            (("--grep", "zzz"), "no node's line matches 'zzz' (--grep)"),
                            (("--module", "layers.1", "--part", "9"), "no node is of part 9 (--part)"),
                            (("--module", "layers.1", "--grep", "aten.mm"),
                             "some nodes meet each of --module layers.1, --grep 'aten.mm', but none meets all")):
            result = self.run_tool("print", "small.txt", *words)
            self.assertEqual((result.returncode, result.stdout, result.stderr.decode()),
                             (0, b"", f"epweave: warning: small.txt: {said}\n"))

    def test_print_shows_selected_nodes(self):
        names = [line.split()[0] for line in self.output_of("print", "small.txt", "--module", "layers.*.moe").decode()
                 .splitlines()]
        self.assertEqual(names, ["%mm", "%neg"])
        names = [node["name"] for node in json.loads(self.output_of("print", "small.txt", "--grep", "neg", "--json"))["nodes"]]
        self.assertEqual(names, ["neg", "dead", "output"])

    def test_print_shows_only_graphs_with_selected_nodes(self):
        self.write("nested.txt", SMALL + "\ngraph one\n  %a = placeholder\n  output(%a)\n\ngraph two\n  %b = placeholder\n"
                   "  %abs = aten.abs.default(%b)\n  output(%abs)\n")
        self.assertEqual(list(json.loads(self.output_of("print", "nested.txt", "--json"))["graphs"]), ["one", "two"])
        found = json.loads(self.output_of("print", "nested.txt", "--grep", "aten.abs", "--json"))
        self.assertEqual((found["nodes"], list(found["graphs"])), ([], ["two"]))
        self.assertNotIn("graphs", json.loads(self.output_of("print", "nested.txt", "--grep", "neg", "--json")))

    def test_a_graph_verifies_against_itself(self):
        self.output_of("convert", DSV3, "again.txt")
        report = json.loads(self.output_of("verify", DSV3, "again.txt", "--json"))
        self.assertEqual((report["ok"], report["whole"], report["divided"]), (True, 3474, 0))
        self.assertEqual({output["numerics"] for output in report["outputs"]}, {"reorder"})
        self.write("other.txt", self.small(("aten.neg.default(%mm)", "aten.abs.default(%mm)")))
        self.assertEqual(self.run_tool("verify", "small.txt", "other.txt").returncode, 1)
        # Another graph, whose own violations do not bury that it is another.
        self.write("foreign.txt", self.small(("%dead = aten.neg.default(%x) : f32[4, 4]", "%new = aten.neg.default(%x) : f32[4]")))
        result = self.run_tool("verify", "small.txt", "foreign.txt", "-q")
        self.assertEqual((result.returncode, result.stdout.decode()), (
            1, "rewrite-derived: the second graph has no provenance, so its nodes are taken by name, and the first has no node "
            "'new' (aten.neg.default): no pass of epweave made it; `epweave-replay check` compares such graphs by running them\n"))
        # The rewrite first and its input second.
        self.output_of("rewrite", "small.txt", "-p", "dce", "-o", "out.epw", "-q")
        result = self.run_tool("verify", "out.epw", "small.txt", "-q")
        self.assertEqual((result.returncode, result.stdout.decode()), (
            1, "rewrite-derived: the second graph has no provenance, so its nodes are taken by name, and the first has no node "
            "'dead' (aten.neg.default): no pass of epweave made it; `epweave-replay check` compares such graphs by running them; "
            "the first has provenance and the second has none: did you swap the files?\n"))

    def test_diff_summary_as_json(self):
        self.output_of("rewrite", DSV3, "-p", "dce,chunk{roots=layers.*.moe}", "-o", "out.epw", "-q")
        result = self.run_tool("diff", DSV3, "out.epw", "--summary", "--json")
        self.assertEqual(result.returncode, 1)
        summary, text = json.loads(result.stdout), self.run_tool("diff", DSV3, "out.epw", "--summary").stdout.decode()
        for change, n in summary["changes"].items():
            self.assertRegex(text, rf"(?m)^{change} +{n}\b")
        self.assertRegex(text, rf"(?m)^same +{summary['same_nodes']}\n")
        self.assertGreater(summary["changes"]["divided"], 100)
        for rows in (summary["ops"], summary["modules"]):
            for name, row in rows.items():
                numbers = r"\s+".join(str(n) if n else r"\." for n in row.values())
                self.assertRegex(text, rf"(?m)^{re.escape(name)}\s+{numbers}$")
            self.assertEqual(sum(row["divided"] for row in rows.values()), summary["changes"]["divided"])
        self.assertNotIn("graphs", summary)
        # Nodes of nested graphs count, whether they differ or not: what is ignored adds to what is
        # the same.
        less = json.loads(self.run_tool("diff", DSV3, "out.epw", "--summary", "--json", "--ignore", "types,provenance").stdout)
        self.assertGreaterEqual(less["same_nodes"], summary["same_nodes"])
        for key in ("before", "after"):
            self.assertEqual([row[key] for name, row in less["ops"].items() if name == "aten.cat.default"],
                             [row[key] for name, row in summary["ops"].items() if name == "aten.cat.default"])
        same = json.loads(self.output_of("diff", DSV3, DSV3, "--summary", "--json"))
        self.assertEqual((same["same"], same["changes"], same["ops"]), (True, {}, {}))

    def test_diff_writes_one_page(self):
        self.write("other.txt", self.small(("aten.neg.default(%mm)", "aten.abs.default(%mm)")))
        result = self.run_tool("diff", "small.txt", "other.txt", "--html", "page.html")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (1, b"", b""))
        page = (self.folder / "page.html").read_text()
        self.assertIn("aten.abs.default(%mm)", page)
        self.assertEqual(page, self.run_tool("diff", "small.txt", "other.txt", "--html", "-").stdout.decode())
        result = self.run_tool("diff", "small.txt", "other.txt", "--html", "-", "--summary")
        self.assertEqual((result.returncode, result.stdout), (2, b""))

    def test_output_may_be_the_input(self):
        self.output_of("rewrite", "small.txt", "-p", "dce", "-o", "other.txt")
        self.output_of("rewrite", "small.txt", "-p", "dce", "-o", "small.txt")
        self.assertEqual((self.folder / "small.txt").read_bytes(), (self.folder / "other.txt").read_bytes())
        self.assertEqual(self.files(), ["other.txt", "small.txt"])

    def test_a_failure_leaves_the_old_output_alone(self):
        self.write("out.epw", b"precious")
        self.run_tool("rewrite", "missing.epw", "-p", "dce", "-o", "out.epw")
        self.run_tool("rewrite", DSV3, "--preset", PRESET % 2000, "-o", "out.epw")
        self.assertEqual((self.folder / "out.epw").read_bytes(), b"precious")
        self.assertEqual(self.files(), ["out.epw", "small.txt"])

    def test_output_in_a_missing_folder(self):
        self.assert_fails(3, "no/out.epw: there is no folder no", "convert", "small.txt",
                          "no/out.epw")

    def test_dumps(self):
        result = self.run_tool("rewrite", "small.txt", "-p", "dce,canonicalize", "-o", "out.txt", "--dump-dir", "dumps",
                               "--print-after", "dce", "--print-changed")
        self.assertEqual(self.files(), ["dumps", "dumps/01-dce.txt", "dumps/02-canonicalize.txt", "out.txt", "small.txt"])
        self.assertEqual((self.folder / "dumps/02-canonicalize.txt").read_bytes(), (self.folder / "out.txt").read_bytes())
        short = self.output_of("print", "dumps/01-dce.txt").decode()
        changes, said = result.stderr.decode().split("# after dce (1 of 2)\n")
        self.assertEqual(said, f"{short}# after canonicalize (2 of 2): no change\n"
                               "out.txt: 5 -> 4 nodes, verified after each pass\n")
        self.assertTrue(changes.startswith("--- before dce (1 of 2)  5 nodes\n+++ after dce (1 of 2)  4 nodes\n"), changes)
        self.assertEqual([line for line in changes.splitlines() if line.startswith("- %")],
                         ["- %dead = aten.neg.default(%x) : f32[4, 4]  @layers.1"])

    def test_a_rewrite_ends_with_a_verdict(self):
        for more, verdict in (([], "verified after each pass"), (["--verify", "end"], "verified at the end"),
                              (["--verify", "off"], "not verified")):
            result = self.run_tool("rewrite", "small.txt", "-p", "dce", "-o", "out.epw", *more)
            self.assertEqual(result.stderr.decode(), f"out.epw: 5 -> 4 nodes, {verdict}\n")
        for words in (["-o", "out.epw", "-q"], ["-o", "-"], ["-o", "out.epw", "--json"]):
            self.assertEqual(self.run_tool("rewrite", "small.txt", "-p", "dce", *words).stderr, b"")
        result = self.run_tool("verify", "small.txt", "out.epw")
        self.assertEqual(result.stderr.decode(), "out.epw: proved to compute what small.txt computes, without an assumption\n")

    def test_print_pipeline_needs_no_input_and_gives_itself(self):
        text = self.output_of("rewrite", "--preset", PRESET % 2, "--print-pipeline").decode()
        self.assertEqual(self.output_of("rewrite", "-p", text, "--print-pipeline").decode(), text)
        self.assertRegex(text, r"^dce,canonicalize,dedup-unshard,chunk\{roots=layers\.\*\.moe,dim=batch,parts=2")
        self.assertEqual(json.loads(self.output_of("rewrite", "-p", "dce", "--print-pipeline", "--json")),
                         {"schema": 1, "pipeline": "dce", "passes": [{"name": "dce", "options": ""}]})

    def test_preset_hands_on_how_sums_are_cast(self):
        text = self.output_of("rewrite", "--preset", "ep-overlap{cast=exact}", "--print-pipeline").decode()
        self.assertIn(",cast=exact}", text)

    def test_roots_without_a_pattern(self):
        self.assert_fails(2, "option 'roots': there is no pattern\n  expected as in roots=[layers.*.moe]",
                          "rewrite", "small.txt", "-p", "chunk{roots=[]}", "-o", "out.epw")


class PlanTest(CommandLineTest):
    """--print-plan, on a real graph."""

    def plan(self, *arguments):
        return self.output_of("rewrite", DSV3, "-p", "dce,chunk{roots=layers.1.moe,parts=3}", "--print-plan", *arguments).decode()

    def test_a_region_s_plan(self):
        self.maxDiff = None
        expected = ROOT / "testdata/plan/dsv3_debug_ep2.layers.1.moe.txt"
        if os.environ.get("EPWEAVE_UPDATE_GOLDENS") == "1":
            expected.write_text(self.plan(), encoding="utf-8")
        self.assertEqual(self.plan(), expected.read_text(encoding="utf-8"))

    def test_json_says_the_same(self):
        text, plan = self.plan(), json.loads(self.plan("--json"))
        self.assertEqual([(r["root"], r["direction"], r["parts"]) for r in plan["regions"]],
                         [("layers.1.moe", "forward", 3), ("layers.1.moe", "backward", 3)])
        for region in plan["regions"]:
            self.assertEqual([sum(rows["numbers"]) for rows in region["rows"]], [1024])
            self.assertGreater(region["proved"]["rows"], 0)
            for value in region["cut"] + region["joined"]:
                self.assertIn(f"%{value['value']} {value['type']}", text)
            for node in region["nodes"]:
                self.assertIn(node["reason"], text)
                self.assertIn(node["numerics"], ("chunk-equal", "sum-order"))

    def test_verbose_names_each_cut_and_join_once(self):
        log = self.run_tool("rewrite", DSV3, "-p", "chunk{roots=layers.1.moe}", "-o", "out.epw", "-v").stderr.decode()
        lines = [line for line in log.splitlines() if " cut  " in line or " joined  " in line]
        self.assertEqual(len(lines), 3 + 9)
        self.assertEqual(len(set(lines)), len(lines))

    def test_a_pipeline_without_chunk_has_no_plan(self):
        self.assert_fails(2, "--print-plan: the pipeline has neither chunk nor choose-chunks, and only they make a plan",
                          "rewrite", DSV3, "-p", "dce", "--print-plan")


class DeclineTest(CommandLineTest):
    """A pass that declines a graph: exit 4, a remedy, no file."""

    def decline(self, *arguments):
        before = self.files()
        result = self.run_tool("rewrite", *arguments, "-o", "out.epw", "--json", "-q")
        self.assertEqual((result.returncode, self.files()), (4, before), result.stderr.decode())
        error = json.loads(result.stdout)["error"]
        self.assertEqual(result.stderr.decode(), f"epweave: error: {error['message']}\n")
        return error

    def test_more_parts_than_tokens(self):
        error = self.decline(DSV3, "-p", "dce,chunk{parts=1025}")
        self.assertEqual((error["id"], error["remedy"]), ("chunk.too-many-parts", "choose at most 1024 parts"))

    def test_sizes_that_are_not_the_tokens(self):
        error = self.decline(DSV3, "-p", "dce,chunk{sizes=[700,300]}")
        self.assertEqual((error["id"], error["problem"]),
                         ("chunk.sizes",
                          "the sizes of the parts add up to 700 + 300 = 1000, the token count u0 is 1024"))

    def test_an_op_without_a_rule_in_a_region(self):
        text = self.output_of("convert", DSV3, "-", "--to", "text").decode()
        module = r"@layers\.1\.moe\.routed_experts\.inner_experts\b"
        match = re.search(rf"^  (%silu\S*) = aten\.silu\.default\(.*{module}.*$", text, re.M)
        self.write("unknown.txt", text.replace(match[0], match[0].replace("aten.silu.default(", "mine.silu.default(", 1)))
        error = self.decline("unknown.txt", "-p", "chunk")
        self.assertEqual((error["node"], error["op"], error["module"]),
                         (match[1][1:], "mine.silu.default", "layers.1.moe.routed_experts.inner_experts"))
        self.assertTrue(error["source"])
        self.assertTrue(error["remedy"])

    def test_reproducer(self):
        command = ("rewrite", DSV3, "-p", "dce,chunk{parts=2000}", "-o", "out.epw", "--keep-reproducer", "kept.epw")
        first = None
        for name in ("kept.epw", "kept.1.epw"):
            result = self.run_tool(*command)
            self.assertEqual(result.returncode, 4)
            first, error = result.stderr.decode().split("\n", 1)
            self.assertEqual(first, f"reproducer: {name}")
        again = self.run_tool("rewrite", "--reproducer", "kept.epw")
        self.assertEqual((again.returncode, again.stdout, again.stderr.decode()), (4, b"", error.replace(str(DSV3), "kept.epw")))
        pipeline = self.output_of("rewrite", "--reproducer", "kept.epw", "--print-pipeline").decode()
        self.assertTrue(pipeline.startswith("chunk{roots=layers.*.moe,dim=batch,parts=2000"))
        text = self.output_of("print", "kept.epw", "--full").decode()
        self.assertIn("info reproducer = {\"pipeline\": \"chunk{", text)
        self.assertNotIn(str(self.folder), text)
        self.assertNotIn("out.epw", self.files())

    def test_a_reproducer_that_runs_gives_what_the_pipeline_gives(self):
        self.run_tool("rewrite", DSV3, "-p", "dce,chunk{parts=2000}", "-o", "out.epw", "--keep-reproducer", "kept.txt")
        text = (self.folder / "kept.txt").read_text()
        self.write("kept.txt", text.replace("parts=2000", "parts=2"))
        result = self.run_tool("rewrite", "--reproducer", "kept.txt", "-q")
        self.assertEqual((result.returncode, result.stdout), (0, b""))
        self.output_of("rewrite", "--reproducer", "kept.txt", "-o", "again.txt", "-q")
        self.assertNotIn("info reproducer", (self.folder / "again.txt").read_text())
        self.assertEqual(self.run_tool("verify", DSV3, "again.txt", "-q").returncode, 0)

    def test_a_graph_is_no_reproducer(self):
        self.assert_fails(3, "small.txt: no reproducer: its info names no pipeline", "rewrite", "--reproducer", "small.txt")
        self.assert_fails(2, "--reproducer FILE brings its graph and pipeline: give no IN, -p or --preset",
                          "rewrite", "small.txt", "--reproducer", "small.txt")


class PartitionTest(CommandLineTest):
    def test_halves_that_are_declined_are_not_written(self):
        """By its tag backward would draw random numbers once more."""
        self.write("drawn.txt", """epweave text 1

output loss
output grad fqn=x

graph
  %x = placeholder : f32[4, 4] role=user which=x
  %r = aten.rand_like.default(%x) : f32[4, 4] recompute=MUST_RECOMPUTE
  %y = aten.mul.Tensor(%x, %r) : f32[4, 4]
  %loss = aten.sum.default(%y) : f32[]
  %one = aten.ones_like.default(%loss) : f32[]
  %d = aten.mul.Tensor(%r, %one) : f32[4, 4] bwd
  output((%loss, %d))
""")
        result = self.run_tool("partition", "drawn.txt", "--fwd", "f.epw", "--bwd", "b.epw", "--policy", "min-cut")
        self.assertEqual((result.returncode, result.stdout), (4, b""))
        self.assertIn(b"backward would draw others [partition.random]", result.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["drawn.txt", "small.txt"])

    def test_halves_are_graphs_as_any_other(self):
        """J51: other passes take them, and what these make is proved against the whole step."""
        graph = GRAPHS / "llama3_debug_fsdp4.1_norm.epw.gz"
        self.output_of("partition", graph, "--fwd", "f.epw", "--bwd", "b.epw", "--policy", "min-cut", "--budget", "0.4", "-q")
        for half in ("f", "b"):
            self.output_of("rewrite", f"{half}.epw", "-p", "dce,canonicalize,bucket", "-o", f"{half}2.epw", "-q")
            self.output_of("verify", f"{half}.epw", f"{half}2.epw", "-q")
        self.output_of("verify", graph, "--fwd", "f2.epw", "--bwd", "b2.epw", "-q")

    def test_rewritten_and_chunked_steps_are_cut_by_all_policies(self):
        fused = "async-tp{axes=[tp]}"
        for name, passes, words in (
                ("llama3_debug_fsdp2_tp2.1_norm", fused, ()),
                ("llama3_debug_fsdp2_tp2.1_norm", "memory-policy{policy=full}," + fused, ()),
                ("dsv3_debug_ep2.1b_remat", "bucket", ()), ("dsv3_debug_ep2_full.1b_remat", "bucket", ()),
                ("dsv3_debug_ep2.2_chunk_batch", "", ()), ("dsv3_debug_ep2.6_concrete", "", ()),
                ("dsv3_debug_ep2_coor.1b_remat", "", ("--reshard", "never"))):
            graph = GRAPHS / f"{name}.epw.gz"
            if passes:
                self.output_of("rewrite", graph, "-p", passes, "-o", "step.epw", "-q")
                graph = "step.epw"
            for policy in ("exact", "min-cut", "tags"):
                with self.subTest(name=name, passes=passes, policy=policy):
                    self.output_of("partition", graph, "--fwd", "f.epw", "--bwd", "b.epw", "--policy", policy, *words, "-q")
                    self.output_of("verify", graph, "--fwd", "f.epw", "--bwd", "b.epw", "-q")


class ReduceTest(CommandLineTest):
    KEEPS = ("--", "sh", "-c", f"{EPWEAVE} print {{}} --grep all_to_all_single | grep -q all_to_all")

    def nodes(self, name):
        return json.loads(self.output_of("stats", name, "--json"))["nodes"]

    def test_reduce(self):
        self.write("in.epw", gzip.decompress(DSV3.read_bytes()))
        before = (self.folder / "in.epw").read_bytes()
        report = json.loads(self.output_of("reduce", "in.epw", "-o", "out.txt", "-q", "--json", *self.KEEPS))
        self.assertEqual((report["nodes_before"], report["nodes_after"], report["finished"]), (3474, self.nodes("out.txt"), True))
        self.assertLess(report["nodes_after"], 10)
        self.assertIn("all_to_all_single", (self.folder / "out.txt").read_text())
        self.assertEqual((self.folder / "in.epw").read_bytes(), before)
        self.assertEqual(self.files(), ["in.epw", "out.txt", "small.txt"])
        again = json.loads(self.output_of("reduce", "in.epw", "-o", "out.txt", "-q", "--json", *self.KEEPS))
        self.assertEqual(again["nodes_after"], report["nodes_after"])
        self.assertLess(again["runs"], report["runs"])

    def test_candidates_tried_at_once_give_the_same_graph(self):
        # Runs end in another order than they began: the later ones are faster.
        slow = "sleep 0.0$(($(stat -c %s {}) / 20000 % 7)); " + self.KEEPS[-1]
        reports = []
        for jobs in ("1", "4"):
            reports.append(json.loads(self.output_of("reduce", DSV3, "-o", f"{jobs}.txt", "-j", jobs, "--json", "-q",
                                                     "--", "sh", "-c", slow)))
        one, four = ((self.folder / f"{jobs}.txt").read_text() for jobs in ("1", "4"))
        self.assertEqual(one, four)
        self.assertEqual(reports[0]["runs"], reports[1]["runs"])

    def test_candidates_tried_at_once_do_not_meet(self):
        script = 'echo "$1" > "$1.out" && sleep 0.02 && [ "$(cat "$1.out")" = "$1" ] && [ "$(ls "$(dirname "$1")" | wc -l)" = 2 ]'
        self.output_of("reduce", "small.txt", "-o", "out.txt", "-j", "3", "-q", "--", "sh", "-c", script, "sh", "{}")
        self.assertEqual(self.nodes("out.txt"), 1)

    def test_reduce_refuses_what_it_could_spoil(self):
        self.write("other.txt", SMALL)
        self.assert_fails(2, "the output is the input: reduce never changes its input",
                          "reduce", "-o", "small.txt", "small.txt", "true")
        self.assert_fails(2, "other.txt exists and is no reduction of small.txt: remove it, or give another -o",
                          "reduce", "-o", "other.txt", "small.txt", "true")
        self.assert_fails(2, "new.xyz: the ending .xyz names no form: end the name in .epw, .txt, .json or .onnx (and .gz"
                          " behind it), or say --to", "reduce", "-o", "new.xyz", "small.txt", "true")
        result = self.run_tool("reduce", "small.txt", "-o", "new.txt", "--", "false")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"the command does not exit 0 on small.txt", result.stderr)
        self.assertNotIn("new.txt", self.files())

    def test_an_interrupted_reduction_keeps_the_best_so_far_and_goes_on(self):
        slow = ("--", "sh", "-c", f"sleep 0.1; {self.KEEPS[-1]}")
        with subprocess.Popen([EPWEAVE, "reduce", DSV3, "-o", "out.epw", *slow], cwd=self.folder,
                              stderr=subprocess.PIPE) as process:
            deadline = time.monotonic() + 60
            while "out.epw" not in self.files() and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            message = process.stderr.read().decode()
        self.assertEqual(process.returncode, 130)
        self.assertIn("interrupted", message)
        nodes = self.nodes("out.epw")
        self.assertLess(nodes, 3474)
        result = self.run_tool("reduce", DSV3, "-o", "out.epw", *self.KEEPS)
        self.assertEqual(result.returncode, 0)
        self.assertIn(f"going on from {nodes} nodes", result.stderr.decode())

    def test_a_run_may_take_so_long(self):
        script = "if [ -e first ]; then sleep 60; fi; touch first"
        result = self.run_tool("reduce", "small.txt", "-o", "out.txt", "--timeout", "0.05", "--", "sh", "-c", script)
        self.assertEqual(result.returncode, 0)
        self.assertEqual(self.nodes("out.txt"), 5)


class BisectTest(CommandLineTest):
    """The command looks at the log of passes: what each graph is, it says."""
    PIPELINE = "dce,canonicalize,dedup-unshard,bucket,dce"

    def bisect(self, script, *arguments, pipeline=PIPELINE):
        return self.run_tool("bisect", "small.txt", "-p", pipeline, "-o", "found", *arguments, "--", "sh", "-c",
                             f"passes() {{ {EPWEAVE} stats \"$1\" --json | grep -c nodes_before; }}; {script}", "sh")

    def test_the_first_pass_after_which_a_command_fails(self):
        for first in range(1, 6):
            result = self.bisect(f'[ "$(passes "$1")" -lt {first} ] || exit 3', "--json", "-q")
            report = json.loads(result.stdout)
            self.assertEqual((result.returncode, report["found"], [row["position"] for row in report["passes"]]),
                             (0, True, [first]), result.stderr)
            self.assertEqual(report["passes"][0]["name"], self.PIPELINE.split(",")[first - 1])
            self.assertLessEqual(report["runs"], 5)
            self.assertEqual({row["exit"] for row in report["tests"]}, {0, 3})
            passes = [len(json.loads(self.output_of("stats", report[side]["file"], "--json"))["passes"])
                      for side in ("before", "after")]
            self.assertEqual(passes, [first - 1, first])
            self.output_of("rewrite", "--reproducer", "found/before.epw", "-o", "again.epw", "--verify", "off", "-q")
            again, after = (re.sub(rb"(?m)^pass .*\n", b"", self.output_of("print", name, "--full"))
                            for name in ("again.epw", "found/after.epw"))
            self.assertEqual(again, after)
            shutil.rmtree(self.folder / "found")

    def test_commands_to_copy_quote_their_paths(self):
        result = self.run_tool("bisect", "small.txt", "-p", "dce,canonicalize", "-o", "it's here", "--", "sh", "-c",
                               f'! {EPWEAVE} stats "$1" --json | grep -q nodes_before', "sh")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(r"epweave rewrite --reproducer 'it'\''s here/before.epw' -o OUT", result.stderr.decode())

    def test_the_result_is_an_input_of_reduce(self):
        self.assertEqual(self.run_tool("bisect", DSV3, "-p", "canonicalize,chunk,dce", "-o", "found", "--", "sh", "-c",
                                       f"! {EPWEAVE} stats {{}} | grep -q '2 parts'").returncode, 0)
        path = os.pathsep.join((str(pathlib.Path(EPWEAVE).parent), os.environ["PATH"]))
        self.assertEqual(subprocess.run(["sh", "found/fails.sh", "found/before.epw"], cwd=self.folder, check=False,
                                        env=os.environ | {"PATH": path}).returncode, 0)
        self.assertEqual(subprocess.run(["sh", "found/fails.sh", "found/after.epw"], cwd=self.folder, check=False,
                                        env=os.environ | {"PATH": path}).returncode, 1)

    def test_what_the_command_cannot_tell(self):
        skips = 'n=$(passes "$1"); [ $n = 0 ] && exit 0; [ $n = 2 ] || [ $n = 3 ] && exit 125; [ $n -lt 4 ]'
        result = self.bisect(skips, "--json", "-q")
        report = json.loads(result.stdout)
        self.assertEqual((result.returncode, report["found"], [row["position"] for row in report["passes"]]),
                         (1, False, [2, 3, 4]))
        self.assertEqual([row["exit"] for row in report["tests"]], [0, 0, 125, 125, 1, 1][:len(report["tests"])])
        result = self.bisect('[ "$(passes "$1")" = 0 ] || exit 125')
        self.assertEqual((result.returncode, result.stdout, result.stderr.decode()),
                         (1, b"", "the input: the command exits 0, and 125 after all later passes: it cannot tell\n"))

    def test_a_crash_is_a_failure(self):
        report = json.loads(self.bisect('[ "$(passes "$1")" -lt 2 ] || kill -SEGV $$', "--json", "-q").stdout)
        self.assertEqual([row["position"] for row in report["passes"]], [2])

    def test_nothing_to_find(self):
        result = self.bisect("exit 0")
        self.assertEqual((result.returncode, result.stdout, result.stderr.decode()),
                         (1, b"", "the command exits 0 after all 5 passes: none to find\n"))
        result = self.run_tool("bisect", "-p", "dce", "-o", "found", "small.txt", "true")
        self.assertEqual((result.returncode, result.stderr.decode()),
                         (1, "the command exits 0 after the only pass: none to find\n"))
        self.assertEqual(self.files(), ["small.txt"])
        self.assert_fails(2, "the command exits 1 on small.txt already: no pass to look for (-v shows what it says)",
                          "bisect", "-p", "dce", "-o", "found", "small.txt", "false")
        self.assert_fails(2, "the command exits 127: a command in it was not found or cannot be executed (-v shows what "
                          "it says)", "bisect", "-p", "dce", "-o", "found", "small.txt", "env", "no-such-program")

    def test_a_pass_that_declines_ends_the_pipeline(self):
        result = self.bisect("exit 0", pipeline="dce,chunk{roots=layers.9}")
        self.assertEqual(result.returncode, 4)
        self.assertIn("the command exits 0 on all graphs before the pass that fails itself", result.stderr.decode())
        result = self.bisect('[ "$(passes "$1")" -lt 1 ]', "-q", pipeline="dce,chunk{roots=layers.9}")
        self.assertEqual(result.returncode, 0)
        self.assertTrue(result.stdout.decode().startswith("pass 1 of 2: dce\n"))

    def test_what_it_needs(self):
        self.assert_fails(2, "give the command behind --: epweave bisect G -p PIPELINE -o DIR -- CMD {}",
                          "bisect", "small.txt", "-p", "dce", "-o", "found")
        self.assert_fails(2, "give a folder for the graphs before and after the pass: -o DIR",
                          "bisect", "-p", "dce", "small.txt", "true")
        self.assert_fails(2, "give one of -p PIPELINE and --preset PRESET; `epweave passes` lists both",
                          "bisect", "-o", "found", "small.txt", "true")


class SeveralGraphsTest(CommandLineTest):
    def test_stats_has_a_column_for_each(self):
        self.write("other.txt", self.small(("  %dead = aten.neg.default(%x) : f32[4, 4] @layers.1\n", "")))
        reports = json.loads(self.output_of("stats", "small.txt", "other.txt", "--json"))["graphs"]
        alone = [json.loads(self.output_of("stats", name, "--json")) for name in ("small.txt", "other.txt")]
        for report in alone:
            del report["schema"]
        self.assertEqual(reports, alone)
        table = self.output_of("stats", "small.txt", "other.txt").decode()
        self.assertTrue(table.startswith("1  small.txt\n2  other.txt\n\n"), table)
        rows = {re.split(r"  +", line)[0]: re.split(r"  +", line)[1:] for line in table.split("\n")[4:-1]}
        self.assertEqual((rows["nodes"], rows["calls"], rows["flops"]), (["5", "4"], ["3", "2"], ["128 flop"] * 2))

    def test_overlap_has_a_row_for_each(self):
        self.output_of("rewrite", DSV3, "--preset", PRESET % 2, "-o", "out.epw", "-q")
        reports = json.loads(self.output_of("overlap", DSV3, "out.epw", "--json"))["graphs"]
        for name, report in zip((DSV3, "out.epw"), reports):
            alone = json.loads(self.output_of("overlap", name, "--json"))
            del alone["schema"]
            self.assertEqual(report, alone)
        table = self.output_of("overlap", "out.epw", DSV3).decode().split("\n")
        for row, report in zip(table[1:], reversed(reports)):
            self.assertEqual(row.split(), [str(report[key]) for key in
                                           ("exchanges", "exposed", "light", "undivided", "undivided_exposed")] + [report["file"]])
        most = max(report["total_exposed"] for report in reports)
        self.assertEqual(self.run_tool("overlap", DSV3, "out.epw", "--max-exposed", str(most)).returncode, 0)
        self.assertEqual(self.run_tool("overlap", DSV3, "out.epw", "--max-exposed", str(most - 1)).returncode, 1)
        self.assert_fails(2, "--before, --trace and --all are for one graph; several get one table, a row for each",
                          "overlap", "small.txt", "out.epw", "--all")


class ExtractTest(CommandLineTest):
    def test_layers_of_a_real_graph(self):
        for module, direction in (("layers.3.moe", "both"), ("layers.*.attention", "fwd"), ("layers.2", "bwd")):
            report = json.loads(self.output_of("extract", DSV3, "--module", module, "--direction", direction,
                                               "-o", "out.epw", "--json", "-q"))
            self.assertEqual(self.output_of("verify", "out.epw"), b"")
            self.assertEqual(len(report["modules"]), 6 if "*" in module else 1)
            self.assertLess(report["nodes_after"], report["nodes_before"])
            again = json.loads(self.output_of("extract", "out.epw", "--module", module, "-o", "again.epw", "--json", "-q"))
            self.assertEqual((again["nodes_after"], again["entering"]), (report["nodes_after"], []))

    def test_a_part_of_a_step_is_rewritten_and_proved_and_cut_in_halves(self):
        self.output_of("extract", DSV3, "--module", "layers.3.moe", "-o", "moe.epw", "-q")
        self.output_of("rewrite", "moe.epw", "--preset", "ep-overlap", "-o", "rewritten.epw", "-q")
        proof = json.loads(self.output_of("verify", "moe.epw", "rewritten.epw", "--json", "-q"))
        self.assertEqual((proof["ok"], proof["violations"]), (True, []))
        # Its gradient from outside is an input of role `tangent`.
        self.output_of("partition", "moe.epw", "--fwd", "fwd.epw", "--bwd", "bwd.epw", "-q")
        self.output_of("verify", "moe.epw", "--fwd", "fwd.epw", "--bwd", "bwd.epw", "-q")


class PresetTest(CommandLineTest):
    """The main job on a real graph."""

    def test_exposed_exchanges_can_fail_a_command(self):
        graph = str(ROOT / "testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz")
        self.output_of("rewrite", graph, "--preset", "ep-overlap", "-o", "out.epw", "-q")
        exposed = json.loads(self.output_of("overlap", "out.epw", "--json"))["exposed"]
        self.assertEqual(self.run_tool("overlap", "out.epw", "--max-exposed", str(exposed)).returncode, 0)
        result = self.run_tool("overlap", graph, "--max-exposed", "3", "--json", "-v")
        self.assertEqual(result.returncode, 1)
        report = json.loads(result.stdout)
        self.assertEqual([report[key] for key in ("exposed", "undivided", "undivided_exposed", "total_exposed")], [0, 20, 20, 20])
        self.assertIn("20 token exchanges are exposed, --max-exposed allows 3", result.stderr.decode())

    def test_exchanges_without_a_label_cannot_pass_for_hidden(self):
        graph = str(ROOT / "testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz")
        text = self.output_of("convert", graph, "-", "--to", "text")
        bare = re.sub(rb" (ep|token_exchange|token_exchange_wait|token_count_exchange|token_count_sync)=\S+", b"", text)
        (self.folder / "bare.txt").write_bytes(bare)
        self.assertEqual(json.loads(self.output_of("overlap", "bare.txt", "--json"))["unlabelled"], 25)
        result = self.run_tool("overlap", "bare.txt", "--max-exposed", "0")
        self.assertEqual(result.returncode, 1)
        self.assertIn("25 all-to-alls without a label, which are not counted", result.stderr.decode())

    def test_a_step_without_values_is_scheduled_as_given(self):
        self.write("none.txt", b"epweave text 1\ngraph\n  output([])\n")
        self.output_of("rewrite", "none.txt", "--preset", "overlap", "-o", "out.txt", "-q")
        self.output_of("verify", "none.txt", "out.txt", "-q")

    def test_a_schedule_hides_exchanges_of_undivided_modules(self):
        graph = str(ROOT / "testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz")
        self.output_of("rewrite", graph, "-p", "schedule{cluster=h100}", "-o", "out.epw", "-q")
        report = json.loads(self.output_of("overlap", "out.epw", "--json"))
        self.assertEqual(report["undivided"], 20)
        self.assertLess(report["undivided_exposed"], 20)
        self.assertEqual(report["total_exposed"], report["undivided_exposed"])
        most = report["total_exposed"]
        self.output_of("overlap", "out.epw", "--max-exposed", str(most))
        if most > 0:
            self.assertEqual(self.run_tool("overlap", "out.epw", "--max-exposed", str(most - 1)).returncode, 1)

    def test_ep_overlap(self):
        self.output_of("rewrite", DSV3, "--preset", PRESET % 2, "-o", "out.epw", "-q")
        self.output_of("rewrite", DSV3, "--preset", PRESET % 2, "-o", "again.epw", "-q")
        self.assertEqual((self.folder / "out.epw").read_bytes(), (self.folder / "again.epw").read_bytes())
        self.assertEqual(self.output_of("verify", "out.epw"), b"")
        before = json.loads(self.output_of("stats", DSV3, "--json"))
        after = json.loads(self.output_of("stats", "out.epw", "--json"))
        exchange = "_c10d_functional.all_to_all_single.default"
        self.assertEqual((before["targets"][exchange], after["targets"][exchange]), (25, 50))
        regions = [{"root": f"layers.{i}.moe", "direction": "forward", "parts": 2, "exchanges": 4} for i in range(1, 6)]
        regions += [dict(region, direction="backward") for region in reversed(regions)]
        self.assertEqual(after["regions"], regions)
        self.assertEqual(after["provenance_coverage"], 1)
        self.assertEqual(after["unknown_targets"], before["unknown_targets"])

    def test_four_parts(self):
        self.output_of("rewrite", DSV3, "--preset", PRESET % 4, "-o", "out.epw", "-q")
        self.assertEqual(self.output_of("verify", "out.epw"), b"")
        self.output_of("verify", DSV3, "out.epw")
        nodes = json.loads(self.output_of("print", "out.epw", "--json"))["nodes"]
        for direction, turns in (("forward", [0, 1, 2, 3]), ("backward", [3, 2, 1, 0])):
            parts = [node["chunk"]["part"] for node in nodes
                     if node["target"] == "_c10d_functional.all_to_all_single.default" and node["direction"] == direction
                     and node["chunk"] and node["chunk"]["root"] == "layers.2.moe"]
            # Forward: counts, dispatch, combine; backward: combine, dispatch.
            self.assertEqual(parts, turns * (3 if direction == "forward" else 2), direction)


class UnevenShardsTest(CommandLineTest):
    """Llama 3 debug over 3 ranks: 2,048 rows of a parameter are 683, 683 and 682, 256 are 86, 86 and 84."""

    RANKS = (0, 2)

    def launches(self, graph):
        """The collectives of a step in order: op, sizes, group, module."""
        step = json.loads(self.output_of("print", graph, "--json"))
        return [(node["target"], str(node["type"]), node.get("module")) for node in step["nodes"]
                if node["target"].startswith("_c10d_functional.") and "wait_tensor" not in node["target"]]

    def test_all_ranks_decide_alike(self):
        given = [ROOT / f"testdata/uneven/llama3_fsdp3_rank_{rank}.epw.gz" for rank in self.RANKS]
        order = self.launches(given[0])
        for passes in ("schedule{memory=20%}", "bucket{plan=overlap,memory=10%},schedule{memory=10%}",
                       "schedule{memory=50%,cluster=h100+nvlink=2e10+coll_us=1}"):
            for rank, graph in zip(self.RANKS, given):
                self.output_of("rewrite", graph, "-p", passes, "-o", f"{rank}.epw", "-q")
            found = [self.launches(f"{rank}.epw") for rank in self.RANKS]
            self.assertEqual(found[0], found[1], passes)
            self.assertNotEqual(found[0], order, passes)
            self.assertEqual(self.run_tool("verify", "--ranks", "0.epw", "2.epw").returncode, 0)

    def calls(self, graph):
        """The lines of a step in order, with places for names, without records of where they come from."""
        body = self.output_of("convert", graph, "--to", "text", "-o", "-").decode().split("\ngraph\n")[1].split("\n\n")[0]
        lines = [re.split(r" (?:recompute|seq|src|chunk|ep)=| (?:meta|custom)\{| from\(", line)[0]
                 for line in body.splitlines()]
        places = {line.split(" = ")[0].strip(): f"%{place}" for place, line in enumerate(lines)}
        return [re.sub(r"%\w+", lambda name: places[name[0]], line) for line in lines]

    def test_specialize_gives_rank_2_its_own_step(self):
        given = [ROOT / f"testdata/uneven/llama3_fsdp3_rank_{rank}.epw.gz" for rank in self.RANKS]
        self.output_of("generalize", given[0], "--repair", "-o", "all.epw", "-q")
        self.output_of("specialize", "all.epw", "--all", "-o", "ranks", "-q")
        for rank in range(3):
            self.output_of("verify", f"ranks/rank-0000{rank}.epw", "-q")
        self.assertEqual(self.calls("ranks/rank-00000.epw"), self.calls(given[0]))
        self.assertEqual(self.calls("ranks/rank-00001.epw"), self.calls(given[0]))
        self.assertEqual(self.calls("ranks/rank-00002.epw"), self.calls(given[1]))
        self.assertNotEqual(self.calls(given[0]), self.calls(given[1]))
        ranks = [f"ranks/rank-0000{rank}.epw" for rank in range(3)]
        self.assertEqual(self.run_tool("verify", "--ranks", *ranks).returncode, 0)

    def test_specialize_behind_passes(self):
        given = [ROOT / f"testdata/uneven/llama3_fsdp3_rank_{rank}.epw.gz" for rank in self.RANKS]
        self.output_of("generalize", given[0], "--repair", "-o", "all.epw", "-q")
        for passes in ("dce,canonicalize,dedup-unshard", "memory-policy{policy=default},recompute",
                       "dce,canonicalize,dedup-unshard,memory-policy{policy=full},recompute,bucket{plan=blocks}"):
            self.output_of("rewrite", "all.epw", "-p", passes, "-o", "out.epw", "-q")
            self.output_of("specialize", "out.epw", "--rank", "2", "-o", "2.epw", "-q")
            self.output_of("rewrite", given[1], "-p", passes, "-o", "own.epw", "-q")
            made, own = self.calls("2.epw"), self.calls("own.epw")
            if "bucket" in passes:  # where and in whose name a piece of a bucket is cut differs
                made, own = (sorted(re.sub(r"%\d+| @[\w.]+", "%", line) for line in lines) for lines in (made, own))
            self.assertEqual(made, own, passes)

class ReferenceGraphTest(CommandLineTest):
    """A graph that torchtitan chunked, whose recorded types keep symbols that nothing binds."""

    def test_stays_usable_after_a_pass(self):
        stage = lambda name: str(GRAPHS / f"dsv3_debug_ep2.{name}.epw.gz")
        self.output_of("rewrite", stage("4_bucket"), "-p", "overlap-ep{roots=layers.*.moe}", "-o", "out.epw", "-q")
        names = lambda path: [node["name"] for node in json.loads(self.output_of("print", path, "--json"))["nodes"]]
        self.assertEqual(names("out.epw"), names(stage("5_schedule")))
        self.output_of("rewrite", "out.epw", "-p", "concretize", "-o", "numbers.epw", "-q")
        self.output_of("stats", "numbers.epw", "--json")


class OverlapTest(CommandLineTest):
    """What runs under each exchange, and the trace of it."""

    def check_trace(self, trace):
        """The Trace Event Format, as ui.perfetto.dev reads it: complete and metadata events, bars of one track
        one behind the other."""
        self.assertEqual(set(trace), {"displayTimeUnit", "traceEvents"})
        tracks, ends = {}, {}
        for event in trace["traceEvents"]:
            self.assertIn(event["ph"], "MX")
            for key in ("pid", "tid"):
                self.assertIsInstance(event[key], int)
            self.assertIsInstance(event["name"], str)
            self.assertIsInstance(event["args"], dict)
            track = (event["pid"], event["tid"])
            if event["ph"] == "M":
                self.assertIn(event["name"], ("process_name", "thread_name"))
                tracks[track] = event["args"]["name"]
                continue
            self.assertIn(track, tracks)
            self.assertTrue(event["cat"])
            self.assertGreaterEqual(event["ts"], ends.get(track, 0), event)
            self.assertGreaterEqual(event["dur"], 0)
            ends[track] = event["ts"] + event["dur"]
        return tracks

    def test_trace_and_report(self):
        self.output_of("rewrite", DSV3, "-p", "dce,chunk,isolate-ep-pg", "-o", "chunked.epw", "-q")
        self.output_of("rewrite", "chunked.epw", "-p", "overlap-ep", "-o", "out.epw", "-q")
        report = json.loads(self.output_of("overlap", "out.epw", "--before", "chunked.epw", "--trace", "trace.json",
                                           "--json"))
        self.assertEqual((report["exchanges"], report["exposed"], report["light"]), (40, 0, 5))
        self.assertEqual((report["before"]["exchanges"], report["before"]["exposed"]), (40, 40))
        trace = json.loads((self.folder / "trace.json").read_text())
        tracks = self.check_trace(trace)
        self.assertEqual({tracks[1, 0], tracks[2, 0]}, {"before: chunked.epw", "after: out.epw"})
        self.assertEqual(tracks[1, 1], "host")
        self.assertEqual(tracks[2, 2], "compute")
        groups = {name for (pid, tid), name in tracks.items() if pid == 2 and tid > 2}
        self.assertTrue(all(name.startswith("group ") for name in groups) and len(groups) >= 2, groups)
        slices = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == 2]
        exchanges = [event for event in slices if event["tid"] > 2 and event["args"].get("token_exchange")]
        self.assertEqual(len(exchanges), 40)
        self.assertEqual({event["args"]["part"] for event in exchanges}, {0, 1})
        self.assertEqual({event["args"]["region"] for event in exchanges}, {f"layers.{i}.moe" for i in range(1, 6)})
        # Every kernel of the graph has its bar.
        kernels = [event for event in slices if event["tid"] == 2]
        stats = json.loads(self.output_of("stats", "out.epw", "--json"))
        self.assertEqual(sum(event["args"]["op"] == "aten.mm.default" for event in kernels),
                         stats["targets"]["aten.mm.default"])
        # `stats` adds up what the bars say.
        self.assertEqual(sum(event["args"].get("flops", 0) for event in kernels), stats["cost"]["flops"])
        self.assertEqual(sum(event["args"]["bytes"] for event in slices if event["tid"] > 2),
                         sum(row["bytes"] for row in stats["collectives"]))

    def test_rewrite_reports_what_overlap_says(self):
        for name, flags in (("report.json", ["--json"]), ("report.txt", [])):
            self.output_of("rewrite", DSV3, "--preset", PRESET % 2, "-o", "out.epw", "-q", "--report", name)
            self.assertEqual((self.folder / name).read_bytes(), self.output_of("overlap", "out.epw", *flags))

    def test_one_standard_input(self):
        result = self.run_tool("overlap", "-", "--before", "-")
        self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    unittest.main()
