"""Values that need more than an expression: text that is no Unicode or changes on a way through UTF-8, and reals that
loaders do not read as they are written."""

from math import copysign, inf
from typing import Any

import apsw

from paddock.dumps.sqlite.expressions import EXACT, NOT_KEPT, NOT_UNICODE, TEXT_HEX, utf8


def not_unicode(data: bytes, codec: str) -> bool:
    try:
        data.decode(codec)
    except UnicodeDecodeError:
        return True
    return False


def not_kept(data: bytes, codec: str) -> bool:
    """SQLite reads U+FFFE and U+FFFF in UTF-8 as U+FFFD when it makes UTF-16 of it."""
    try:
        text = data.decode(codec)
    except UnicodeDecodeError:
        return True
    return "\ufffe" in text or "\uffff" in text


def register(connection: apsw.Connection, codec: str) -> None:
    connection.create_scalar_function(
        NOT_UNICODE, lambda *data: not_unicode(_bytes(data), codec), 1, deterministic=True
    )
    connection.create_scalar_function(NOT_KEPT, lambda *data: not_kept(_bytes(data), codec), 1, deterministic=True)
    connection.create_scalar_function(TEXT_HEX, lambda *data: utf8(_bytes(data), codec).hex(), 1, deterministic=True)
    connection.create_scalar_function(EXACT, lambda *value: exact(_float(value)), 1, deterministic=True)


def exact(value: float) -> str:
    """A real by steps that lose nothing in any SQLite: whole numbers, and powers of two."""
    if value in (inf, -inf):
        return "9.0e+999" if value > 0 else "-9.0e+999"
    if value == 0:
        return "-0.0" if copysign(1, value) < 0 else "0.0"
    number, divisor = value.as_integer_ratio()
    if divisor > 1:
        return f"{number}*1.0{_steps('/', divisor.bit_length() - 1)}"
    power = (number & -number).bit_length() - 1
    return f"{number >> power}*1.0{_steps('*', power)}"


def _steps(sign: str, power: int) -> str:
    whole, rest = divmod(power, 62)
    return f"{sign}(1<<62)" * whole + (f"{sign}(1<<{rest})" if rest else "")


def _float(arguments: tuple[Any, ...]) -> float:
    return float(arguments[0])


def _bytes(arguments: tuple[Any, ...]) -> bytes:
    return bytes(arguments[0])
