#!/usr/bin/env python3
"""Opens the pages of `report` and `diff --html` in a browser: they draw without an error, say what the text says, stay small
(page_test_case.py)."""
import json
import re
import unittest

import page_test_case


class ReportPageTest(page_test_case.PageTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_epweave("report", "in.epw.gz", "out.epw", "-o", "page.html", "-o", "page.json", "-o", "page.md")
        cls.page = json.loads((cls.folder / "page.json").read_text())

    def open(self, name):
        """The page, which draws without an error and asks for nothing else."""
        page = self.browser.page()
        self.addCleanup(page.close)
        page.goto(f"file://{self.folder / name}")
        self.assertEqual(page.errors, [])
        self.assertEqual(page.requests, [f"file://{self.folder / name}"])
        return page

    def text(self, name):
        return self.open(name).read()

    def test_it_says_what_the_report_says(self):
        text = self.text("page.html")
        self.assertIn("Proved.", text)
        self.assertIn("Times are predicted on h100, not measured; the end of the page says what they rest on.", text)
        for title in ["Token exchanges", "One module on the clock", "The whole step", "What is still exposed",
                      "Before and after", "Plan", "Difference", "not measured"]:
            self.assertIn(title, text)
        for row in self.page["exchanges"]:
            self.assertIn(f"{row['region']} {row['direction']} × {row['count']}", text)
        self.assertNotRegex(text, r"%arg\d|undefined|NaN|null")

    def test_long_names_break_between_words_alone(self):
        page = self.open("page.html")
        self.assertIn("layers.{0..5}.attention.wkv_b", page.read())
        cell = "[...document.querySelectorAll('td')].find(cell => cell.textContent.startsWith('layers.{0..5}.attention.wkv_b'))"
        parts = page.evaluate(f"[...{cell}.childNodes].map(part => part.nodeName === 'WBR' ? '|' : part.data).join('')")
        self.assertTrue(parts.startswith("layers.|{0..5}.|attention.|wkv_|b"), parts)

    def test_figures_of_a_row_have_one_unit(self):
        rows = [line for line in (self.folder / "page.md").read_text().splitlines() if line.startswith("| ")]
        units = [set(re.findall(r"(?<=\d )(?:s|ms|µs|[KMG]iB|[kMGTP]?B|[kMGTP]?flop)\b", row)) for row in rows]
        self.assertGreater(sum(map(bool, units)), 12)
        self.assertEqual([row for row, found in zip(rows, units) if len(found) > 1], [])

    def test_what_a_preset_chose_is_shown(self):
        self.run_epweave("rewrite", "in.epw.gz", "--preset", "overlap{parts=2}", "-q", "-o", "chosen.epw")
        self.run_epweave("report", "in.epw.gz", "chosen.epw", "-o", "chosen.html", "-o", "chosen.md", "-o", "chosen.json")
        plan = json.loads((self.folder / "chosen.json").read_text())["plan"]
        label = re.compile(r"(?<=^choose-chunks: )(choice|trial): ")
        choices = [note for note in plan["notes"] if label.search(note)]
        self.assertGreater(len(choices), 2)
        self.assertTrue(any(note.startswith("schedule: predicted: ") for note in plan["notes"]))
        self.assertIsNone(plan["trouble"])
        text, markdown = self.text("chosen.html"), (self.folder / "chosen.md").read_text()
        self.assertIn("What choose-chunks chose", text)
        self.assertRegex(text, r"memory=\d+ \(\d+\.\d\d MiB\)")
        self.assertRegex(text, r"\d+ outputs (have|regroup) ")
        for note in choices:
            shown = label.sub("", note)
            self.assertIn(shown.removeprefix("choose-chunks: "), text)
            self.assertIn(shown.replace("*", "\\*"), markdown)
        self.assertNotRegex(text, r"undefined|NaN|null")

    def test_an_assumption_says_why_and_what_is_proved(self):
        golden = (page_test_case.ROOT / "testdata/report/assumed.test").read_text()
        (self.folder / "assumed.txt").write_text(golden.split("=== a.txt ===\n")[1].split("=== stdout ===")[0])
        self.run_epweave("rewrite", "assumed.txt", "-p", "chunk{roots=layers.*}", "-q", "-o", "parts.txt")
        self.run_epweave("report", "assumed.txt", "parts.txt", "-o", "assumed.html", "-o", "assumed.json")
        (kind,) = [row for row in json.loads((self.folder / "assumed.json").read_text())["verdict"]["assumptions"] if row["why"]]
        text = self.text("assumed.html")
        self.assertIn(f"why: {kind['why']}", text)
        self.assertIn(f"spelling that is proved: {kind['spelling']}".replace("`", ""), text)

    def test_it_draws_every_bar(self):
        page = self.open("page.html")
        bars = sum(len(stream["bars"]) + len(stream["exposed"])
                   for picture in [*self.page["windows"], self.page["step"]] for side in "ab" for stream in picture[side])
        self.assertEqual(page.count("rect"), bars)
        self.assertEqual(page.count("svg"), len(self.page["windows"]) + 1)

    def test_a_page_without_exchanges(self):
        graph = "llama3_debug_fsdp4.1_norm.epw.gz"
        (self.folder / "dense.epw.gz").symlink_to(page_test_case.GRAPHS / graph)
        self.run_epweave("report", "dense.epw.gz", "dense.epw.gz", "-o", "dense.html")
        text = self.text("dense.html")
        self.assertIn("Proved.", text)
        self.assertNotIn("Token exchanges", text)
        self.assertNotRegex(text, r"undefined|NaN|null")

    def test_a_step_that_takes_no_time(self):
        (self.folder / "empty.txt").write_text("epweave text 1\ngraph\n  output([])\n")
        self.run_epweave("report", "empty.txt", "empty.txt", "-o", "empty.html")
        text = self.text("empty.html")
        self.assertIn("not measured", text)
        self.assertNotRegex(text, r"undefined|NaN|null")

    def test_the_size_is_bounded(self):
        big = "dsv3_671b_ep64.1b_remat.epw.gz"
        (self.folder / "big.epw.gz").symlink_to(page_test_case.GRAPHS / big)
        self.run_epweave("rewrite", "big.epw.gz", "--preset", "ep-overlap", "-q", "-o", "big.epw")
        self.run_epweave("report", "big.epw.gz", "big.epw", "-o", "big.html", "-o", "big.md")
        self.assertLess((self.folder / "big.html").stat().st_size, 300_000)
        self.assertLess((self.folder / "big.md").stat().st_size, 10_000)
        self.assertIn("layers.{3..60}.moe forward × 58", self.text("big.html"))

    def test_the_page_of_diff_opens(self):
        self.run_epweave("diff", "in.epw.gz", "out.epw", "--html", "diff.html", code=1)
        summary = json.loads(self.run_epweave("diff", "in.epw.gz", "out.epw", "--summary", "--json", code=1))
        text = self.text("diff.html")
        for kind in ("removed", "added", "divided", "moved"):
            self.assertRegex(text, rf"\b{kind} {summary['changes'][kind]}\b")
        self.assertIn("nodes of nested graphs are the same", text)


if __name__ == "__main__":
    unittest.main()
