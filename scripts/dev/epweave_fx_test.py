#!/usr/bin/env python3
"""Tests of epweave_fx.py that need nothing but Python.

With EPWEAVE_DUMPS set to a folder of fx-dump-1 files, these are round-tripped too.
"""
import contextlib
import copy
import errno
import glob
import gzip
import io
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, SCRIPTS)
import epweave_fx  # noqa: E402

PROTO = os.path.join(SCRIPTS, "..", "proto", "epweave.proto")

TENSOR = {"shape": [4, {"sym": "u0", "hint": 12}], "stride": [{"sym": "u0", "hint": 12}, 1],
          "dtype": "torch.bfloat16", "device": "cuda:0", "requires_grad": False}
ARGUMENTS = [
    {"n": "x"}, 0, 1, -1, 2 ** 63 - 1, -(2 ** 63), 2 ** 64 - 1, True, False, 1.0, -0.0, 0.1, 1e300, None,
    "text", "", "größe", [1, [2]], {"t": [{"n": "x"}, {"t": []}]}, {"slice": [None, {"n": "x"}, 2]},
    {"dtype": "torch.float32"}, {"device": "cuda:0"}, {"layout": "torch.strided"},
    {"mf": "torch.contiguous_format"}, {"f": "inf"}, {"f": "-inf"}, {"f": "nan"},
    {"complex": [1.0, {"f": "inf"}]}, {"sym": "u0//2 + 1", "hint": 7}, {"sym": "u1"},
    {"sym": "Eq(Mod(u0, 4), 0)", "hint": True}, {"sym": "Unknown(u0)"},
    {"graph": "body"}, {"mesh": {"axes": ["dp"], "shape": [2], "ranks": [0, 1], "device_type": "cuda"}},
    {"mesh": {"axes": [], "shape": [], "ranks": 0}}, {"pg": "7"}, {"dict": [["k", {"n": "x"}], [3, []]]},
    {"namedtuple": "Point", "fields": {"x": 1, "y": {"n": "x"}}}, {"repr": "<thing>", "cls": "Thing"},
    {"op": "aten.mm.default"}, {"ellipsis": True}, {"tensor": {**TENSOR, "values": [1, 2.5]}},
    {"set": [1, "a"]},
]
VALUES = [
    TENSOR, {**TENSOR, "storage_offset": 3}, {**TENSOR, "storage_offset": {"sym": "u1"}},
    {"shape": [], "stride": [], "dtype": "torch.int64", "device": "cpu", "requires_grad": True},
    {"shape": [3], "layout": "torch.sparse_coo", "dtype": "torch.int64", "device": "cpu",
     "requires_grad": False, "cls": "Sparse"},
    {"sym": "u0", "hint": 12, "symtype": "SymInt"}, {"sym": "u1", "symtype": "SymInt"},
    {"sym": "u0 >= 3", "hint": True, "symtype": "SymBool"}, 5, None, True, 2.5, "name", {"f": "nan"},
    {"device": "cuda:0"}, {"pg": "7"}, {"mesh": {"axes": ["dp"], "shape": [1], "ranks": [0],
                                                "device_type": "cuda"}},
    [TENSOR, None, [3]], {"t": [TENSOR, {"sym": "u1", "symtype": "SymInt"}, {"t": []}]}, [],
    {"repr": "<thing>", "cls": "Thing"},
]
META = {
    "custom": {"module_fqn": "layers.0.moe", "EP": "dispatch", "EP_token_count_exchange": "dispatch",
               "EP_token_count_sync": "dispatch", "EP_token_exchange": "combine",
               "EP_token_exchange_wait": "combine", "chunk_id": 0, "nested": {"a": [1, {"t": [2.5]}]}},
    "autograd_backward": False, "seq_nr": 0, "stack_trace": "a.py:1 in f: x", "recompute": "MUST_SAVE",
    "chunked_region_fqn": "layers.0.moe", "chunked_region_role": "body", "chunk_id": 1,
    "chunked_region_is_backward": True, "chunked_region_producer": "graph",
    "chunked_original_name": "mm", "chunked_materialization_proof": "symbolic_size",
    "unbacked_bindings": {"u0": [{"kind": "CallMethodKey", "name": "size"},
                                 {"kind": "SequenceKey", "idx": 0},
                                 {"kind": "DivideByKey", "divisor": 4}], "u1": []},
    "torchtitan_chunk_symbol_hints": {"u0": 12, "u1": 0},
    "fsdp_bucket": {"plan_fqns": {"t": ["a"]}, "direction": "fwd"},
    "plain": [{"f": "-inf"}, {"set": ["1"]}, {"n": "x"}, {"t": [1], "other": 2}, {}, {"dict": [[1, 2]]},
              {"repr": "r", "cls": "C"}, {"dtype": "a dictionary"}],
}
MISFITS = {  # values whose class is not that of the key's field
    "custom": {"module_fqn": 3, "EP": None}, "autograd_backward": None, "seq_nr": 2 ** 64 - 1,
    "stack_trace": None, "recompute": 1, "chunk_id": True, "chunked_region_fqn": ["a"],
    "unbacked_bindings": {}, "torchtitan_chunk_symbol_hints": {"u0": "12"},
}


