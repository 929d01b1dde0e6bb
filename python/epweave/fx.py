"""All names of the exchange with PyTorch and its file: what scripts/epweave_fx.py offers."""
from __future__ import annotations

from .artifact import Artifact, check_artifact, load_artifact, save_artifact
from .codec import decode_file, encode_file
from .dump import dump_from_file, file_from_dump
from .errors import GraphFileError
from .exporter import FILE_FACTS, Exporter, export, live_process_groups
from .expressions import ExpressionError, evaluate
from .files import check_output, read_bytes, read_file, write_bytes, write_file
from .fx_command import main
from .groups import create_process_groups
from .loader import load
from .operators import MeshPlaceholder, OpaquePlaceholder, ProcessGroupPlaceholder, attribute_at
from .schema import ENUMS, FORMAT_VERSION, KNOWN_FEATURES, SCHEMA
from .values import get_meta, integer, put_meta, real, real_of

__all__ = [
    "ENUMS", "FILE_FACTS", "FORMAT_VERSION", "KNOWN_FEATURES", "SCHEMA", "Artifact", "Exporter",
    "ExpressionError", "GraphFileError", "MeshPlaceholder", "OpaquePlaceholder", "ProcessGroupPlaceholder",
    "attribute_at", "check_artifact", "check_output", "create_process_groups", "decode_file",
    "dump_from_file", "encode_file", "evaluate", "export", "file_from_dump", "get_meta", "integer",
    "live_process_groups", "load", "load_artifact", "main", "put_meta", "read_bytes", "read_file", "real",
    "real_of", "save_artifact", "write_bytes", "write_file",
]
