"""An array as its declared type, value by value the same.

Fields of a struct are matched by their place, as columns are: Arrow's own cast matches them by name, and where a name
differs it gives NULL without a word. Text that the engine itself calls uuids becomes uuids, at any depth.
"""

from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from paddock.exports.writing.text import is_list, is_text, list_elements, list_offsets, map_entries


def converted(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Raises ArrowInvalid or ValueError for a value that does not fit."""
    if array.type == wanted:
        return array
    if pa.types.is_struct(wanted):
        children = [converted(child, field.type) for child, field in zip(array.flatten(), wanted, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if pa.types.is_map(wanted):
        lists, keys, values = map_entries(array)
        keys, values = converted(keys, wanted.key_type), converted(values, wanted.item_type)
        return pa.MapArray.from_arrays(list_offsets(lists), keys, values, type=wanted, mask=array.is_null())
    if is_list(wanted):
        elements = converted(list_elements(array), wanted.value_type)
        return pa.ListArray.from_arrays(list_offsets(array), elements, type=wanted, mask=array.is_null())
    if wanted == pa.uuid():
        return _uuids(array)
    if array.type == pa.uuid() and is_text(wanted):
        return pa.array([None if value is None else str(value) for value in array.to_pylist()], wanted)
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = pc.local_timestamp(array)
    return array.cast(wanted)


def _uuids(texts: pa.Array) -> pa.Array:
    stored = [None if text is None else UUID(text).bytes for text in texts.to_pylist()]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(stored, pa.binary(16)))
