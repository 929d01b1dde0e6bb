#!/usr/bin/env python3
"""Drives the page of `epweave diff --html` in a browser: folding, search, filters, links, addresses (page_test_case.py)."""
import json
import re
import unittest

import page_test_case


class DiffPageTest(page_test_case.PageTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.html = cls.folder / "diff.html"
        cls.run_epweave("diff", "in.epw.gz", "out.epw", "--html", "diff.html", code=1)

    def setUp(self):
        self.page = self.browser.page(width=1400, height=800)
        self.addCleanup(self.page.close)
        self.open("")

    def open(self, place):
        self.page.goto(f"file://{self.html}{place}")
        self.page.wait("document.querySelector('#scroll-b .row')")

    def tearDown(self):
        self.assertEqual(self.page.errors, [])
        self.assertEqual(self.page.requests, [f"file://{self.html}"])

    def rows(self, side):
        return self.page.evaluate(f"sides.{side}.rows.length")

    def choose(self, module):
        (place,) = [place for place, text in enumerate(self.page.texts("#modules .module")) if module in text]
        self.page.click(f"#modules .module:nth-child({place + 1}) > span:nth-child(2)")

    def test_only_lines_in_view_are_drawn(self):
        self.assertGreater(self.rows("b"), 2000)
        self.assertLess(self.page.count("#scroll-b .row"), 150)
        self.page.evaluate("document.getElementById('scroll-b').scrollTop = 1e9")
        self.page.wait("document.querySelector('#scroll-b .rows').textContent.includes('rms_norm_backward')")

    def test_modules_fold(self):
        before = self.rows("b")
        self.page.click("#fold")
        self.assertEqual(self.page.count("#scroll-b .row:not(.head)"), 0)
        self.page.click("#scroll-b .row.head", nth=2)
        self.assertGreater(self.page.count("#scroll-b .row:not(.head)"), 0)
        self.page.click("#unfold")
        self.assertEqual(self.rows("b"), before)

    def test_search_keeps_matches_and_their_counterparts(self):
        self.page.type_into("#search", "all_to_all_single_1")
        self.page.wait("document.getElementById('found').textContent")
        self.assertEqual(self.rows_with("a", "%all_to_all_single_1 ="), 1)
        for part in (0, 1):
            self.assertEqual(self.rows_with("b", f"%all_to_all_single_1_chunk{part} ="), 1)
        self.page.type_into("#search", "no such node")
        self.page.wait("document.getElementById('found').textContent === '0 before, 0 after'")

    def rows_with(self, side, text):
        return sum(text in row for row in self.page.texts(f"#scroll-{side} .row"))

    def test_a_node_leads_to_its_parts_and_back(self):
        self.page.evaluate("goTo('a', sides.a.name.indexOf('all_to_all_single_1'))")
        self.assertIn("divided", self.page.text("#detail"))
        self.page.click("#detail *", "%all_to_all_single_1_chunk1")
        self.assertTrue(self.url().endswith("#b:all_to_all_single_1_chunk1"))
        self.assertEqual(self.page.count("#scroll-b .row.picked"), 1)
        self.assertEqual(self.page.count("#scroll-a .row.mate"), 1)
        self.assertIn("part 1 of", self.page.text("#detail"))
        self.page.click("#detail table *", "%all_to_all_single_1")
        self.assertTrue(self.url().endswith("#a:all_to_all_single_1"))

    def url(self):
        return self.page.evaluate("location.href")

    def test_it_counts_what_the_summary_counts(self):
        summary = json.loads(self.run_epweave("diff", "in.epw.gz", "out.epw", "--summary", "--json", code=1))
        chips = dict(text.strip("-+/~>*. ").rsplit(" ", 1) for text in self.page.texts("#chips .chip"))
        changes = summary["changes"]
        counts = {**changes, "changed": sum(changes.get(f"{what} changed", 0) for what in ("arguments", "type"))}
        for kind in ("removed", "added", "divided", "changed", "moved", "rejoined"):
            self.assertEqual(int(chips[kind]), counts[kind], kind)
        nested = int(re.search(r"(\d+) nodes of nested graphs", self.page.text("#about"))[1])
        self.assertEqual(int(chips["unchanged"]) + nested, summary["same_nodes"])
        self.assertLess(int(chips["other"]) + int(chips["provenance alone"]), 3000)

    def test_back_goes_to_the_node_before(self):
        for name in ("mm_11", "all_to_all_single_1"):
            self.page.evaluate(f"goTo('a', sides.a.name.indexOf('{name}'))")
        self.page.evaluate("history.back()")
        self.page.wait("document.getElementById('detail').textContent.includes('%mm_11 =')")
        self.page.evaluate("history.back()")
        self.page.wait("document.getElementById('detail').textContent.startsWith('Select')")
        self.assertEqual(self.url(), f"file://{self.html}")

    def test_an_empty_pane_says_why(self):
        for place in range(6):
            self.page.click("#chips .chip", nth=place)
        self.assertIn("switched on above", self.page.text("#scroll-a"))

    def test_an_address_names_a_node(self):
        self.open("#b:mm_11_chunk0")
        self.page.wait("document.querySelector('#detail table')")
        self.assertIn("%mm_11_chunk0", self.page.text("#detail"))

    def test_a_module_shows_what_its_nodes_became(self):
        self.choose("(none)")  # sums of gradients, whose parts are of the divided module
        divided = self.names("a")
        self.assertEqual(len(divided), 20)
        self.assertIn("%add_43", divided)
        self.assertEqual(sorted(self.names("b")), [f"{name}_chunk{part}" for name in divided for part in (0, 1)])

    def names(self, side):
        """The nodes on show."""
        return self.page.evaluate(f"sides.{side}.rows.filter(row => row >= 0).map(row => '%' + sides.{side}.name[row])")

    def test_the_counts_of_modules_are_not_cut_off(self):
        self.assertEqual(self.page.evaluate("(nav => nav.scrollWidth - nav.clientWidth)(document.getElementById('modules'))"), 0)

    def test_a_module_and_a_kind_of_change_select(self):
        self.choose("loss")
        self.page.click("#scroll-a .row:not(.head)")
        self.assertIn("removed", self.page.text("#detail"))
        self.page.click("#chips *", "removed")
        self.assertEqual(self.rows("a"), 0)


if __name__ == "__main__":
    unittest.main()
