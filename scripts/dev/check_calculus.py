#!/usr/bin/env python3
"""Checks docs/rewrite_verification.md, "The calculus", against the code of `verify A B`.

The functions and classes in the tables' last columns are there; src/compare/rewrite/conditions.h names as many side conditions as
the page says, each under rules that the tables have, each asked by the code and dropped by tools/dev/check_rules.cc; and
src/compare/rewrite/verify_rewrite.h lists the violations. Exit code 1 where something is not so.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/rewrite_verification.md"
CODE = ROOT / "src/compare/rewrite"


def read_all(paths):
    return "\n".join(path.read_text() for path in sorted(paths) if not path.name.endswith("_test.cc"))


def list_rules(page):
    """{rule: names in its row's last column} of the calculus."""
    calculus = page[page.index("## The calculus") : page.index("### How the rules are tried")]
    rules = {}
    for line in calculus.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) >= 4 and cells[0] != "rule":
            rules[cells[0]] = re.findall(r"`([^`]+)`", cells[-1])
    return rules


def main():
    page, code = PAGE.read_text(), read_all([*CODE.glob("*.h"), *CODE.glob("*.cc")])
    header, drops = (CODE / "conditions.h").read_text(), (ROOT / "tools/dev/check_rules.cc").read_text()
    rules, wrong = list_rules(page), []
    for rule, names in rules.items():
        for name in names:
            if not re.search(rf"\b{re.escape(name.split('::')[-1])}\b", code):
                wrong.append(f"{rule}: {name} is nowhere in {CODE.relative_to(ROOT)}")
    conditions = [name for name in re.findall(r"^  (k\w+),$", header, re.M) if name != "kNone"]
    if f"`src/compare/rewrite/conditions.h` names {len(conditions)}." not in page:
        wrong.append(f"the page does not say that conditions.h names {len(conditions)}")
    for group in re.findall(r"^  // ([A-Z, ]+)$", header, re.M):
        wrong += [f"conditions.h: the page has no rule {rule}" for rule in group.split(", ") if rule not in rules]
    wrong += [f"{name}: the code does not ask it" for name in conditions if f"Condition::{name}" not in code]
    wrong += [f"{name}: check_rules.cc does not drop it" for name in conditions if not re.search(rf"\b{name}\b", drops)]
    listed = (CODE / "verify_rewrite.h").read_text()
    for violation in sorted(set(re.findall(r'"(rewrite-[a-z-]+)"', code))):
        if violation not in listed:
            wrong.append(f"{violation}: verify_rewrite.h does not list it")
    print("\n".join(wrong) if wrong else f"calculus: {len(rules)} rules, {len(conditions)} side conditions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
