"""Traces, when somebody collects them: request, job and handler as one trace.

Off unless `configure` was given an endpoint; then `span` returns one shared object that does nothing. The parent of a
job's span travels with the job as a W3C `traceparent`, which holds ids only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

Attribute = str | int | float | bool | None


class Span(Protocol):
    def set(self, **attributes: Attribute) -> None: ...


class _Off:
    def __enter__(self) -> _Off:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def set(self, **_: Attribute) -> None:
        return None


_OFF = _Off()
_provider: TracerProvider | None = None
_tracer: Tracer | None = None


def configure(endpoint: str | None, service: str, *, exporter: SpanExporter | None = None) -> None:
    """Sends spans to an OTLP/HTTP collector at `endpoint`, or to `exporter` at once; neither turns tracing off."""
    global _provider, _tracer
    shutdown()
    if endpoint is None and exporter is None:
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
    except ImportError:
        raise _not_installed() from None
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    if exporter is not None:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError:
            raise _not_installed() from None
        assert endpoint is not None
        url = endpoint if endpoint.endswith("/v1/traces") else f"{endpoint.rstrip('/')}/v1/traces"
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    _provider, _tracer = provider, provider.get_tracer("paddock")


def shutdown() -> None:
    """Sends what is still held back. Blocks for as long as the collector takes, so: at the end, off the loop."""
    global _provider, _tracer
    provider, _provider, _tracer = _provider, None, None
    if provider is not None:
        provider.shutdown()


def span(name: str, *, parent: str | None = None, **attributes: Attribute) -> AbstractContextManager[Span]:
    if _tracer is None:
        return _OFF
    return _recorded(_tracer, name, parent, attributes)


def inject() -> str | None:
    """The current span as a `traceparent`, to keep with a job or send with a request."""
    if _tracer is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


class _On:
    def __init__(self, inner: OtelSpan) -> None:
        self._inner = inner

    def set(self, **attributes: Attribute) -> None:
        self._inner.set_attributes(_clean(attributes))


@contextmanager
def _recorded(tracer: Tracer, name: str, parent: str | None, attributes: dict[str, Attribute]) -> Iterator[Span]:
    from opentelemetry.trace import Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    from paddock.log import scrub

    # A parent that cannot be read starts a trace of its own: tracing never fails the work.
    context = TraceContextTextMapPropagator().extract({"traceparent": parent}) if parent else None
    with tracer.start_as_current_span(
        name,
        context=context,
        attributes=_clean(attributes),
        # OpenTelemetry would record the message and traceback as they are, secrets included.
        record_exception=False,
        set_status_on_exception=False,
    ) as inner:
        try:
            yield _On(inner)
        except Exception as error:
            inner.set_status(Status(StatusCode.ERROR, scrub(f"{type(error).__name__}: {error}", limit=1000)))
            raise


def _clean(attributes: dict[str, Attribute]) -> dict[str, str | int | float | bool]:
    from paddock.log import scrub

    return {
        key: scrub(value, limit=1000) if isinstance(value, str) else value
        for key, value in attributes.items()
        if value is not None
    }


def _not_installed() -> Exception:
    from paddock.config import ConfigError

    return ConfigError(
        "otel_endpoint is set, but OpenTelemetry is not installed: run pip install 'paddock[otel]' or unset it."
    )
