#!/usr/bin/env python3
"""Feed damaged graphs to the tool: it must answer each with a documented exit code, quickly, and say why.

Takes small graphs in each form, changes them (bytes flipped, runs cut, doubled or exchanged, words
replaced by others of the same file, numbers by extreme ones) and runs a command on each. Binary graphs get a
right checksum again in most cases, so that the change is seen by the decoder and not by the checksum.
The same --seed gives the same changes. What fails is kept in --keep.

Exit codes: 0 nothing failed, 1 a crash, a hang, an undocumented exit code, or an error without a message.
"""
import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMS = {"binary": ".epw", "text": ".txt", "json": ".json", "onnx": ".onnx"}
# A graph with a bit of everything; the committed real graphs join it.
SMALL = """epweave text 1
device cuda:0
version producer="by hand"
info = {"model": "small", "world_size": 4, "list": [1, 2.5, None, (True,)]}
group 35 ranks=[0, 1] description=mesh_ep axes=[ep]
symbol u0 range=[8, 1024] hint=16 unbacked asserts=["Eq(Mod(u0, 8), 0)"]
symbol u1 range=[0, 64] hint=4 unbacked

graph
  %x = placeholder : f32[u0, 8] role=user which=x
  %w = placeholder : f32[8, 8] role=parameter fqn=layers.0.w
  %p = placeholder : f32[4] role=parameter fqn=p more{global_shape=[8], placements=[["_StridedShard", 0, 2], ["Replicate"]], shard_order=[[0, [0]]]}
  %p_mesh = placeholder : =mesh(["a", "b"], [2, 2], [[0, 1], [2, 3]], "cuda") role=parameter fqn=p more{inner="device_mesh"}
  %mm = aten.mm.default(%x, %w) : f32[u0, 8] @layers.0.moe seq=3 src="model.py:3 in forward: x @ w"
  %sort = aten.sort.stable(%mm, stable=True) : (f32[u0, 8], i64[u0, 8])
  %getitem = operator.getitem(%sort, 0) : f32[u0, 8]
  %neg = aten.neg.default(%getitem) : f32[u0, 8] bwd custom{k="v"} meta{m=[1, "a"]}
  %score = get_attr attr=graph(score)
  output([%neg, %mm])

graph score
  %a = placeholder : f32[]
  output(%a)
"""
# What a sanitizer finds must not look like "verification failed" (1, their default).
SANITIZERS = {"ASAN_OPTIONS": "exitcode=99", "UBSAN_OPTIONS": "exitcode=99"}
EXTREME = [b"0", b"-1", b"1", b"9223372036854775807", b"-9223372036854775808", b"4294967296", b"1e308", b"nan", b""]


def with_checksum(data):
    """The binary form with a right CRC at its end."""
    body = data[:-5]
    return body + b"\x7d" + zlib.crc32(body).to_bytes(4, "little")


def flip_bits(rng, data):
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)


def set_bytes(rng, data):
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def cut_run(rng, data):
    at = rng.randrange(len(data))
    del data[at:at + rng.randint(1, 64)]


def double_run(rng, data):
    at = rng.randrange(len(data))
    data[at:at] = data[at:at + rng.randint(1, 64)]


def exchange_runs(rng, data):
    length = rng.randint(1, 32)
    a, b = (rng.randrange(len(data)) for _ in range(2))
    data[a:a + length], data[b:b + length] = data[b:b + length], data[a:a + length]


def truncate(rng, data):
    del data[rng.randrange(len(data)):]


def replace_word(rng, data):
    words = list(re.finditer(rb"[\w.%]+", data))
    if words:
        target = rng.choice(words)
        data[target.start():target.end()] = rng.choice(words)[0]


def replace_number(rng, data):
    numbers = list(re.finditer(rb"-?\d+", data))
    if numbers:
        target = rng.choice(numbers)
        data[target.start():target.end()] = rng.choice(EXTREME)


