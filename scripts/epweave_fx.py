#!/usr/bin/env python3
"""Carry training graphs between PyTorch and the epweave graph file.

As a module (torch is imported only by the functions that need it):

    epweave_fx.export(graph_module, path, ...)   torch.fx.GraphModule -> graph file
    epweave_fx.load(path, device=None)           graph file -> torch.fx.GraphModule
    epweave_fx.create_process_groups(module)     make the groups that passes added to its table
    epweave_fx.read_file(path)                   graph file -> File message
    epweave_fx.write_file(message, path)         File message -> graph file

As a command:

    epweave_fx.py from-dump X.json.gz OUT        "fx-dump-1" JSON -> graph file
    epweave_fx.py to-dump X OUT.json.gz          graph file -> "fx-dump-1" JSON

`-` is stdin or stdout. Input is decompressed when it is gzip; output is gzip when its
name ends in .gz. Exit codes: 0 fine, 2 usage, 3 unreadable or invalid input, 5 internal
error. The format of the graph file is specified by proto/epweave.proto.
"""
from __future__ import annotations

import argparse
import ast
import collections
import dataclasses
import enum
import fractions
import functools
import gzip
import importlib
import io
import json
import math
import os
import re
import struct
import sys
import tempfile
import traceback
import zlib

FORMAT_VERSION = 1
KNOWN_FEATURES: frozenset[str] = frozenset()


class GraphFileError(Exception):
    """The input cannot be read, or holds something that the output cannot express.

    The message is for the user: it says where (file, graph, node), what, and what to do.
    """


# ------------------------------------------------------------------------------- schema
# The messages of proto/epweave.proto. One field per word: number, name, type. A type is a
# protobuf scalar, a message or enum of this table, or one of the reference kinds: `sref`
# (string), `tref` (type), `extent` (number or expression). `*` marks a repeated field,
# `?` one with explicit presence, `|` a member of the message's oneof.
SCHEMA = {
    "File": "1:magic:string 2:version:Version 3:info:Value 4:passes:*PassRun"
            " 5:origins:*Origin 6:process_groups:*ProcessGroup 7:symbols:*Symbol"
            " 8:inputs:*Input 9:outputs:*Output 10:graphs:*Graph 13:types:*Type"
            " 14:strings:*string 15:crc:?fixed32",
    "Version": "1:format:uint32 2:min_reader:uint32 3:producer:string"
               " 4:required_features:*string",
    "PassRun": "1:name:string 2:options:string 3:tool:string 4:nodes_before:uint32"
               " 5:nodes_after:uint32 6:input_sha256:string 7:notes:*string",
    "Origin": "1:name:sref 2:target:sref",
    "ProcessGroup": "1:name:sref 2:ranks:*uint32 3:description:sref 4:axes:*sref"
                    " 5:has_axes:bool 6:priority:sref 7:split_from:sref 8:backend:sref",
    "Symbol": "1:name:sref 2:lower:sref 3:upper:sref 4:hint:?sint64 5:size_like:bool"
              " 6:unbacked:?bool 7:asserts:*sref 8:has_asserts:bool 9:replaced_by:sref"
              " 10:assumptions:*sref 11:part_of:sref",
    "Input": "1:name:sref 2:role:sref 3:fqn:sref 4:which:sref 5:more:*Keyword",
    "Output": "1:role:sref 2:fqn:sref 3:more:*Keyword",
    "Graph": "1:name:sref 2:nodes:*Node",
    "Node": "1:name:sref 2:kind:NodeKind 3:target:sref 4:args:*Value 5:kwargs:*Keyword"
            " 6:type:tref 7:example_type:tref 8:attr:Value 9:py_type:sref 10:module:sref"
            " 11:backward:?bool 12:seq_nr:?sint64 13:source:sref 14:ep:Ep 15:chunk:Chunk"
            " 16:recompute:sref 17:bindings:*Binding 18:chunk_hints:*Hint"
            " 19:has_custom:bool 20:custom:*Keyword 21:meta:*Keyword"
            " 22:provenance:*Provenance",
    "Ep": "1:ep:sref 2:token_count_exchange:sref 3:token_count_sync:sref"
          " 4:token_exchange:sref 5:token_exchange_wait:sref",
    "Chunk": "1:region:sref 2:role:sref 3:part:?sint64 4:backward:?bool 5:producer:sref"
             " 6:original_name:sref 7:proof:sref",
    "Binding": "1:symbol:sref 2:path:*Value",
    "Hint": "1:symbol:sref 2:value:sint64",
    "Provenance": "1:pass:sref 2:role:ProvenanceRole 3:origins:*sref 4:part:uint32"
                  " 5:parts:uint32 6:region:sref 7:backward:?bool 8:reason:sref",
    "Keyword": "1:name:sref 2:value:Value",
    "Value": "1:none:|bool 2:boolean:|bool 3:integer:|sint64 4:real:|double 5:nan:|fixed64"
             " 6:text:|sref 7:node:|sref 8:symbolic:|sref 9:list:|Values 10:tuple:|Values"
             " 11:dict:|Values 12:slice:|Values 13:dtype:|sref 14:device:|sref"
             " 15:layout:|sref 16:memory_format:|sref 17:graph:|sref 18:mesh:|Values"
             " 19:process_group:|sref 20:ellipsis:|bool 21:complex:|Values"
             " 22:named_tuple:|Values 23:opaque:|Values 24:operator:|sref 25:tensor:|Values"
             " 26:type_ref:|tref 27:set:|Values",
    "Values": "1:items:*Value",
    "Type": "1:tensor:|Tensor 2:scalar:|Scalar 3:tuple:|Elements 4:list:|Elements"
            " 5:value:|Value",
    "Tensor": "1:dtype:sref 2:sizes:*extent 3:strides:*extent 4:offset:extent 5:device:sref"
              " 6:layout:sref 7:requires_grad:bool 8:subclass:sref",
    "Scalar": "1:expression:sref 2:py_type:sref",
    "Elements": "1:types:*tref",
}
ENUMS = {
    "NodeKind": ("CALL", "PLACEHOLDER", "GET_ATTR", "OUTPUT"),
    "ProvenanceRole": ("KEPT", "MOVED", "BODY", "SPLIT", "PART_INPUT", "MATERIALIZE", "SIZE",
                       "ADDED", "MERGED", "SPECIALIZED"),
}

# How a message looks in Python:
#   most        a dict from field name to value; a field at its default may be missing
#   with oneof  (Value, Type) a pair (member name, value)
#   wrappers    (Values, Elements: one repeated field) the list itself
# An sref is a str or None, a tref is a Type pair or None, an extent is an int or, for an
# expression, a str. An enum is the name of its constant. Fields that this program does not
# know are kept, encoded, under the key UNKNOWN.
UNKNOWN = ""
_PAIRS = ("Value", "Type")
_LISTS = ("Values", "Elements")

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE = {"bool": _VARINT, "uint32": _VARINT, "sint64": _VARINT, "sref": _VARINT,
         "tref": _VARINT, "extent": _VARINT, "double": _FIXED64, "fixed64": _FIXED64,
         "fixed32": _FIXED32, "string": _BYTES}


class Field:
    """One field of SCHEMA: `number`, `name`, `type` and `label` ("*", "?", "|" or "")."""

    def __init__(self, text: str):
        number, self.name, kind = text.split(":")
        self.number = int(number)
        self.label = kind[0] if kind[0] in "*?|" else ""
        self.type = kind[len(self.label):]
        self.wire = _WIRE.get(self.type, _VARINT if self.type in ENUMS else _BYTES)
        self.packed = self.label == "*" and self.wire != _BYTES


FIELDS = {name: [Field(f) for f in text.split()] for name, text in SCHEMA.items()}


def _varint(n: int) -> bytes:
    """The base-128 form of 0 <= n < 2**64."""
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


_SHORT = [_varint(n) for n in range(1 << 14)]


def _uint(n: int) -> bytes:
    return _SHORT[n] if n < 1 << 14 else _varint(n)


def _sint(n: int) -> bytes:
    return _uint(2 * n if n >= 0 else -2 * n - 1)


# ------------------------------------------------------------------------------ encoding
class _Encoder:
    """Encodes messages, numbering strings and types by first use (the canonical form)."""

    def __init__(self):
        self.strings: dict[str, int] = {}
        self.types: dict[bytes, int] = {}
        self.type_of_object: dict[int, int] = {}

    def sref(self, text: str | None) -> int:
        if text is None:
            return 0
        number = self.strings.get(text)
        if number is None:
            number = self.strings[text] = len(self.strings) + 1
        return number

    def tref(self, kind) -> int:
        if kind is None:
            return 0
        number = self.type_of_object.get(id(kind))
        if number is None:
            body = bytes(_ENCODE["Type"](self, kind))
            number = self.types.setdefault(body, len(self.types) + 1)
            self.type_of_object[id(kind)] = number
        return number

    def extent(self, value: int | str) -> int:
        if isinstance(value, int) and value >= 0:
            return value
        return -self.sref(str(value))


_SCALAR_BYTES = {
    "bool": lambda encoder, v: b"\1" if v else b"\0",
    "uint32": lambda encoder, v: _uint(v),
    "sint64": lambda encoder, v: _sint(v),
    "sref": lambda encoder, v: _uint(encoder.sref(v)),
    "tref": lambda encoder, v: _uint(encoder.tref(v)),
    "extent": lambda encoder, v: _sint(encoder.extent(v)),
    "double": lambda encoder, v: struct.pack("<d", v),
    "fixed64": lambda encoder, v: struct.pack("<Q", v),
    "fixed32": lambda encoder, v: struct.pack("<I", v),
}


def _content_encoder(field: Field):
    """The function (encoder, value) -> bytes of one value of `field`, without tag or length."""
    if field.type == "string":
        return lambda encoder, v: v.encode()
    if field.type in ENUMS:
        numbers = {name: i for i, name in enumerate(ENUMS[field.type])}
        return lambda encoder, v: _uint(v if isinstance(v, int) else numbers[v])
    if field.type in SCHEMA:
        name = field.type
        return lambda encoder, v: _ENCODE[name](encoder, v)
    return _SCALAR_BYTES[field.type]


def _field_encoder(field: Field):
    """The function (encoder, out, value) that appends the field unless it is at its default."""
    content = _content_encoder(field)
    if field.packed:
        tag = _varint(field.number << 3 | _BYTES)

        def put(encoder, out, values):
            if values:
                body = b"".join([content(encoder, v) for v in values])
                out += tag + _uint(len(body)) + body
        return put
    tag = _varint(field.number << 3 | field.wire)
    if field.label == "*":
        def put(encoder, out, values):
            for v in values:
                body = content(encoder, v)
                out += tag + _uint(len(body)) + body
    elif field.wire == _BYTES:
        has_default = field.type == "string"

        def put(encoder, out, value):
            body = content(encoder, value)
            if body or not has_default:
                out += tag + _uint(len(body)) + body
    elif field.label:
        def put(encoder, out, value):
            out += tag + content(encoder, value)
    else:
        def put(encoder, out, value):
            body = content(encoder, value)
            if body != b"\0":
                out += tag + body
    return put


def _message_encoder(name: str):
    """The function (encoder, message) -> bytes for messages of one kind."""
    fields = [(f.name, _field_encoder(f)) for f in FIELDS[name]]
    if name in _PAIRS:
        members = dict(fields)

        def encode(encoder, message):
            out = bytearray()
            members[message[0]](encoder, out, message[1])
            return out
    elif name in _LISTS:
        put_items = fields[0][1]

        def encode(encoder, message):
            out = bytearray()
            put_items(encoder, out, message)
            return out
    else:
        def encode(encoder, message):
            out = bytearray()
            for field_name, put in fields:
                value = message.get(field_name)
                if value is not None:
                    put(encoder, out, value)
            if UNKNOWN in message:
                out += message[UNKNOWN]
            return out
    return encode


_ENCODE = {name: _message_encoder(name) for name in SCHEMA}


def encode_file(message: dict) -> bytes:
    """The bytes of a File message in canonical form, with its tables and CRC.

    `magic`, `types`, `strings` and `crc` are made here; the caller leaves them out.
    """
    try:
        return _encode_file(message)
    except UnicodeEncodeError as error:
        raise GraphFileError(f"cannot be written: {error.object!r} is not valid Unicode") from None


