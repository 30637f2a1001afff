"""Statements that rewrite tables on Spark: a session for each, its handle told before anything runs in it.

Whoever has the handle closes the session from a connection of its own, and Spark ends what runs in it; a session that the server
does not know has ended. Every call blocks in a socket, where a signal ends it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from paddock.config import ConfigError
from paddock.engines.rewriting import Ended, Started, TableStatement, Tell
from paddock.engines.settings import SparkSettings
from paddock.engines.spark.errors import NO_SESSION, UNAVAILABLE, failure, first_line
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JsonObject

POLL_SECONDS = 0.2
LIMIT = "spark.sql.thriftServer.queryTimeout"


class SparkRewriter:
    type = "spark"

    def __init__(self, name: str, settings: SparkSettings) -> None:
        self.name = name
        self._settings = settings

    def run(self, statement: TableStatement, limit: timedelta, started: Started, tell: Tell) -> None:
        with self._session() as session:
            identifier = session.handle.sessionId
            started({"guid": identifier.guid.hex(), "secret": identifier.secret.hex()})
            # Numbers and names of ours, nobody else's.
            self._execute(session, f"SET {LIMIT}={limit.total_seconds():.0f}")
            for name, value in statement.session.items():
                self._execute(session, f"SET {name}={value}")
            self._execute(session, statement.sql, tell)

    def rows(self, sql: str) -> list[list[object]]:
        with self._session() as session:
            operation = self._execute(session, sql)
            with self._translated():
                return _rows(operation)

    def end(self, identity: JsonObject) -> Ended:
        with self._service() as service, self._translated():
            from impala._thrift_gen.TCLIService.ttypes import TCloseSessionReq, THandleIdentifier, TSessionHandle

            handle = TSessionHandle(
                THandleIdentifier(bytes.fromhex(str(identity["guid"])), bytes.fromhex(str(identity["secret"])))
            )
            answer = service.client.CloseSession(TCloseSessionReq(sessionHandle=handle))
        said = str(answer.status.errorMessage or "")
        if not said and answer.status.statusCode in (0, 1):
            return "closed"
        if any(known in said for known in NO_SESSION):
            return "unknown"
        raise TransientResourceError(
            f"Spark did not close a session: {first_line(said)}", code=UNAVAILABLE, budget="cluster"
        )

    def close(self) -> None:
        """Nothing is kept open between statements."""

    def _execute(self, session: Any, sql: str, tell: Tell | None = None) -> Any:
        with self._translated():
            operation = session.execute(sql, run_async=True)
            self._follow(operation, tell)
            return operation

    def _follow(self, operation: Any, tell: Tell | None) -> None:
        from impala._thrift_gen.TCLIService.ttypes import TOperationState

        names = {**TOperationState._VALUES_TO_NAMES, 8: "TIMEDOUT_STATE"}
        while True:
            state = operation.get_state()
            name = names.get(state.operationState, "UKNOWN_STATE")
            if name == "FINISHED_STATE":
                return
            if name == "TIMEDOUT_STATE":
                raise PermanentRunnerError("Spark ended the statement at its time limit.", code="exceeded_time_limit")
            if name not in ("INITIALIZED_STATE", "RUNNING_STATE", "PENDING_STATE"):
                said = state.errorMessage or f"the statement ended as {name.removesuffix('_STATE').lower()}"
                raise failure(str(said))
            if tell is not None:
                tell({"phase": name.removesuffix("_STATE").lower()})
            time.sleep(POLL_SECONDS)

    @contextmanager
    def _session(self) -> Iterator[Any]:
        with self._service() as service:
            with self._translated():
                session = service.open_session(self._settings.user)
            try:
                yield session
            except Exception as problem:
                if getattr(problem, "code", None) != UNAVAILABLE:
                    self._close(session)
                raise
            self._close(session)

    def _close(self, session: Any) -> None:
        """Not where the server is away, nor where a signal ends us: its answer would be waited for. The session ends with the
        connection too, or by its handle."""
        with suppress(Exception):
            session.close()

    @contextmanager
    def _service(self) -> Iterator[Any]:
        try:
            from impala.hiveserver2 import connect
        except ImportError:
            raise PermanentRunnerError(
                "This worker has no client for Spark, which is an extra.",
                code="driver_missing",
                hint="Run pip install 'paddock[spark]' where the worker runs. What to add to the container image is in "
                "docs/maintenance-engines.md, under 'Spark and Kyuubi'.",
            ) from None
        settings = self._settings
        with self._translated():
            service = connect(
                host=settings.host,
                port=settings.port,
                timeout=settings.request_timeout_seconds,
                user=settings.user,
                password=settings.password.read(f"The password of engine '{self.name}'"),
                auth_mechanism="PLAIN",
                retries=1,
            )
        try:
            yield service
        finally:
            with suppress(Exception):
                service.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Whatever impyla or Thrift raises leaves as an error for people."""
        from impala.error import HiveServer2Error
        from thrift.transport.TTransport import TTransportException

        where = f"{self._settings.host}:{self._settings.port}"
        try:
            yield
        except InfrastructureError:
            raise
        except ConfigError as missing:
            raise PermanentRunnerError(
                str(missing), code="engine_login_missing", hint="Give the worker the variable or file, and restart it."
            ) from None
        except HiveServer2Error as refused:
            raise failure(str(refused)) from None
        except TTransportException as broken:
            if "Bad status" in str(broken):
                raise PermanentRunnerError(
                    f"Spark at {where} refused the login: {first_line(str(broken))}",
                    code="engine_login_refused",
                    hint="Check `user` and the password of this engine.",
                ) from None
            raise self._away(broken) from None
        except OSError as broken:
            raise self._away(broken) from None

    def _away(self, why: Exception) -> TransientResourceError:
        return TransientResourceError(
            f"Spark at {self._settings.host}:{self._settings.port} cannot be reached: {first_line(str(why))}",
            code=UNAVAILABLE,
            hint="Check that the server runs and that the worker may reach it.",
            budget="cluster",
        )


def _rows(operation: Any) -> list[list[object]]:
    schema = operation.get_result_schema() if operation.has_result_set else None
    try:
        return [list(row) for row in operation.fetch(schema)] if schema else []
    except IndexError:
        return []  # of a statement without rows Spark says that it has a column, and sends none
