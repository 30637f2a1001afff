"""What surrounds the rows: the envelope of a direct page, the compression of a spooled segment."""

from typing import Any

import orjson
import pyarrow as pa

from paddock.engines.trino.decoding.problems import BadPage

_DATA = b'"data":['
_AFTER = b'],"stats":'

# A segment is at most 128 MB by Trino's own limit. A size beyond this is a lie, and memory we will not give.
MOST_BYTES = 1 << 30

_CODECS = {"json+zstd": "zstd", "json+lz4": "lz4_raw"}


def split_page(body: bytes) -> tuple[dict[str, Any], bytes | None]:
    """The envelope, whose `data` is None, and the text of its rows; None where it has none. Spooled data, an object,
    stays in the envelope.

    The rows are cut out as they are: `"data":[` cannot occur inside a string, whose quotes are escaped, and comes
    first at the top; what follows them is `stats`. Where that does not hold, the whole page is read.
    """
    start = body.find(_DATA) + len(_DATA) - 1
    end = body.rfind(_AFTER) + 1
    if len(_DATA) <= start < end:
        try:
            envelope = orjson.loads(b"".join((body[:start], b"null", body[end:])))
        except orjson.JSONDecodeError:
            return _whole(body)
        if isinstance(envelope, dict) and envelope.get("data", ...) is None:
            return envelope, body[start:end]
    return _whole(body)


def _whole(body: bytes) -> tuple[dict[str, Any], bytes | None]:
    try:
        envelope = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadPage("An answer of the server is not JSON: it was cut or changed on its way.") from None
    if not isinstance(envelope, dict):
        raise BadPage("An answer of the server is not an object.")
    data = envelope.get("data")
    if not isinstance(data, list):
        return envelope, None
    envelope["data"] = None
    return envelope, orjson.dumps(data)


def decompress(encoding: str, data: bytes, uncompressed_size: int | None) -> bytes:
    """The JSON text of a segment. Small ones are sent plain in any encoding: then there is no uncompressed size."""
    if uncompressed_size is None or encoding == "json":
        return data
    if not 0 < uncompressed_size <= MOST_BYTES:
        raise BadPage(f"A segment says that it holds {uncompressed_size:,} bytes.")
    if encoding not in _CODECS:
        raise BadPage(f"A segment is encoded as '{encoding}', which was not asked for.")
    try:
        text: bytes = pa.Codec(_CODECS[encoding]).decompress(data, decompressed_size=uncompressed_size, asbytes=True)
    except (OSError, ValueError):
        raise BadPage("A segment of the result cannot be decompressed: it was cut or changed on its way.") from None
    # An lz4 block does not know its length: where it is shorter, anything may stand behind it.
    if not text.endswith(b"]"):
        raise BadPage("A segment of the result is shorter than it says.")
    return text
