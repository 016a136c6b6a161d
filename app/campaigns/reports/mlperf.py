"""Reads `mlperf_log_summary.txt` of MLPerf's load generator: queries of one size, one after the other.

SingleStream asks one sample at a time, MultiStream several. Server and Offline do not say which batches the system
makes of their queries, so they give no time of a batch.
"""

from __future__ import annotations

from app.campaigns.reports.figures import Figures, ToolReport, batch_of, number

MARK = "MLPerf Results Summary"
LATENCY = "Mean latency (ns)"
SIZES = ("Samples per query", "samples_per_query")  # of the results, and of the parameters
ALLOWED = "SingleStream, MultiStream"


def read_mlperf(report: ToolReport) -> list[Figures]:
    """Returns the figures of the file. Raises ReportRefused."""
    values: dict[str, str] = {}
    for line in report.text.splitlines():
        name, _, value = line.partition(":")
        values.setdefault(name.strip(), value.strip())
    scenario = values.get("Scenario", "").replace(" ", "")
    if scenario not in ("SingleStream", "MultiStream"):
        raise report.refused(f"its scenario is {scenario[:40] or 'not stated'}; allowed: {ALLOWED}")
    if LATENCY not in values:
        raise report.refused(f"it has no line {LATENCY!r}: a run for accuracy measures no times")
    latency_ms = number(report, LATENCY, values[LATENCY]) / 1e6
    if latency_ms <= 0:
        raise report.refused(f"{LATENCY} is 0")
    if scenario == "SingleStream":
        return [Figures(1, latency_ms, source="client")]
    size = next((values[name] for name in SIZES if name in values), None)
    if size is None:
        raise report.refused(f"it does not state {SIZES[0]!r}")
    return [Figures(batch_of(report, SIZES[0], size), latency_ms, source="client")]
