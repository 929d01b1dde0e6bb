#!/usr/bin/env python3
"""Check that the folders of src/ include only what they may.

All folders share one include root, so a header of a library that is not linked still compiles. Here each
`#include "folder/..."` must name the folder itself or one that its CMake library depends on, directly or not
(tests: also their TEST_DEPENDS). `passes` and `replay` see neither each other nor protobuf. CLI11 is included
by one file per program. Prints each violation as FILE:LINE and exits 1 if there is any.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
LIBRARY = re.compile(r"epweave_library\(\s*(\w+)([^)]*)\)", re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
APART = {"passes": "replay", "replay": "passes"}
PROTOBUF = re.compile(r"google/protobuf/|\.pb\.h$")
# One per program, and what they share.
CLI11_FILES = (
    "tools/arguments.cc",
    "tools/check_random_graphs.cc",
    "tools/check_wrong_rewrites.cc",
    "tools/command_help.cc",
    "tools/command_line.cc",
    "tools/replay_command_line.cc",
    "tools/version.cc",  # its version alone
)


def read_libraries():
    """folder -> (DEPENDS, TEST_DEPENDS), names without the epweave_ prefix."""
    libraries = {}
    for path in sorted(SRC.glob("*/CMakeLists.txt")):
        text = re.sub(r"#.*", "", path.read_text())
        for name, rest in LIBRARY.findall(text):
            if name != path.parent.name:
                raise SystemExit(f"{path.relative_to(ROOT)}: the library {name} is not named after its folder")
            lists, current = {"DEPENDS": [], "TEST_DEPENDS": []}, None
            for word in rest.split():
                if word in lists:
                    current = word
                elif current:
                    lists[current].append(word.removeprefix("epweave_"))
            libraries[name] = lists["DEPENDS"], lists["TEST_DEPENDS"]
    return libraries


def reachable(libraries, start):
    """The libraries that `start` depends on, directly or not, with itself."""
    found, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(libraries.get(name, ([], []))[0])
    return found


def includes_of(path):
    text = path.read_text()
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[1] == '"', match[2]


def check_folder(libraries, folder):
    allowed = reachable(libraries, folder)
    if folder in APART and APART[folder] in allowed:
        yield f"src/{folder}/CMakeLists.txt: {folder} may not depend on {APART[folder]}"
    if folder in APART and "proto" in allowed:
        yield f"src/{folder}/CMakeLists.txt: {folder} may not depend on protobuf"
    for path in sorted((SRC / folder).rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
            continue
        is_test = path.stem.endswith("_test")
        may_use = allowed.union(*(reachable(libraries, d) for d in libraries[folder][1])) if is_test else allowed
        for line, quoted, name in includes_of(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            if PROTOBUF.search(name) and "proto" not in allowed:
                yield f"{where}: {folder} may not include protobuf ({name})"
            elif name.startswith("CLI/"):
                yield f"{where}: only {CLI11_FILES} may include CLI11"
            elif quoted and "/" in name and name.split("/")[0] not in may_use:
                yield f"{where}: {folder} does not depend on {name.split('/')[0]} ({name})"


def check_tools():
    for path in sorted((ROOT / "tools").glob("*.[hc]*")):
        for line, _, name in includes_of(path):
            if name.startswith("CLI/") and str(path.relative_to(ROOT)) not in CLI11_FILES:
                yield f"{path.relative_to(ROOT)}:{line}: only {CLI11_FILES} may include CLI11"


def main():
    libraries = read_libraries()
    violations = []
    for folder in sorted(p.name for p in SRC.iterdir() if p.is_dir()):
        if folder in libraries:
            violations += check_folder(libraries, folder)
        else:
            violations.append(f"src/{folder}: has no epweave_library({folder} ...)")
    violations += check_tools()
    print("\n".join(violations) or f"layering: {len(libraries)} libraries, no violation")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
