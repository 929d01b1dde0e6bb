"""What the tests of pages share: a graph, its rewrite and a browser.

Needs Chromium (Debian's `chromium`, or $CHROMIUM); without it exits 77, skipped. The program is $EPWEAVE, else
build/release/bin/epweave.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import browser

if not browser.CHROMIUM:
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
EPWEAVE = os.environ.get("EPWEAVE") or str(ROOT / "build/release/bin/epweave")
GRAPHS = ROOT / "testdata/graphs"


class PageTestCase(unittest.TestCase):
    """`folder` holds in.epw.gz and out.epw, its rewrite."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "in.epw.gz").symlink_to(GRAPHS / "dsv3_debug_ep2.1b_remat.epw.gz")
        cls.run_epweave("rewrite", "in.epw.gz", "--preset", "ep-overlap", "-q", "-o", "out.epw")
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def run_epweave(cls, *words, code=0):
        """What the program prints in the folder."""
        result = subprocess.run([EPWEAVE, *words], cwd=cls.folder, capture_output=True, text=True, check=False)
        assert result.returncode == code, (words, result.returncode, result.stderr)
        return result.stdout
