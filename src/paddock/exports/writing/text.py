"""Arrow values as exact text, a column at a time.

`plain_text` is what stands in a CSV cell and in a partition's folder, `json_text` a JSON value. Both give back every
value: floats by their shortest text that reads back the same, decimals with all their digits and never with an
exponent, times with all digits of their unit, instants in UTC with a Z, binary as base64.

JSON: integers and floats are numbers (a reader that makes every number a double loses integers above 2^53; ours and
Python's do not). Decimals are strings, because most readers would round them; so are NaN, Infinity and -Infinity,
which JSON does not have. A map is an object whose keys are the plain text of its keys.

What has no text fails: it is never rounded, cut or left out.
"""

import base64
import uuid
from collections.abc import Sequence
from decimal import Decimal

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import lib

from paddock.jobs.errors import UserMistake

TEXT = pa.large_string()
LISTS = (
    lib.Type_LIST,
    lib.Type_LARGE_LIST,
    lib.Type_FIXED_SIZE_LIST,
    lib.Type_LIST_VIEW,
    lib.Type_LARGE_LIST_VIEW,
)
TICKS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
ESCAPES = {chr(code): SHORT_ESCAPES.get(chr(code), f"\\u{code:04x}") for code in range(0x20)}


def is_text(type: pa.DataType) -> bool:
    return type.id in (lib.Type_STRING, lib.Type_LARGE_STRING, lib.Type_STRING_VIEW)


def is_binary(type: pa.DataType) -> bool:
    return type.id in (lib.Type_BINARY, lib.Type_LARGE_BINARY, lib.Type_BINARY_VIEW, lib.Type_FIXED_SIZE_BINARY)


def is_list(type: pa.DataType) -> bool:
    return type.id in LISTS


def list_elements(array: pa.Array) -> pa.Array:
    """Those of all lists, without what lies under NULL lists or outside a slice. Where every list is NULL, Arrow would
    build an empty array, and it builds none with an extension type inside of it."""
    return pa.nulls(0, array.type.value_type) if array.null_count == len(array) else array.flatten()


