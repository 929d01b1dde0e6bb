"""The messages of proto/epweave.proto as a table."""
from __future__ import annotations

FORMAT_VERSION = 1
KNOWN_FEATURES: frozenset[str] = frozenset()

# One field per word: number, name, type. A type is a protobuf scalar, a message or enum of this
# table, or one of the reference kinds: `sref` (string), `tref` (type), `extent` (number or
# expression). `*` marks a repeated field, `?` one with explicit presence, `|` a member of the
# message's oneof.
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
PAIRS = ("Value", "Type")
LISTS = ("Values", "Elements")


class Field:
    """One field of SCHEMA: `number`, `name`, `type` and `label` ("*", "?", "|" or "")."""

    def __init__(self, text: str):
        number, self.name, kind = text.split(":")
        self.number = int(number)
        self.label = kind[0] if kind[0] in "*?|" else ""
        self.type = kind[len(self.label):]


FIELDS = {name: [Field(f) for f in text.split()] for name, text in SCHEMA.items()}
