"""Reading and writing files: gzip, standard streams, whole or not at all."""
from __future__ import annotations

import errno
import gzip
import io
import os
import sys
import tempfile
import zlib

from .codec import decode_file, encode_file
from .errors import GraphFileError


def _stream(stream):
    """A standard stream's bytes; OSError where the process was started without it."""
    if stream is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return stream.buffer


def read_bytes(path: str) -> bytes:
    """The content of a file or of stdin (`-`), decompressed if it is gzip."""
    try:
        if path == "-":
            data = _stream(sys.stdin).read()
        else:
            with open(path, "rb") as f:
                data = f.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise GraphFileError(f"is a damaged gzip file ({error})", remedy="copy or write it again") from None
    except OSError as error:
        raise GraphFileError(f"cannot be read: {error.strerror}") from None
    return data


def write_bytes(data: bytes, path: str) -> None:
    """Write a file (temporary file, then rename) or stdout (`-`); gzip if it ends in .gz.

    Links are followed; devices and pipes are written to, not replaced.
    """
    if path == "-":
        try:
            out = _stream(sys.stdout)
            out.write(data)
            out.flush()
        except OSError as error:
            raise GraphFileError(f"cannot be written: {error.strerror}") from None
        return
    if path.endswith(".gz"):
        packed = io.BytesIO()
        with gzip.GzipFile("", "wb", 6, packed, 0) as f:
            f.write(data)
        data = packed.getvalue()
    temporary = None
    try:
        if not path:
            raise OSError(errno.ENOENT, "the name is empty")
        path = os.path.realpath(path)
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
        temporary = None
    except OSError as error:
        raise GraphFileError(f"cannot be written: {error.strerror}") from None
    finally:
        if temporary and os.path.exists(temporary):  # also where the user interrupts
            os.unlink(temporary)


def read_file(path: str) -> dict:
    """The File message in the graph file at `path`."""
    try:
        return decode_file(read_bytes(path))
    except GraphFileError as error:
        raise error.within(path) from None


_OTHER_FORMS = ("json", "txt", "onnx", "pt2")
_LONGEST_ENDING = 5  # what is longer is part of a name, such as those of mktemp


def _check_ending(path: str) -> None:
    """Raises GraphFileError where the name's ending is that of another form, or, as the programs have it, of none."""
    name = os.path.basename(path.removesuffix(".gz"))
    stem, _, ending = name.rpartition(".")
    if not stem or not ending or len(ending) > _LONGEST_ENDING or ending == "epw":
        return
    if ending in _OTHER_FORMS:
        raise GraphFileError("has the ending of another form, but only the binary form is written here",
                             remedy="end the name in .epw (and .gz behind it), and use `epweave convert`")
    raise GraphFileError(f"the ending .{ending} names no form", remedy="end the name in .epw (and .gz behind it)")


def check_output(path: str) -> None:
    """Raises GraphFileError where a graph cannot be written to `path`: before long work, not behind it."""
    try:
        _check_ending(path)
    except GraphFileError as error:
        raise error.within(path) from None
    check_place(path)


def check_place(path: str) -> None:
    """Raises GraphFileError where no file can be written to `path`: before long work, not behind it."""
    if not path:
        raise GraphFileError("the name of the file to write is empty")
    try:
        folder = os.path.dirname(os.path.realpath(path))
        if path != "-" and not os.path.isdir(folder):
            raise GraphFileError(f"cannot be written: there is no folder {folder}")
        if os.path.isdir(path):
            raise GraphFileError("cannot be written: is a folder")
        if path != "-" and not os.access(path if os.path.exists(path) else folder, os.W_OK):
            raise GraphFileError("cannot be written: permission denied")
    except GraphFileError as error:
        raise error.within(path) from None


def write_file(message: dict, path: str) -> None:
    """Write a File message (see `encode_file`) as a binary graph file."""
    try:
        _check_ending(path)
        write_bytes(encode_file(message), path)
    except GraphFileError as error:
        raise error.within(path) from None
