"""Symbolic expressions as text: their value under hints, and whether two are the same polynomial."""
from __future__ import annotations

import ast
import collections
import fractions
import functools
import math


class ExpressionError(ValueError):
    """The text is not an expression that this program can evaluate."""


def _floor_divide(a, b):
    return a // b


_FUNCTIONS = {
    "Mod": lambda a, b: a % b, "PythonMod": lambda a, b: a % b, "FloorDiv": _floor_divide,
    "CleanDiv": _floor_divide, "ModularIndexing": lambda a, b, c: a // b % c,
    "CeilDiv": lambda a, b: -(-a // b), "Min": min, "Max": max, "Abs": abs,
    "Eq": lambda a, b: a == b, "Ne": lambda a, b: a != b,
    "Lt": lambda a, b: a < b, "Le": lambda a, b: a <= b, "Gt": lambda a, b: a > b, "Ge": lambda a, b: a >= b,
    "And": lambda *operands: all(operands), "Or": lambda *operands: any(operands), "Not": lambda a: not a,
    "Identity": lambda a: a,
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
    def pieces(call):
        """Piecewise((value, condition), ...): the value of the first condition that holds."""
        for pair in call.args:
            if not (isinstance(pair, ast.Tuple) and len(pair.elts) == 2):
                raise ExpressionError(f"cannot evaluate the expression {text!r}")
            if walk(pair.elts[1]):
                return walk(pair.elts[0])
        return 0

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
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "Piecewise":
            return pieces(e)
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


def are_equal(a: int | str, b: int | str) -> bool:
    """Whether two extents are the same polynomial, in whatever order they are written: `u8 + u10`, `u10 + u8`."""
    return a == b or _polynomial(str(a)) == _polynomial(str(b))


@functools.lru_cache(maxsize=1 << 16)
def _polynomial(text: str):
    """The coefficient of each product of symbols and calls; the text itself where it is no expression."""
    try:
        return _terms(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError):
        return text


def _terms(e) -> frozenset:
    """Pairs of a product, its factors sorted, and its coefficient."""
    if isinstance(e, ast.Constant) and type(e.value) is int:
        return frozenset({((), e.value)} if e.value else ())
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
        return _collect((product, -factor) for product, factor in _terms(e.operand))
    if isinstance(e, ast.BinOp) and isinstance(e.op, (ast.Add, ast.Sub)):
        sign = 1 if isinstance(e.op, ast.Add) else -1
        return _collect([*_terms(e.left), *((product, sign * factor) for product, factor in _terms(e.right))])
    if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Mult):
        return _collect((tuple(sorted(p + q)), f * g) for p, f in _terms(e.left) for q, g in _terms(e.right))
    if isinstance(e, ast.BinOp):
        atom = (type(e.op).__name__, repr(sorted(_terms(e.left))), repr(sorted(_terms(e.right))))
    elif isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and not e.keywords:
        operands = [repr(sorted(_terms(x))) for x in e.args]
        atom = (e.func.id, *(sorted(operands) if e.func.id in ("Min", "Max") else operands))
    else:
        atom = (ast.dump(e),)
    return frozenset({((atom,), 1)})


def _collect(terms) -> frozenset:
    total = collections.Counter()
    for product, factor in terms:
        total[product] += factor
    return frozenset((product, factor) for product, factor in total.items() if factor)
