"""Traces: the SDK is loaded only where spans go somewhere, and its failures never reach a call.

Everything else uses the OpenTelemetry API, which costs next to nothing without a provider. Trace context
crosses the services by `traceparent` in the metadata, with or without a provider.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.propagate import inject

from turnwire.core.settings import TelemetrySettings
from turnwire.core.version import version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["SpanFile", "current_trace_id", "make_provider", "shutdown_provider", "trace_metadata"]

logger = logging.getLogger(__name__)
_FLUSH_MILLIS = 3000


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """Return the metadata that makes the current span the parent of a call's span; empty without one.

    Links add it by hand: the stock client interceptors for grpc.aio put a task of their own between the
    caller and the call.
    """
    if not trace.get_current_span().get_span_context().is_valid:
        return ()
    carrier: dict[str, str] = {}
    inject(carrier)
    return tuple(carrier.items())


def current_trace_id() -> str | None:
    """Return the current trace id as 32 hex digits, or None."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None


def make_provider(settings: TelemetrySettings, process: str) -> TracerProvider | None:
    """Return a provider that exports as `settings` say, or None if spans go nowhere.

    It is not installed globally: only the function that runs a process does that.
    """
    if not settings.enabled:
        return None
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    resource = Resource.create(
        {"service.name": settings.service_name or process, "service.version": version()}
    )
    sampler = ParentBased(TraceIdRatioBased(settings.sample_ratio))
    provider = TracerProvider(resource=resource, sampler=sampler, shutdown_on_exit=False)
    for exporter in _exporters(settings):
        # Its queue is bounded and drops the oldest spans; it exports from a thread of its own.
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def shutdown_provider(provider: TracerProvider) -> None:
    """Send what is left and stop; blocks for at most a few seconds, so call it in a thread."""
    provider.force_flush(_FLUSH_MILLIS)
    provider.shutdown()


def _exporters(settings: TelemetrySettings) -> list[SpanExporter]:
    exporters: list[SpanExporter] = []
    if settings.otlp_endpoint is not None:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        insecure = not settings.otlp_endpoint.startswith("https://")
        exporters.append(OTLPSpanExporter(endpoint=settings.otlp_endpoint, insecure=insecure, timeout=5))
    if settings.file is not None:
        exporters.append(_file_exporter(settings.file, settings.file_max_bytes))
    return exporters


class SpanFile:
    """JSON lines in a file of bounded size: at the bound it moves to `<file>.1`, over the one before.

    Args:
        limit: bytes of each of the two files.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._limit = path, limit
        self._broken = False

    def write(self, lines: Sequence[str]) -> bool:
        """Append the lines and return whether that worked; the first failure is logged."""
        try:
            self._append(lines)
        except OSError as error:
            if not self._broken:
                logger.warning("telemetry.file_unwritable", extra={"error": error.strerror})
            self._broken = True
            return False
        self._broken = False
        return True

    def _append(self, lines: Sequence[str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
        if self._path.exists() and self._path.stat().st_size + len(data) > self._limit:
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))
        with self._path.open("ab") as file:
            file.write(data)


def _file_exporter(path: Path, limit: int) -> SpanExporter:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class FileSpanExporter(SpanExporter):
        """Writes finished spans to a `SpanFile`."""

        def __init__(self) -> None:
            self._file = SpanFile(path, limit)

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            done = self._file.write([span.to_json(indent=None) for span in spans])
            return SpanExportResult.SUCCESS if done else SpanExportResult.FAILURE

    return FileSpanExporter()
