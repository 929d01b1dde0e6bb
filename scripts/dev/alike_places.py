#!/usr/bin/env python3
"""Lines per folder, and pairs of places that share six or more lines (docs/architecture.md, "Size of the code").

    alike_places.py [--list] [--lines N] [ROOT]

A line counts for a pair without its indentation. Empty lines, comments, includes and imports do not count, nor do six
lines of less than 100 characters together. --list: the pairs, the longest first. ROOT: another checkout.
"""
import argparse
import collections
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tools", "scripts", "python")
SUFFIXES = (".cc", ".h", ".cu", ".py", ".sh")
SKIPPED = ("#", "//", "import ", "from ")


def lines_of(path):
    """[(number, text)] of the lines that count."""
    lines = [(i, line.strip()) for i, line in enumerate(path.read_text(errors="replace").splitlines(), 1)]
    return [(i, line) for i, line in lines if line and not line.startswith(SKIPPED)]


def find_pairs(texts, count):
    """[(lines, place, place)], a place being (path, position of its first line): the longest runs that are equal."""
    places = collections.defaultdict(list)
    for path, lines in texts.items():
        for k in range(len(lines) - count + 1):
            window = tuple(line for _, line in lines[k:k + count])
            if sum(map(len, window)) >= 100:
                places[window].append((path, k))
    starts = {(a, b) for same in places.values() for i, a in enumerate(same) for b in same[i + 1:]
              if a[0] != b[0] or abs(a[1] - b[1]) >= count}

    def moved(pair, by):
        return tuple((path, k + by) for path, k in pair)

    pairs = []
    for pair in starts:
        if moved(pair, -1) in starts:
            continue
        more = 0
        while moved(pair, more + 1) in starts:
            more += 1
        pairs.append((count + more, *pair))
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1:]))


def folder_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "src" else parts[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--lines", type=int, default=6)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=ROOT)
    options = parser.parse_args()
    files = {str(path.relative_to(options.root)): path for folder in FOLDERS for path in sorted((options.root / folder).rglob("*"))
             if path.suffix in SUFFIXES and path.is_file()}
    size = collections.Counter()
    for name, path in files.items():
        size[folder_of(name)] += len(path.read_bytes().splitlines())
    texts = {name: lines_of(path) for name, path in files.items()}
    pairs = find_pairs(texts, options.lines)
    count = collections.Counter()
    for _, (a, _), (b, _) in pairs:
        count[folder_of(a) if folder_of(a) == folder_of(b) else "across folders"] += 1
    for folder in sorted(size) + ["across folders"]:
        print(f"{folder:<16} {size[folder] or '':>8} {count[folder]:>5}")
    if options.list:
        for length, (a, i), (b, k) in pairs:
            print(f"{length:>3}  {a}:{texts[a][i][0]}  {b}:{texts[b][k][0]}")


if __name__ == "__main__":
    main()