def node(name, op="call_function", target="aten.relu.default", args=(), meta=None, **more):
    return {"name": name, "op": op, "target": target, "args": list(args), "kwargs": {},
            "meta": meta or {}, **more}


def sample_dump():
    """A dump with every form of argument, value, metadata and table entry."""
    nodes = [node("x", "placeholder", "x", meta=META), node("y", args=ARGUMENTS, meta=MISFITS, type="int")]
    nodes[1]["kwargs"] = {"dtype": {"dtype": "torch.float32"}, "flag": False}
    nodes += [node(f"v{i}", meta={"val": v, "example_value": v}) for i, v in enumerate(VALUES)]
    nodes += [
        node("body", "get_attr", "body", attr={"graph": "body"}, meta={"custom": {}}),
        node("c", "get_attr", "c", attr={"attr": "c", **TENSOR, "values": [[1, math.inf], [0.5, True]]}),
        node("d", "get_attr", "d", attr={"attr": "d", **TENSOR}, meta={"custom": None}),
        node("e", "get_attr", "e", attr={"pg": "7"}),
        node("output", "output", "output", [[{"n": "y"}, None]]),
    ]
    return copy.deepcopy({
        "format": "fx-dump-1", "meta": {"model": "toy", "numbers": [1, 2.5, True, None], "empty": {}},
        "process_groups": [{"name": "0", "ranks": [0, 1], "desc": "default", "axes": ["dp", "ep"]},
                           {"name": "1", "ranks": [], "desc": None, "axes": []},
                           {"name": "2", "ranks": [0], "desc": "", "priority": "high",
                            "split_from": "0", "backend": "nccl"}],
        "symbols": {"u0": {"range": ["2", "int_oo"], "hint": 12, "size_like": True, "unbacked": True,
                           "deferred_asserts": ["u0 <= 64", "Eq(Mod(u0, 4), 0)"]},
                    "u1": {"range": ["0", "int_oo"], "unbacked": True, "deferred_asserts": []},
                    "s0": {"range": ["2", "9"], "hint": 0, "unbacked": False}, "u2": {"replaced_by": "u0"}},
        "inputs": [{"name": "x", "role": "parameter", "fqn": "w", "requires_grad": True,
                    "global_shape": [8, {"sym": "u0", "hint": 12}], "which": 3}],
        "outputs": [{"role": "loss"}, {"role": "grad", "fqn": "w", "inner": "_local_tensor"}],
        "meta_keys_seen": {},
        "graphs": {"": {"nodes": nodes},
                   "body": {"nodes": [node("a", "placeholder", "a"), node("output", "output", "output",
                                                                         [{"n": "a"}])]}},
    })


