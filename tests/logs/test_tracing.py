import gzip
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from paddock import tracing
from paddock.config import ConfigError


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracing.configure(None, "paddock-test", exporter=exporter)
    yield exporter
    tracing.configure(None, "paddock-test")


def test_off_it_does_nothing() -> None:
    tracing.configure(None, "paddock")

    with tracing.span("turn", kind="export") as span:
        span.set(rows=1)
        assert tracing.inject() is None
    assert tracing.span("a") is tracing.span("b")


def test_request_job_and_handler_are_one_trace(spans: InMemorySpanExporter) -> None:
    with tracing.span("request", route="/api/jobs"):
        kept_with_the_job = tracing.inject()
    with tracing.span("job", parent=kept_with_the_job, kind="export"), tracing.span("handler") as handler:
        handler.set(rows=3, owner=None)

    request, ran, job = sorted(
        spans.get_finished_spans(), key=lambda span: ("request", "handler", "job").index(span.name)
    )
    assert request.context is not None
    assert job.context is not None
    assert ran.context is not None
    assert request.context.trace_id == job.context.trace_id == ran.context.trace_id
    assert job.parent is not None
    assert job.parent.span_id == request.context.span_id
    assert ran.parent is not None
    assert ran.parent.span_id == job.context.span_id
    assert ran.attributes == {"rows": 3}
    assert request.resource.attributes["service.name"] == "paddock-test"


def test_an_unreadable_parent_starts_a_new_trace(spans: InMemorySpanExporter) -> None:
    with tracing.span("job", parent="garbage"):
        pass

    [job] = spans.get_finished_spans()
    assert job.parent is None


def test_a_failure_is_marked_without_its_secrets(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="hunter2"), tracing.span("turn", url="s3://k:hunter2@b"):
        raise ValueError("password=hunter2")

    [turn] = spans.get_finished_spans()
    assert not turn.status.is_ok
    assert turn.status.description == "ValueError: password=***"
    assert "hunter2" not in turn.to_json()


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    with pytest.raises(ConfigError, match=r"pip install 'paddock\[otel\]'"):
        tracing.configure("http://collector:4318", "paddock")


class Collector(BaseHTTPRequestHandler):
    """Takes what an OTLP/HTTP collector takes."""

    received: ClassVar[list[tuple[str, ExportTraceServiceRequest]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.received.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not into the tests' output."""


def test_spans_reach_a_collector_over_http() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tracing.configure(f"http://127.0.0.1:{server.server_port}", "paddock-serve")
        try:
            with tracing.span("http POST", route="/api/jobs"), tracing.span("turn", kind="probe"):
                pass
        finally:
            tracing.shutdown()
            server.shutdown()
    [(path, request)] = Collector.received
    [sent] = request.resource_spans
    spans = {span.name: span for span in sent.scope_spans[0].spans}
    assert path == "/v1/traces"
    assert {(a.key, a.value.string_value) for a in sent.resource.attributes} >= {("service.name", "paddock-serve")}
    assert spans["turn"].parent_span_id == spans["http POST"].span_id
    assert [(a.key, a.value.string_value) for a in spans["turn"].attributes] == [("kind", "probe")]
