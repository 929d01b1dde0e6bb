#!/usr/bin/env python3
"""Check that tools/dev/random_coverage.cc lists every refusal of chunk, memory policies and partitions, and no other.

Prints what is missing or too many; exit code 1 if there is any.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ID = re.compile(r'"((?:chunk|memory-policy|recompute|cpu-offload|partition)\.[a-z-]+)"')


def ids_in(paths):
    return {name for path in paths for name in ID.findall(path.read_text(encoding="utf-8"))}


def main():
    sources = [p for folder in ("analysis", "placement", "partition", "passes", "pipeline")
               for p in (ROOT / "src" / folder).rglob("*.cc")
               if not p.name.endswith("_test.cc")]
    used, listed = ids_in(sources), ids_in([ROOT / "tools/dev/random_coverage.cc"])
    for name in sorted(used - listed):
        print(f"tools/dev/random_coverage.cc does not list {name}")
    for name in sorted(listed - used):
        print(f"tools/dev/random_coverage.cc lists {name}, which nothing refuses with")
    return 1 if used != listed else 0


if __name__ == "__main__":
    sys.exit(main())
