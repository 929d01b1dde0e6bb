#!/usr/bin/env python3
"""Tests of the Python package `epweave` that need neither torch nor an installation: programs, reports, errors.

With --wheel builds the wheel, installs it into a new environment and uses what is there: all from nothing, which compiles the
programs for minutes (scripts/dev/nightly.sh); with --programs FOLDER the wheel holds those that are there, which tries all but their
libraries in seconds (scripts/test.sh --with-torch). Both fetch packages from PyPI.
"""
import argparse
import ast
import contextlib
import gzip
import inspect
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import epweave_fx  # noqa: E402, F401  finds the package and protobuf
import epweave  # noqa: E402
from epweave import errors, programs, train_on_cpu  # noqa: E402
from epweave.files import read_bytes  # noqa: E402

GRAPH = str(ROOT / "testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz")


class Package(unittest.TestCase):
    def test_nothing_heavy_is_imported(self):
        code = "import epweave_fx, epweave, sys; print([m for m in ('torch', 'torchtitan', 'numpy') if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "scripts", capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "[]\n")

    def test_the_package_has_the_version_of_its_programs(self):
        self.assertEqual(epweave.__version__, programs.versions().split()[1])
        with mock.patch.object(programs, "_HERE", pathlib.Path("/nowhere/lib/epweave")), \
                mock.patch.object(programs.importlib.metadata, "version", lambda name: f"{name} 1.2.3"):
            self.assertEqual(programs.package_version.__wrapped__(), "epweave 1.2.3")
        with mock.patch.object(programs, "_HERE", pathlib.Path("/nowhere/lib/epweave")), mock.patch.object(
                programs.importlib.metadata, "version", side_effect=programs.importlib.metadata.PackageNotFoundError):
            self.assertEqual(programs.package_version.__wrapped__(), epweave.__version__)
        with self.assertRaisesRegex(AttributeError, "module 'epweave' has no attribute 'none_such'"):
            epweave.none_such

    def test_all_names_are_there_and_explained(self):
        for name in epweave.__all__:
            self.assertTrue(getattr(epweave, name).__doc__, name)

    def test_all_arguments_and_results_have_types(self):
        functions = {name: getattr(epweave, name) for name in epweave.__all__}
        for name, kind in list(functions.items()):
            if isinstance(kind, type):
                own = {f"{name}.{key}": x for key, x in vars(kind).items() if not key.startswith("_")}
                functions.update({key: getattr(x, "func", None) or getattr(x, "fget", None) or x for key, x in own.items()})
        functions = {name: x for name, x in functions.items() if inspect.isfunction(x)}
        self.assertIn("Result.graph", functions)
        for name, function in functions.items():
            signature = inspect.signature(function)
            self.assertIsNot(signature.return_annotation, inspect.Signature.empty, name)
            for parameter in signature.parameters.values():
                self.assertTrue(parameter.name == "self" or parameter.annotation is not inspect.Parameter.empty,
                                f"{name}: {parameter.name}")

    def test_every_option_of_a_script_is_explained(self):
        for path in [*(ROOT / "scripts").glob("*.py"), *(ROOT / "python/epweave").glob("*.py")]:
            for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(call, ast.Call) or getattr(call.func, "attr", getattr(call.func, "id", "")) not in ("add_argument", "add"):
                    continue
                if call.args and isinstance(call.args[0], ast.Constant) and (call.keywords or str(call.args[0].value).startswith("--")):
                    self.assertIn("help", [keyword.arg for keyword in call.keywords], f"{path.name}: {ast.unparse(call)}")

    def test_rewrite_verify_diff_stats(self):
        result = epweave.rewrite(GRAPH, preset="ep-overlap", roots=["layers.1.moe", "layers.2.moe"], parts=3)
        self.assertTrue(result.pipeline.startswith("dce,canonicalize,dedup-unshard,chunk{roots=[layers.1.moe,layers.2.moe],"))
        self.assertEqual([x["name"] for x in result.passes][3], "chunk")
        self.assertTrue(any(note.startswith("chunk: region layers.1.moe forward: ") for note in result.notes))
        self.assertEqual({x["root"] for x in result.plan["regions"]}, {"layers.1.moe", "layers.2.moe"})
        self.assertEqual({x["parts"] for x in result.overlap["regions"]}, {3})
        self.assertEqual(result.stats["provenance_coverage"], 1)
        proof = epweave.verify(GRAPH, result)
        self.assertTrue(proof)
        self.assertEqual((proof.violations, proof.outputs[0]["output"]), ([], "loss"))
        self.assertTrue(epweave.verify(result))
        self.assertEqual(repr(proof), f"Proof(ok=True: {len(proof.outputs)} outputs, {len(proof.assumptions)} assumptions, 0 violations)")
        self.assertEqual(repr(epweave.verify(result)), "Proof(ok=True: 0 violations)")
        self.assertEqual(repr(result), f"Result(path={result.path!r}, pipeline={result.pipeline!r}, input_path={GRAPH!r})")
        difference = epweave.diff(GRAPH, result)
        self.assertFalse(difference)
        self.assertEqual(repr(difference), "Difference(ok=False)")
        self.assertIn("<iframe", difference._repr_html_())
        self.assertTrue(epweave.diff(GRAPH, GRAPH))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.txt")
            result.save(path)
            result.save(path + ".foo", to="json")
            self.assertEqual(pathlib.Path(path + ".foo").read_bytes()[:1], b"{")
            self.assertTrue(epweave.diff(result, path))

    def test_a_row_that_fails_leaves_the_others(self):
        done = {"losses": [1.0], "norms": [2.0], "hash": "00", "nodes": 3, "seconds": 0.5}

        def run_pipeline(pipeline, *_):
            if pipeline == "epweave":
                raise train_on_cpu.FailedRow("rank 0 failed (exit code 1):\nthe reason")
            return done
        out, errors = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(train_on_cpu, "run_pipeline", run_pipeline), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            report = pathlib.Path(folder) / "report.json"
            code = train_on_cpu.main(["--compare", "epweave,none,reference", "--rewrite", "chunk", "--json", str(report)])
            rows = json.loads(report.read_text())
        self.assertEqual(code, 1)
        self.assertIn("reference and none: all parameters bitwise equal", out.getvalue())
        self.assertEqual(errors.getvalue(), """\
epweave-1 (chunk): 3 steps on 2 ranks ...
epweave-1 (chunk): failed
none: 3 steps on 2 ranks ...
none: done in 0 s
reference: 3 steps on 2 ranks ...
reference: done in 0 s
epweave-1: failed: rank 0 failed (exit code 1):
the reason
""")
        self.assertEqual(list(rows), ["none", "reference", "epweave-1"])
        self.assertIn("the reason", rows["epweave-1"]["error"])

    def test_rows_further_than_the_tolerance_end_with_1(self):
        rows = {"none": 1.0, "epweave": 1.0 + 1e-6, "reference": float("nan")}

        def compare(*words):
            out, errors = io.StringIO(), io.StringIO()
            with mock.patch.object(train_on_cpu, "run_pipeline", run_pipeline), contextlib.redirect_stdout(out), \
                    contextlib.redirect_stderr(errors):
                return train_on_cpu.main(["--compare", *words]), errors.getvalue()

        def run_pipeline(pipeline, *_):
            return {"losses": [1.0, 3.0], "norms": [2.0, rows[pipeline]], "hash": pipeline, "nodes": 3, "seconds": 0.5}

        self.assertEqual(compare("none,epweave")[0], 0)
        self.assertEqual(compare("none,epweave", "--tolerance", "1e-5")[0], 0)
        code, said = compare("none,epweave", "--tolerance", "1e-7")
        self.assertEqual(code, 1)
        self.assertIn("epweave: 1e-06 from none, more than --tolerance 1e-07", said)
        self.assertEqual(compare("none,reference", "--tolerance", "1")[0], 1)

    def test_options_of_a_preset_are_python_values(self):
        static = str(ROOT / "testdata/graphs/dsv3_debug_ep2_static.1b_remat.epw.gz")
        result = epweave.rewrite(static, preset="ep-overlap", symbolize=True, grad_accumulation="eager", dense=False, sizes=None)
        self.assertIn(",symbolize{", result.pipeline)
        self.assertIn("grad-accumulation=eager", result.pipeline)
        self.assertEqual({x["parts"] for x in result.plan["regions"]}, {2})
        result = epweave.rewrite(static, preset="ep-overlap", symbolize=["tokens:0", "labels:0"])
        self.assertIn(",symbolize{inputs=[tokens:0,labels:0]}", result.pipeline)
        self.assertEqual(epweave.api.pipeline_text("overlap", {"symbolize": ["x:0", "extra_kwargs['y']:1"]}),
                         """overlap{symbolize=[x:0,"extra_kwargs['y']:1"]}""")
        with self.assertRaises(epweave.UsageError) as caught:
            epweave.rewrite(static, preset="ep-overlap", symbolise=True)
        self.assertIn("symbolize", str(caught.exception))

    def test_the_plan_of_a_preset_that_chooses(self):
        result = epweave.rewrite(GRAPH, preset="overlap")
        self.assertTrue(any(note.startswith("choose-chunks: choice: taken: ") for note in result.notes))
        regions = {x["root"] for x in result.stats["regions"]}
        self.assertEqual({x["root"] for x in result.plan["regions"]}, regions)
        self.assertTrue(any(note.startswith("choice: taken: ") for note in result.plan["notes"]))

    def test_a_program_of_another_schema_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "epweave")
            program.write_text("#!/bin/sh\necho '{\"schema\": 999}'\n")
            program.chmod(0o755)
            with mock.patch.dict(os.environ, EPWEAVE=str(program)), self.assertRaises(epweave.UsageError) as caught:
                epweave.verify(GRAPH)
        self.assertIn("writes JSON of schema 999, and this package reads 1", str(caught.exception))

    def test_a_wrong_rewrite_is_not_proved(self):
        result = epweave.rewrite(GRAPH, "chunk{roots=layers.1.moe}")
        message = epweave_fx.read_file(result.path)
        nodes = message["graphs"][0]["nodes"]
        name = next(x["name"] for x in nodes if x["target"] == "aten.add.Tensor" and len(x["args"]) == 2)
        node = next(x for x in nodes if x["name"] == name)
        node["target"] = "aten.mul.Tensor"
        with tempfile.TemporaryDirectory() as folder:
            wrong = os.path.join(folder, "wrong.epw")
            epweave_fx.write_file(message, wrong)
            proof = epweave.verify(GRAPH, wrong)
        self.assertFalse(proof)
        self.assertIn(name, {x["node"] for x in proof.violations})

    def test_a_failing_pass_leaves_its_reproducer(self):
        stand_in = """#!/bin/sh
            if [ "$1" != rewrite ]; then exec "{program}" "$@"; fi
            while [ "$1" != -o ]; do shift; done
            echo of the failing pass >"$2.reproducer.epw"
            echo "reproducer: $2.reproducer.epw" >&2
            echo '{{"schema": 1, "error": {{"kind": "internal", "message": "pass dce broke the graph"}}}}'
            exit 5"""
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            with open("epweave", "w", encoding="utf-8") as f:
                f.write(textwrap.dedent(stand_in.format(program=programs.find_program("epweave"))))
            os.chmod("epweave", 0o755)
            with mock.patch.dict(os.environ, EPWEAVE=os.path.abspath("epweave")):
                with self.assertRaises(epweave.InternalError) as caught:
                    epweave.rewrite(GRAPH, "dce")
            with open(caught.exception.reproducer, encoding="utf-8") as f:
                self.assertEqual(f.read(), "of the failing pass\n")
            self.assertEqual(os.path.dirname(caught.exception.reproducer), os.getcwd())
            self.assertIn(f"reproducer: {caught.exception.reproducer}", errors.full_text(caught.exception))
            # A graph that is declined leaves one where it is asked for.
            with self.assertRaises(epweave.DeclinedError) as caught:
                epweave.rewrite(GRAPH, "chunk{roots=layers.*.attention}", keep_reproducer="declined.epw")
            self.assertEqual(caught.exception.reproducer, "declined.epw")
            self.assertTrue(os.path.exists("declined.epw"))

    def test_errors_say_what_the_program_says(self):
        with self.assertRaises(epweave.DeclinedError) as caught:
            epweave.rewrite(GRAPH, "chunk{roots=layers.*.attention}")
        error = caught.exception
        self.assertEqual((error.id, error.exit_code, error.node), ("chunk.no-exchange", 4, None))
        self.assertIn("check the pattern", error.remedy)
        self.assertNotIn("remedy:", str(error))
        self.assertTrue(traceback.format_exception(error)[-1].strip().startswith("remedy: check the pattern"))
        with self.assertRaises(epweave.UsageError) as caught:
            epweave.rewrite(GRAPH, "chnk")
        self.assertIn("did you mean 'chunk'?", str(caught.exception))
        with self.assertRaises(epweave.GraphFileError) as caught:
            epweave.verify("/none.epw")
        self.assertEqual(caught.exception.exit_code, 3)
        for arguments, keywords in (((GRAPH,), {}), ((GRAPH, " "), {}), ((GRAPH, "dce"), {"preset": "ep-overlap"}), ((GRAPH, "dce"), {"parts": 2})):
            with self.assertRaises(epweave.UsageError):
                epweave.rewrite(*arguments, **keywords)
        with self.assertRaises(epweave.RunError):
            epweave.rewrite(GRAPH, preset="ep-overlap", timeout=0.001)

    def test_each_error_has_an_id_and_speaks_of_arguments(self):
        known = "roots, dim, parts, sizes, require-exchange, dense, cast, grad-accumulation, join, attention, contract"
        static = str(ROOT / "testdata/graphs/dsv3_debug_ep2_static.1b_remat.epw.gz")
        for call, wanted in (
                (lambda: epweave.rewrite(GRAPH, "chunk{partz=3}"),
                 ("usage", "column 7: unknown option of 'chunk': 'partz', did you mean 'parts'?\n  chunk{partz=3}\n        ^",
                  f"expected one of {known}")),
                (lambda: epweave.verify("/none.epw"), ("invalid-input", "/none.epw: cannot open: No such file or directory", None)),
                (lambda: epweave.rewrite(static, "chunk"),
                 ("chunk.no-token-symbol",
                  f"{static}: no user input has a symbolic first dimension: the token count is a plain number [chunk.no-token-symbol]",
                  "run symbolize before chunk (pipeline='symbolize,chunk'; preset='ep-overlap{symbolize=yes}')")),
                (lambda: epweave.rewrite(GRAPH, "dce").plan,
                 ("usage", "plan: the pipeline has neither chunk nor choose-chunks, and only they make a plan", None)),
                (lambda: epweave.replay_check(GRAPH, GRAPH, seed="x"),
                 ("usage", "seed: 'x' is not a whole number from 0 to 18446744073709551615", None)),
                (lambda: epweave.replay_check(GRAPH, GRAPH, math="native", device="cpu"),
                 ("usage", "math='native' is a GPU's: give device='cuda'", None)),
                (lambda: epweave.rewrite(GRAPH, "dce", timeout="x"),
                 ("usage", "timeout is a number of seconds, and 'x' was given", "give one above 0, or None")),
                (lambda: epweave.diff(GRAPH, GRAPH, ignore=5),
                 ("usage", "what `epweave diff` is told is a text, and int was given: 5", "give a text, a number or a path"))):
            with self.subTest(wanted), self.assertRaises(epweave.EpweaveError) as caught:
                call()
            error = caught.exception
            self.assertEqual((error.id, str(error), error.remedy), wanted)

    def test_names_of_files_that_are_none(self):
        for value in (None, 5, ["a"], b"x"):
            for take in (epweave.load, lambda x: epweave.check_artifact(x, {})):
                with self.subTest(value=value), self.assertRaises(epweave.UsageError) as caught:
                    take(value)
                self.assertEqual(str(caught.exception),
                                 f"the name of a graph file is a text, and {type(value).__name__} was given: {value!r}")
                self.assertTrue(caught.exception.remedy.startswith("give its path"))

    def test_files_that_cannot_be_loaded_say_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = read_bytes(GRAPH)
            for content, remedy in ((b"hello", "convert other forms"), (whole[:-9], "copy or write it again"),
                                    (gzip.compress(whole)[:-9], "copy or write it again")):
                path = pathlib.Path(folder) / "x.epw"
                path.write_bytes(content)
                with self.subTest(remedy), self.assertRaises(epweave.GraphFileError) as caught:
                    epweave.load(path)
                self.assertTrue(str(caught.exception).startswith(str(path)))
                self.assertTrue(caught.exception.remedy.startswith(remedy), caught.exception.remedy)

    def test_a_program_that_is_named_and_not_there(self):
        before = os.environ.get("EPWEAVE")
        os.environ["EPWEAVE"] = "/none/epweave"
        try:
            with self.assertRaises(epweave.UsageError) as caught:
                epweave.verify(GRAPH)
        finally:
            os.environ.pop("EPWEAVE")
            if before:
                os.environ["EPWEAVE"] = before
        self.assertEqual(str(caught.exception), "EPWEAVE names /none/epweave, which cannot be executed")

    def test_what_a_look_raises_ends_the_program_that_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            slow = pathlib.Path(folder) / "slow"
            slow.write_text("#!/bin/sh\necho $$ >$1\nexec sleep 600\n")
            slow.chmod(0o755)

            def look():
                if (pathlib.Path(folder) / "pid").exists():
                    raise errors.RunError("another rank stopped")

            began = time.monotonic()
            with mock.patch.dict(os.environ, {"EPWEAVE": str(slow)}), programs.looking(look), \
                    self.assertRaisesRegex(errors.RunError, "^another rank stopped$"):
                programs.run("epweave", f"{folder}/pid")
            self.assertLess(time.monotonic() - began, 60)
            with self.assertRaises(ProcessLookupError):
                os.kill(int((pathlib.Path(folder) / "pid").read_text()), 0)

    def test_options_beside_a_pipeline_are_shown_within_it(self):
        for pipeline, options, said, remedy in (
                ("chunk", {"roots": ["a", "b"], "parts": 4}, "roots, parts", "'chunk{roots=[a,b],parts=4}'"),
                ("dce,chunk", {"parts": 4}, "parts", "'PASS{parts=4}'")):
            with self.assertRaises(errors.UsageError) as caught:
                epweave.rewrite(GRAPH, pipeline, **options)
            self.assertEqual((str(caught.exception), caught.exception.remedy),
                             (f"{said}: options are keywords of a preset, and a pipeline was given",
                              f"write them into the pipeline: {remedy}"))

    def test_a_program_without_a_time_of_its_own_ends_at_the_limit_around_it(self):
        with tempfile.TemporaryDirectory() as folder:
            slow = pathlib.Path(folder) / "slow"
            slow.write_text("#!/bin/sh\nexec sleep 600\n")
            slow.chmod(0o755)
            said = []
            with mock.patch.dict(os.environ, {"EPWEAVE": str(slow)}), programs.limiting(0.2, "wait longer"):
                for timeout in (None, 0.1):
                    with self.assertRaises(errors.RunError) as caught:
                        programs.run("epweave", "rewrite", timeout=timeout)
                    said.append(errors.full_text(caught.exception))
        self.assertEqual(said, ["epweave rewrite took more than 0.2 seconds\n  remedy: wait longer",
                                "epweave rewrite took more than 0.1 seconds\n  remedy: give more time, or a smaller graph"])

    def test_numbers_and_keys_of_partitions_and_artifacts(self):
        llama = str(ROOT / "testdata/graphs/llama3_debug_fsdp4.1_norm.epw.gz")
        halves = epweave.partition(llama, budget=0.5)
        self.assertEqual(halves.report["saved_bytes"], epweave.partition(llama, budget="0.5").report["saved_bytes"])
        with self.assertRaises(epweave.UsageError) as caught:
            epweave.check_artifact(llama, {"loss=sum": "x"})  # would be the key loss
        self.assertEqual(str(caught.exception), "config has the key 'loss=sum', and no key can hold an equals sign")

    def test_a_stage_is_cut_at_the_gradients_that_it_is_given(self):
        case = (ROOT / "testdata/memory/j52_stage.test").read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            text, stage = (os.path.join(folder, name) for name in ("stage.txt", "stage.epw"))
            pathlib.Path(text).write_text(case.partition("=== input.txt ===\n")[2].partition("=== stdout ===")[0], encoding="utf-8")
            subprocess.run([epweave.find_program("epweave"), "convert", text, stage, "-q"], check=True)
            with self.assertRaises(epweave.DeclinedError) as caught:
                epweave.partition(stage, "tags")
            self.assertIn("the graph has no backward", str(caught.exception))
            for tangents in (["output_grad"], "output_grad"):
                halves = epweave.partition(stage, "tags", tangents=tangents)
                self.assertEqual([row["name"] for row in halves.report["saved"]], ["w", "x", "mesh", "indices", "kept"])
                self.assertEqual(halves.tangents, ("output_grad",))
                self.assertTrue(halves.verify(stage).ok)

    def test_an_artifact_of_the_traces_of_several_ranks(self):
        case = (ROOT / "testdata/generalize/r6_four_ranks.test").read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            traces = []
            for rank, text in re.findall(r"^=== (\d)\.txt ===\n(.*?)(?==== )", case, re.S | re.M):
                traces.append(os.path.join(folder, f"{rank}.txt"))
                pathlib.Path(traces[-1]).write_text(text, encoding="utf-8")
            self.assertEqual(len(traces), 4)
            made = os.path.join(folder, "made.epw")
            fingerprint = epweave.make_artifact(traces, made, pipeline="dce", config={"loss": "sum"})
            self.assertEqual(epweave.check_artifact(made, {"loss": "sum"}, rank=2), fingerprint)
            self.assertEqual((fingerprint["config.loss"], fingerprint["passes"]), ("sum", "dce{}"))
            other = os.path.join(folder, "other.epw")
            for given, said, remedy in (
                    (traces[:2], "the traces are of ranks [0, 1], which do not differ along fsdp", "trace rank 2, too"),
                    (traces[::2], "differences between the ranks are not explained: %ge other: it must be 8 * c_tp",
                     "trace rank 1, too")):
                with self.assertRaises(epweave.GraphFileError) as caught:
                    epweave.make_artifact(given, other)
                self.assertTrue(str(caught.exception).startswith(said), str(caught.exception))
                self.assertEqual(caught.exception.remedy, remedy)
                self.assertFalse(os.path.exists(other))

    def test_functions_and_lists_where_texts_are_meant(self):
        def a_pass(graph):
            return graph

        for call, said in (
                (lambda: epweave.rewrite(GRAPH, lambda graph: graph), "a pipeline is a text, and function was given: <function"),
                (lambda: epweave.rewrite(GRAPH, ["dce"]), "a pipeline is a text, and list was given: ['dce']"),
                (lambda: epweave.rewrite(GRAPH, preset=a_pass), "the name of a preset is a text, and function was given: "),
                (lambda: epweave.rewrite(GRAPH, preset="overlap", roots=[a_pass]),
                 "the option roots of overlap is a text, a number or a list of them, and function was given"),
                (lambda: epweave.save_artifact(None, "step.epw", pipeline=a_pass), "a pipeline is a text, and function was given"),
                (lambda: epweave.check_artifact(GRAPH, allow=[a_pass]), "a field that may differ is a text, and function was given"),
                (epweave.verify_ranks, "verify_ranks takes the graphs of the ranks, and none was given"),
                (lambda: epweave.check_artifact(GRAPH, allow=3), "a field that may differ is a text, and int was given: 3"),
                (lambda: epweave.check_artifact(GRAPH, "loss"), "config is a dictionary, and str was given: 'loss'"),
                (lambda: epweave.check_artifact(GRAPH, {"loss": a_pass}), "config.loss is <function")):
            with self.assertRaises(epweave.UsageError) as caught:
                call()
            self.assertTrue(str(caught.exception).startswith(said), str(caught.exception))
            self.assertTrue(caught.exception.remedy)

    def test_the_training_entry_without_a_model_says_how_it_is_called(self):
        for arguments, code, stream in (([], 2, "stderr"), (["--module", "llama3"], 2, "stderr"), (["--help"], 0, "stdout")):
            done = subprocess.run([sys.executable, "-m", "epweave.train", *arguments], capture_output=True, text=True, check=False,
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
            said = getattr(done, stream)
            self.assertEqual((done.returncode, len(done.stdout + done.stderr)), (code, len(said)))
            self.assertIn("-m epweave.train --module MODULE --config CONFIG", said)
            self.assertEqual("error: --module and --config are required" in said, code == 2)

    def test_words_of_training_that_belong_to_others(self):
        for words, said in ((["--repair"], "--repair belongs to --precompile DIR"),
                            (["--ranks", "0,1"], "--ranks belongs to --precompile DIR"),
                            (["--ranks", "1", "--precompile", "x"], "--ranks: give two ranks or more"),
                            (["--ranks", "0,2", "--precompile", "x"], "--ranks: the job has ranks 0 to 1"),
                            (["--precompile", "x", "--rewrite", "dce", "--rewrite", "canonicalize"],
                             "--precompile makes one artifact: give --rewrite once"),
                            (["--compare", "none,none"], "--compare names a pipeline twice"),
                            (["--ep", "3"], "--ep 3 does not divide the 2 ranks of --world"),
                            (["--tp", "0"], "argument --tp: '0' is not a whole number from 1"),
                            (["--sequence", "-4"], "argument --sequence: '-4' is not a whole number from 1"),
                            (["--steps", "0"], "argument --steps: '0' is not a whole number from 1"),
                            (["--ranks", "a", "--precompile", "x"], "argument --ranks: 'a' is no list of ranks, such as 0,1,4"),
                            (["--tolerance", "nan"], "argument --tolerance: 'nan' is not a number from 0"),
                            (["--json", "-"], "--json - shares standard output with the table: give it a file"),
                            (["--rewrite", "dce", "--rewrite", "chunk{roots="], "--rewrite: column 13: a value is missing"),
                            (["--compare", "halves", "--partition", "exact:0.5", "--partition", "tags:0.5"],
                             "--partition: budget: policy 'tags' takes no budget"),
                            (["--json", "/none/x"], "--json: /none/x: cannot be written: there is no folder /none")):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as caught:
                train_on_cpu.main(["--model", "llama3", "--world", "2", *words])
            self.assertEqual((caught.exception.code, errors.getvalue().partition("error: ")[2].splitlines()[0]), (2, said))

    def test_variables_that_training_takes_as_options(self):
        for variable, said in (("EPWEAVE_PARTITION", "EPWEAVE_PARTITION is not read here: give --compare halves --partition POLICY"),
                               ("EPWEAVE_ARTIFACT", "EPWEAVE_ARTIFACT is not read here: give --compare artifact --artifact DIR"),
                               ("EPWEAVE_PRECOMPILE", "EPWEAVE_PRECOMPILE is not read here: give --precompile DIR"),
                               ("EPWEAVE_TRACE", "EPWEAVE_TRACE is not read here: give --precompile DIR --ranks R,.."),
                               ("EPWEAVE_PIPLINE", "there is no variable EPWEAVE_PIPLINE\n  remedy: did you mean EPWEAVE_PIPELINE?")):
            errors = io.StringIO()
            with mock.patch.dict(os.environ, {variable: "x"}), contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as caught:
                train_on_cpu.main(["--model", "llama3"])
            self.assertEqual((caught.exception.code, errors.getvalue().partition("error: ")[2]), (2, said + "\n"))

    def test_ranks_end_with_the_command_that_started_them(self):
        for words, expected in ((["--compare", "none"], 2), (["--precompile", "x", "--ranks", "0,1"], 1)):  # traced one by one
            code = ("import os, sys; from unittest import mock; sys.modules.update((name, mock.MagicMock()) for name in "
                    "('torchtitan', 'torchtitan.experiments', 'torchtitan.experiments.graph_trainer'));"
                    "from epweave import train_on_cpu; train_on_cpu.rank_command = lambda arguments: [sys.executable, '-c', "
                    "'import os, time; open(os.environ[\"FOLDER\"] + \"/\" + str(os.getpid()), \"w\"); time.sleep(100)'];"
                    f"train_on_cpu.main(['--model', 'llama3', *{words}])")
            with self.subTest(words), tempfile.TemporaryDirectory() as folder:
                command = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL,
                                           env={**os.environ, "FOLDER": folder, "PYTHONPATH": os.pathsep.join(sys.path)})
                until = time.monotonic() + 60
                while len(os.listdir(folder)) < expected and time.monotonic() < until:
                    time.sleep(0.1)
                ranks = [int(name) for name in os.listdir(folder)]
                command.terminate()
                self.assertEqual((command.wait(timeout=60), len(ranks)), (128 + signal.SIGTERM, expected))
                for rank in ranks:
                    self.assertRaises(ProcessLookupError, os.kill, rank, 0)

    def test_errors_about_a_live_graph_name_no_temporary_file(self):
        class Live:
            trained = ()

            def __init__(self, source):
                self.source = source

            def export(self, path):
                shutil.copy(self.source, path)

        with tempfile.TemporaryDirectory() as folder:
            junk = os.path.join(folder, "junk")
            pathlib.Path(junk).write_bytes(b"no graph")
            for call, said in ((lambda: epweave.rewrite(Live(GRAPH), "chunk{roots=nothing}"), "the graph: no module matches 'nothing'; the model has "),
                               (lambda: epweave.verify(Live(junk)), "the graph: ")):
                with self.assertRaises(epweave.EpweaveError) as caught:
                    call()
                self.assertTrue(str(caught.exception).startswith(said), str(caught.exception))
            self.assertEqual((epweave.errors.RunError("/x/a: b", node="n", remedy="r").naming("/x/a", "it").__dict__),
                             epweave.errors.RunError("it: b", node="n", remedy="r").__dict__)

    def test_the_cpu_is_where_it_runs_without_a_word(self):
        parse = train_on_cpu.make_parser().parse_args
        self.assertEqual([parse(words).device for words in ([], ["--cpu"], ["--device", "cuda"], ["--device", "cuda", "--cpu"])],
                         ["cpu", "cpu", "cuda", "cpu"])

    def test_variables_of_the_drop_in_that_are_wrong(self):
        stand_ins = {name: mock.MagicMock() for name in ("torchtitan", "torchtitan.experiments",
                                                         "torchtitan.experiments.graph_trainer")}
        with mock.patch.dict(sys.modules, stand_ins):
            from epweave import torchtitan
        for variables, said, remedy in (
                ({"EPWEAVE_VERIFY": "1", "EPWEAVE_REPAIR": "0", "EPWEAVE_OTHER": "x"}, None, None),
                ({"EPWEAVE_PIPLINE": "dce"}, "there is no variable EPWEAVE_PIPLINE", "did you mean EPWEAVE_PIPELINE?"),
                ({"EPWEAVE_VERIFY": "true"}, "EPWEAVE_VERIFY is 'true'", "set it to 1, or to 0"),
                ({"EPWEAVE_PIPELINE": "ep-overlap{parts=4,symbolize=yes}", "EPWEAVE_THEN": "schedule"}, None, None),
                ({"EPWEAVE_PIPELINE": "chunk{roots="}, "EPWEAVE_PIPELINE: column 13: a value is missing\n  chunk{roots=\n"
                 "              ^", "expected a word, a quoted text, or a list in brackets"),
                ({"EPWEAVE_PIPELINE": "ep-overlapp{parts=2}"}, "EPWEAVE_PIPELINE: column 1: unknown preset 'ep-overlapp', did you mean "
                 "'ep-overlap'?\n  ep-overlapp{parts=2}\n  ^", "expected one of overlap, ep-overlap"),
                ({"EPWEAVE_PIPELINE": " overlap-ep"}, None, None),
                ({"EPWEAVE_THEN": "dce{"}, "EPWEAVE_THEN: column 5: an option is missing\n  dce{\n      ^",
                 "expected an option's name"),
                ({"EPWEAVE_PARTITION": "exact:0.5"}, None, None),
                ({"EPWEAVE_PARTITION": "min-cut:12GiB"}, "EPWEAVE_PARTITION: budget: policy 'min-cut' takes a share from 0 to 1, as "
                 "PyTorch does, not '12GiB'", "expected policy='exact' beside an amount"),
                ({"EPWEAVE_PARTITION": "exakt"}, "EPWEAVE_PARTITION: policy: 'exakt' is none of min-cut, tags, exact", None),
                ({"EPWEAVE": "/nowhere"}, "EPWEAVE names /nowhere, which cannot be executed",
                 "unset it, or let it name the program epweave"),
                ({"EPWEAVE_TIMEOUT": "12.5"}, None, None),
                ({"EPWEAVE_TIMEOUT": "1h"}, "EPWEAVE_TIMEOUT is '1h'", "set it to a number of seconds above 0"),
                ({"EPWEAVE_TIMEOUT": "0"}, "EPWEAVE_TIMEOUT is '0'", "set it to a number of seconds above 0"),
                ({"EPWEAVE_TIMEOTU": "5"}, "there is no variable EPWEAVE_TIMEOTU", "did you mean EPWEAVE_TIMEOUT?"),
                ({"EPWEAVE_KEEP": "/dev/null/x"}, "EPWEAVE_KEEP: there can be no folder /dev/null/x: Not a directory",
                 "name one that can be made and written")):
            with mock.patch.dict(os.environ, variables), contextlib.ExitStack() as stack:
                caught = stack.enter_context(self.assertRaises(epweave.UsageError)) if said else None
                torchtitan.check_environment()
            if caught:
                self.assertEqual((str(caught.exception), caught.exception.remedy), (said, remedy))

    def test_replay_check(self):
        text = ('epweave text 1\ngroup 7 ranks=[0, 1]\ngraph\n  %x = placeholder : f32[4, 4] role=user which=x\n'
                '  %y = aten.{}.default(%x) : f32[4, 4]\n  output([%y])\n')
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for op in ("relu", "neg"):
                paths.append(os.path.join(folder, f"{op}.txt"))
                pathlib.Path(paths[-1]).write_text(text.format(op), encoding="utf-8")
            self.assertTrue(epweave.replay_check(paths[0], paths[0]))
            report = epweave.replay_check(*paths, data="integer")
            self.assertFalse(report)
            self.assertEqual(report["verdict"], "different")
            self.assertEqual(repr(report), "Check(verdict='different': 0 outputs equal, 2 differs)")
            # Flags, what is left out, and a list, which gives its option once for each item.
            with mock.patch.object(epweave.api, "run", return_value=({"verdict": "same"}, "")) as call:
                epweave.replay_check(paths[0], paths[0], poison=True, pin_rows=False, recipe=None,
                                     inputs=[pathlib.Path("a"), "b"], memory=2)
            self.assertEqual(call.call_args.args[4:], ("--seed", "0", "--poison", "--inputs", "a", "--inputs", "b", "--memory", "2",
                                                       "-q"))

    def test_a_program_that_is_ended_by_a_signal(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "epweave")
            for name, kind, remedy in (("KILL", epweave.RunError, "the kernel does that for want of memory: give it more, or a "
                                        "smaller graph"), ("SEGV", epweave.InternalError, None)):
                program.write_text(f"#!/bin/sh\nkill -{name} $$\n")
                program.chmod(0o755)
                with mock.patch.dict(os.environ, EPWEAVE=str(program)), self.assertRaises(kind) as caught:
                    epweave.verify(GRAPH)
                self.assertEqual((str(caught.exception), caught.exception.remedy), (f"epweave verify was ended by SIG{name}", remedy))


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def sources_with_programs(programs, folder):
    """What the wheel is made of, with programs that are built, and the words for pip to compile none."""
    for name in ("pyproject.toml", "README.md", "CMakeLists.txt"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "python", folder / "python", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "python/epweave/bin").mkdir()
    for name in ("epweave", "epweave-replay"):
        shutil.copy(programs / name, folder / "python/epweave/bin")
    return [folder, "-C", "wheel.cmake=false"]


