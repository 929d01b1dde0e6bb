#!/usr/bin/env python3
"""Check that the folders of src/ include only what they may.

All folders share one include root, so a header of a library that is not linked still compiles. Here each
`#include "folder/..."` must lie in a folder of the including file's own library, or of one that this library
depends on in CMake, directly or not (tests: also their TEST_DEPENDS). Some libraries may not reach others at
all, whatever CMake says: APART. CLI11 is included by few files. Prints each violation as FILE:LINE and exits 1
if there is any.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
LIBRARY = re.compile(r"epweave_library\(\s*(\w+)([^)]*)\)", re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)
# Libraries that may not depend on others, directly or not. What verifies a rewrite knows nothing of
# how chunk decides what it writes; what executes graphs knows no pass; only io knows protobuf.
APART = {
    "analysis": ("proto", "placement", "cost"),
    "placement": ("proto",),
    "cost": ("proto", "placement"),
    "passes": ("proto", "compare", "replay"),
    "pipeline": ("proto", "compare", "replay"),
    "compare": ("proto", "placement", "passes", "pipeline", "replay"),
    "replay": ("proto", "placement", "passes", "pipeline", "compare"),
}
PROTOBUF = re.compile(r"google/protobuf/|\.pb\.h$")
# One per program, and what they share.
CLI11_FILES = (
    "tools/common/arguments.cc",
    "tools/common/command_help.cc",
    "tools/common/version.cc",  # its version alone
    "tools/dev/check_random_graphs.cc",
    "tools/dev/check_rank_programs.cc",
    "tools/dev/check_row_programs.cc",
    "tools/dev/check_wrong_rewrites.cc",
    "tools/epweave/command_line.cc", "tools/epweave/command_options.h",
    "tools/replay/replay_command_line.cc",
)


class Library:
    """What an epweave_library() of CMake says; names of libraries without the epweave_ prefix."""

    def __init__(self, name, cmake, words):
        lists, current = {"FOLDERS": [], "DEPENDS": [], "TEST_DEPENDS": []}, None
        for word in words:
            if word in lists:
                current = word
            elif current:
                lists[current].append(word.removeprefix("epweave_"))
        self.name = name
        self.folders = [(cmake / folder).relative_to(SRC).as_posix() for folder in lists["FOLDERS"] or ["."]]
        self.depends, self.test_depends = lists["DEPENDS"], lists["TEST_DEPENDS"]


def read_libraries():
    libraries = {"replay_kernels_math": Library("replay_kernels_math", SRC / "replay/kernels/math", [])}  # headers only
    for path in sorted(SRC.rglob("CMakeLists.txt")):
        text = re.sub(r"#.*", "", path.read_text())
        for name, rest in LIBRARY.findall(text):
            library = Library(name, path.parent, rest.split())
            if name not in (folder.replace("/", "_") for folder in library.folders):
                raise SystemExit(f"{path.relative_to(ROOT)}: the library {name} is not named after one of its folders")
            libraries[name] = library
    return libraries


def reachable(libraries, start):
    """The libraries that `start` depends on, directly or not, with itself."""
    found, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(libraries[name].depends if name in libraries else [])
    return found


def includes_of(path):
    text = path.read_text()
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[1] == '"', match[2]


def owner_of(owners, folder):
    """The library of a folder of src/; files below a library's folder that is none of its own (testing/) belong to it."""
    while folder and folder not in owners:
        folder = folder.rpartition("/")[0]
    return owners.get(folder)


def check_apart(libraries, name):
    reached = reachable(libraries, name)
    for start, others in APART.items():
        if name == start or name.startswith(start + "_"):
            for other in others:
                if other in reached:
                    yield f"the library {name} may not depend on {other}"


def check_file(libraries, owners, path):
    name = owner_of(owners, path.parent.relative_to(SRC).as_posix())
    if name is None:
        yield f"{path.relative_to(ROOT)}: is in no epweave_library()"
        return
    may_use = reachable(libraries, name)
    has_protobuf = "proto" in may_use
    if name.startswith("replay"):
        may_use = may_use | {"replay_kernels_math"}  # headers only
    if path.stem.endswith("_test") or path.stem.startswith("test_") or path.parent.name == "testing":
        may_use = may_use.union(*(reachable(libraries, d) for d in libraries[name].test_depends))
    for line, quoted, included in includes_of(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        folder = included.rpartition("/")[0]
        owner = owner_of(owners, folder) if quoted else None
        if PROTOBUF.search(included) and not has_protobuf:
            yield f"{where}: {name} may not include protobuf ({included})"
        elif included.startswith("CLI/"):
            yield f"{where}: only {CLI11_FILES} may include CLI11"
        elif quoted and folder and owner is None:
            yield f"{where}: {included} is in no library"
        elif owner is not None and owner not in may_use:
            yield f"{where}: {name} does not depend on {owner} ({included})"


def check_tools():
    for path in sorted((ROOT / "tools").rglob("*.[hc]*")):
        for line, _, name in includes_of(path):
            if name.startswith("CLI/") and path.relative_to(ROOT).as_posix() not in CLI11_FILES:
                yield f"{path.relative_to(ROOT)}:{line}: only {CLI11_FILES} may include CLI11"


def main():
    libraries = read_libraries()
    owners = {folder: library.name for library in libraries.values() for folder in library.folders}
    violations = [v for name in sorted(libraries) for v in check_apart(libraries, name)]
    for path in sorted(SRC.rglob("*")):
        if path.suffix in (".h", ".cc") or path.suffix in (".cu", ".cuh") and "cuda" not in path.parts:
            violations += check_file(libraries, owners, path)
    violations += check_tools()
    print("\n".join(violations) or f"layering: {len(libraries)} libraries, no violation")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