def exchange_lines(rng, data):
    lines = bytes(data).split(b"\n")
    a, b = (rng.randrange(len(lines)) for _ in range(2))
    lines[a], lines[b] = lines[b], lines[a]
    data[:] = b"\n".join(lines)


BYTES = [flip_bits, set_bytes, cut_run, double_run, exchange_runs, truncate]
WORDS = [replace_word, replace_number, exchange_lines]


def mutate(rng, form, original):
    data = bytearray(original)
    for _ in range(rng.randint(1, 3)):
        if data:
            rng.choice(BYTES if form == "binary" or rng.random() < 0.3 else WORDS)(rng, data)
    if form == "binary" and len(data) > 5 and rng.random() < 0.9:
        return with_checksum(bytes(data))
    return bytes(data)


def commands(path, pipelines):
    """Name, arguments and allowed exit codes."""
    yield "verify", ["verify", path], (0, 1, 3)
    yield "print", ["print", path, "--json"], (0, 3)
    yield "stats", ["stats", path, "--json"], (0, 3)
    yield "verify --ranks", ["verify", "--ranks", path], (0, 1, 3)
    yield "doctor", ["doctor", path, "--json"], (0, 1, 3)
    yield "diff", ["diff", path, path, "--html", "-"], (0, 1, 2)
    yield "convert", ["convert", path, "-", "--to", "text"], (0, 3)
    for pipeline in pipelines:
        yield f"rewrite {pipeline}", ["rewrite", path, "-p", pipeline, "-o", "-", "--to", "text"], (0, 3, 4)


def make_seeds(epweave, graphs, folder):
    """(form, bytes) of each seed graph in each form."""
    small = folder / "small.txt"
    small.write_text(SMALL)
    for graph in [small, *graphs]:
        for form, extension in FORMS.items():
            path = folder / f"seed{extension}"
            subprocess.run([epweave, "convert", graph, path], check=True)
            yield form, path.read_bytes()


def run_case(options, arguments, allowed):
    """What is wrong with the tool's answer, or nothing."""
    try:
        result = subprocess.run([options.epweave, *arguments], capture_output=True, timeout=options.timeout,
                                env=os.environ | SANITIZERS, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {options.timeout} s"
    if result.returncode < 0:
        return f"killed by signal {-result.returncode}\n{result.stderr.decode(errors='replace')[-2000:]}"
    if result.returncode not in allowed:
        return f"exit {result.returncode}\n{result.stderr.decode(errors='replace')[-2000:]}"
    if result.returncode in (3, 4) and not result.stderr.startswith(b"epweave: error: "):
        return f"exit {result.returncode} without a message"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epweave", type=os.path.abspath, default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--runs", type=int, default=500, help="damaged graphs to try (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one run (%(default)s)")
    parser.add_argument("-p", "--pipeline", action="append", default=[], help="also rewrite with this")
    parser.add_argument("--keep", type=pathlib.Path, default=ROOT / "build" / "fuzz", metavar="DIR",
                        help="folder for the inputs that fail")
    parser.add_argument("graphs", nargs="*", type=pathlib.Path, help="further seeds")
    options = parser.parse_args()
    pipelines = options.pipeline or ["dce,canonicalize,dedup-unshard"]

    rng = random.Random(options.seed)
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        seeds = list(make_seeds(options.epweave, options.graphs, folder))
        for i in range(options.runs):
            form, original = seeds[i % len(seeds)]
            case = folder / f"case{FORMS[form]}"
            case.write_bytes(mutate(rng, form, original))
            choices = list(commands(str(case), pipelines))
            command, arguments, allowed = rng.choice(choices)
            if trouble := run_case(options, arguments, allowed):
                failures += 1
                options.keep.mkdir(parents=True, exist_ok=True)
                kept = options.keep / f"{options.seed}-{i}{FORMS[form]}"
                kept.write_bytes(case.read_bytes())
                print(f"{kept}: epweave {command}: {trouble}")
    print(f"fuzz: {options.runs} damaged graphs, {failures} failures (seed {options.seed})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
