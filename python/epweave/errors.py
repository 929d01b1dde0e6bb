"""What the package raises. Each says where (file, node, module, source line), what, and what to do."""
from __future__ import annotations


# What an error says beside its message, by the names that the programs' JSON has for it.
FACTS = ("id", "node", "op", "module", "source", "remedy")


class EpweaveError(Exception):
    """An error of epweave.

    `id` names the refusal ("chunk.no-exchange"), or the kind of error where it has no name of its own ("usage",
    "invalid-input"). `node`, `op`, `module` and `source` say where, `remedy` what to do; `reproducer` is the file that
    `epweave rewrite --reproducer` runs, where a pass failed and left one. Each is None where there is nothing to say.
    A traceback shows the last two as notes. `exit_code` is that of the program (docs/command_line.md).
    """

    exit_code = 5
    kind = "internal"

    def __init__(self, message: str, *, id: str | None = None, node: str | None = None,
                 op: str | None = None, module: str | None = None, source: str | None = None,
                 remedy: str | None = None, reproducer: str | None = None):
        super().__init__(message)
        self.id, self.node, self.op, self.module = id or self.kind, node, op, module
        self.source, self.remedy = source, remedy
        self.keep_reproducer(reproducer)

    def keep_reproducer(self, path: str | None) -> None:
        """Says where the reproducer is."""
        self.reproducer = path
        self.__notes__ = [f"  {name}: {text}" for name, text in (("remedy", self.remedy), ("reproducer", path)) if text]

    def within(self, where: str, **facts: str | None) -> EpweaveError:
        """The same error, its message preceded by `where`; `facts` are used where none are known yet."""
        known = {name: getattr(self, name) for name in (*FACTS, "reproducer")}
        return type(self)(f"{where}: {self}", **{name: known[name] or facts.get(name) for name in known})

    def naming(self, path: str, name: str) -> EpweaveError:
        """The same error, its message with `name` for the path of a temporary file that nobody knows."""
        if path not in str(self):
            return self
        known = {fact: getattr(self, fact) for fact in (*FACTS, "reproducer")}
        return type(self)(str(self).replace(path, name), **known)


class UsageError(EpweaveError, ValueError):
    """The pipeline, an option or an argument is wrong."""

    exit_code = 2
    kind = "usage"


class GraphFileError(EpweaveError):
    """The input cannot be read, or holds something that the output cannot express."""

    exit_code = 3
    kind = "invalid-input"


class DeclinedError(EpweaveError):
    """A pass declines a legal graph, or the graph cannot be executed."""

    exit_code = 4
    kind = "declined"


class InternalError(EpweaveError):
    """A bug of epweave."""

    exit_code = 5


def full_text(error: BaseException) -> str:
    """The message of an error with its notes (remedy, reproducer), a line each."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


class RunError(EpweaveError):
    """A replay failed while it ran: a rank, a collective, or the time allowed."""

    exit_code = 1
    kind = "run"


class MismatchError(EpweaveError):
    """An artifact does not fit the run that loads it.

    `mismatches` has for each field {"field", "artifact", "here"}; a value is None where the field is missing.
    """

    exit_code = 1

    def __init__(self, what: str, mismatches: list[dict]):
        def text(value) -> str:
            return "nothing" if value is None else str(value)
        rows = [f'{x["field"]}: the artifact has {text(x["artifact"])}, here it is {text(x["here"])}'
                for x in mismatches]
        super().__init__("\n  ".join([f"{what}: does not fit this run:", *rows]), id="artifact.mismatch",
                         remedy="make the artifact again with the configuration of this run")
        self.what, self.mismatches = what, mismatches

    def within(self, where: str, **facts: str | None) -> MismatchError:
        return MismatchError(f"{where}: {self.what}", self.mismatches)


class DeviceError(EpweaveError):
    """The device that was asked for is not there."""

    exit_code = 77
    kind = "no-device"