class Schema(unittest.TestCase):
    def test_table_agrees_with_the_proto(self):
        """The embedded table has the messages, fields, numbers, labels and references of the proto."""
        references = {"sref": "sref", "srefs": "sref", "tref": "tref", "trefs": "tref",
                      "extent": "extent", "extents": "extent"}
        messages, enums, stack, oneof = {}, {}, [], False
        with open(PROTO) as f:
            for line in f:
                code, _, comment = line.partition("//")
                code = code.strip()
                if found := re.fullmatch(r"(message|enum) (\w+) \{", code):
                    stack.append(found.groups())
                    (messages if found[1] == "message" else enums).setdefault(
                        "".join(name for _, name in stack) if found[1] == "enum" else found[2], [])
                elif code.startswith("oneof"):
                    oneof = True
                elif code == "}":
                    if oneof:
                        oneof = False
                    else:
                        stack.pop()
                elif stack and stack[-1][0] == "enum":
                    enums["".join(name for _, name in stack)].append(code.split()[0])
                elif found := re.fullmatch(r"(optional |repeated |)(\w+) (\w+) = (\d+);", code):
                    label, kind, name, number = found.groups()
                    word = re.match(r"\w*", comment.strip())[0]
                    kind = references.get(word, kind) if kind in ("uint32", "sint64") else \
                        {"Kind": "NodeKind", "Role": "ProvenanceRole"}.get(kind, kind)
                    mark = "|" if oneof else {"repeated ": "*", "optional ": "?", "": ""}[label]
                    messages[stack[-1][1]].append(f"{number}:{name}:{mark}{kind}")
        self.assertEqual({name: " ".join(fields) for name, fields in messages.items()},
                         epweave_fx.SCHEMA)
        self.assertEqual({name: tuple(values) for name, values in enums.items()}, epweave_fx.ENUMS)


def small_message():
    relu = ("tensor", {"dtype": "torch.float32", "sizes": [2, "u0"], "strides": ["u0", 1],
                       "device": "cpu"})
    return {"version": {"format": 1, "min_reader": 1, "producer": "p"},
            "graphs": [{"nodes": [
                {"name": "a", "kind": "PLACEHOLDER", "target": "a",
                 "type": ("tuple", [relu, None, copy.deepcopy(relu)])},
                {"name": "b", "target": "t", "args": [("node", "a"), ("integer", 0), ("real", -0.0),
                                                     ("list", [])], "type": relu, "seq_nr": 0}]}]}


