#!/usr/bin/env python3
"""Do the tests of the kernels notice a wrong formula? Makes wrong ones and runs the tests on each.

In a copy of the kernels' sources each formula gets variants: a sign turned, a product for a quotient, a comparison
turned or moved by its boundary, two arguments exchanged, a number off by one, the smaller for the larger. Each variant
stands behind a switch, `ew_mutant(n) ? wrong : right`, so that one build holds all. Then, for each op, each variant
that its cases (testdata/kernels/cases.json) reach is switched on and the cases are run: by the CPU's kernel, which must
give what PyTorch gives, and by the emulated device's, which must give the CPU's bits. The variants that no op's cases
find are run through the other tests of the kernels (TESTS). All run under the address sanitizer, as CI runs them too: it
finds what reads or writes beyond an end, of memory that is the CPU's.

Needs a build of the test program (cmake --build --preset release --target replay_kernels_device_test): its libraries and its
compiler's flags are used. Writes nothing outside --work. Variants that the compiler refuses are left out, and so are
those of testdata/kernels/equal_mutants.txt, which says why each computes the same. Prints the share that is found and
the survivors; exits 1 if there are any, or if a variant said to be equal is found or is not there.

Usage: mutate_kernels.py [--build DIR] [--work DIR] [--jobs N] [--files PATTERN...] [--list]
    --files: only variants of these sources (src/ left out, as replay/kernels/host/kernels_view.cc; with *)
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ["replay/kernels/math/element_ops.h", "replay/kernels/math/special_functions.h", "replay/kernels/host/sum.h",
           "replay/kernels/ops/loss_call.h", "replay/kernels/ops/search_call.h", "replay/kernels/ops/index_call.cc",
           "replay/kernels/ops/normalise_call.cc", "replay/kernels/ops/matrix_calls.h", "replay/kernels/ops/attention_call.cc",
           "replay/kernels/host/attention_tiles.cc", "replay/kernels/host/flex_attention.cc", "replay/kernels/host/kernels_*.cc",
           "replay/kernels/shared/blocks.cc", "replay/kernels/shared/scratch.cc", "replay/kernels/shared/moments.h",
           "replay/kernels/shared/reduction.h", "replay/kernels/shared/kernels_*.cc", "replay/kernels/tasks/index_tasks.h",
           "replay/kernels/tasks/rearrange_tasks.h", "replay/kernels/tasks/row_tasks.h"]
# All sources of these folders are built, and this file, in which the emulated device runs tasks;
# the rest is of the libraries.
FOLDERS = ["replay/kernels/host", "replay/kernels/ops", "replay/kernels/shared"]
DEVICE = ["replay/kernels/device/emulated.cc"]
SANITIZED = ["replay/values/block_cache.cc", "replay/values/tensor.cc"]  # blocks that the sanitizer must see, and who fills them
TESTS = ["kernels/host/kernels_test.cc", "kernels/ops/attention_call_test.cc", "kernels/host/reshape_test.cc", "kernels/host/error_bounds_test.cc",
         "kernels/math/special_functions_test.cc", "kernels/tasks/tasks_test.cc", "kernels/device/kernels_test.cc", "kernels/device/attention_test.cc",
         "kernels/device/collectives_test.cc"]
# Of these not the one that has run each variant, and not one that takes long and runs tiles of
# products, which have none.
OTHER_TESTS = """~[.mutants] ~"kernels of the device give the CPU's bits on PyTorch's cases" ~"products of every layout and dtype*\""""
ONLY_OF_MATH = " ~[#special_functions_test] ~[#error_bounds_test]"  # what these run are functions of math/, for a long time
EQUAL = ROOT / "testdata/kernels/equal_mutants.txt"
Mutant = collections.namedtuple("Mutant", "number file line kind before after")

# ---- reading C++ --------------------------------------------------------------------------------


