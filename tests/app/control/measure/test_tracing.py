"""A cycle is one trace: its phases are children of one span, sent to a collector if one is configured."""

from __future__ import annotations

import pytest

from app.control.measure import tracing
from app.settings import Settings
from tests.app.http.test_tracing import Spans, collector  # noqa: F401

PHASES = ("observe", "pose", "solve", "judge", "hold_back", "record")


@pytest.mark.slow
def test_a_cycle_is_one_trace_with_a_span_for_each_phase(collector: tuple[str, Spans]) -> None:  # noqa: F811
    endpoint, received = collector
    tracing.configure(Settings(otlp_endpoint=endpoint))
    with tracing.phase("cycle"):
        for name in PHASES:
            with tracing.phase(name):
                tracing.note(outcome="solved")
    tracing.close()
    spans = [
        span
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    whole = next(span for span in spans if span.name == "cycle")
    parts = [span for span in spans if span is not whole]
    assert [span.name for span in parts] == list(PHASES)
    assert {span.trace_id for span in spans} == {whole.trace_id}
    assert {span.parent_span_id for span in parts} == {whole.span_id}
    assert parts[0].attributes[0].key == "gpuwright.outcome"