def _encode_file(message: dict) -> bytes:
    encoder = _Encoder()
    body = _ENCODE["File"](encoder, {**message, "magic": "epweave", UNKNOWN: b""})
    tables = {f.name: _varint(f.number << 3 | _BYTES) for f in FIELDS["File"]
              if f.name in ("types", "strings")}
    for encoded in encoder.types:
        body += tables["types"] + _uint(len(encoded)) + encoded
    for text in encoder.strings:
        encoded = text.encode()
        body += tables["strings"] + _uint(len(encoded)) + encoded
    body += message.get(UNKNOWN, b"")
    body += _ENCODE["File"](encoder, {"crc": zlib.crc32(body)})
    return bytes(body)


# ------------------------------------------------------------------------------ decoding
class _Decoder:
    """Decodes messages of one file, resolving references through its two tables."""

    def __init__(self, data: bytes):
        self.data = data
        self.strings: list[str] = []
        self.types: list[tuple] = []

    def uint(self, pos: int) -> tuple[int, int]:
        data = self.data
        byte = data[pos]
        if byte < 128:
            return byte, pos + 1
        value, shift = byte & 127, 7
        while True:
            pos += 1
            byte = data[pos]
            value |= (byte & 127) << shift
            if byte < 128:
                return value, pos + 1
            shift += 7

    def string(self, number: int) -> str | None:
        if number == 0:
            return None
        if number > len(self.strings):
            raise GraphFileError(f"refers to string {number} of {len(self.strings)};"
                                 " the file is damaged or its writer is faulty")
        return self.strings[number - 1]

    def type(self, number: int):
        if number == 0:
            return None
        if number > len(self.types):
            raise GraphFileError(f"refers to type {number} before it is defined;"
                                 " the file is damaged or its writer is faulty")
        return self.types[number - 1]

    def skip(self, pos: int, wire: int) -> int:
        """The position behind a value of the given wire type."""
        if wire == _VARINT:
            return self.uint(pos)[1]
        if wire == _BYTES:
            size, pos = self.uint(pos)
            return pos + size
        if wire in (_FIXED32, _FIXED64):
            return pos + (4 if wire == _FIXED32 else 8)
        raise GraphFileError(f"has a field of wire type {wire}; the file is damaged")


def _signed(n: int) -> int:
    return n >> 1 if not n & 1 else -(n >> 1) - 1


def _extent(decoder: _Decoder, n: int) -> int | str:
    value = _signed(n)
    return value if value >= 0 else decoder.string(-value)


_FROM_VARINT = {
    "bool": lambda decoder, n: n != 0,
    "uint32": lambda decoder, n: n,
    "sint64": lambda decoder, n: _signed(n),
    "sref": lambda decoder, n: decoder.string(n),
    "tref": lambda decoder, n: decoder.type(n),
    "extent": _extent,
}
_FIXED = {"double": ("<d", 8), "fixed64": ("<Q", 8), "fixed32": ("<I", 4)}


def _content_decoder(field: Field):
    """The function (decoder, pos) -> (value, next pos) for one value of `field`."""
    if field.wire == _VARINT:
        if field.type in ENUMS:
            names = dict(enumerate(ENUMS[field.type]))
            convert = lambda decoder, n: names.get(n, n)  # noqa: E731
        else:
            convert = _FROM_VARINT[field.type]

        def get(decoder, pos):
            n, pos = decoder.uint(pos)
            return convert(decoder, n), pos
    elif field.wire == _BYTES:
        if field.type == "string":
            def convert(decoder, pos, end):
                return decoder.data[pos:end].decode()
        else:
            name = field.type

            def convert(decoder, pos, end):
                return _DECODE[name](decoder, pos, end)

        def get(decoder, pos):
            size, pos = decoder.uint(pos)
            if pos + size > len(decoder.data):
                raise IndexError
            return convert(decoder, pos, pos + size), pos + size
    else:
        form, size = _FIXED[field.type]

        def get(decoder, pos):
            return struct.unpack_from(form, decoder.data, pos)[0], pos + size
    return get


def _field_decoders(name: str) -> dict:
    """Tag -> (field name, is repeated, is packed, content decoder)."""
    out = {}
    for field in FIELDS[name]:
        get = _content_decoder(field)
        repeated = field.label == "*"
        out[field.number << 3 | field.wire] = (field.name, repeated, False, get)
        if field.packed:
            out[field.number << 3 | _BYTES] = (field.name, repeated, True, get)
    return out


def _message_decoder(name: str):
    """The function (decoder, pos, end) -> message for messages of one kind."""
    decoders = _field_decoders(name)

    def decode(decoder, pos, end):
        message = {}
        while pos < end:
            start = pos
            tag, pos = decoder.uint(pos)
            known = decoders.get(tag)
            if known is None:
                pos = decoder.skip(pos, tag & 7)
                message[UNKNOWN] = message.get(UNKNOWN, b"") + decoder.data[start:pos]
                continue
            field_name, repeated, packed, get = known
            if packed:
                size, pos = decoder.uint(pos)
                values = message.setdefault(field_name, [])
                stop = pos + size
                while pos < stop:
                    value, pos = get(decoder, pos)
                    values.append(value)
            elif repeated:
                value, pos = get(decoder, pos)
                message.setdefault(field_name, []).append(value)
            else:
                message[field_name], pos = get(decoder, pos)
        return message

    if name in _PAIRS:
        def decode_pair(decoder, pos, end):
            members = decode(decoder, pos, end)
            if len(members) != 1 or UNKNOWN in members:
                raise GraphFileError(f"has a {name} of a kind that this program does not"
                                     " know; a newer epweave wrote it")
            return next(iter(members.items()))
        return decode_pair
    if name in _LISTS:
        item = FIELDS[name][0].name

        def decode_list(decoder, pos, end):
            return decode(decoder, pos, end).get(item, [])
        return decode_list
    return decode


_DECODE = {name: _message_decoder(name) for name in SCHEMA}


def _decode_tables(decoder: _Decoder, end: int) -> list[tuple[int, int]]:
    """Fill the decoder's tables; return the spans (start, end) of the other fields in order."""
    numbers = {f.name: f.number for f in FIELDS["File"]}
    spans, types, pos = [], [], 0
    while pos < end:
        start = pos
        tag, pos = decoder.uint(pos)
        content = pos
        pos = decoder.skip(pos, tag & 7)
        if pos > end:
            raise IndexError
        if tag == numbers["strings"] << 3 | _BYTES:
            _, first = decoder.uint(content)
            decoder.strings.append(decoder.data[first:pos].decode())
        elif tag == numbers["types"] << 3 | _BYTES:
            types.append((decoder.uint(content)[1], pos))
        else:
            spans.append((start, pos))
    for first, last in types:
        decoder.types.append(_DECODE["Type"](decoder, first, last))
    return spans


def decode_file(data: bytes) -> dict:
    """The File message in `data`, references resolved; the inverse of `encode_file`.

    Raises GraphFileError if the bytes are not an intact epweave file or ask for a newer
    reader or an unknown feature.
    """
    if not data.startswith(b"\x0a\x07epweave"):
        raise GraphFileError("is not an epweave binary graph file"
                             " (convert other forms with `epweave convert`)")
    end = len(data) - 5
    if data[end] != 15 << 3 | _FIXED32 or \
            struct.unpack_from("<I", data, end + 1)[0] != zlib.crc32(data[:end]):
        raise GraphFileError("is truncated or altered: its checksum does not match;"
                             " copy or write it again")
    decoder = _Decoder(data)
    try:
        version = _decode_version(decoder, end)
        need = version.get("min_reader", 0)
        if need > FORMAT_VERSION:
            raise GraphFileError(f"needs a reader of format {need}; this one reads format"
                                 f" {FORMAT_VERSION}: use a newer epweave_fx.py")
        for feature in version.get("required_features", ()):
            if feature not in KNOWN_FEATURES:
                raise GraphFileError(f'requires the feature "{feature}", which this reader'
                                     " does not have: use a newer epweave_fx.py")
        message: dict = {}
        for start, stop in _decode_tables(decoder, end):
            for name, value in _DECODE["File"](decoder, start, stop).items():
                if name in message and isinstance(value, (list, bytes)):
                    message[name] += value
                else:
                    message[name] = value
    except (IndexError, UnicodeDecodeError, struct.error):
        raise GraphFileError("is not valid protobuf; its writer is faulty") from None
    del message["magic"]
    return message


def _decode_version(decoder: _Decoder, end: int) -> dict:
    """The File's `version`, read before anything that an unknown feature could change."""
    pos = 0
    while pos < end:
        tag, pos = decoder.uint(pos)
        if tag == 2 << 3 | _BYTES:
            size, pos = decoder.uint(pos)
            return _DECODE["Version"](decoder, pos, pos + size)
        pos = decoder.skip(pos, tag & 7)
    return {}