class Codec(unittest.TestCase):
    def test_canonical_bytes(self):
        """Every byte of a small file, by hand: strings and types in the order of first use."""
        def block(tag, body):
            return bytes([tag, len(body)]) + body

        names = ["a", "torch.float32", "u0", "cpu", "b", "t"]
        tensor = b"\x08\x02" + block(0x12, bytes([4, 5])) + block(0x1a, bytes([5, 2])) + b"\x28\x04"
        types = [block(0x0a, tensor), block(0x1a, block(0x0a, bytes([1, 0, 1])))]
        a = b"\x08\x01\x10\x01\x18\x01\x30\x02"
        arguments = [b"\x38\x01", b"\x18\x00", b"\x21" + struct.pack("<d", -0.0), b"\x4a\x00"]
        b = (b"\x08\x05\x18\x06" + b"".join(block(0x22, x) for x in arguments)
             + b"\x30\x01\x60\x00")
        expected = (b"\x0a\x07epweave" + block(0x12, b"\x08\x01\x10\x01" + block(0x1a, b"p"))
                    + block(0x52, block(0x12, a) + block(0x12, b))
                    + b"".join(block(0x6a, t) for t in types)
                    + b"".join(block(0x72, n.encode()) for n in names))
        expected += b"\x7d" + struct.pack("<I", zlib.crc32(expected))
        self.assertEqual(epweave_fx.encode_file(small_message()), expected)

    def test_decoding_is_the_inverse(self):
        data = epweave_fx.encode_file(small_message())
        message = epweave_fx.decode_file(data)
        self.assertEqual(message, small_message())
        self.assertEqual(epweave_fx.encode_file(message), data)

    def test_all_values_and_defaults(self):
        values = [("none", True), ("boolean", False), ("integer", -(2 ** 63)), ("real", 0.0),
                  ("nan", 0x7FF8000000000123), ("text", ""), ("symbolic", "u0"), ("tuple", []),
                  ("dict", [("text", "k"), ("none", True)]), ("ellipsis", True), ("type_ref", None),
                  ("tensor", [("none", True), ("type_ref", ("scalar", {"expression": "u0",
                                                                       "py_type": "SymInt"}))])]
        message = {"version": {"format": 1}, "info": ("list", values), "passes": [
            {"name": "p", "nodes_before": 300, "notes": ["", "n"]}], "symbols": [
                {"name": "u0", "hint": 0, "unbacked": False, "asserts": ["a"]}]}
        self.assertEqual(epweave_fx.decode_file(epweave_fx.encode_file(message)), message)

    def test_unknown_fields_survive(self):
        data = epweave_fx.encode_file(small_message())
        body = data[:-5].replace(b"\x12\x07\x08\x01\x10\x01\x1a\x01p", b"\x12\x0a\x08\x01\x10\x01\x1a\x01p"
                                 + b"\xf8\x06\x05") + b"\xfa\x06\x02hi"
        data = body + b"\x7d" + struct.pack("<I", zlib.crc32(body))
        self.assertEqual(epweave_fx.encode_file(epweave_fx.decode_file(data)), data)

    def refusal(self, data):
        with self.assertRaises(epweave_fx.GraphFileError) as caught:
            epweave_fx.decode_file(data)
        return f"{caught.exception}: {caught.exception.remedy}"

    def test_refusals(self):
        data = epweave_fx.encode_file(small_message())
        damaged = "is truncated or altered: its checksum does not match: copy or write it again"
        for cut in range(9, len(data)):
            self.assertEqual(self.refusal(data[:cut]), damaged)
        for i in range(9, len(data)):
            self.assertEqual(self.refusal(data[:i] + bytes([data[i] ^ 1]) + data[i + 1:]), damaged)
        for other in (b"", b"{}", data[1:]):
            self.assertEqual(self.refusal(other), "is not an epweave binary graph file: convert other forms with `epweave convert`;"
                                                  " epweave.export makes one of a torch.fx graph")
        self.assertEqual(
            self.refusal(epweave_fx.encode_file({"version": {"format": 9, "min_reader": 2}})),
            "needs a reader of format 2; this one reads format 1: use a newer epweave")
        self.assertEqual(
            self.refusal(epweave_fx.encode_file({"version": {"required_features": ["warp"]}})),
            'requires the feature "warp", which this reader does not have: use a newer epweave')


class Expressions(unittest.TestCase):
    def test_values(self):
        hints = {"u0": 12, "s1": 5}
        for text, value in {
                "u0": 12, "7": 7, "-u0 + 2*s1": -2, "(u0//5)": 2, "Mod(u0, 5)": 2, "u0**2": 144,
                "Max(0, Min(u0, 3))": 3, "Eq(u0, 12)": True, "Ne(u0, 12)": False, "u0 <= 3": False,
                "Eq(u0, 1) | (s1 > 2)": True, "~(s1 < 2) & (u0 >= 12)": True, "u0/5": 2, "u9 + u0": None,
                "CeilToInt(IntTrueDiv(u0, 5))": 3, "u0 < int_oo": True,
                "Piecewise((1, Eq(u0, -3) & (u0 < 0)), (u0//5, s1 > 1), (0, True))": 2,
                "And(Lt(s1, u0), Not(Eq(u0, 1)))": True, "3*Or(Ge(s1, 9), Gt(s1, 8)) + 1": 1}.items():
            with self.subTest(text):
                self.assertIs(type(epweave_fx.evaluate(text, hints)), type(value))
                self.assertEqual(epweave_fx.evaluate(text, hints), value)
        for text in ("u0 +", "Strange(u0)", "u0.x", "u0//0", "int_oo"):
            with self.subTest(text), self.assertRaises(epweave_fx.ExpressionError):
                if epweave_fx.evaluate(text, hints) is None:
                    raise epweave_fx.ExpressionError


