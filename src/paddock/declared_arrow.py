"""What each declared type is in Arrow. Apart from `paddock.declared_types`, which the control plane loads without Arrow."""

from collections.abc import Mapping

import pyarrow as pa

from paddock.declared_types import Type

SCALARS: Mapping[str, pa.DataType] = {
    "STRING": pa.string(),
    "INT8": pa.int8(),
    "INT16": pa.int16(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOL": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "UUID": pa.uuid(),
    "BLOB": pa.binary(),
}


def arrow_of(type: Type) -> pa.DataType:
    inner = [arrow_of(one) for one in type.inner]
    if type.name == "DECIMAL":
        return pa.decimal128(type.precision, type.scale)
    if type.name == "LIST":
        return pa.list_(inner[0])
    if type.name == "MAP":
        return pa.map_(inner[0], inner[1])
    if type.name == "STRUCT":
        return pa.struct([pa.field(name, one) for name, one in zip(type.fields, inner, strict=True)])
    return SCALARS[type.name]