# --------------------------------------------------------------------------------- files
def read_bytes(path: str) -> bytes:
    """The content of a file or of stdin (`-`), decompressed if it is gzip."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as f:
                data = f.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GraphFileError(f"is a damaged gzip file ({error}); copy or write it again") from None
    except OSError as error:
        raise GraphFileError(f"cannot be read: {error.strerror}") from None
    return data


def write_bytes(data: bytes, path: str) -> None:
    """Write a file (temporary file, then rename) or stdout (`-`); gzip if it ends in .gz.

    Links are followed; devices and pipes are written to, not replaced.
    """
    if path == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    if path.endswith(".gz"):
        packed = io.BytesIO()
        with gzip.GzipFile("", "wb", 6, packed, 0) as f:
            f.write(data)
        data = packed.getvalue()
    temporary = None
    path = os.path.realpath(path)
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as f:
                f.write(data)
            return
        handle, temporary = tempfile.mkstemp(prefix=os.path.basename(path) + ".",
                                             dir=os.path.dirname(path) or ".")
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise GraphFileError(f"cannot be written: {error.strerror}") from None


def read_file(path: str) -> dict:
    """The File message in the graph file at `path`."""
    try:
        return decode_file(read_bytes(path))
    except GraphFileError as error:
        raise GraphFileError(f"{path}: {error}") from None


_OTHER_FORMS = (".json", ".txt", ".onnx")


def write_file(message: dict, path: str) -> None:
    """Write a File message (see `encode_file`) as a binary graph file."""
    try:
        if path.removesuffix(".gz").endswith(_OTHER_FORMS):
            raise GraphFileError("has the ending of another form, but only the binary form is"
                                 " written here; choose another ending and use `epweave convert`")
        write_bytes(encode_file(message), path)
    except GraphFileError as error:
        raise GraphFileError(f"{path}: {error}") from None


# -------------------------------------------------------------------------------- values
NONE = ("none", True)


def real(x: float) -> tuple:
    """The Value of a Python float."""
    if math.isnan(x):
        return "nan", struct.unpack("<Q", struct.pack("<d", x))[0]
    return "real", x


def real_of(value: tuple) -> float:
    """The Python float of a Value made by `real`."""
    kind, x = value
    return struct.unpack("<d", struct.pack("<Q", x))[0] if kind == "nan" else x


def _fits(x: int) -> bool:
    return -1 << 63 <= x < 1 << 63


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def integer(x: int) -> tuple:
    """The Value of a Python int; one beyond 64 bits is opaque, of class "int".

    Such numbers occur: autograd's "no sequence number" is 2**64 - 1.
    """
    return ("integer", x) if _fits(x) else ("opaque", [("text", str(x)), ("text", "int")])


# Metadata entries with a field of their own: key -> (submessage or None, field, kind of Value).
_META_FIELDS = {
    "autograd_backward": (None, "backward", "boolean"),
    "seq_nr": (None, "seq_nr", "integer"),
    "stack_trace": (None, "source", "text"),
    "recompute": (None, "recompute", "text"),
    "chunked_region_fqn": ("chunk", "region", "text"),
    "chunked_region_role": ("chunk", "role", "text"),
    "chunk_id": ("chunk", "part", "integer"),
    "chunked_region_is_backward": ("chunk", "backward", "boolean"),
    "chunked_region_producer": ("chunk", "producer", "text"),
    "chunked_original_name": ("chunk", "original_name", "text"),
    "chunked_materialization_proof": ("chunk", "proof", "text"),
}
_CUSTOM_FIELDS = {
    "module_fqn": (None, "module", "text"),
    "EP": ("ep", "ep", "text"),
    "EP_token_count_exchange": ("ep", "token_count_exchange", "text"),
    "EP_token_count_sync": ("ep", "token_count_sync", "text"),
    "EP_token_exchange": ("ep", "token_exchange", "text"),
    "EP_token_exchange_wait": ("ep", "token_exchange_wait", "text"),
}


def _put_entry(node: dict, fields: dict, rest: str, key: str, value: tuple) -> None:
    """Store an entry in the field that `fields` gives it if its type fits, else in `rest`."""
    owner, field, kind = fields.get(key, (None, None, None))
    if kind != value[0]:
        node.setdefault(rest, []).append({"name": key, "value": value})
    elif owner is None:
        node[field] = value[1]
    else:
        node.setdefault(owner, {})[field] = value[1]


def put_meta(node: dict, key: str, value: tuple) -> None:
    """Store one entry of fx.Node.meta, as a Value, in a Node message."""
    if key == "custom" and value[0] == "dict" and all(k[0] == "text" for k in value[1][::2]):
        node["has_custom"] = True
        for name, entry in zip(value[1][::2], value[1][1::2]):
            _put_entry(node, _CUSTOM_FIELDS, "custom", name[1], entry)
    else:
        _put_entry(node, _META_FIELDS, "meta", key, value)


def _get_entries(node: dict, fields: dict, rest: str) -> dict[str, tuple]:
    out = {}
    for key, (owner, field, kind) in fields.items():
        x = (node if owner is None else node.get(owner, {})).get(field)
        if x is not None:
            out[key] = (kind, x)
    for entry in node.get(rest, ()):
        out.setdefault(entry["name"], entry["value"])
    return out


def get_meta(node: dict) -> dict[str, tuple]:
    """The entries stored by `put_meta`."""
    out = _get_entries(node, _META_FIELDS, "meta")
    if node.get("has_custom"):
        custom = _get_entries(node, _CUSTOM_FIELDS, "custom")
        out["custom"] = ("dict", [x for k, v in custom.items() for x in (("text", k), v)])
    return out


# --------------------------------------------------------------------------- expressions
class ExpressionError(ValueError):
    """The text is not an expression that this program can evaluate."""


def _floor_divide(a, b):
    return a // b


_FUNCTIONS = {
    "Mod": lambda a, b: a % b, "PythonMod": lambda a, b: a % b, "FloorDiv": _floor_divide,
    "CleanDiv": _floor_divide, "ModularIndexing": lambda a, b, c: a // b % c,
    "CeilDiv": lambda a, b: -(-a // b), "Min": min, "Max": max, "Abs": abs,
    "Eq": lambda a, b: a == b, "Ne": lambda a, b: a != b, "Identity": lambda a: a,
    "ToFloat": lambda a: a, "Where": lambda c, a, b: a if c else b,
    "IntTrueDiv": lambda a, b: fractions.Fraction(a, b),
    "CeilToInt": math.ceil, "FloorToInt": math.floor, "TruncToInt": math.trunc,
    "ceiling": math.ceil, "floor": math.floor,
}
_CONSTANTS = {"int_oo": math.inf, "oo": math.inf, "True": True, "False": False}
_BINARY = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: _floor_divide, ast.Mod: lambda a, b: a % b, ast.Pow: lambda a, b: a ** b,
    ast.Div: lambda a, b: fractions.Fraction(a) / fractions.Fraction(b),
    ast.BitAnd: lambda a, b: a and b, ast.BitOr: lambda a, b: a or b,
}
_COMPARE = {ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b,
            ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
            ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b}


def evaluate(text: str, hints: dict[str, int]) -> int | bool | None:
    """The value of an expression in sympy's notation, or None if a symbol has no hint.

    Fractions are cut to integers. Raises ExpressionError for text that is no expression
    known here and for undefined arithmetic.
    """
    def walk(e):
        if isinstance(e, ast.Name):
            return _CONSTANTS[e.id] if e.id in _CONSTANTS else hints[e.id]
        if isinstance(e, ast.Constant) and isinstance(e.value, (bool, int, float)):
            return e.value
        if isinstance(e, ast.BinOp) and type(e.op) in _BINARY:
            return _BINARY[type(e.op)](walk(e.left), walk(e.right))
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return -walk(e.operand)
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Invert):
            return not walk(e.operand)
        if isinstance(e, ast.Compare) and len(e.ops) == 1 and type(e.ops[0]) in _COMPARE:
            return _COMPARE[type(e.ops[0])](walk(e.left), walk(e.comparators[0]))
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) \
                and e.func.id in _FUNCTIONS and not e.keywords:
            return _FUNCTIONS[e.func.id](*[walk(a) for a in e.args])
        raise ExpressionError(f"cannot evaluate the expression {text!r}")

    try:
        result = walk(ast.parse(text, mode="eval").body)
        return result if isinstance(result, bool) else int(result)
    except KeyError:
        return None
    except (SyntaxError, ArithmeticError, TypeError) as error:
        raise ExpressionError(f"cannot evaluate the expression {text!r}: {error}") from None


# ------------------------------------------------------------------------------ fx-dump-1
_OPS = {"call_function": "CALL", "placeholder": "PLACEHOLDER", "get_attr": "GET_ATTR",
        "output": "OUTPUT"}
_OP_OF_KIND = {kind: op for op, kind in _OPS.items()}
_INPUT_FIELDS = ("name", "role", "fqn", "which")
_OUTPUT_FIELDS = ("role", "fqn")
_DUMP_KEYS = {
    "": {"format", "meta", "process_groups", "inputs", "outputs", "symbols", "graphs"},
    "node": {"name", "op", "target", "args", "kwargs", "meta"},
}


def _brief(x, limit: int = 80) -> str:
    text = json.dumps(x, default=str)
    return text if len(text) <= limit else text[:limit - 3] + "..."


class _Malformed(GraphFileError):
    """A part of the dump has an unknown form; `_DumpReader` adds where."""


def _need(obj, key: str, kind, what: str):
    """obj[key], which must exist and be of the given Python type(s)."""
    if not isinstance(obj, dict):
        raise _Malformed(f"{what} is {_brief(obj)}, not an object")
    if key not in obj:
        raise _Malformed(f'{what} has no "{key}"')
    if not isinstance(obj[key], kind):
        raise _Malformed(f'{what} has "{key}": {_brief(obj[key])}, of the wrong type')
    return obj[key]


def _need_texts(obj: dict, key: str, what: str) -> list[str]:
    """obj[key], which must exist and be a list of strings."""
    texts = _need(obj, key, list, what)
    if not all(isinstance(text, str) for text in texts):
        raise _Malformed(f'{what} has "{key}": {_brief(texts)}, not all of them strings')
    return texts


def _only(obj, keys, what: str) -> None:
    """`obj` must be an object with no other keys: what is not understood is not dropped."""
    if not isinstance(obj, dict):
        raise _Malformed(f"{what} is {_brief(obj)}, not an object")
    for key in obj:
        if key not in keys:
            raise _Malformed(f'{what} has the unknown key "{key}"')


class _DumpReader:
    """Turns the JSON of a dump into a File message."""

    def __init__(self):
        self.types: dict[str, tuple] = {}  # JSON text of a value -> its Type

    # Arguments and plain data.
    def argument(self, x) -> tuple:
        """The Value of an argument."""
        if type(x) is dict:
            return self.argument_object(x)
        return self.leaf(x, self.argument)

    @staticmethod
    def leaf(x, item) -> tuple:
        """The Value of anything but an object; `item` converts the items of a list."""
        kind = type(x)
        if kind is int:
            return integer(x)
        if kind is str:
            return "text", x
        if x is None:
            return NONE
        if kind is bool:
            return "boolean", x
        if kind is float:
            return real(x)
        return "list", [item(y) for y in x]

    def argument_object(self, x: dict) -> tuple:
        names = {"n": "node", "dtype": "dtype", "device": "device", "layout": "layout",
                 "mf": "memory_format", "graph": "graph", "pg": "process_group",
                 "op": "operator"}
        if len(x) == 1:
            key, y = next(iter(x.items()))
            if key in names and isinstance(y, str):
                return names[key], y
            if key in ("t", "set") and isinstance(y, list) or \
                    key == "slice" and isinstance(y, list) and len(y) == 3:
                return "tuple" if key == "t" else key, [self.argument(part) for part in y]
            if key == "complex" and isinstance(y, list) and len(y) == 2:
                return key, [self.float(part) for part in y]
            if key == "dict" and _marked_form(x):
                return key, [self.argument(part) for pair in y for part in pair]
            if key == "ellipsis" and y is True:
                return key, True
            if key == "f":
                return self.float(x)
            if key == "mesh":
                return self.mesh(y)
            if key == "tensor" and isinstance(y, dict):
                return self.tensor(y, None)
        if "sym" in x:
            _only(x, ("sym", "hint"), "a symbolic argument")
            return "symbolic", _need(x, "sym", str, "a symbolic argument")
        if _marked_form(x) == "repr":
            return "opaque", [("text", x["repr"]), ("text", x["cls"])]
        if set(x) == {"namedtuple", "fields"} and isinstance(x["namedtuple"], str) \
                and isinstance(x["fields"], dict):
            return "named_tuple", [("text", x["namedtuple"]),
                                   *(part for name, y in x["fields"].items()
                                     for part in (("text", name), self.argument(y)))]
        raise _Malformed(f"unknown form of argument {_brief(x)}")

    @staticmethod
    def float(x) -> tuple:
        if type(x) in (int, float):
            return real(float(x))
        if isinstance(x, dict) and _marked_form(x) == "f":
            return real(float(x["f"]))
        raise _Malformed(f"unknown form of number {_brief(x)}")

    def mesh(self, x) -> tuple:
        _need(x, "shape", list, "a mesh")
        _only(x, ("axes", "shape", "ranks", "device_type"), "a mesh")
        return "mesh", [self.plain(x.get(k)) for k in ("axes", "shape", "ranks", "device_type")]

    def tensor(self, x: dict, path: str | None) -> tuple:
        """The Value of a constant tensor, whose values may be given."""
        facts = {k: y for k, y in x.items() if k not in ("attr", "values")}
        return "tensor", [NONE if path is None else ("text", path), ("type_ref", self.type(facts)),
                          self.plain(x.get("values"))]

    def plain(self, x) -> tuple:
        """The Value of plain data, where an object is a dict but for a few marked forms."""
        if type(x) is not dict:
            return self.leaf(x, self.plain)
        marked = _marked_form(x)
        if marked == "t":
            return "tuple", [self.plain(y) for y in x["t"]]
        if marked == "set":
            return "set", [self.plain(y) for y in x["set"]]
        if marked == "dict":
            return "dict", [self.plain(y) for pair in x["dict"] for y in pair]
        if marked:
            return self.argument_object(x)
        return "dict", [part for k, y in x.items() for part in (("text", k), self.plain(y))]

    # Values.
    def type(self, x) -> tuple:
        """The Type of a recorded value."""
        key = json.dumps(x)
        found = self.types.get(key)
        if found is None:
            found = self.types[key] = self.make_type(x)
        return found

    def make_type(self, x) -> tuple:
        if isinstance(x, list):
            return "list", [self.type(y) for y in x]
        if isinstance(x, dict):
            if set(x) == {"t"} and isinstance(x["t"], list):
                return "tuple", [self.type(y) for y in x["t"]]
            if "shape" in x:
                return "tensor", self.tensor_type(x)
            if "symtype" in x:
                _only(x, ("sym", "hint", "symtype"), "a symbolic value")
                return "scalar", {"expression": _need(x, "sym", str, "a symbolic value"),
                                  "py_type": _need(x, "symtype", str, "a symbolic value")}
        return "value", self.argument(x)

    def tensor_type(self, x: dict) -> dict:
        what = "a tensor value"
        _only(x, ("shape", "stride", "dtype", "device", "storage_offset", "requires_grad", "layout",
                  "cls"), what)
        out = {"dtype": _need(x, "dtype", str, what),
               "sizes": [self.extent(e) for e in _need(x, "shape", list, what)],
               "offset": self.extent(x.get("storage_offset", 0)),
               "device": _need(x, "device", str, what),
               "requires_grad": _need(x, "requires_grad", bool, what)}
        if "layout" in x:
            out["layout"] = _need(x, "layout", str, what)
        else:
            out["strides"] = [self.extent(e) for e in _need(x, "stride", list, what)]
        if "cls" in x:
            out["subclass"] = _need(x, "cls", str, what)
        return out

    @staticmethod
    def extent(x) -> int | str:
        if type(x) is int:
            return x if _fits(x) else str(x)
        return _need(x, "sym", str, "an extent")

    # Nodes.
    def node(self, x: dict) -> dict:
        _only(x, (*_DUMP_KEYS["node"], "attr", "type"), "the node")
        op = _need(x, "op", str, "the node")
        if op not in _OPS:
            raise _Malformed(f'op "{op}" has no place in the file; only {", ".join(_OPS)} have')
        out = {"name": x["name"], "kind": _OPS[op],
               "target": _need(x, "target", str, "the node"),
               "args": [self.argument(a) for a in _need(x, "args", list, "the node")],
               "kwargs": [{"name": k, "value": self.argument(a)}
                          for k, a in _need(x, "kwargs", dict, "the node").items()]}
        if "type" in x:
            out["py_type"] = _need(x, "type", str, "the node")
        if "attr" in x:
            out["attr"] = self.attribute(x["attr"])
        for key, y in _need(x, "meta", dict, "the node").items():
            self.meta(out, key, y)
        return out

    def attribute(self, x) -> tuple:
        if isinstance(x, dict) and "attr" in x:
            return self.tensor(x, _need(x, "attr", str, "the attribute"))
        return self.argument(x)

    def meta(self, node: dict, key: str, x) -> None:
        if key == "val":
            node["type"] = self.type(x)
        elif key == "example_value":
            node["example_type"] = self.type(x)
        elif key == "unbacked_bindings" and x and isinstance(x, dict) and all(
                isinstance(path, list) and all(isinstance(step, dict) for step in path)
                for path in x.values()):
            node["bindings"] = [{"symbol": symbol, "path": [self.plain(step) for step in path]}
                                for symbol, path in x.items()]
        elif key == "torchtitan_chunk_symbol_hints" and x and isinstance(x, dict) and all(
                type(hint) is int and _fits(hint) for hint in x.values()):
            node["chunk_hints"] = [{"symbol": symbol, "value": hint}
                                   for symbol, hint in x.items()]
        else:
            put_meta(node, key, self.plain(x))

    # Tables.
    @staticmethod
    def roles(entries, what: str, typed: tuple, plain) -> list[dict]:
        """Inputs or outputs: the `typed` keys have fields, the others go to `more`.

        `plain` makes the Value of plain data.
        """
        out = []
        for entry in entries:
            _need({"entry": entry}, "entry", dict, what)
            message: dict = {}
            for key, x in entry.items():
                if key in typed and isinstance(x, str):
                    message[key] = x
                else:
                    message.setdefault("more", []).append({"name": key, "value": plain(x)})
            out.append(message)
        return out

    @staticmethod
    def process_group(x: dict) -> dict:
        what = "a process group"
        _only(x, ("name", "ranks", "desc", "axes", "priority", "split_from", "backend"), what)
        out = {"name": _need(x, "name", str, what), "ranks": _need(x, "ranks", list, what),
               "description": _need(x, "desc", (str, type(None)), what)}
        if not all(type(rank) is int and 0 <= rank < 1 << 32 for rank in out["ranks"]):
            raise _Malformed(f'{what} has "ranks": {_brief(out["ranks"])}, not all of them ranks')
        for key in ("priority", "split_from", "backend"):
            if key in x:
                out[key] = _need(x, key, str, what)
        if "axes" in x:
            out["axes"] = _need_texts(x, "axes", what)
            out["has_axes"] = True
        return out

    @staticmethod
    def symbol(name: str, x: dict) -> dict:
        what = f'symbol "{name}"'
        out: dict = {"name": name}
        _only(x, ("range", "hint", "size_like", "unbacked", "deferred_asserts", "replaced_by"),
              what)
        if "range" in x:
            bounds = _need(x, "range", list, what)
            if len(bounds) != 2 or not all(isinstance(b, str) for b in bounds):
                raise _Malformed(f'{what} has "range": {_brief(bounds)}, not two expressions')
            out["lower"], out["upper"] = bounds
        if "hint" in x:
            out["hint"] = _need(x, "hint", int, what)
            if not _fits(x["hint"]):
                raise _Malformed(f'{what} has "hint": {x["hint"]}, beyond 64 bits')
        if "unbacked" in x:
            out["unbacked"] = _need(x, "unbacked", bool, what)
        if "size_like" in x:
            out["size_like"] = _need(x, "size_like", bool, what)
        if "deferred_asserts" in x:
            out["asserts"] = _need_texts(x, "deferred_asserts", what)
            out["has_asserts"] = True
        if "replaced_by" in x:
            out["replaced_by"] = _need(x, "replaced_by", str, what)
        return out

    def file(self, dump) -> dict:
        what = "the dump"
        if not isinstance(dump, dict) or dump.get("format") != "fx-dump-1":
            raise _Malformed('is not an fx-dump-1 file (its "format" says'
                             f" {_brief(dump.get('format') if isinstance(dump, dict) else None)})")
        _only(dump, (*_DUMP_KEYS[""], "meta_keys_seen"), what)
        graphs = []
        info = ("dict", [part for k, y in _need(dump, "meta", dict, what).items()
                         for part in (("text", k), self.plain(y))])
        for name, graph in _need(dump, "graphs", dict, what).items():
            where = f'graph "{name}"'
            nodes = []
            for i, x in enumerate(_need(graph, "nodes", list, where)):
                node_name = _need(x, "name", str, f"{where}: node {i}")
                try:
                    nodes.append(self.node(x))
                except GraphFileError as error:
                    raise _Malformed(f'{where}, node "{node_name}": {error}') from None
            graphs.append({"name": name or None, "nodes": nodes})
        if not graphs or graphs[0]["name"] is not None:
            raise _Malformed('the first graph is not the step, which has the name ""')
        return {
            "version": {"format": FORMAT_VERSION, "min_reader": FORMAT_VERSION,
                        "producer": "fx-dump-1"},
            "info": info,
            "process_groups": [self.process_group(x)
                               for x in _need(dump, "process_groups", list, what)],
            "symbols": [self.symbol(name, x)
                        for name, x in _need(dump, "symbols", dict, what).items()],
            "inputs": self.roles(_need(dump, "inputs", list, what), "an input",
                                 _INPUT_FIELDS, self.plain),
            "outputs": self.roles(_need(dump, "outputs", list, what), "an output",
                                  _OUTPUT_FIELDS, self.plain),
            "graphs": graphs,
        }


def _marked_form(x: dict) -> str | None:
    """Which marked form of plain data an object is, if any (the key that marks it)."""
    if len(x) == 1:
        key, y = next(iter(x.items()))
        if key in ("t", "set") and isinstance(y, list) or \
                key == "n" and isinstance(y, str) or \
                key == "f" and isinstance(y, str) and y in ("inf", "-inf", "nan") or \
                key == "dict" and isinstance(y, list) and all(
                    isinstance(pair, list) and len(pair) == 2 for pair in y):
            return key
    elif len(x) == 2 and isinstance(x.get("repr"), str) and isinstance(x.get("cls"), str):
        return "repr"
    return None


def file_from_dump(dump) -> dict:
    """The File message of a dump's JSON; GraphFileError if it is not an fx-dump-1."""
    try:
        return _DumpReader().file(dump)
    except _Malformed as error:
        raise GraphFileError(f"{error}; make the dump again") from None


