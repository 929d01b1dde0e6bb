#!/usr/bin/env python3
"""Drives the page of `epweave diff --html` in a browser: folding, search, filters, links, addresses.

Needs playwright (PyPI) and Chromium (Debian's `chromium`, or $CHROMIUM); without them exits 77, skipped.
The program is $EPWEAVE, else build/release/bin/epweave. With --screenshot FILE, writes the page as a PNG.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sys.exit(77)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
if not CHROMIUM:
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
EPWEAVE = os.environ.get("EPWEAVE") or str(ROOT / "build/release/bin/epweave")
GRAPH = "dsv3_debug_ep2.1b_remat.epw.gz"


class PageTest(unittest.TestCase):
    screenshot = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.html = pathlib.Path(folder.name) / "diff.html"
        shutil.copy(ROOT / "testdata/graphs" / GRAPH, folder.name)
        subprocess.run([EPWEAVE, "rewrite", GRAPH, "--preset", "ep-overlap", "-q", "-o", "overlapped.epw"],
                       cwd=folder.name, check=True, capture_output=True)
        result = subprocess.run([EPWEAVE, "diff", GRAPH, "overlapped.epw", "--html", cls.html], cwd=folder.name, check=False)
        assert result.returncode == 1
        playwright = sync_playwright().start()
        cls.addClassCleanup(playwright.stop)
        cls.browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.page = self.browser.new_page(viewport={"width": 1400, "height": 800})
        self.addCleanup(self.page.close)
        self.trouble, self.requests = [], []
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"file://{self.html}")
        self.page.wait_for_selector("#scroll-b .row")

    def tearDown(self):
        self.assertEqual(self.trouble, [])
        self.assertEqual(self.requests, [f"file://{self.html}"])

    def rows(self, side):
        return self.page.evaluate(f"sides.{side}.rows.length")

    def test_only_lines_in_view_are_drawn(self):
        self.assertGreater(self.rows("b"), 2000)
        self.assertLess(self.page.locator("#scroll-b .row").count(), 150)
        self.page.evaluate("document.getElementById('scroll-b').scrollTop = 1e9")
        self.page.wait_for_function("document.querySelector('#scroll-b .rows').textContent.includes('rms_norm_backward')")

    def test_modules_fold(self):
        before = self.rows("b")
        self.page.click("#fold")
        self.assertEqual(self.page.locator("#scroll-b .row:not(.head)").count(), 0)
        self.page.click("#scroll-b .row.head >> nth=2")
        self.assertGreater(self.page.locator("#scroll-b .row:not(.head)").count(), 0)
        self.page.click("#unfold")
        self.assertEqual(self.rows("b"), before)

    def test_search_keeps_matches_and_their_counterparts(self):
        self.page.fill("#search", "all_to_all_single_1")
        self.page.wait_for_function("document.getElementById('found').textContent")
        self.assertEqual(self.page.locator("#scroll-a .row", has_text="%all_to_all_single_1 =").count(), 1)
        for part in (0, 1):
            name = f"%all_to_all_single_1_chunk{part} ="
            self.assertEqual(self.page.locator("#scroll-b .row", has_text=name).count(), 1)
        self.page.fill("#search", "no such node")
        self.page.wait_for_function("document.getElementById('found').textContent === '0 before, 0 after'")

    def test_a_node_leads_to_its_parts_and_back(self):
        self.page.evaluate("goTo('a', sides.a.name.indexOf('all_to_all_single_1'))")
        self.assertIn("divided", self.page.inner_text("#detail"))
        self.page.click("#detail >> text=%all_to_all_single_1_chunk1")
        self.assertTrue(self.page.url.endswith("#b:all_to_all_single_1_chunk1"))
        self.assertEqual(self.page.locator("#scroll-b .row.picked").count(), 1)
        self.assertEqual(self.page.locator("#scroll-a .row.mate").count(), 1)
        self.assertIn("part 1 of", self.page.inner_text("#detail"))
        if self.screenshot:
            self.page.screenshot(path=self.screenshot)
        self.page.click("#detail table >> text=%all_to_all_single_1")
        self.assertTrue(self.page.url.endswith("#a:all_to_all_single_1"))

    def test_it_counts_what_the_summary_counts(self):
        result = subprocess.run([EPWEAVE, "diff", GRAPH, "overlapped.epw", "--summary", "--json"], cwd=self.html.parent,
                                capture_output=True, check=False)
        summary = json.loads(result.stdout)
        chips = dict(text.strip("-+/~>. ").rsplit(" ", 1) for text in self.page.locator("#chips .chip").all_inner_texts())
        for kind in ("removed", "added", "divided", "moved"):
            self.assertEqual(int(chips[kind]), summary["changes"][kind], kind)
        nested = int(re.search(r"(\d+) nodes of nested graphs", self.page.inner_text("#about"))[1])
        self.assertEqual(int(chips["unchanged"]) + nested, summary["same_nodes"])
        self.assertLess(int(chips["other"]) + int(chips["provenance alone"]), 3000)

    def test_back_goes_to_the_node_before(self):
        for name in ("mm_11", "all_to_all_single_1"):
            self.page.evaluate(f"goTo('a', sides.a.name.indexOf('{name}'))")
        self.page.go_back()
        self.page.wait_for_function("document.getElementById('detail').textContent.includes('%mm_11 =')")
        self.page.go_back()
        self.page.wait_for_function("document.getElementById('detail').textContent.startsWith('Select')")
        self.assertEqual(self.page.url, f"file://{self.html}")

    def test_an_empty_pane_says_why(self):
        for place in range(5):
            self.page.locator("#chips .chip").nth(place).click()
        self.assertIn("switched on above", self.page.inner_text("#scroll-a"))

    def test_an_address_names_a_node(self):
        self.page.goto(f"file://{self.html}#b:mm_11_chunk0")
        self.page.reload()
        self.page.wait_for_selector("#detail table")
        self.assertIn("%mm_11_chunk0", self.page.inner_text("#detail"))
        self.requests = self.requests[:1]  # the page itself, again

    def test_a_module_and_a_kind_of_change_select(self):
        self.page.click("#modules .module:has-text('loss') >> span >> nth=1")
        self.page.click("#scroll-a .row:not(.head) >> nth=0")
        self.assertIn("removed", self.page.inner_text("#detail"))
        self.page.click("#chips >> text=removed")
        self.assertEqual(self.rows("a"), 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screenshot")
    arguments, rest = parser.parse_known_args()
    PageTest.screenshot = arguments.screenshot
    unittest.main(argv=[sys.argv[0], *rest])