def blank_comments(text):
    """Comments, strings and preprocessor lines as spaces, so that positions stay."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group())
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(?m:^[ \t]*#(?:[^\n]*\\\n)*[^\n]*)',
                  blank, text, flags=re.S)


def statements(text):
    """(start, end) of each piece of code between braces and semicolons, in function bodies only. A lambda's body
    counts; of a `for` the whole header is one piece."""
    stack, start, pieces = [("scope", 0)], 0, []
    for i, c in enumerate(text):
        if c == "(":
            stack.append(("(", i))
        elif c == ")":
            while stack[-1][0] != "(":
                stack.pop()
            stack.pop()
        elif c == "{":
            head = text[:i].rstrip()
            opens_body = re.search(r"(\)|\belse|\bdo|\bconst|\bnoexcept|->\s*[\w:<>]+)$", head) is not None
            stack.append(("body" if opens_body else "scope", i))
            start = i + 1
        elif c == "}":
            while stack[-1][0] == "(":
                stack.pop()
            stack.pop()
            start = i + 1
        elif c == ";" and stack[-1][0] != "(":
            if stack[-1][0] == "body":
                pieces.append((start, i + 1))
            start = i + 1
    return pieces


def matching(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return -1


def initialisers(code, start, end):
    """(start, end) of each one's value in `a = ..., b = ...`, of which that of `a` begins at start."""
    depth, first = 0, start
    for i in range(start, end):
        depth += {"(": 1, ")": -1, "[": 1, "]": -1, "{": 1, "}": -1}.get(code[i], 0)
        name = re.compile(r",\s*[&*]?\w+\s*=(?!=)\s*").match(code, i) if depth == 0 else None
        if name:
            yield first, i
            first = name.end()
    yield first, end


# ---- wrong variants of an expression ------------------------------------------------------------

EXCHANGES = [("sign", " + ", " - "), ("sign", " - ", " + "), ("quotient", " * ", " / "), ("quotient", " / ", " * "),
             ("comparison", " < ", " > "), ("comparison", " > ", " < "), ("comparison", " <= ", " > "),
             ("comparison", " >= ", " < "), ("boundary", " < ", " <= "), ("boundary", " > ", " >= "),
             ("boundary", " <= ", " < "), ("boundary", " >= ", " > "), ("comparison", " == ", " != "),
             ("comparison", " != ", " == "), ("comparison", " && ", " || "), ("comparison", " || ", " && "),
             ("sign", " += ", " -= "), ("sign", " -= ", " += "), ("extreme", "std::max(", "std::min("),
             ("extreme", "std::min(", "std::max("), ("constant", "true", "false"), ("constant", "false", "true")]


COMMUTATIVE = {"min", "max", "swap", "times", "wrapping_add", "wrapping_mul"}


def variants(expression):
    """(kind, text) of each wrong form."""
    code = blank_comments(expression)
    found = []

    def put(kind, start, end, new):
        found.append((kind, expression[:start] + new + expression[end:]))
    for kind, old, new in EXCHANGES:
        pattern = re.escape(old) if not old.isalpha() else rf"\b{old}\b"
        for m in re.finditer(pattern, code):
            put(kind, m.start(), m.end(), new)
    for m in re.finditer(r"(?<=[(,?:=] )-(?=[\w(])|(?<=\()-(?=[\w(])|(?<=^)-(?=[\w(])", code):  # a unary minus
        if not re.match(r"-1\b", code[m.start():]):
            put("sign", m.start(), m.end(), "")
    for m in re.finditer(r"(?<![\w.<])(\d+\.\d+(?:e[-+]?\d+)?|\d+)(?![\w.>])", code):
        number = m.group()
        put("constant", m.start(), m.end(), str(float(number) * 1.5 or 1.0) if "." in number else str(int(number) + 1))
    for m in re.finditer(r"\b(\w+)\(", code):
        if m.group(1) in COMMUTATIVE:
            continue
        inside = code[m.end():matching(code, m.end() - 1)]
        parts, depth, last = [], 0, 0
        for i, c in enumerate(inside + ","):
            depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(c, 0)
            if c == "," and depth == 0:
                parts.append((m.end() + last, m.end() + i))
                last = i + 1
        for (a, b), (c, d) in list(zip(parts, parts[1:]))[m.group(1) == "fma":]:  # its factors commute
            x, y = expression[a:b], expression[c:d]
            if x.strip() != y.strip() and d <= len(expression):
                put("arguments", a, d, y.strip() + ", " + x.strip())
    return found