class _DumpWriter:
    """Turns a File message into the JSON of a dump."""

    def __init__(self, message: dict):
        self.message = message
        self.hints = {s["name"]: s["hint"] for s in message.get("symbols", ()) if "hint" in s}
        self.expressions: dict[str, dict] = {}
        self.types: dict[int, object] = {}

    def symbolic(self, text: str) -> dict:
        """{"sym", "hint"}; the hint is that of the expression, if all its symbols have one."""
        found = self.expressions.get(text)
        if found is None:
            found = {"sym": text}
            try:
                hint = evaluate(text, self.hints)
            except ExpressionError:
                hint = None
            if hint is not None:
                found["hint"] = hint
            self.expressions[text] = found
        return found

    def argument(self, value: tuple):
        """The JSON of a Value in an argument."""
        kind, x = value
        if kind == "dict":
            return {"dict": [[self.argument(k), self.argument(v)] for k, v in zip(x[::2], x[1::2])]}
        return self.common(value, self.argument)

    def plain(self, value: tuple):
        """The JSON of a Value in plain data."""
        kind, x = value
        if kind != "dict":
            return self.common(value, self.plain)
        pairs = [(k, self.plain(v)) for k, v in zip(x[::2], x[1::2])]
        out = {k[1]: v for k, v in pairs if k[0] == "text"}
        if len(out) < len(pairs) or _marked_form(out):
            return {"dict": [[self.plain(k), v] for k, v in pairs]}
        return out

    def common(self, value: tuple, item):
        """The JSON of any Value but a dict; `item` converts contained Values."""
        kind, x = value
        if kind in ("integer", "text", "boolean"):
            return x
        if kind == "node":
            return {"n": x}
        if kind == "none":
            return None
        if kind == "list":
            return [item(y) for y in x]
        if kind == "tuple":
            return {"t": [item(y) for y in x]}
        if kind in ("real", "nan"):
            return self.float(real_of(value))
        if kind == "symbolic":
            return self.symbolic(x)
        names = {"dtype": "dtype", "device": "device", "layout": "layout", "graph": "graph",
                 "memory_format": "mf", "process_group": "pg", "operator": "op",
                 "ellipsis": "ellipsis"}
        if kind in names:
            return {names[kind]: x}
        if kind in ("slice", "set"):
            return {kind: [item(y) for y in x]}
        if kind == "complex":
            return {"complex": [self.float(real_of(y)) for y in x]}
        if kind == "opaque":
            text, name = x[0][1], x[1][1]
            return int(text) if name == "int" and _is_number(text) else {"repr": text, "cls": name}
        if kind == "named_tuple":
            return {"namedtuple": x[0][1],
                    "fields": {k[1]: item(v) for k, v in zip(x[1::2], x[2::2])}}
        if kind == "mesh":
            facts = dict(zip(("axes", "shape", "ranks", "device_type"), map(self.plain, x)))
            return {"mesh": {k: v for k, v in facts.items() if v is not None}}
        if kind == "tensor":
            return {"tensor": self.tensor(x)}
        return self.type(x)

    @staticmethod
    def float(x: float):
        if math.isinf(x) or math.isnan(x):
            return {"f": "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"}
        return x

    def tensor(self, parts: list) -> dict:
        out = dict(self.type(parts[1][1]))
        if parts[2] != NONE:
            out["values"] = self.numbers(parts[2])
        return out

    def numbers(self, value: tuple):
        """The values of a tensor; infinities and NaN are written as JSON numbers here."""
        kind, x = value
        if kind == "list":
            return [self.numbers(y) for y in x]
        return real_of(value) if kind in ("real", "nan") else self.plain(value)

    def type(self, kind):
        found = self.types.get(id(kind))
        if found is None:
            found = self.types[id(kind)] = self.make_type(kind)
        return found

    def make_type(self, kind):
        if kind is None:
            return None
        name, x = kind
        if name == "tensor":
            return self.tensor_type(x)
        if name == "scalar":
            return {**self.symbolic(x["expression"]), "symtype": x["py_type"]}
        if name == "tuple":
            return {"t": [self.type(y) for y in x]}
        if name == "list":
            return [self.type(y) for y in x]
        return self.argument(x)

    def tensor_type(self, x: dict) -> dict:
        out = {"shape": [self.extent(e) for e in x.get("sizes", ())], "dtype": x["dtype"],
               "device": x["device"], "requires_grad": x.get("requires_grad", False)}
        if "layout" in x:
            out["layout"] = x["layout"]
        else:
            out["stride"] = [self.extent(e) for e in x.get("strides", ())]
        if x.get("offset", 0) != 0:
            out["storage_offset"] = self.extent(x["offset"])
        if "subclass" in x:
            out["cls"] = x["subclass"]
        return out

    def extent(self, e: int | str):
        if isinstance(e, int):
            return e
        return int(e) if _is_number(e) else self.symbolic(e)

    def node(self, x: dict) -> dict:
        out = {"name": x["name"], "op": _OP_OF_KIND[x.get("kind", "CALL")], "target": x["target"],
               "args": [self.argument(a) for a in x.get("args", ())],
               "kwargs": {k["name"]: self.argument(k["value"]) for k in x.get("kwargs", ())}}
        if "py_type" in x:
            out["type"] = x["py_type"]
        if "attr" in x:
            kind, parts = x["attr"]
            out["attr"] = {"attr": parts[0][1], **self.tensor(parts)} \
                if kind == "tensor" and parts[0] != NONE else self.argument(x["attr"])
        meta = out["meta"] = {}
        if "type" in x:
            meta["val"] = self.type(x["type"])
        if "example_type" in x:
            meta["example_value"] = self.type(x["example_type"])
        for key, value in get_meta(x).items():
            meta[key] = self.plain(value)
        if "bindings" in x:
            meta["unbacked_bindings"] = {
                b["symbol"]: [self.plain(step) for step in b.get("path", ())]
                for b in x["bindings"]}
        if "chunk_hints" in x:
            meta["torchtitan_chunk_symbol_hints"] = {h["symbol"]: h.get("value", 0)
                                                     for h in x["chunk_hints"]}
        return out

    def role(self, x: dict) -> dict:
        out = {k: x[k] for k in ("name", "role", "fqn", "which") if k in x}
        return out | {k["name"]: self.plain(k["value"]) for k in x.get("more", ())}

    @staticmethod
    def process_group(x: dict) -> dict:
        out = {"name": x["name"], "ranks": x.get("ranks", []), "desc": x.get("description")}
        if x.get("has_axes"):
            out["axes"] = x.get("axes", [])
        return out | {key: x[key] for key in ("priority", "split_from", "backend") if key in x}

    @staticmethod
    def symbol(x: dict) -> dict:
        out: dict = {}
        if "lower" in x:
            out["range"] = [x["lower"], x["upper"]]
        for key in ("hint", "size_like", "unbacked", "replaced_by"):
            if key in x:
                out[key] = x[key]
        if x.get("has_asserts"):
            out["deferred_asserts"] = x.get("asserts", [])
        return out

    def file(self) -> dict:
        message = self.message
        return {
            "format": "fx-dump-1",
            "meta": self.plain(message["info"]) if "info" in message else {},
            "process_groups": [self.process_group(x) for x in message.get("process_groups", ())],
            "inputs": [self.role(x) for x in message.get("inputs", ())],
            "outputs": [self.role(x) for x in message.get("outputs", ())],
            "symbols": {x["name"]: self.symbol(x) for x in message.get("symbols", ())},
            "meta_keys_seen": {},
            "graphs": {g.get("name") or "": {"nodes": [self.node(x) for x in g.get("nodes", ())]}
                       for g in message.get("graphs", ())},
        }


