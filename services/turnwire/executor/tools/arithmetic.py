"""Arithmetic that cannot be made to run for long or to grow without end."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from turnwire.executor.inline import ToolFailed
from turnwire.extend.tools import Mode, Tool, tool

__all__ = ["TOOLS", "evaluate"]

_MAX_LENGTH = 1_000
_MAX_DEPTH = 50
# Results above this many bits are refused before they are computed.
_MAX_BITS = 4_096

Number = int | float
# One type for the model, while whole numbers keep all their digits.
AnyNumber = Annotated[int | float, WithJsonSchema({"type": "number"})]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "log10": math.log10,
    "max": max,
    "min": min,
    "round": round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
_CONSTANTS = {"e": math.e, "pi": math.pi}


def evaluate(expression: str) -> Number:
    """Compute an expression of numbers, `+ - * / // % **`, brackets and a few functions.

    Raises ToolFailed for anything else, for results above 4,096 bits, and for undefined ones.
    """
    if len(expression) > _MAX_LENGTH:
        raise ToolFailed(f"The expression is longer than {_MAX_LENGTH} characters.")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _value(tree.body, 0)
    except SyntaxError:
        raise ToolFailed("The expression is not arithmetic as Python writes it.") from None
    except ZeroDivisionError:
        raise ToolFailed("The expression divides by zero.") from None
    except (ValueError, OverflowError, TypeError, MemoryError, RecursionError) as error:
        raise ToolFailed(f"The expression has no value: {error}.") from None


def _value(node: ast.expr, depth: int) -> Number:
    if depth > _MAX_DEPTH:
        raise ToolFailed(f"The expression is nested deeper than {_MAX_DEPTH} levels.")
    match node:
        case ast.Constant(value=bool() | str() | bytes() | complex() | None):
            raise ToolFailed("Only numbers can be computed with.")
        case ast.Constant(value=int() | float() as value):
            return _bounded(value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            first, second = _value(left, depth + 1), _value(right, depth + 1)
            _foresee(op, first, second)
            return _bounded(_BINARY[type(op)](first, second))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _bounded(_UNARY[type(op)](_value(operand, depth + 1)))
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*(_value(argument, depth + 1) for argument in args)))
    known = ", ".join([*_CONSTANTS, *_FUNCTIONS])
    raise ToolFailed(f"The expression holds something that is not arithmetic. Known names: {known}.")


def _foresee(op: ast.operator, first: Number, second: Number) -> None:
    """Refuse a power whose result would be too large, before it is computed."""
    if not isinstance(op, ast.Pow) or not isinstance(first, int) or not isinstance(second, int):
        return
    if second > 0 and first.bit_length() * second > _MAX_BITS:
        raise ToolFailed(f"The result would be larger than {_MAX_BITS} bits.")


def _bounded(value: Any) -> Number:
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise ToolFailed(f"The result would be larger than {_MAX_BITS} bits.")
        return value
    if not isinstance(value, float):
        raise ToolFailed("The expression has no real value.")
    return value


@tool(mode=Mode.PARALLEL, repeatable=True)
async def add(a: AnyNumber, b: AnyNumber) -> str:
    """Add two numbers."""
    return _text(_whole(a) + _whole(b))


@tool(mode=Mode.PARALLEL, repeatable=True)
async def multiply(a: AnyNumber, b: AnyNumber) -> str:
    """Multiply two numbers."""
    return _text(_whole(a) * _whole(b))


@tool(mode=Mode.PARALLEL, repeatable=True)
async def calculate(
    expression: Annotated[str, Field(description="For example (2 + 3) * sqrt(16) / 7")],
) -> str:
    """Compute an arithmetic expression."""
    return _text(evaluate(expression))


def _whole(value: Number) -> Number:
    """Give a whole number as int, so that 2 + 3.0 is 5 and not 5.0."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _text(value: Number) -> str:
    return str(value)


TOOLS: list[Tool[..., Any]] = [add, multiply, calculate]