# ---- the copy with switches ---------------------------------------------------------------------


class Copy:
    """One source file with its variants."""

    def __init__(self, path, first, dropped):
        self.path, self.text = path, (ROOT / "src" / path).read_text()
        self.code = blank_comments(self.text)
        self.number, self.dropped, self.mutants, self.edits = first, dropped, [], []
        for start, end in statements(self.code):
            if not any(a < start < b for a, b in self.device_only()):
                self.mutate(start, end)

    def device_only(self):
        """Spans of what only the device runs, steps of composites and the check of integer divisors;
        src/replay/kernels/device/kernels_test.cc compares these with the CPU's kernels."""
        for name in ("struct ShiftedExp ", "struct DivideRow ", "struct LogSumExp ", "struct KeepScore ", "struct KeepGradient ",
                     "struct ScaledSum ", "bool divides_integers("):
            at = self.code.find(name)
            if at >= 0:
                yield at, self.code.find("\n}", at)

    def add(self, at, expression):
        kept = []
        for kind, text in variants(expression):
            if kind == "boundary" and "math/" in self.path:
                continue  # both sides of a function's pieces agree where they meet
            number = self.number
            self.number += 1
            if number in self.dropped:
                continue
            self.mutants.append(Mutant(number, self.path, self.text.count("\n", 0, at) + 1, kind,
                                       " ".join(expression.split()), " ".join(text.split())))
            kept.append((number, " ".join(re.sub(r"//[^\n]*", "", text).split())))
        return kept

    def choose(self, at, expression):
        """The expression, or the variant that is on. One variant per line: the compiler names lines."""
        kept = self.add(at, expression)
        return "".join(f"\n/*{n}*/ ew_mutant({n}) ? ({t}) :" for n, t in kept) + f"\n({expression})" if kept else expression

    def mutate(self, start, end):
        code = self.code[start:end]
        start += len(code) - len(code.lstrip())
        code = self.code[start:end]
        m = re.match(r"(else\s+)?(if|while)\s*\(", code)
        if m or re.match(r"(else\s+)?if constexpr\s*\(", code) or re.match(r"for\s*\(", code):
            self.mutate_header(start, end)
            return
        if re.match(r"else\b", code):
            return self.mutate(start + 4, end)
        if re.match(r"case\b|default\b", code):
            colon = re.search(r"(?<!:):(?!:)", code)
            return self.mutate(start + colon.end(), end) if colon else None
        text = self.text[start:end]
        if "[&]" in code or "[=]" in code or re.match(r"(using|static|constexpr|throw|struct|template|break|continue)\b", code):
            return
        m = re.match(r"return\s+", code)
        if m:
            kept = self.add(start, text[m.end():-1])
            lines = "".join(f"\n/*{n}*/ if (ew_mutant({n})) return {t};" for n, t in kept)
            if kept:
                self.edits.append((start, end, "{" + lines + "\n" + text + "}"))
            return
        m = re.match(r"(?:const\s+)?[\w:]+(?:<[^=;]*>)?[&*]?\s+\w+\s*=\s*", code)
        if m:
            for first, last in initialisers(code, m.end(), len(code) - 1):
                self.edits.append((start + first, start + last, self.choose(start + first, text[first:last])))
        elif re.match(r"\*?[\w.]+(\[[^;=]*\])*(\.\w+|->\w+)*(\[[^;=]*\])* (=|\+=|-=|\*=|/=) ", code):
            self.choose_statement(start, end)
        elif re.match(r"[\w.:]+\(", code):
            self.choose_statement(start, end)

    def choose_statement(self, start, end):
        text = self.text[start:end]
        kept = self.add(start, text[:-1])
        if kept:
            lines = "".join(f"\n/*{n}*/ if (ew_mutant({n})) {t}; else" for n, t in kept)
            self.edits.append((start, end, "{" + lines + "\n" + text + "}"))

    def mutate_header(self, start, end):
        code = self.code[start:end]
        open_at = start + code.index("(")
        close_at = matching(self.code, open_at)
        if close_at < 0:
            return
        if re.match(r"\s*throw\b", self.code[close_at + 1:]):
            return  # what is refused is no formula
        inside = self.code[open_at + 1:close_at]
        is_constexpr = "constexpr" in self.code[start:open_at]
        if code.startswith("for"):
            first = inside.find(";")
            second = inside.find(";", first + 1)
            if first >= 0 and second > first + 1:
                at = open_at + 1 + first + 1
                until = open_at + 1 + second
                if "\n" not in inside[first:second] or True:
                    self.edits.append((at, until, self.choose(at, self.text[at:until].strip())))
        elif not is_constexpr and ";" not in inside and " = " not in inside and "[" not in inside[:2]:
            self.edits.append((open_at + 1, close_at, self.choose(start, self.text[open_at + 1:close_at])))
        if close_at + 1 < end:
            self.mutate(close_at + 1, end)

    def rewritten(self):
        text = self.text
        for start, end, new in sorted(self.edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text


def write_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def is_wanted(name, files):
    return any(fnmatch.fnmatch(name, pattern) for pattern in files)


def copies_of(files, dropped=frozenset()):
    """Of each source its variants, or its path where it is to have none."""
    number = 1
    for pattern in SOURCES:
        for path in sorted((ROOT / "src").glob(pattern)):
            name = str(path.relative_to(ROOT / "src"))
            if path.name.endswith("_test.cc"):
                continue
            if not is_wanted(name, files):
                yield name, None
                continue
            copy = Copy(name, number, dropped)
            number = copy.number
            yield name, copy


def make_copies(dropped, work, files=("*",)):
    mutants, numbers = [], 0
    for name, copy in copies_of(files, dropped):
        if copy is None:
            write_changed(work / "src" / name, (ROOT / "src" / name).read_text())
            continue
        mutants += copy.mutants
        numbers = copy.number - 1
        write_changed(work / "src" / name, copy.rewritten())
    # Inlined everywhere, functions of so many variants take minutes to compile.
    header = "replay/kernels/math/portable_math.h"
    plain = (ROOT / "src" / header).read_text().replace("[[gnu::always_inline]] inline", "inline")
    write_changed(work / "src" / header, plain)
    write_changed(work / "mutants.h","#pragma once\nextern int ew_active;\nextern unsigned char ew_reached[];\n"
                                    "inline bool ew_mutant(int n) {\n  ew_reached[n] = 1;\n  return ew_active == n;\n}\n")
    return mutants, numbers


def numbering_of(files):
    """Changes where what a number stands for may."""
    digest = hashlib.sha256(repr(files).encode())
    for name, copy in copies_of(files):
        digest.update(name.encode() + b"\0" + (copy.rewritten() if copy else "").encode())
    return digest.hexdigest()[:12]


# ---- building -----------------------------------------------------------------------------------


def flags_of(build):
    """The compiler and flags of the CPU kernels, without warnings and optimisation."""
    commands = json.loads(subprocess.run(["ninja", "-C", build, "-t", "compdb"], capture_output=True, text=True,
                                         check=True).stdout)
    command = next(c["command"] for c in commands if c["file"].endswith("replay/kernels/host/kernels_pointwise.cc"))
    words = [w for w in shlex.split(command) if not re.match(r"-W|-O|-M|-o$|-c$|.*\.(o|d|cc)$|ccache$|.*/ccache$", w)]
    return words


def name_in(source, work):
    """A source's path, whether it stands in the copy or here."""
    root = work / "src" if work in source.parents else ROOT
    return str(source.relative_to(root).with_suffix(""))


def build_objects(work, objects_folder, flags, numbers, jobs):
    """The objects, and the numbers of the variants that do not compile."""
    originals = [p.relative_to(ROOT / "src") for folder in FOLDERS for p in sorted((ROOT / "src" / folder).glob("*.cc"))
                 if not p.name.endswith("_test.cc")]
    sources = [work / "src" / p if (work / "src" / p).exists() else ROOT / "src" / p for p in originals]
    sources += [ROOT / "src" / name for name in DEVICE + SANITIZED]
    sources += [ROOT / "src/replay" / name for name in TESTS] + [ROOT / "scripts/dev/mutate_kernels.cc"]
    failed, objects = set(), []

    def compile_one(source):
        target = objects_folder / (name_in(source, work).replace("/", "+") + ".o")
        # A variant that is left out of a header later may stay in an object: nothing switches it
        # on.
        stamp = [source, *(h for h in (ROOT / "src/replay").rglob("*.h") if "conformance" not in h.name)]
        if source.name == "mutate_kernels.cc":
            stamp += (ROOT / "src/replay/kernels/host").glob("conformance*.h")
        if target.exists() and all(target.stat().st_mtime > s.stat().st_mtime for s in stamp):
            return target, ""
        command = [*flags[:1], f"-I{work}/src", *flags[1:], "-O0", "-w", "-fmax-errors=0", "-fsanitize=address", f"-DEW_MUTANTS={numbers}",
                   f'-DEPWEAVE_SOURCE_DIR="{ROOT}"', "-include", str(work / "mutants.h"), "-c", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        return target, done.stderr if done.returncode else ""
    objects_folder.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for target, errors in pool.map(compile_one, sources):
            objects.append(str(target))
            if errors:
                named = blamed(errors, work)
                if not named:
                    sys.exit(f"{target}: no variant is to blame for\n{errors[:4000]}")
                failed |= named
    return objects, failed


def blamed(errors, work):
    """The variants on the lines that the compiler names; if there are none, on those that it got there from."""
    for word in ("(?:fatal )?error", "  +required"):
        numbers = set()
        for m in re.finditer(rf"^(\S+?):(\d+):\d+: {word}", errors, flags=re.M):
            path = pathlib.Path(m.group(1))
            if work in path.parents:
                line = path.read_text().splitlines()[int(m.group(2)) - 1]
                numbers |= {int(n) for n in re.findall(r"/\*(\d+)\*/", line)}
        if numbers:
            return numbers
    return set()


def build(options, work):
    flags = flags_of(options.build)
    numbering = numbering_of(options.files)
    record = work / f"dropped-{numbering}.json"
    dropped = set(json.loads(record.read_text())) if record.exists() else set()
    while True:
        mutants, numbers = make_copies(dropped, work, options.files)
        objects, failed = build_objects(work, work / f"objects-{numbering}", flags, numbers, options.jobs)
        if not failed:
            break
        print(f"{len(failed)} variants do not compile and are left out", file=sys.stderr)
        dropped |= failed
        record.write_text(json.dumps(sorted(dropped)))
    libraries = [str(p) for p in sorted(pathlib.Path(options.build, "src").rglob("*.a"))]
    program = work / "mutants"
    # Of what stands in a library's unit beside what is taken from it, the first definition is the
    # copy's.
    subprocess.run([flags[0], "-fsanitize=address", "-Wl,--allow-multiple-definition", *objects, "-Wl,--start-group", *libraries, "-Wl,--end-group",
                    "-lCatch2WithMain", "-lfmt", "-lpthread", "-o", str(program)], check=True)
    return program, mutants


# ---- running ------------------------------------------------------------------------------------


def environment(**more):
    return os.environ | {"ASAN_OPTIONS": "detect_leaks=0:max_allocation_size_mb=2048"} | more


def run_cases(program, work, jobs):
    """The numbers of the variants that cases find. Each process takes some of the ops; what one finds the others may
    try again."""
    def run(part):
        result = work / f"result{part}.txt"
        subprocess.run([program, "[.mutants]"], check=True, env=environment(
            EPWEAVE_MUTATION_RESULT=str(result), EPWEAVE_MUTATION_PART=str(part), EPWEAVE_MUTATION_PARTS=str(jobs)))
        lines = (line.split() for line in result.read_text().splitlines())
        return [(op, int(number), word) for op, number, word in lines]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        lines = [line for part in pool.map(run, range(jobs)) for line in part]
    return {op for op, _, _ in lines}, {number for _, number, word in lines if word == "found"}


def run_tests(program, number, tests, seconds):
    """Of processor time: the machine may be busy."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    return subprocess.run([program, "--filenames-as-tags", tests], capture_output=True, env=environment(EPWEAVE_MUTANT=str(number)),
                          preexec_fn=limit).returncode


def find_by_tests(program, mutants, jobs):
    """The numbers of those of the variants that the other tests find."""
    of_math, others = ([m.number for m in mutants if ("/math/" in m.file) == is_math] for is_math in (True, False))
    found = set()
    for numbers, tests in ((of_math, OTHER_TESTS), (others, OTHER_TESTS + ONLY_OF_MATH)):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        if numbers and run_tests(program, 0, tests, 3600) != 0:
            sys.exit("the tests fail without a wrong formula")
        seconds = 20 + 4 * int(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            codes = list(pool.map(lambda n: run_tests(program, n, tests, seconds), numbers))
        found |= {n for n, code in zip(numbers, codes) if code != 0}
    return found


def read_equal():
    """{(file, before, after): why it computes the same}"""
    lines = [line for line in EQUAL.read_text().splitlines() if line and not line.startswith("#")]
    return {tuple(line.split("\t")[:3]): line.split("\t")[3] for line in lines}


def share(found, total):
    return f"{found} of {total} ({100 * found / max(total, 1):.1f} %)"


def report(mutants, kernels, by_cases, found, equal):
    """What docs/kernel_tests.md says of the run; and the survivors."""
    key = lambda m: (m.file, m.before, m.after)
    counted = [m for m in mutants if key(m) not in equal]
    yield f"kernels that run a variant: {len(kernels)}"
    yield f"variants: {len(mutants)}, of which {len(mutants) - len(counted)} compute the same"
    for kind in [None, *sorted({m.kind for m in counted})]:
        of_kind = [m for m in counted if kind in (None, m.kind)]
        yield f"  {kind or 'all'}: by cases {share(sum(m.number in by_cases for m in of_kind), len(of_kind))}, " \
              f"by cases or tests {share(sum(m.number in found for m in of_kind), len(of_kind))}"
    for m in counted:
        if m.number not in found:
            yield f"SURVIVES {m.number} {m.file}:{m.line} {m.kind}: {m.before}  ->  {m.after}"
    same = collections.defaultdict(set)
    for m in mutants:
        same[key(m)].add(m.number)
    for entry in equal:
        if entry in same and same[entry] <= by_cases:
            yield f"NOT EQUAL {entry[0]}: {entry[1]}  ->  {entry[2]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--work", default=str(ROOT / "build/mutants"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--files", nargs="+", default=["*"])
    parser.add_argument("--list", action="store_true", help="only list the variants")
    options = parser.parse_args()
    work = pathlib.Path(options.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    if options.list:
        for m in make_copies(set(), work, options.files)[0]:
            print(f"{m.number} {m.file}:{m.line} {m.kind}: {m.before}  ->  {m.after}")
        return
    program, mutants = build(options, work)
    print(f"{len(mutants)} variants", file=sys.stderr)
    start = time.monotonic()
    kernels, by_cases = run_cases(program, work, options.jobs)
    equal = read_equal()
    left = [m for m in mutants if m.number not in by_cases and (m.file, m.before, m.after) not in equal]
    print(f"{time.monotonic() - start:.0f} s; {len(left)} variants are not found by the cases; running the other tests", file=sys.stderr)
    found = by_cases | find_by_tests(program, left, options.jobs)
    lines = list(report(mutants, kernels, by_cases, found, equal))
    there = {(m.file, m.before, m.after) for m in mutants}
    lines += [f"NOT THERE {entry[0]}: {entry[1]}  ->  {entry[2]}" for entry in equal
              if entry not in there and is_wanted(entry[0], options.files)]
    print("\n".join(lines))
    sys.exit(any(line.startswith(("SURVIVES", "NOT ")) for line in lines))


if __name__ == "__main__":
    main()
