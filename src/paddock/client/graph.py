"""One instance, asked in Cypher.

    conn = client.instances.connect("flights")
    conn.query_df("MATCH (a:Airport)-[r:ROUTE]->(b) RETURN a.code, b.code, r.flights ORDER BY r.flights DESC LIMIT 5")

A query that the server says may be repeated is repeated: the engine was restarted, or too many were waiting.
"""

import contextlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from paddock.client.algorithms import Algorithms
from paddock.client.errors import Instance, NotOneRow
from paddock.client.naming import given
from paddock.client.results import ArrowAnswer, CsvAnswer, Result, read_result, to_frame, warn_if_cut

if TYPE_CHECKING:
    import pyarrow

    from paddock.client.jobs import JobsClient

ARROW = "application/vnd.apache.arrow.stream"
# The server's own time-out of a query that names none.
DEFAULT_QUERY_SECONDS = 60.0
# What a query may wait for its turn, and its answer for the line.
SLACK_SECONDS = 60.0

Seconds = float | timedelta


class GraphConnection:
    """`instance` is as it was when the connection was made."""

    def __init__(self, client: "JobsClient", instance: Instance) -> None:
        self._client = client
        self.instance = instance
        self.path = f"/api/instances/{instance['id']}"
        self.algo = Algorithms(client, self.path)

    def query(
        self,
        query: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        timeout: Seconds | None = None,
        max_rows: int | None = None,
    ) -> Result:
        """Rows as JSON has them, at most 10,000; `Result.truncated` says that there are more."""
        answer = self._client.request(
            "POST",
            f"{self.path}/query",
            body=_body(query, parameters, timeout, max_rows),
            timeout=_patience(timeout),
            changes_nothing=True,
        )
        return read_result(answer["data"])

    def query_arrow(
        self,
        query: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        timeout: Seconds | None = None,
        max_rows: int | None = None,
    ) -> "pyarrow.Table":
        """All types as Arrow has them, at most 1,000,000 rows (`max_rows`: 5,000,000); warns when there are more."""
        table, truncated = self._table(query, parameters, timeout, max_rows)
        warn_if_cut(truncated, table.num_rows)
        return table

    def query_df(
        self,
        query: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        timeout: Seconds | None = None,
        max_rows: int | None = None,
        library: str | None = None,
    ) -> Any:
        """A DataFrame of pandas, else of polars; `library="polars"` asks for one of them."""
        table, truncated = self._table(query, parameters, timeout, max_rows)
        warn_if_cut(truncated, table.num_rows)
        return to_frame(table, library)

    def query_one(
        self, query: str, parameters: Mapping[str, Any] | None = None, *, timeout: Seconds | None = None
    ) -> dict[str, Any] | None:
        """The only row as a dict, None if there is none; `NotOneRow` if there are more."""
        result = self.query(query, parameters, timeout=timeout, max_rows=2)
        if len(result) > 1:
            raise NotOneRow
        return next(iter(result), None)

    def query_scalar(
        self, query: str, parameters: Mapping[str, Any] | None = None, *, timeout: Seconds | None = None
    ) -> Any:
        """The first value of the only row; None if there is no row."""
        row = self.query_one(query, parameters, timeout=timeout)
        return None if row is None else next(iter(row.values()))

    def get_schema(self) -> dict[str, Any]:
        """Labels, keys and properties with their types, and how many there are of each."""
        return self._data("GET", "schema")

    def status(self) -> dict[str, Any]:
        return self._data("GET", "status")

    def queries(self) -> Any:
        """Who asks what since when."""
        return self._client.request("GET", f"{self.path}/queries")["data"]

    def cancel(self, query_id: str) -> None:
        self._client.request("POST", f"{self.path}/queries/{quote(query_id, safe='')}/cancel")

    @contextlib.contextmanager
    def batches(
        self,
        query: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        timeout: Seconds | None = None,
        max_rows: int | None = None,
    ) -> Iterator[ArrowAnswer]:
        """The answer batch by batch, for what is larger than the memory; leaving the block cancels the rest."""
        body = _body(query, parameters, timeout, max_rows)
        with self._client.streamed(
            f"{self.path}/query", body=body, accept=ARROW, timeout=_patience(timeout)
        ) as response:
            yield ArrowAnswer(response.iter_bytes())

    @contextlib.contextmanager
    def csv(
        self,
        query: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        timeout: Seconds | None = None,
        max_rows: int | None = None,
    ) -> Iterator[CsvAnswer]:
        """The answer as CSV, piece by piece, at most 10,000 rows; `truncated` of it says whether there are more."""
        body = _body(query, parameters, timeout, max_rows)
        with self._client.streamed(
            f"{self.path}/query", body=body, accept="text/csv", timeout=_patience(timeout)
        ) as response:
            yield CsvAnswer(response.iter_bytes(), response.headers.get("Paddock-Rows"))

    def _table(
        self, query: str, parameters: Mapping[str, Any] | None, timeout: Seconds | None, max_rows: int | None
    ) -> "tuple[pyarrow.Table, bool]":
        import pyarrow as pa

        with self.batches(query, parameters, timeout=timeout, max_rows=max_rows) as answer:
            return pa.Table.from_batches(list(answer), answer.schema), answer.truncated

    def _data(self, method: str, route: str) -> dict[str, Any]:
        found: dict[str, Any] = self._client.request(method, f"{self.path}/{route}")["data"]
        return found


def _body(
    query: str, parameters: Mapping[str, Any] | None, timeout: Seconds | None, max_rows: int | None
) -> dict[str, Any]:
    milliseconds = None if timeout is None else round(_seconds(timeout) * 1000)
    return given(query=query, parameters=dict(parameters or {}), timeout_ms=milliseconds, max_rows=max_rows)


def _seconds(timeout: Seconds) -> float:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


def _patience(timeout: Seconds | None) -> float:
    return SLACK_SECONDS + (DEFAULT_QUERY_SECONDS if timeout is None else _seconds(timeout))