def dump_from_file(message: dict) -> dict:
    """The JSON of a dump with the content of a File message.

    A dump has no place for the pipeline log, provenance and what passes noted of symbols
    (assumptions, parts); they are left out. Raises GraphFileError for a message that lacks
    a field which every graph has, or has a Value of the wrong arity.
    """
    try:
        return _DumpWriter(message).file()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise GraphFileError("lacks what a dump must say"
                             f" ({type(error).__name__}: {error}); its writer is faulty") from None


# --------------------------------------------------------------------------------- torch
class MeshPlaceholder:
    """Stands for a device mesh in a loaded graph; exports as the mesh it stands for."""

    def __init__(self, axes, shape, ranks, device_type):
        self.axes, self.shape, self.ranks, self.device_type = axes, shape, ranks, device_type

    def __eq__(self, other):
        return isinstance(other, MeshPlaceholder) and vars(self) == vars(other)

    def __hash__(self):
        return hash((tuple(self.shape), self.device_type))

    def __repr__(self):
        return f"MeshPlaceholder({self.axes}, {self.shape}, {self.device_type!r})"


class ProcessGroupPlaceholder:
    """Stands for a process group of that name where torch.distributed does not know one."""

    def __init__(self, group_name: str):
        self.group_name = group_name

    def __eq__(self, other):
        return isinstance(other, ProcessGroupPlaceholder) and vars(self) == vars(other)

    def __hash__(self):
        return hash(self.group_name)

    def __repr__(self):
        return f"ProcessGroupPlaceholder({self.group_name!r})"


class OpaquePlaceholder:
    """Stands for a recorded value that the exporter could only describe."""

    def __init__(self, text: str, class_name: str):
        self.text, self.class_name = text, class_name

    def __eq__(self, other):
        return isinstance(other, OpaquePlaceholder) and vars(self) == vars(other)

    def __hash__(self):
        return hash(self.text)

    def __repr__(self):
        return self.text


# Where operators are registered that torch itself does not register when it is imported.
_REGISTERED_BY = {
    "torchtitan": ("torchtitan.ops.scatter_add", "torchtitan.experiments.graph_trainer.passes"),
    "bucketing": ("torch._inductor.fx_passes.bucketing",),
    "ao": ("torch._functorch._activation_offloading.offload_ops",),
    "_dtensor": ("torch.distributed.tensor",),
    "device_mesh": ("torch.distributed._ops.device_mesh",),
    "coor": ("torch.fx.experimental.proxy_tensor",),
    "higher_order": ("torch._higher_order_ops",),
}
# Frames of these files, and of torch, are machinery around the user's code in a stack trace.
_TRACER_FILES = ("graph_trainer/make_fx_tracer.py", "graph_trainer/simple_fsdp.py",
                 "graph_trainer/trainer.py")


@functools.cache
def _short_frame(trace: str) -> str:
    """`file:line in function: code` of the last frame of the user's code in a stack trace."""
    import torch

    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)', trace)
    if not frames:
        return trace
    not_own = ("<", os.path.join(os.path.dirname(torch.__file__), ""))
    own = [f for f in frames if not f[0].startswith(not_own) and not f[0].endswith(_TRACER_FILES)]
    path, line, function, code = (own or frames)[-1]
    roots = sorted((os.path.join(p, "") for p in sys.path if p), key=len, reverse=True)
    path = next((path[len(root):] for root in roots if path.startswith(root)), path)
    return f"{path}:{line} in {function}: {code.strip()}"


def _attribute(root, path: str):
    """The attribute of `root` at a dotted path."""
    for part in path.split("."):
        root = getattr(root, part)
    return root


def _imported(name: str):
    """The object with the given dotted name, its module imported; None if there is none."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            return _attribute(importlib.import_module(".".join(parts[:cut])), ".".join(parts[cut:]))
        except (ImportError, AttributeError):
            continue
    return None


def _operator_named(name: str):
    """The operator or function that a node's target names; None if it is not registered."""
    import torch

    if name.startswith("higher_order."):
        return torch._ops._higher_order_ops.get(name.removeprefix("higher_order."))
    try:
        if name.endswith(".<packet>"):
            return _attribute(torch.ops, name.removesuffix(".<packet>"))
        found = _attribute(torch.ops, name) if name.count(".") == 2 else None
    except (AttributeError, RuntimeError):
        found = None
    return found if isinstance(found, torch._ops.OpOverload) else _imported(name)


def _find_operator(name: str):
    """Like `_operator_named`, but imports what may register it and fails with a remedy."""
    found = _operator_named(name)
    modules = _REGISTERED_BY.get(name.split(".")[0], ())
    for module in modules:
        if found is None:
            try:
                importlib.import_module(module)
            except ImportError:
                continue
            found = _operator_named(name)
    if found is None:
        remedy = " or ".join(modules) or "the module that defines it"
        raise GraphFileError(f"the operator {name} is not registered; import {remedy} first")
    return found


def _name_of_operator(target) -> str | None:
    """The name under which `_operator_named` finds `target`; None if there is none."""
    import torch

    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"{target}.<packet>"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None)
    if not callable(target) or name is None:
        return None
    module = getattr(target, "__module__", None)
    homes = ("operator" if module == "_operator" else module, "builtins", "math", "torch",
             "torch.nn.functional", "torch._C._nn")
    return next((f"{home}.{name}" for home in homes
                 if home and _imported(f"{home}.{name}") is target), None)


# Metadata "tensor_meta" repeats "val" in another form. Where the two agree, the file says only
# that, so that the copy cannot go stale when a graph is rewritten.
_DERIVED_TENSOR_META = ("opaque", [("text", "of val"), ("text", "TensorMetadata")])


def _tensor_meta_of(val):
    """What shape propagation records as "tensor_meta" of a node with the recorded value."""
    import torch
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    return torch.fx.node.map_aggregate(
        val, lambda x: _extract_tensor_metadata(x) if isinstance(x, torch.Tensor) else x)


class _NotPlain(Exception):
    """A metadata entry is no plain data."""


