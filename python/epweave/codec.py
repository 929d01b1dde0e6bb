"""File messages as bytes and back, through the `protobuf` package.

How a message looks in Python is said in schema.py; strings and types are in place of their numbers.
"""
from __future__ import annotations

import struct
import zlib

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from .errors import GraphFileError
from .schema import ENUMS, FIELDS, FORMAT_VERSION, KNOWN_FEATURES, LISTS, PAIRS, SCHEMA, UNKNOWN

_PACKAGE = "epweave_fx"
_MAGIC = "epweave"
_HEAD = b"\x0a\x07epweave"  # the field `magic`
_CRC_TAG = 0x7d  # the field `crc`, the last of a file: one byte, then four
_WIRE_TYPES = {"sref": "uint32", "tref": "uint32", "extent": "sint64"}
_TABLES = ("magic", "types", "strings", "crc")  # made and resolved here


# ---------------------------------------------------------------------------------------- classes
def _field_descriptor(message, field) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    out = message.field.add(name=field.name, number=field.number)
    out.label = kinds.LABEL_REPEATED if field.label == "*" else kinds.LABEL_OPTIONAL
    if field.type in SCHEMA or field.type in ENUMS:
        out.type = kinds.TYPE_MESSAGE if field.type in SCHEMA else kinds.TYPE_ENUM
        out.type_name = f".{_PACKAGE}.{field.type}"
    else:
        out.type = getattr(kinds, "TYPE_" + _WIRE_TYPES.get(field.type, field.type).upper())
    if field.label == "|":
        out.oneof_index = 0
    out.proto3_optional = field.label == "?"