def list_offsets(array: pa.Array) -> pa.Array:
    """Where each list begins and ends among its `list_elements`."""
    lengths = pc.list_value_length(array).fill_null(0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def map_entries(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """A list for each map, and the keys and values of all, without what lies under NULL maps or outside a slice.

    By the places of the entries: a slice of a map that is cast to a list aborts the process where NULL's type is in it.
    """
    offsets = pc.add(array.offsets, 0)  # a copy: a slice of offsets takes no mask
    lists = pa.ListArray.from_arrays(offsets, pa.arange(0, len(array.keys)), mask=array.is_null())
    places = lists.flatten()
    return lists, array.keys.take(places), array.items.take(places)


def is_nested(type: pa.DataType) -> bool:
    return type.id in (*LISTS, lib.Type_MAP, lib.Type_STRUCT)


def plain_text(array: pa.Array) -> pa.Array:
    """NULL stays NULL."""
    type = array.type
    if pa.types.is_null(type):
        return pa.nulls(len(array), TEXT)
    if pa.types.is_dictionary(type):
        return plain_text(array.dictionary_decode())
    if isinstance(type, pa.UuidType):
        return pa.array(
            [None if value is None else str(uuid.UUID(bytes=value)) for value in _bytes(array.storage)], TEXT
        )
    if isinstance(type, pa.BaseExtensionType):
        return plain_text(array.storage)
    if is_nested(type):
        return pc.if_else(array.is_valid(), json_text(array), pa.scalar(None, TEXT))
    if is_text(type) or pa.types.is_integer(type) or pa.types.is_boolean(type):
        return array.cast(TEXT)
    if pa.types.is_floating(type):
        return _floats(array)
    if pa.types.is_decimal(type):
        return _decimals(array)
    if pa.types.is_duration(type):
        return _durations(array)
    if pa.types.is_date(type) or pa.types.is_time(type) or pa.types.is_timestamp(type):
        return _times(array)
    if is_binary(type):
        encoded = [None if value is None else base64.b64encode(value).decode() for value in _bytes(array)]
        return pa.array(encoded, TEXT)
    raise pa.ArrowNotImplementedError(f"{type} has no text")


def json_text(array: pa.Array) -> pa.Array:
    """Never NULL: that is the text `null`."""
    type = array.type
    if pa.types.is_dictionary(type):
        return json_text(array.dictionary_decode())
    if isinstance(type, pa.BaseExtensionType) and not isinstance(type, pa.UuidType):
        return json_text(array.storage)
    return _json(array).fill_null("null")


def json_object(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """One object for each row."""
    parts = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [_scalar(("," if number else "{") + orjson.dumps(name).decode() + ":"), json_text(column)]
    return _joined(*parts, _scalar("}"))


def _json(array: pa.Array) -> pa.Array:
    type = array.type
    if pa.types.is_struct(type):
        whole = json_object([field.name for field in type], array.flatten())
        return pc.if_else(array.is_valid(), whole, pa.scalar(None, TEXT))
    if pa.types.is_map(type):
        return _json_map(array)
    if is_list(type):
        return _json_list(array, json_text(list_elements(array)), "[", "]")
    text = plain_text(array)
    if pa.types.is_integer(type) or pa.types.is_boolean(type):
        return text
    if pa.types.is_floating(type):
        return pc.if_else(pc.is_finite(array), text, _quoted(text))
    if pa.types.is_timestamp(type):
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
    return _quoted(_escaped(text) if is_text(type) else text)


def _json_map(array: pa.Array) -> pa.Array:
    lists, keys, values = map_entries(array)
    key_text = _quoted(_escaped(plain_text(keys)))
    return _json_list(lists, _joined(key_text, _scalar(":"), json_text(values)), "{", "}")


def _json_list(array: pa.Array, elements: pa.Array, before: str, after: str) -> pa.Array:
    """`elements` are the texts of `list_elements(array)`."""
    lists = pa.ListArray.from_arrays(list_offsets(array), elements.cast(pa.string()))
    joined = _joined(_scalar(before), pc.binary_join(lists, ",").cast(TEXT), _scalar(after))
    return pc.if_else(array.is_valid(), joined, pa.scalar(None, TEXT))


def _escaped(text: pa.Array) -> pa.Array:
    text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
        for character, escape in ESCAPES.items():
            text = pc.replace_substring(text, character, escape)
    return text


def _floats(array: pa.Array) -> pa.Array:
    # `1` and `-0` would be read as integers, the second without its sign.
    text = pc.replace_substring_regex(array.cast(TEXT), r"^(-?[0-9]+)$", r"\1.0")
    if pc.all(pc.is_finite(array)).as_py() is False:
        text = pc.replace_substring(pc.replace_substring(text, "inf", "Infinity"), "nan", "NaN")
    return text


def _decimals(array: pa.Array) -> pa.Array:
    """Arrow writes very small ones with an exponent, which few readers take for a decimal."""
    text = array.cast(TEXT)
    powers = pc.match_substring(text, "E")
    if not pc.any(powers).as_py():
        return text
    places = max(array.type.scale, 0)
    written = pa.array([f"{value:.{places}f}" for value in array.filter(powers).to_pylist() if value is not None], TEXT)
    return pc.replace_with_mask(text, powers.fill_null(False), written)


def _durations(array: pa.Array) -> pa.Array:
    """Seconds, exact whatever the unit."""
    places = TICKS[array.type.unit]
    ticks = array.cast(pa.int64())
    if not places:
        return ticks.cast(TEXT)
    tick = pa.scalar(Decimal(1).scaleb(-places), pa.decimal128(places + 1, places))
    return _decimals(pc.multiply(ticks.cast(pa.decimal128(19, 0)), tick))


def _times(array: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    text = array.cast(TEXT)
    if pc.any(pc.starts_with(text, "<")).as_py():
        raise UserMistake(
            f"A value of type {array.type} lies outside the years that have a text (-32768 to 32767).",
            code="value_out_of_range",
            hint="Leave such values out of the query, or export to Parquet, which keeps them.",
        )
    return text


def _bytes(array: pa.Array) -> list[bytes | None]:
    values: list[bytes | None] = array.to_pylist()
    return values


def _quoted(text: pa.Array) -> pa.Array:
    return _joined(_scalar('"'), text, _scalar('"'))


def _joined(*parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _scalar(""))


def _scalar(text: str) -> pa.Scalar:
    return pa.scalar(text, TEXT)