class Command(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def path(self, name, content=None):
        path = os.path.join(self.directory, name)
        if content is not None:
            with open(path, "wb") as f:
                f.write(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    def run_tool(self, *arguments, stdin=b""):
        """(exit code, stdout, stderr) of the command; the directory's name is left out."""
        done = subprocess.run([sys.executable, os.path.join(SCRIPTS, "epweave_fx.py"), *arguments],
                              input=stdin, capture_output=True)
        return done.returncode, done.stdout, done.stderr.decode().replace(self.directory + "/", "")

    def test_dump_to_file_to_dump(self):
        source, graph, back = self.path("a.json", sample_dump()), self.path("a.epw"), self.path("b.json")
        self.assertEqual(self.run_tool("from-dump", source, graph), (0, b"", ""))
        self.assertEqual(self.run_tool("to-dump", graph, back), (0, b"", ""))
        with open(back) as f:
            # Two NaN differ; compare the text.
            self.assertEqual(json.dumps(json.load(f), sort_keys=True),
                             json.dumps(sample_dump(), sort_keys=True))

    def test_gzip_pipes_and_determinism(self):
        dump = gzip.compress(json.dumps(sample_dump()).encode())
        source, packed = self.path("a.json.gz", dump), self.path("a.epw.gz")
        code, plain, _ = self.run_tool("from-dump", "-", "-", stdin=dump)
        self.assertEqual(code, 0)
        self.assertEqual(plain[:9], b"\x0a\x07epweave")
        results = []
        for name in ("a.epw.gz", "other.gz"):
            self.assertEqual(self.run_tool("from-dump", source, self.path(name)), (0, b"", ""))
            with open(self.path(name), "rb") as f:
                results.append(f.read())
        self.assertEqual(results[0], results[1])
        self.assertEqual(gzip.decompress(results[0]), plain)
        self.assertEqual(self.run_tool("to-dump", packed, "-"),
                         self.run_tool("to-dump", "-", "-", stdin=plain))
        self.assertEqual(sorted(os.listdir(self.directory)), ["a.epw.gz", "a.json.gz", "other.gz"])

    def test_links_are_followed_and_pipes_written_to(self):
        source, target = self.path("a.json", sample_dump()), self.path("b.epw", b"old")
        link, pipe = self.path("link.epw"), self.path("pipe.epw")
        os.symlink(target, link)
        os.mkfifo(pipe)
        self.assertEqual(self.run_tool("from-dump", source, link), (0, b"", ""))
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            self.assertEqual(self.run_tool("from-dump", source, pipe), (0, b"", ""))
            read = reader.stdout.read()
        with open(target, "rb") as f:
            self.assertEqual(f.read(), read)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(sorted(os.listdir(self.directory)), ["a.json", "b.epw", "link.epw", "pipe.epw"])

    def test_streams_that_are_full_or_closed(self):
        program = os.path.join(SCRIPTS, "epweave_fx.py")
        source, graph = self.path("a.json", sample_dump()), self.path("a.epw")
        self.assertEqual(self.run_tool("from-dump", source, graph), (0, b"", ""))
        for redirection, reason in ((">/dev/full", "written: No space left on device"), (">&-", "written: Bad file descriptor"),
                                    ("| true", "written: Broken pipe"), ("<&-", "read: Bad file descriptor")):
            words = f"to-dump - {self.path('b.json')}" if "read" in reason else f"to-dump {graph} -"
            pause = "sleep 0.3; " if redirection == "| true" else ""  # until nobody reads
            command = f"{{ {pause}{sys.executable} {program} {words}; echo $? >&2; }} {redirection}"
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
            self.assertEqual((done.stdout, done.stderr), ("", f"epweave_fx: -: cannot be {reason}\n3\n"))
        self.assertEqual(sorted(os.listdir(self.directory)), ["a.epw", "a.json"])

    def test_output_that_python_replaced(self):
        """It has no descriptor of the system that could be pointed elsewhere."""
        class Full(io.BytesIO):
            def write(self, _):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        source = self.path("a.json", sample_dump())
        said = io.StringIO()
        with contextlib.redirect_stdout(io.TextIOWrapper(Full())), contextlib.redirect_stderr(said):
            code = epweave_fx.main(["from-dump", source, "-"])
        self.assertEqual((code, said.getvalue()), (3, "epweave_fx: -: cannot be written: No space left on device\n"))

    def test_a_dump_says_what_it_leaves_out(self):
        graph = self.path("a.epw")
        message = epweave_fx.file_from_dump(sample_dump())
        message["passes"] = [{"name": "dce"}]
        epweave_fx.write_file(message, graph)
        code, _, said = self.run_tool("to-dump", graph, "-")
        self.assertEqual((code, said), (0, "epweave_fx: a.epw: a dump has no place for the pipeline log and"
                                           " provenance; left out\n"))

    def test_broken_graphs_pass_through(self):
        """Dangling references, repeated names, a wrong order and cycles are `verify`'s business."""
        dump = sample_dump()
        dump["graphs"]["body"]["nodes"] = [
            node("a", args=[{"n": "b"}]), node("b", args=[{"n": "a"}]), node("a", args=[{"n": "none"}]),
            node("output", "output", "output"), node("late", "placeholder", "late")]
        message = epweave_fx.decode_file(epweave_fx.encode_file(epweave_fx.file_from_dump(dump)))
        self.assertEqual(epweave_fx.dump_from_file(message)["graphs"]["body"], dump["graphs"]["body"])

    def check_bad(self, content, expected, command="from-dump"):
        source, target = self.path("bad", content), self.path("out")
        self.assertEqual(self.run_tool(command, source, target), (3, b"", expected))
        self.assertEqual(os.listdir(self.directory), ["bad"])

    def test_unreadable_input(self):
        self.check_bad(b"nonsense", "epweave_fx: bad: is not JSON (Expecting value: line 1 column 1"
                                    " (char 0)); give an fx-dump-1 file\n")
        self.check_bad(gzip.compress(b"{}" * 50)[:-9], "epweave_fx: bad: is a damaged gzip file"
                       " (Compressed file ended before the end-of-stream marker was reached)\n"
                       "  remedy: copy or write it again\n")
        self.check_bad({"format": "x"}, 'epweave_fx: bad: is not an fx-dump-1 file (its "format" says'
                                        ' "x"); make the dump again\n')
        self.check_bad([], 'epweave_fx: bad: is not an fx-dump-1 file (its "format" says null);'
                           " make the dump again\n")
        self.check_bad(b"\x0a\x07epweave", "epweave_fx: bad: is truncated or altered: its checksum"
                       " does not match\n  remedy: copy or write it again\n", "to-dump")
        self.check_bad({}, "epweave_fx: bad: is not an epweave binary graph file\n  remedy: convert other forms with"
                           " `epweave convert`; epweave.export makes one of a torch.fx graph\n", "to-dump")
        self.assertEqual(self.run_tool("from-dump", self.path("none"), "-"),
                         (3, b"", "epweave_fx: none: cannot be read: No such file or directory\n"))
        source = self.path("a.json", sample_dump())
        self.assertEqual(
            self.run_tool("from-dump", source, self.path("no/dir")),
            (3, b"", "epweave_fx: no/dir: cannot be written: No such file or directory\n"))
        self.assertEqual(
            self.run_tool("from-dump", source, self.path("a.txt.gz")),
            (3, b"", "epweave_fx: a.txt.gz: has the ending of another form, but only the binary form"
                     " is written here\n  remedy: end the name in .epw (and .gz behind it), and use `epweave convert`\n"))
        for name, ending in (("a.TXT", "TXT"), ("a.xyz", "xyz"), ("a.txt.bz2", "bz2"), ("a.xyz.gz", "xyz")):
            code, _, said = self.run_tool("from-dump", source, self.path(name))
            self.assertEqual((code, said), (3, f"epweave_fx: {name}: the ending .{ending} names no form\n"
                                               "  remedy: end the name in .epw (and .gz behind it)\n"))
            self.assertFalse(os.path.exists(self.path(name)))
        for name in ("a", "a.epw.gz", "tmp.Ab12Cd34"):
            self.assertEqual(self.run_tool("from-dump", source, self.path(name))[0], 0)
        self.assertEqual(self.run_tool("unknown")[0], 2)

    def test_malformed_dumps(self):
        def edited(edit):
            dump = sample_dump()
            edit(dump, dump["graphs"][""]["nodes"][1])
            return dump

        for edit, message in (
                (lambda d, n: d.pop("symbols"), 'the dump has no "symbols"'),
                (lambda d, n: d.update(graphs=[]), 'the dump has "graphs": [], of the wrong type'),
                (lambda d, n: d.update(extra=1), 'the dump has the unknown key "extra"'),
                (lambda d, n: d["graphs"].pop(""),
                 'the first graph is not the step, which has the name ""'),
                (lambda d, n: d["graphs"].update(body=3), 'graph "body" is 3, not an object'),
                (lambda d, n: n.pop("name"), 'graph "": node 1 has no "name"'),
                (lambda d, n: n.pop("target"), 'graph "", node "y": the node has no "target"'),
                (lambda d, n: n.update(op="call_method"), 'graph "", node "y": op "call_method" has no'
                 " place in the file; only call_function, placeholder, get_attr, output have"),
                (lambda d, n: n.update(args=[{"what": 1}]),
                 'graph "", node "y": unknown form of argument {"what": 1}'),
                (lambda d, n: n["meta"].update(val={"shape": [1]}),
                 'graph "", node "y": a tensor value has no "dtype"'),
                (lambda d, n: n["meta"].update(val={**TENSOR, "shape": ["u0"]}),
                 'graph "", node "y": an extent is "u0", not an object'),
                (lambda d, n: d["symbols"].update(u0={"range": ["1"]}),
                 'symbol "u0" has "range": ["1"], not two expressions'),
                (lambda d, n: d["process_groups"][0].update(axes=[3]),
                 'a process group has "axes": [3], not all of them strings'),
                (lambda d, n: n.update(args=[{"complex": ["1", 2]}]),
                 'graph "", node "y": unknown form of number "1"'),
                (lambda d, n: d["process_groups"][0].update(ranks=["0"]),
                 'a process group has "ranks": ["0"], not all of them ranks'),
                (lambda d, n: d.update(inputs=[3]), 'an input has "entry": 3, of the wrong type')):
            with self.subTest(message):
                self.check_bad(edited(edit), f"epweave_fx: bad: {message}; make the dump again\n")


class Dumps(unittest.TestCase):
    @unittest.skipUnless("EPWEAVE_DUMPS" in os.environ, "EPWEAVE_DUMPS names no folder of dumps")
    def test_all_dumps_in_a_folder(self):
        paths = sorted(glob.glob(os.path.join(os.environ["EPWEAVE_DUMPS"], "*.json.gz")))
        self.assertGreater(len(paths), 0)
        for path in paths:
            with self.subTest(os.path.basename(path)):
                dump = json.loads(epweave_fx.read_bytes(path))
                data = epweave_fx.encode_file(epweave_fx.file_from_dump(dump))
                message = epweave_fx.decode_file(data)
                again = epweave_fx.dump_from_file(message)
                dump["meta_keys_seen"] = {}
                self.assertTrue(again == dump)
                self.assertEqual(epweave_fx.encode_file(message), data)


if __name__ == "__main__":
    unittest.main()