class _Exporter:
    """Turns a live GraphModule into a File message."""

    def __init__(self, module):
        import torch
        from torch.distributed import is_available
        self.torch = torch
        self.mesh_class = None
        if is_available():
            from torch.distributed.device_mesh import DeviceMesh
            self.mesh_class = DeviceMesh
        self.env = None
        self.texts: dict = {}  # expression -> its text
        self.graph_names: dict[int, str] = {}
        self.dropped: dict[tuple[str, str], int] = {}  # (key, class) -> nodes
        self.graphs: list[dict] = []
        self.add_graph(module, None)

    # Graphs and nodes.
    def add_graph(self, module, name: str | None) -> None:
        """Append the Graph of a GraphModule, then those of the graphs that it refers to."""
        torch = self.torch
        children = []

        def note(path, child):
            if id(child) not in self.graph_names:
                self.graph_names[id(child)] = f"{name}.{path}" if name else path
                children.append(child)

        for node in module.graph.nodes:
            if node.op == "get_attr":
                child = _attribute(module, node.target)
                if isinstance(child, torch.fx.GraphModule):
                    note(node.target, child)
        nodes = []
        for node in module.graph.nodes:
            for x in torch.utils._pytree.tree_leaves((list(node.args), dict(node.kwargs))):
                if isinstance(x, torch.fx.GraphModule):
                    note(f"arg_graph_{len(self.graph_names)}", x)
            try:
                nodes.append(self.node(module, node))
            except GraphFileError as error:
                raise GraphFileError(f'graph "{name or ""}", node "{node.name}": {error}') from None
        self.graphs.append({"name": name, "nodes": nodes})
        for child in children:
            self.add_graph(child, self.graph_names[id(child)])

    def node(self, module, node) -> dict:
        if node.op not in _OPS:
            raise GraphFileError(f"op {node.op} has no place in the file; trace with make_fx,"
                                 " which leaves calls of operators only")
        target = node.target
        if node.op == "call_function":
            target = _name_of_operator(target)
            if target is None:
                raise GraphFileError(f"the target {node.target!r} cannot be found by name;"
                                     " define it at the top of a module or as a custom operator")
        out = {"name": node.name, "kind": _OPS[node.op], "target": target,
               "args": [self.argument(a) for a in node.args],
               "kwargs": [{"name": k, "value": self.argument(a)} for k, a in node.kwargs.items()]}
        if node.type is not None:
            out["py_type"] = f"{node.type.__module__}.{node.type.__qualname__}" \
                if isinstance(node.type, type) else str(node.type)
        if node.op == "get_attr":
            out["attr"] = self.attribute(_attribute(module, node.target), node.target)
        for key, x in node.meta.items():
            try:
                self.meta(out, key, x, node.meta.get("val"))
            except _NotPlain as error:
                what = (str(key), str(error))
                self.dropped[what] = self.dropped.get(what, 0) + 1
        if "meta" in out:
            out["meta"].sort(key=lambda entry: entry["name"])
        return out

    def history(self, known: dict) -> dict:
        """The pipeline log, origins and provenance of the file that the module was loaded from.

        Provenance is about the nodes that epweave wrote: it is kept if the module still has
        exactly those, in any order, else left out and named on stderr.
        """
        nodes = self.graphs[0]["nodes"]
        records = known.get("provenance", {})
        if not records:
            return {}
        changed = {n["name"]: n["target"] for n in nodes}.items() ^ known["targets"].items()
        if changed:
            name = min(changed)[0]
            print(f'epweave_fx: the module is not as it was loaded (node "{name}"); the pipeline'
                  " log and provenance are left out", file=sys.stderr)
            return {}
        for node in nodes:
            if node["name"] in records:
                node["provenance"] = records[node["name"]]
        return {key: known[key] for key in ("passes", "origins") if key in known}

    def attribute(self, x, path: str) -> tuple:
        torch = self.torch
        if isinstance(x, torch.fx.GraphModule):
            return "graph", self.graph_names[id(x)]
        if isinstance(x, torch.Tensor):
            return self.constant(x, path)
        return self.argument(x)

    # Values.
    def leaf(self, x) -> tuple | None:
        """The Value of an atom, or None if `x` is no atom."""
        torch = self.torch
        if x is None:
            return NONE
        if type(x) is bool:
            return "boolean", x
        if type(x) is int:
            return integer(x)
        if type(x) is str:
            return "text", x
        if type(x) is float:
            return real(x)
        if type(x) is complex:
            return "complex", [real(x.real), real(x.imag)]
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return "symbolic", self.expression(x)
        if isinstance(x, torch.dtype):
            return "dtype", str(x)
        if isinstance(x, torch.device):
            return "device", str(x)
        if isinstance(x, torch.layout):
            return "layout", str(x)
        if isinstance(x, torch.memory_format):
            return "memory_format", str(x)
        if x is Ellipsis:
            return "ellipsis", True
        return None

    def tree(self, x, item) -> tuple | None:
        """The Value of a container, its contents converted by `item`; None if it is none."""
        if isinstance(x, self.torch.Size):
            return "named_tuple", [("text", "torch.Size"), *(
                part for i, y in enumerate(x) for part in (("text", str(i)), item(y)))]
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            name = f"{type(x).__module__}.{type(x).__qualname__}"
            return "named_tuple", [("text", name), *(
                part for f, y in zip(x._fields, x) for part in (("text", f), item(y)))]
        if isinstance(x, tuple):
            return "tuple", [item(y) for y in x]
        if isinstance(x, list):
            return "list", [item(y) for y in x]
        if isinstance(x, dict):
            return "dict", [item(part) for pair in x.items() for part in pair]
        if isinstance(x, slice):
            return "slice", [item(x.start), item(x.stop), item(x.step)]
        if type(x) is set:
            return "set", sorted((item(y) for y in x), key=repr)
        return None

    def thing(self, x) -> tuple | None:
        """The Value of a mesh, process group, operator or class; None if it is none."""
        if isinstance(x, MeshPlaceholder):
            return "mesh", [self.plain(y) for y in (x.axes, x.shape, x.ranks, x.device_type)]
        if isinstance(x, OpaquePlaceholder):
            return "opaque", [("text", x.text), ("text", x.class_name)]
        for wrapper in ("real_obj", "wrapped_obj"):
            x = getattr(x, wrapper, x)
        if self.mesh_class and isinstance(x, self.mesh_class):
            facts = (list(x.mesh_dim_names or ()), list(x.shape), x.mesh.tolist(), x.device_type)
            return "mesh", [self.plain(y) for y in facts]
        if isinstance(getattr(x, "group_name", None), str):
            return "process_group", x.group_name
        if isinstance(x, type) and _imported(f"{x.__module__}.{x.__qualname__}") is x:
            return "opaque", [("text", f"{x.__module__}.{x.__qualname__}"), ("text", "type")]
        name = _name_of_operator(x)
        return None if name is None else ("operator", name)

    def argument(self, x) -> tuple:
        """The Value of an argument; GraphFileError if it has none."""
        torch = self.torch
        if isinstance(x, torch.fx.Node):
            return "node", x.name
        if isinstance(x, torch.fx.GraphModule):
            return "graph", self.graph_names[id(x)]
        if isinstance(x, torch.Tensor):
            return self.constant(x, None)
        value = self.leaf(x) or self.tree(x, self.argument) or self.thing(x)
        if value is None:
            raise GraphFileError(f"cannot write an argument of class {type(x).__name__}: {x!r}")
        return value

    def plain(self, x) -> tuple:
        """The Value of plain data; _NotPlain, with the class of the culprit, otherwise."""
        torch = self.torch
        if isinstance(x, (torch.Tensor, torch.fx.Node, torch.nn.Module)):
            raise _NotPlain(type(x).__name__)
        if isinstance(x, (dict, list)) and type(x) not in (
                dict, list, collections.OrderedDict, torch.fx.immutable_collections.immutable_dict,
                torch.fx.immutable_collections.immutable_list):
            raise _NotPlain(type(x).__name__)
        value = self.leaf(x) or self.tree(x, self.plain) or self.thing(x)
        if value is None:
            raise _NotPlain(type(x).__name__)
        return value

    def constant(self, x, path: str | None) -> tuple:
        """The Value of a constant tensor; a fake one has no values."""
        torch = self.torch
        values = NONE
        if not isinstance(x, torch._subclasses.FakeTensor) and x.device.type != "meta":
            exact = x.detach().cpu()
            if exact.dtype.is_floating_point and exact.dtype.itemsize == 1:
                exact = exact.to(torch.float32)
            values = self.plain(exact.tolist())
        return "tensor", [NONE if path is None else ("text", path), ("type_ref", self.type(x)),
                          values]

    # Types.
    def expression(self, x) -> str:
        self.env = self.env or x.node.shape_env
        expression = x.node.expr
        text = self.texts.get(expression)
        if text is None:
            text = self.texts[expression] = str(expression)
        return text

    def extent(self, x) -> int | str:
        text = str(x) if type(x) is int else self.expression(x)
        return int(text) if _is_number(text) else text

    def type(self, x) -> tuple:
        """The Type of a recorded value."""
        torch = self.torch
        if isinstance(x, torch.Tensor):
            return "tensor", self.tensor_type(x)
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return "scalar", {"expression": self.expression(x), "py_type": type(x).__name__}
        if isinstance(x, tuple):
            return "tuple", [self.type(y) for y in x]
        if isinstance(x, list):
            return "list", [self.type(y) for y in x]
        return "value", self.recorded(x)

    def recorded(self, x) -> tuple:
        """The Value of a recorded value that has no kind of Type of its own."""
        if isinstance(x, (self.torch.Tensor, tuple, list)):
            return "type_ref", self.type(x)
        value = self.leaf(x) or self.tree(x, self.recorded) or self.thing(x)
        return value or ("opaque", [("text", repr(x)), ("text", type(x).__name__)])

    def tensor_type(self, x) -> dict:
        torch = self.torch
        mode = getattr(x, "fake_mode", None)
        if mode is not None:
            self.env = self.env or mode.shape_env
        out = {"dtype": str(x.dtype), "sizes": [self.extent(e) for e in x.shape],
               "device": str(x.device), "requires_grad": x.requires_grad}
        if x.layout == torch.strided:
            out["strides"] = [self.extent(e) for e in x.stride()]
            out["offset"] = self.extent(x.storage_offset())
        else:
            out["layout"] = str(x.layout)
        if type(x).__name__ not in ("FakeTensor", "Tensor"):
            out["subclass"] = type(x).__name__
        return out

    # Metadata.
    def meta(self, node: dict, key, x, val) -> None:
        """Store the entry `key`: `x` of the metadata of a node whose recorded value is `val`."""
        if type(key) is not str:
            raise _NotPlain(type(key).__name__)
        if key == "val":
            node["type"] = self.type(x)
        elif key == "example_value":
            node["example_type"] = self.type(x)
        elif key == "recompute" and isinstance(x, enum.Enum):
            node["recompute"] = x.name
        elif key == "recompute":
            node.setdefault("meta", []).append({"name": key, "value": self.plain(x)})
        elif key == "unbacked_bindings" and x:
            node["bindings"] = [{"symbol": str(symbol), "path": [self.step(s) for s in path]}
                                for symbol, path in x.items()]
        elif key == "torchtitan_chunk_symbol_hints" and x:
            node["chunk_hints"] = [{"symbol": str(s), "value": int(h)} for s, h in x.items()]
        elif key == "stack_trace" and type(x) is str and _short_frame(x) != x:
            node["source"] = _short_frame(x)
            node.setdefault("meta", []).append({"name": key, "value": ("text", x)})
        else:
            value = self.plain(x)
            if key == "tensor_meta" and value == self.plain(_tensor_meta_of(val)):
                value = _DERIVED_TENSOR_META
            put_meta(node, key, value)

    def step(self, x) -> tuple:
        """The Value of one step of a key path: a dict of its kind and its fields."""
        out = [("text", "kind"), ("text", type(x).__name__)]
        for field in dataclasses.fields(x):
            out += [("text", field.name), self.plain(getattr(x, field.name))]
        return "dict", out

    # Tables.
    def symbols(self) -> list[dict]:
        """The symbols of the ShapeEnv found in the recorded values."""
        env = self.env
        if env is None:
            return []
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
        out = {}
        for symbol, bounds in env.var_to_range.items():
            entry = out[str(symbol)] = {"name": str(symbol), "lower": str(bounds.lower),
                                        "upper": str(bounds.upper),
                                        "unbacked": bool(free_unbacked_symbols(symbol)),
                                        "size_like": symbol in env.size_like}
            hint = env.backed_var_to_val.get(symbol, env.var_to_hint_override.get(symbol))
            if hint is not None and int(hint) == hint:
                entry["hint"] = int(hint)
            asserts = env.deferred_runtime_asserts.get(symbol)
            if asserts:
                entry["asserts"] = [str(a.expr) for a in asserts]
                entry["has_asserts"] = True
        for symbol, expression in env.replacements.items():
            out.setdefault(str(symbol), {"name": str(symbol)})["replaced_by"] = str(expression)
        return list(out.values())

    def report_dropped(self) -> None:
        for (key, kind), count in sorted(self.dropped.items()):
            print(f'epweave_fx: metadata "{key}" is not plain data ({kind});'
                  f" left out on {count} node{'s' if count > 1 else ''}", file=sys.stderr)


def live_process_groups() -> list[dict]:
    """torch.distributed's process groups as `export` takes them; none if not initialised."""
    import torch.distributed as dist
    if not (dist.is_available() and dist.is_initialized()):
        return []
    world = dist.distributed_c10d._world
    out = []
    for group, name in world.pg_names.items():
        entry = {"name": name, "ranks": sorted(world.pg_group_ranks.get(group, {})),
                 "desc": getattr(group, "group_desc", None)}
        if group in world.pg_map and world.pg_map[group][0] != "fake":
            entry["backend"] = world.pg_map[group][0]
        out.append(entry)
    return out


def _same_count(roles: list[dict], parts, what: str) -> None:
    if len(roles) != len(parts):
        raise GraphFileError(f"{len(roles)} {what} are described, but the graph has {len(parts)};"
                             " describe each in order")


# Where `load` keeps, in GraphModule.meta, what a file says of the graph as a whole.
FILE_FACTS = "epweave"