def check_wheel(programs):
    """The wheel, in an environment of its own that has no build tools and no PATH to other programs."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run(sys.executable, "-m", "venv", folder / "build")
        (folder / "sources").mkdir()
        made_of = sources_with_programs(programs, folder / "sources") if programs else [ROOT]
        run(folder / "build/bin/pip", "wheel", "--quiet", "--no-deps", "-w", folder / "wheels", *made_of)
        (wheel,) = (folder / "wheels").glob("epweave-*.whl")
        run(sys.executable, "-m", "venv", folder / "use")
        run(folder / "use/bin/pip", "install", "--quiet", wheel)
        bare = {"PATH": "/usr/bin:/bin"}
        assert run(folder / "use/bin/epweave", "--version", env=bare).startswith("epweave ")
        assert run(folder / "use/bin/epweave-replay", "--version", env=bare).startswith("epweave-replay ")
        code = f"import epweave; print(bool(epweave.verify({GRAPH!r}, epweave.rewrite({GRAPH!r}, preset='ep-overlap'))))"
        assert run(folder / "use/bin/python", "-c", code, env=bare, cwd=folder) == "True\n"
        # import torch finds the entry point by this.
        code = "from importlib.metadata import entry_points; print([x.load()() for x in entry_points(group='torch.backends')])"
        assert run(folder / "use/bin/python", "-c", code, env=bare, cwd=folder) == "[None]\n"
        print(f"{wheel.name}: built, installed, used")
        if programs:
            return
        # All but glibc comes with it.
        needed = run("ldd", next((folder / "use").glob("lib/python3*/site-packages/epweave/bin/epweave")))
        outside = [line.split()[0] for line in needed.splitlines() if str(folder) not in line]
        allowed = ("linux-vdso", "libc.so", "libm.so", "/lib64/ld-linux")
        assert all(name.startswith(allowed) for name in outside), outside


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", action="store_true")
    parser.add_argument("--programs", type=pathlib.Path, metavar="FOLDER")
    options, rest = parser.parse_known_args()
    if options.wheel:
        check_wheel(options.programs)
    else:
        unittest.main(argv=[sys.argv[0], *rest])
