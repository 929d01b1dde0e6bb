#!/usr/bin/env python3
"""What .ci/run and scripts/test.sh say and do where tests fail: both run in a tree of empty scripts, with a PyTorch's Python
and a ctest that fail as they are told."""
import os
import pathlib
import shlex
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTHING = "#!/bin/sh\n"
PYTHON = """#!/bin/sh
case "$*" in
*own_model*) exit 1 ;;
*memory*) exit 255 ;;
esac
"""
OWN_MODEL = "FAILED (exit 1): build/venv/bin/python -W ignore scripts/dev/own_model_torch_test.py\n"
MEMORY = "FAILED (exit 255): build/venv/bin/python -W ignore scripts/dev/memory_torch_test.py\n"


class FailingTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        for name in ("scripts/test.sh", "scripts/dev/print_whole.sh", ".ci/run"):
            self.write(name, (ROOT / name).read_text(encoding="utf-8"))
        for name in ("scripts/install_packages.sh", "scripts/build.sh", "scripts/dev/torch_venv.sh", "scripts/dev/check_format.sh"):
            self.write(name, NOTHING)
        for name in ("check_layering.py", "check_refusals.py", "check_op_names.py", "check_calculus.py"):
            self.write(f"scripts/dev/{name}", "")
        self.write("build/venv/bin/python", PYTHON)
        self.write("bin/ctest", "#!/bin/sh\necho ctest ran\nexit 0\n")

    def write(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def run_script(self, *words):
        path = f"{self.tree / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(words, cwd=self.tree, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)

    def test_all_run_and_the_last_lines_name_what_failed(self):
        done = self.run_script("scripts/test.sh", "--with-torch")
        self.assertEqual(done.returncode, 1)
        script = (self.tree / "scripts/test.sh").read_text(encoding="utf-8")
        tests = script.partition("<<END || status=1\n")[2].partition("\nEND\n")[0].splitlines()
        ran = [line for line in done.stdout.splitlines() if line.startswith("== build/venv/bin/python ")]
        self.assertCountEqual(ran, [f"== build/venv/bin/python {' '.join(shlex.split(test))}" for test in tests])
        before, last = done.stdout.split("ctest ran\n")
        self.assertIn(last, (OWN_MODEL + MEMORY, MEMORY + OWN_MODEL))
        self.assertEqual((before.count(OWN_MODEL), before.count(MEMORY)), (1, 1))

    def test_ctest_alone_fails(self):
        self.write("build/venv/bin/python", NOTHING)
        self.write("bin/ctest", "#!/bin/sh\necho ctest ran\nexit 8\n")
        done = self.run_script("scripts/test.sh", "--with-torch")
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stdout.endswith("ctest ran\n"), done.stdout)

    def test_all_pass(self):
        self.write("build/venv/bin/python", NOTHING)
        done = self.run_script("scripts/test.sh", "--with-torch")
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("FAILED", done.stdout)

    def test_the_step_that_failed_is_the_last_line(self):
        done = self.run_script(".ci/run")
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stdout.endswith("\n== FAILED (exit 1): all tests, goldens, Python tests with PyTorch\n"), done.stdout)
        self.assertNotIn("== build with address", done.stdout)


if __name__ == "__main__":
    unittest.main()