def export(graph_module, path: str, *, inputs: list[dict] | None = None,
           outputs: list[dict] | None = None, process_groups: list[dict] | None = None,
           symbols: dict[str, dict] | None = None, info: dict | None = None) -> None:
    """Write a torch.fx.GraphModule of operator calls as a graph file.

    `inputs` has one dictionary per placeholder, `outputs` one per returned value, in order:
    "role" (parameter, buffer, user; loss, grad, mutation, other), "fqn", "which", and any
    other plain data. `process_groups` has one per group: "name", "ranks", "desc" and maybe
    "axes", "priority", "split_from", "backend". `symbols` maps a symbol's name to "range"
    (two expressions), "hint", "size_like", "unbacked", "deferred_asserts", "replaced_by".
    `info` is a dictionary of plain data.

    What is not given comes from the file that the module was loaded from, else from
    torch.distributed's groups and the ShapeEnv of the recorded values; inputs are then
    user inputs and outputs of role "other".

    Metadata that is not plain data is left out and named on stderr. Raises GraphFileError
    for anything else that the file cannot hold.
    """
    import torch

    exporter = _Exporter(graph_module)
    reader = _DumpReader()
    known = graph_module.meta.get(FILE_FACTS, {})
    nodes = exporter.graphs[0]["nodes"]
    names = [n["name"] for n in nodes if n["kind"] == "PLACEHOLDER"]
    returned = next((n["args"][0] for n in nodes if n["kind"] == "OUTPUT" and n["args"]), NONE)
    count = len(returned[1]) if returned[0] in ("list", "tuple") else 1
    message: dict = {
        "version": {"format": FORMAT_VERSION, "min_reader": FORMAT_VERSION,
                    "producer": f"epweave_fx with torch {torch.__version__}"},
        "inputs": known.get("inputs") or [{"name": name, "role": "user", "which": name}
                                          for name in names],
        "outputs": known.get("outputs") or [{"role": "other"} for _ in range(count)],
        "graphs": exporter.graphs}
    if "info" in known:
        message["info"] = known["info"]
    try:
        if info is not None:
            message["info"] = exporter.plain(info)
        if inputs is not None:
            _same_count(inputs, names, "inputs")
            message["inputs"] = reader.roles(
                [{"name": name, **role} for role, name in zip(inputs, names)], "an input",
                _INPUT_FIELDS, exporter.plain)
        if outputs is not None:
            _same_count(outputs, range(count), "outputs")
            message["outputs"] = reader.roles(outputs, "an output", _OUTPUT_FIELDS, exporter.plain)
    except _NotPlain as error:
        raise GraphFileError(f"{path}: a {error} in info, inputs or outputs is not plain data;"
                             " give numbers, strings, lists and dictionaries") from None
    if process_groups is None and known.get("process_groups"):
        message["process_groups"] = known["process_groups"]
    else:
        groups = live_process_groups() if process_groups is None else process_groups
        message["process_groups"] = [reader.process_group(x) for x in groups]
    if symbols is not None:
        message["symbols"] = [reader.symbol(name, x) for name, x in symbols.items()]
    else:
        message["symbols"] = exporter.symbols()
    message.update(exporter.history(known))
    exporter.report_dropped()
    write_file(message, path)


# ------------------------------------------------------------------------- torch: loading
class _Expressions:
    """Parses expressions into sympy, over the symbols of a file."""

    def __init__(self, symbols: list[dict]):
        import sympy
        from torch.utils._sympy import functions, numbers
        self.sympy, self.functions = sympy, functions
        self.constants = {"int_oo": numbers.int_oo, "oo": sympy.oo, "True": sympy.true,
                          "False": sympy.false}
        self.symbols: dict[str, object] = {}
        self.parsed: dict[str, object] = {}
        for entry in symbols:
            self.add_symbol(entry)

    def add_symbol(self, entry: dict) -> None:
        name = entry["name"]
        if name.startswith("z"):  # zf3, zuf3: floats
            self.symbols[name] = self.sympy.Symbol(name, real=True)
        else:
            lower = entry.get("lower", "")
            positive = not entry.get("unbacked") and lower.isdecimal() and int(lower) > 0
            self.symbols[name] = self.sympy.Symbol(name, integer=True, positive=positive or None)

    def __getitem__(self, text: str):
        """The sympy expression of `text`; GraphFileError if it is none."""
        found = self.parsed.get(text)
        if found is None:
            try:
                tree = ast.parse(text.strip(), mode="eval").body
                found = self.build(tree)
                if str(found) != text:
                    with self.sympy.evaluate(False):
                        literal = self.build(tree)
                    found = literal if str(literal) == text else found
            except (SyntaxError, TypeError, KeyError, AttributeError) as error:
                raise GraphFileError(f"cannot read the expression {text!r}: {error}") from None
            self.parsed[text] = found
        return found

    def build(self, e):
        sympy, functions = self.sympy, self.functions
        if isinstance(e, ast.Name):
            if e.id in self.constants:
                return self.constants[e.id]
            if e.id not in self.symbols:
                raise KeyError(f"symbol {e.id} is not in the file's table")
            return self.symbols[e.id]
        if isinstance(e, ast.Constant):
            return sympy.sympify(e.value)
        if isinstance(e, ast.UnaryOp):
            operand = self.build(e.operand)
            return sympy.Not(operand) if isinstance(e.op, ast.Invert) else \
                sympy.Mul(sympy.Integer(-1), operand)
        if isinstance(e, ast.Call):
            arguments = [self.build(a) for a in e.args]
            for home in (functions, sympy):
                if hasattr(home, e.func.id):
                    return getattr(home, e.func.id)(*arguments)
            raise KeyError(f"function {e.func.id} is not known")
        if isinstance(e, ast.Compare):
            a, b = self.build(e.left), self.build(e.comparators[0])
            relations = {ast.Lt: sympy.Lt, ast.LtE: sympy.Le, ast.Gt: sympy.Gt, ast.GtE: sympy.Ge}
            return relations[type(e.ops[0])](a, b)
        a, b = self.build(e.left), self.build(e.right)
        operations = {
            ast.Add: lambda: sympy.Add(a, b), ast.Mult: lambda: sympy.Mul(a, b),
            ast.Sub: lambda: sympy.Add(a, sympy.Mul(sympy.Integer(-1), b)),
            ast.FloorDiv: lambda: functions.FloorDiv(a, b), ast.Mod: lambda: functions.Mod(a, b),
            ast.Pow: lambda: sympy.Pow(a, b),
            ast.Div: lambda: sympy.Mul(a, sympy.Pow(b, sympy.Integer(-1))),
            ast.BitAnd: lambda: sympy.And(a, b), ast.BitOr: lambda: sympy.Or(a, b)}
        return operations[type(e.op)]()