def _message_classes() -> dict[str, type]:
    """A protobuf class for each message of SCHEMA."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, constants in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, constant in enumerate(constants):
            enum.value.add(name=f"{name}_{constant}", number=number)
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        if any(f.label == "|" for f in fields):
            message.oneof_decl.add(name="kind")
        for field in fields:
            _field_descriptor(message, field)
        for out in message.field:  # each optional field has a oneof of its own, behind the real ones
            if out.proto3_optional:
                out.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{out.name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    make = getattr(message_factory, "GetMessageClass", None) or \
        message_factory.MessageFactory(pool).GetPrototype  # before protobuf 4.22
    return {name: make(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in SCHEMA}


_CLASSES = _message_classes()


# --------------------------------------------------------------------------------------- encoding
class _Tables:
    """Numbers strings and types by first use (the canonical form)."""

    def __init__(self):
        self.strings: dict[str, int] = {}
        self.types: dict[bytes, int] = {}
        self.type_messages: list = []
        self.type_of_object: dict[int, int] = {}
        self.unknown: list[tuple[dict, bytes]] = []  # (keyword arguments of a message, its unknown fields)

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
            message = _CLASSES["Type"](**_ENCODE["Type"](self, kind))
            number = self.types.setdefault(message.SerializeToString(deterministic=True), len(self.types) + 1)
            if number > len(self.type_messages):
                self.type_messages.append(message)
            self.type_of_object[id(kind)] = number
        return number

    def extent(self, value: int | str) -> int:
        if isinstance(value, int) and value >= 0:
            return value
        return -self.sref(str(value))


def _content_encoder(field):
    """The function (tables, value) -> what protobuf takes for one value of `field`; None where that is the value."""
    if field.type in _WIRE_TYPES:
        return getattr(_Tables, field.type)
    if field.type in ENUMS:
        numbers = {name: i for i, name in enumerate(ENUMS[field.type])}
        return lambda tables, v: v if isinstance(v, int) else numbers[v]
    if field.type in SCHEMA:
        name = field.type
        return lambda tables, v: _ENCODE[name](tables, v)
    return None


def _field_encoder(field):
    """Like `_content_encoder`, of all values of a field."""
    content = _content_encoder(field)
    if field.label != "*" or content is None:
        return content
    return lambda tables, values: [content(tables, v) for v in values]


# What an empty message is in the place of keyword arguments: with {} protobuf would leave the field
# out.
_EMPTY = {name: cls() for name, cls in _CLASSES.items()}


def _message_encoder(name: str):
    """The function (tables, message) -> keyword arguments of the protobuf class."""
    fields = [(f.name, _field_encoder(f)) for f in FIELDS[name]]
    empty = _EMPTY[name]
    if name in PAIRS:
        members = dict(fields)

        def encode(tables, message):
            member, value = message
            content = members[member]
            return {member: value if content is None else content(tables, value)}
    elif name in LISTS:
        item, content = fields[0]

        def encode(tables, message):
            return {item: content(tables, message)} if message else empty
    else:
        plans: dict[tuple, list] = {}  # the fields that a message has, in order of number

        def encode(tables, message):
            keys = tuple(message)
            plan = plans.get(keys)
            if plan is None:
                plan = plans[keys] = [f for f in fields if f[0] in message]
            out = {}
            for field, content in plan:
                value = message[field]
                if value is not None:
                    out[field] = value if content is None else content(tables, value)
            if UNKNOWN in message:
                tables.unknown.append((out, message[UNKNOWN]))
            return out or empty
    return encode


_ENCODE = {name: _message_encoder(name) for name in SCHEMA}


def _with_unknown(name: str, content, unknown: dict[int, bytes]):
    """The message of keyword arguments some of which have unknown fields: these follow the known ones."""
    if not isinstance(content, dict):
        return content
    kinds = {f.name: f for f in FIELDS[name]}
    out = {}
    for field, value in content.items():
        kind = kinds[field]
        if kind.type in SCHEMA:
            value = [_with_unknown(kind.type, v, unknown) for v in value] if kind.label == "*" else \
                _with_unknown(kind.type, value, unknown)
        out[field] = value
    message = _CLASSES[name](**out)
    message.MergeFromString(unknown.get(id(content), b""))
    return message


def encode_file(message: dict) -> bytes:
    """The bytes of a File message in canonical form, with its tables and CRC.

    `magic`, `types`, `strings` and `crc` are made here; the caller leaves them out.
    """
    tables = _Tables()
    try:
        content = {**_ENCODE["File"](tables, message), "magic": _MAGIC}
        content["types"], content["strings"] = tables.type_messages, list(tables.strings)
        if tables.unknown:
            unknown = {id(arguments): data for arguments, data in tables.unknown}
            body = _with_unknown("File", content, unknown)
            body.MergeFromString(message.get(UNKNOWN, b""))
        else:
            body = _CLASSES["File"](**content)
        data = body.SerializeToString(deterministic=True)
    except UnicodeEncodeError as error:
        raise GraphFileError(f"cannot be written: {error.object!r} is not valid Unicode") from None
    return data + bytes([_CRC_TAG]) + struct.pack("<I", zlib.crc32(data))


# --------------------------------------------------------------------------------------- decoding
class _Resolver:
    """Turns protobuf messages of one file into dictionaries, resolving references through its tables."""

    def __init__(self, file):
        self.strings: list[str | None] = [None, *file.strings]
        self.types: list = [None]
        self.has_unknown = _has_unknown_fields(file)
        for kind in file.types:
            self.types.append(_DECODE["Type"](self, kind))

    def sref(self, number: int):
        return self.strings[number]

    def tref(self, number: int):
        return self.types[number]

    def extent(self, number: int) -> int | str:
        return number if number >= 0 else self.strings[-number]


def _has_unknown_fields(message) -> bool:
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return known.ByteSize() != message.ByteSize()


def _unknown_fields(message) -> bytes:
    """The unknown fields of a message itself, encoded."""
    rest = type(message)()
    rest.CopyFrom(message)
    for field, _ in rest.ListFields():
        rest.ClearField(field.name)
    return rest.SerializeToString(deterministic=True)


def _content_decoder(field):
    """The function (resolver, content) -> value of one value of `field`; None where that is the content."""
    if field.type in _WIRE_TYPES:
        return getattr(_Resolver, field.type)
    if field.type in ENUMS:
        names = dict(enumerate(ENUMS[field.type]))
        return lambda resolver, n: names.get(n, n)
    if field.type in SCHEMA:
        name = field.type
        return lambda resolver, m: _DECODE[name](resolver, m)
    return None


def _field_decoder(field):
    content = _content_decoder(field)
    if field.label != "*":
        return content
    if content is None:
        return lambda resolver, values: list(values)
    return lambda resolver, values: [content(resolver, v) for v in values]


def _pair_decoder(name: str):
    members = {f.name: _field_decoder(f) for f in FIELDS[name]}

    def decode(resolver, message):
        member = message.WhichOneof("kind")
        if member is None or resolver.has_unknown and _unknown_fields(message):
            raise GraphFileError(f"has a {name} of a kind that this program does not know; a newer epweave"
                                 " wrote it")
        content = members[member]
        value = getattr(message, member)
        return member, value if content is None else content(resolver, value)
    return decode


def _list_decoder(name: str):
    item, content = FIELDS[name][0].name, _field_decoder(FIELDS[name][0])
    return lambda resolver, message: content(resolver, getattr(message, item))


def _message_decoder(name: str):
    """The function (resolver, protobuf message) -> message."""
    fields = {f.number: (f.name, _field_decoder(f)) for f in FIELDS[name]}

    def decode(resolver, message):
        out = {}
        for descriptor, value in message.ListFields():
            field, content = fields[descriptor.number]
            out[field] = value if content is None else content(resolver, value)
        if resolver.has_unknown:
            unknown = _unknown_fields(message)
            if unknown:
                out[UNKNOWN] = unknown
        return out
    return decode


_DECODE = {name: (_pair_decoder if name in PAIRS else _list_decoder if name in LISTS else _message_decoder)(name)
           for name in SCHEMA}


def _check_version(version) -> None:
    if version.min_reader > FORMAT_VERSION:
        raise GraphFileError(f"needs a reader of format {version.min_reader}; this one reads format"
                             f" {FORMAT_VERSION}", remedy="use a newer epweave")
    for feature in version.required_features:
        if feature not in KNOWN_FEATURES:
            raise GraphFileError(f'requires the feature "{feature}", which this reader does not have',
                                 remedy="use a newer epweave")


def decode_file(data: bytes) -> dict:
    """The File message in `data`, references resolved; the inverse of `encode_file`.

    Raises GraphFileError if the bytes are not an intact epweave file or ask for a newer
    reader or an unknown feature.
    """
    if not data.startswith(_HEAD):
        raise GraphFileError("is not an epweave binary graph file",
                             remedy="convert other forms with `epweave convert`; epweave.export makes one of a torch.fx graph")
    end = len(data) - 5
    if data[end] != _CRC_TAG or struct.unpack_from("<I", data, end + 1)[0] != zlib.crc32(data[:end]):
        raise GraphFileError("is truncated or altered: its checksum does not match", remedy="copy or write it again")
    try:
        file = _CLASSES["File"].FromString(data)
        _check_version(file.version)
        message = _DECODE["File"](_Resolver(file), file)
    except (DecodeError, UnicodeDecodeError):
        raise GraphFileError("is not valid protobuf; its writer is faulty") from None
    except IndexError:
        raise GraphFileError("refers to a string or type that it does not have; the file is damaged or its writer"
                             " is faulty") from None
    for name in _TABLES:
        message.pop(name, None)
    return message