class _Loader:
    """Turns a File message into a live GraphModule."""

    def __init__(self, message: dict, device: str | None):
        import torch
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv
        self.torch = torch
        self.message = message
        self.device_override = None if device is None else str(torch.device(device))
        self.expressions = _Expressions(message.get("symbols", []))
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self.env)
        self.declare_symbols()
        self.operators: dict[str, object] = {}
        self.graphs: dict[str | None, dict] = {g.get("name"): g for g in message["graphs"]}
        self.modules: dict[str | None, object] = {}

    # The ShapeEnv.
    def declare_symbols(self) -> None:
        """Make the file's symbols known to the ShapeEnv: ranges, hints and their kind."""
        import sympy
        from torch._dynamo.source import ConstantSource
        from torch.utils._sympy.value_ranges import ValueRanges
        env = self.env
        for entry in self.message.get("symbols", ()):
            name = entry["name"]
            symbol = self.expressions.symbols[name]
            env.name_to_symbol[name] = symbol
            if "lower" in entry:
                env.var_to_range[symbol] = ValueRanges(self.expressions[entry["lower"]],
                                                       self.expressions[entry["upper"]])
            if entry.get("size_like"):
                env.size_like.add(symbol)
            unbacked = entry.get("unbacked", name.startswith(("u", "zu")))
            if "hint" in entry:
                hints = env.var_to_hint_override if unbacked else env.backed_var_to_val
                hints[symbol] = entry["hint"] if unbacked else sympy.Integer(entry["hint"])
            if unbacked:
                numbered = re.fullmatch(r"u(\d+)", name)
                if numbered:
                    env.unbacked_symint_counter = max(env.unbacked_symint_counter,
                                                      int(numbered[1]) + 1)
            else:
                env.var_to_sources[symbol] = [ConstantSource(name)]

    def finish_symbols(self) -> None:
        """Give the ShapeEnv exactly the file's facts, undoing what building values added."""
        from torch.fx.experimental.symbolic_shapes import RuntimeAssert
        from torch.utils._traceback import CapturedTraceback
        env = self.env
        env.var_to_range.clear()
        env.deferred_runtime_asserts.clear()
        env.replacements.clear()
        env.num_deferred_runtime_asserts = 0
        self.declare_symbols()
        for entry in self.message.get("symbols", ()):
            symbol = self.expressions.symbols[entry["name"]]
            if "replaced_by" in entry:
                env.replacements[symbol] = self.expressions[entry["replaced_by"]]
            asserts = [RuntimeAssert(self.expressions[text], "", CapturedTraceback.extract())
                       for text in entry.get("asserts", ())]
            if asserts:
                env.deferred_runtime_asserts[symbol] = asserts
                env.num_deferred_runtime_asserts += len(asserts)
        env.pending_fresh_unbacked_symbols.clear()
        env._update_version_counter()

    # Values.
    def symbolic(self, text: str, py_type: str | None = None):
        """A SymInt, SymFloat or SymBool; the kind follows from the expression if not given."""
        from torch.fx.experimental.sym_node import SymNode
        torch = self.torch
        expression = self.expressions[text]
        if py_type is None:
            py_type = "SymBool" if expression.is_Boolean or expression.is_Relational else \
                "SymInt" if expression.is_integer is not False else "SymFloat"
        kinds = {"SymInt": (int, torch.SymInt), "SymFloat": (float, torch.SymFloat),
                 "SymBool": (bool, torch.SymBool)}
        if py_type not in kinds:
            raise GraphFileError(f'has a symbolic scalar of the unknown class "{py_type}"')
        plain, symbolic = kinds[py_type]
        return symbolic(SymNode(expression, self.env, plain, None))

    def extent(self, e: int | str):
        if isinstance(e, int):
            return e
        return int(e) if _is_number(e) else self.symbolic(e, "SymInt")

    def torch_constant(self, name: str):
        """The torch object (dtype, layout, memory format) of a name such as "torch.int64"."""
        found = getattr(self.torch, name.removeprefix("torch."), None)
        if found is None:
            raise GraphFileError(f"torch {self.torch.__version__} has no {name}")
        return found

    def device(self, name: str):
        return self.torch.device(self.device_override or name)

    def operator(self, name: str):
        if name not in self.operators:
            self.operators[name] = _find_operator(name)
        return self.operators[name]

    def value(self, value: tuple, nodes: dict):
        """The Python object of a Value; `nodes` are the nodes that it may refer to."""
        kind, x = value
        if kind in ("integer", "boolean", "text"):
            return x
        if kind == "node":
            if x not in nodes:
                raise GraphFileError(f'refers to "{x}", which no earlier node of the graph is;'
                                     " `epweave verify` lists all such faults")
            return nodes[x]
        if kind == "none":
            return None
        if kind == "list":
            return [self.value(y, nodes) for y in x]
        if kind == "tuple":
            return tuple(self.value(y, nodes) for y in x)
        if kind == "dict":
            parts = [self.value(y, nodes) for y in x]
            return dict(zip(parts[::2], parts[1::2]))
        if kind == "set":
            return {self.value(y, nodes) for y in x}
        if kind == "slice":
            return slice(*(self.value(y, nodes) for y in x))
        if kind in ("real", "nan"):
            return real_of(value)
        if kind == "complex":
            return complex(*map(real_of, x))
        if kind == "symbolic":
            return self.symbolic(x)
        if kind in ("dtype", "layout", "memory_format"):
            return self.torch_constant(x)
        if kind == "device":
            return self.device(x)
        if kind == "ellipsis":
            return Ellipsis
        if kind == "graph":
            return self.module(x)
        if kind == "mesh":
            return MeshPlaceholder(*(self.value(y, nodes) for y in x))
        if kind == "process_group":
            return self.process_group(x)
        if kind == "operator":
            return self.operator(x)
        if kind == "tensor":
            return self.constant(x)
        if kind == "type_ref":
            return self.recorded(x)
        if kind == "named_tuple":
            return self.named_tuple(x, nodes)
        return self.opaque(x[0][1], x[1][1])

    def named_tuple(self, parts: list, nodes: dict):
        name, fields = parts[0][1], [f[1] for f in parts[1::2]]
        items = [self.value(y, nodes) for y in parts[2::2]]
        if name == "torch.Size":
            return self.torch.Size(items)
        known = _imported(name)
        if known is None:
            known = collections.namedtuple(name.rpartition(".")[2], fields)
        return known(*items)

    @staticmethod
    def opaque(text: str, class_name: str):
        if class_name == "int" and _is_number(text):
            return int(text)
        if class_name == "type":
            return _imported(text) or OpaquePlaceholder(text, class_name)
        return OpaquePlaceholder(text, class_name)

    @staticmethod
    def process_group(name: str):
        import torch.distributed as dist
        if dist.is_available() and dist.is_initialized():
            for group, known in dist.distributed_c10d._world.pg_names.items():
                if known == name:
                    return group
        return ProcessGroupPlaceholder(name)

    def constant(self, parts: list):
        """A constant tensor: real if its values are recorded, else fake."""
        torch = self.torch
        x = parts[1][1][1]
        if parts[2] == NONE:
            return self.fake_tensor(x)
        dtype = self.torch_constant(x["dtype"])
        values = torch.tensor(self.value(parts[2], {}), dtype=dtype)
        try:
            out = torch.empty_strided(x.get("sizes", []), x.get("strides", []), dtype=dtype,
                                      device=self.device(x["device"]))
        except (RuntimeError, AssertionError) as error:
            raise GraphFileError(f'cannot make a constant tensor on {x["device"]} ({error});'
                                 ' load with device="cpu"') from None
        out.copy_(values.reshape(out.shape))
        if x.get("subclass") == "Parameter":
            return torch.nn.Parameter(out, requires_grad=x.get("requires_grad", False))
        return out.requires_grad_(x.get("requires_grad", False))

    def fake_tensor(self, x: dict):
        """A FakeTensor of the recorded dtype, sizes, strides, offset and device."""
        torch = self.torch
        from torch._subclasses import FakeTensor
        layout = x.get("layout", "torch.strided")
        if layout != "torch.strided":
            raise GraphFileError(f"has a recorded value of layout {layout}; only strided ones"
                                 " can be loaded")
        sizes = [self.extent(e) for e in x.get("sizes", ())]
        strides = [self.extent(e) for e in x.get("strides", ())]
        offset = self.extent(x.get("offset", 0))
        meta = torch.empty_strided(sizes, strides, dtype=self.torch_constant(x["dtype"]),
                                   device="meta")
        if type(offset) is not int or offset:
            meta = self.with_offset(meta, sizes, strides, offset)
        out = FakeTensor(self.mode, meta, self.device(x["device"]))
        return out.requires_grad_() if x.get("requires_grad") else out

    def with_offset(self, meta, sizes, strides, offset):
        """A view of fresh storage, large enough, that begins `offset` elements into it."""
        span = offset + 1
        for size, stride in zip(sizes, strides):
            span = span + size * stride
        base = self.torch.empty_strided((span,), (1,), dtype=meta.dtype, device="meta")
        return base.as_strided(sizes, strides, offset)

    def recorded(self, kind: tuple):
        """The recorded value (meta "val") of a Type."""
        name, x = kind
        if name == "tensor":
            return self.fake_tensor(x)
        if name == "scalar":
            return self.symbolic(x["expression"], x["py_type"])
        if name == "tuple":
            return tuple(None if y is None else self.recorded(y) for y in x)
        if name == "list":
            return [None if y is None else self.recorded(y) for y in x]
        return self.value(x, {})

    # Graphs.
    def module(self, name: str | None):
        """The GraphModule of the graph called `name`, made once."""
        if name not in self.modules:
            graph = self.graphs.get(name)
            if graph is None:
                raise GraphFileError(f'refers to the graph "{name}", which is not in the file')
            self.modules[name] = None  # a graph that contains itself has no module
            self.modules[name] = self.build_module(graph)
        found = self.modules[name]
        if found is None:
            raise GraphFileError(f'the graph "{name}" contains itself')
        return found

    def build_module(self, message: dict):
        torch = self.torch
        root = torch.nn.Module()
        graph = torch.fx.Graph()
        nodes: dict = {}
        for x in message.get("nodes", ()):
            try:
                nodes[x["name"]] = self.node(graph, root, x, nodes)
            except GraphFileError as error:
                raise GraphFileError(f'graph "{message.get("name") or ""}", node "{x["name"]}":'
                                     f" {error}") from None
        return torch.fx.GraphModule(root, graph)

    def node(self, graph, root, x: dict, nodes: dict):
        if x["name"] in nodes:
            raise GraphFileError("the name occurs twice; `epweave verify` lists all such faults")
        kind = x.get("kind", "CALL")
        target = x["target"]
        if kind == "CALL":
            target = self.operator(target)
        elif kind == "GET_ATTR":
            self.set_attribute(root, target, x)
        node = graph.create_node(
            _OP_OF_KIND[kind], target, tuple(self.value(a, nodes) for a in x.get("args", ())),
            {k["name"]: self.value(k["value"], nodes) for k in x.get("kwargs", ())}, name=x["name"],
            type_expr=_imported(x["py_type"]) if "py_type" in x else None)
        if node.name != x["name"]:
            node.name = x["name"]
        self.set_meta(node, x)
        return node

    def set_attribute(self, root, target: str, x: dict) -> None:
        *owners, last = target.split(".")
        for part in owners:
            if not hasattr(root, part):
                root.add_module(part, self.torch.nn.Module())
            root = getattr(root, part)
        if "attr" not in x:
            raise GraphFileError("a get_attr node must say what the attribute is")
        value = self.value(x["attr"], {})
        if isinstance(value, self.torch.Tensor) and not isinstance(value, self.torch.nn.Parameter):
            root.register_buffer(last, value)
        else:
            setattr(root, last, value)

    def set_meta(self, node, x: dict) -> None:
        from torch.fx.experimental import symbolic_shapes
        from torch.utils import _pytree
        from torch.utils.checkpoint import CheckpointPolicy
        meta = node.meta
        if "type" in x:
            meta["val"] = self.recorded(x["type"])
        if "example_type" in x:
            meta["example_value"] = self.recorded(x["example_type"])
        for key, value in get_meta(x).items():
            meta[key] = self.value(value, {})
        for entry in x.get("meta", ()):
            if entry["name"] == "stack_trace":  # in full; the field has its last frame
                meta["stack_trace"] = self.value(entry["value"], {})
            elif entry["value"] == _DERIVED_TENSOR_META:
                meta["tensor_meta"] = _tensor_meta_of(meta.get("val"))
        if x.get("recompute") in CheckpointPolicy.__members__:
            meta["recompute"] = CheckpointPolicy[x["recompute"]]
        if "bindings" in x:
            def step(value):
                fields = self.value(value, {})
                kind = fields.pop("kind")
                home = symbolic_shapes if hasattr(symbolic_shapes, kind) else _pytree
                return getattr(home, kind)(**fields)
            meta["unbacked_bindings"] = {
                self.expressions[b["symbol"]]: tuple(step(s) for s in b.get("path", ()))
                for b in x["bindings"]}
        if "chunk_hints" in x:
            meta["torchtitan_chunk_symbol_hints"] = {
                self.expressions[h["symbol"]]: h.get("value", 0) for h in x["chunk_hints"]}

    def load(self):
        module = self.module(None)
        self.finish_symbols()
        module.meta[FILE_FACTS] = {
            key: self.message[key]
            for key in ("info", "inputs", "outputs", "process_groups", "passes", "origins")
            if key in self.message}
        nodes = self.graphs[None].get("nodes", ())
        records = {x["name"]: x["provenance"] for x in nodes if x.get("provenance")}
        if records:
            module.meta[FILE_FACTS] |= {"provenance": records,
                                        "targets": {x["name"]: x["target"] for x in nodes}}
        return module


def load(path: str, *, device: str | None = None):
    """The torch.fx.GraphModule in a graph file.

    Recorded values are FakeTensors and symbolic scalars of one FakeTensorMode, whose
    ShapeEnv has the file's symbols; each recorded tensor has a storage of its own. Constant
    tensors with recorded values are real. With `device`, every device argument and recorded
    device becomes that one, so that a graph traced for CUDA runs on the CPU.

    Device meshes become MeshPlaceholder objects, and process groups that torch.distributed
    does not know ProcessGroupPlaceholder objects; both export as what they stand for. The
    pipeline log and provenance go with the module (in its `meta`) and are exported again as
    long as it has the same nodes.

    Raises GraphFileError, also where an operator is not registered in this process.
    """
    message = read_file(path)
    try:
        return _Loader(message, device).load()
    except GraphFileError as error:
        raise GraphFileError(f"{path}: {error}") from None
    except (IndexError, KeyError) as error:
        raise GraphFileError(f"{path}: lacks what a graph must say"
                             f" ({type(error).__name__}: {error}); its writer is faulty") from None


def create_process_groups(graph_module) -> dict:
    """Makes the process groups that passes added to a loaded graph; returns them by name.

    A pass such as isolate-ep-pg writes a row to the graph's group table: "0_ep_extra, split
    from 0, high priority". Each gets the ranks that its source has on this rank, and its name
    is registered, so that collectives of the graph find it. Call it on every rank, after the
    groups of the model's meshes were made and before the graph runs: groups are made in the
    order of the table, the same on all ranks. A name that is known already is left alone, so
    that calling it again does nothing.

        module = epweave_fx.load("overlapped.epw")
        epweave_fx.create_process_groups(module)

    Raises GraphFileError where the source of a group is not known in this process.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d
    if not (dist.is_available() and dist.is_initialized()):
        raise GraphFileError("process groups need torch.distributed.init_process_group first")

    def find(name: str):
        try:
            return c10d._resolve_process_group(name)
        except (RuntimeError, ValueError):
            return None

    made = {}
    for row in graph_module.meta.get(FILE_FACTS, {}).get("process_groups", ()):
        if "split_from" not in row:
            continue
        name, source = row["name"], find(row["split_from"])
        made[name] = find(name)
        if made[name] is not None:
            continue
        if source is None:
            raise GraphFileError(f"process group {name!r} is split from {row['split_from']!r}, which this"
                                 " process does not know: make the model's meshes first")
        backend = dist.get_backend(source)
        options = None
        if backend == "nccl" and row.get("priority") == "high":
            options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        # Only members take part: the groups of other ranks have other members.
        made[name] = dist.new_group(dist.get_process_group_ranks(source), backend=backend, pg_options=options,
                                    group_desc=row.get("description"), use_local_synchronization=True)
        c10d._register_process_group(name, made[name])
    return made


# ------------------------------------------------------------------------------- command
def _run_from_dump(source: str, target: str) -> None:
    try:
        dump = json.loads(read_bytes(source))
    except (ValueError, RecursionError) as error:
        raise GraphFileError(f"{source}: is not JSON ({error}); give an fx-dump-1 file") from None
    except GraphFileError as error:
        raise GraphFileError(f"{source}: {error}") from None
    try:
        message = file_from_dump(dump)
    except RecursionError:
        raise GraphFileError(f"{source}: is nested too deeply; no traced graph is") from None
    except GraphFileError as error:
        raise GraphFileError(f"{source}: {error}") from None
    write_file(message, target)


def _run_to_dump(source: str, target: str) -> None:
    message = read_file(source)
    if message.get("passes"):
        print(f"epweave_fx: {source}: a dump has no place for the pipeline log and provenance;"
              " left out", file=sys.stderr)
    try:
        text = json.dumps(dump_from_file(message), separators=(",", ":"))
    except GraphFileError as error:
        raise GraphFileError(f"{source}: {error}") from None
    try:
        write_bytes(text.encode(), target)
    except GraphFileError as error:
        raise GraphFileError(f"{target}: {error}") from None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="epweave_fx.py", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
            ("from-dump", _run_from_dump, "write a graph file from an fx-dump-1 JSON file"),
            ("to-dump", _run_to_dump, "write an fx-dump-1 JSON file from a graph file")):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("input", metavar="IN", help="input file, - for stdin")
        command.add_argument("output", metavar="OUT", help="output file, - for stdout")
        command.set_defaults(run=run)
    options = parser.parse_args(arguments)
    if options.run is _run_from_dump and options.output == "-" and sys.stdout.isatty():
        parser.error("the graph file is binary and stdout is a terminal; redirect it")
    try:
        options.run(options.input, options.output)
    except GraphFileError as error:
        print(f"epweave_fx: {error}", file=sys.stderr)
        return 3
    except Exception:
        traceback.print_exc()
        print("epweave_fx: internal error (please report it)", file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
