"""Reads CSV of Triton's tools.

perf_analyzer (`-f FILE`): one row for each concurrency or request rate, times in microseconds. The batch is not in the
file. model analyzer (`metrics-model-inference.csv`, `metrics-model-gpu.csv`, or one that was joined from both): one row
for each model, batch, load and configuration of the server, times in milliseconds.

Of each batch the row with the lowest load counts: there requests do not wait for each other. What a batch takes is the
server's own compute time, input and output included; without those columns it is the mean latency of the client. By
default the model analyzer writes neither; then it follows from the throughput, as a closed loop keeps as many requests
under way as its concurrency says.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence

from app.campaigns.reports.figures import Figures, ToolReport, batch_of, number

Row = Mapping[str, str]

MOST_ROWS = 100_000
LOADS = ("Concurrency", "Request Rate")
CONFIGURATION = "Model Config Path"
COMPUTE_US = ("Server Compute Input", "Server Compute Infer", "Server Compute Output")
COMPUTE_MS = tuple(f"{name} time (ms)" for name in COMPUTE_US)
AVERAGE_US, AVERAGE_MS = "Avg latency", "Avg Latency (ms)"
RATE, RATE_MA = "Inferences/Second", "Throughput (infer/sec)"
MEMORY_MB, MEMORY_BYTES = "GPU Memory Usage (MB)", "Max GPU Memory Usage"


def read_triton(report: ToolReport) -> list[Figures]:
    """Returns the figures of a CSV of perf_analyzer or model analyzer, by batch. Raises ReportRefused."""
    rows = _rows(report)
    header = rows[0].keys()
    if "Batch" in header:
        return _model_analyzer(report, rows)
    if RATE in header and any(load in header for load in LOADS):
        return [_perf_analyzer(report, rows)]
    raise report.refused(
        f"its columns are {', '.join(list(header)[:6])}, ...; allowed are CSV of perf_analyzer ({LOADS[0]}, {RATE}, "
        f"...), CSV of model analyzer (Model, Batch, {LOADS[0]}, ...) and JSON of genai-perf"
    )


def _rows(report: ToolReport) -> list[Row]:
    rows: list[Row] = []
    try:
        for row in csv.DictReader(io.StringIO(report.text.lstrip("\ufeff")), skipinitialspace=True, strict=True):
            beyond = row.pop(None, [])  # perf_analyzer ends rows with a comma where it has metrics of GPUs
            if any(beyond) or None in row.values():
                raise report.refused(f"row {len(rows) + 1} has another number of columns than the header")
            rows.append({name.strip(): value.strip() for name, value in row.items()})
            if len(rows) > MOST_ROWS:
                raise report.refused(f"it has more than {MOST_ROWS} rows")
    except csv.Error as error:
        raise report.refused(f"it is no CSV: {error}") from error
    if not rows:
        raise report.refused("it has no rows below its header")
    return rows


def _perf_analyzer(report: ToolReport, rows: Sequence[Row]) -> Figures:
    if report.batch is None:
        raise report.refused("a CSV of perf_analyzer does not say its batch (-b); state it with --batches")
    load = next(name for name in LOADS if name in rows[0])
    row = min(rows, key=lambda row: number(report, load, row[load]))
    latency_ms, source = _latency(report, row, COMPUTE_US, AVERAGE_US, 1e-3)
    memory = max(_read_by_gpu(report, MEMORY_BYTES, row), default=0.0) / 2**30
    return Figures(report.batch, latency_ms, source=source, memory_gib=memory)


def _model_analyzer(report: ToolReport, rows: Sequence[Row]) -> list[Figures]:
    models = sorted({row.get("Model", "") for row in rows})
    if len(models) > 1:
        raise report.refused(f"it is about several models: {', '.join(models[:5])}; import one model at a time")
    lowest: dict[int, Row] = {}
    for row in _select_configuration(rows):
        batch = batch_of(report, "Batch", row["Batch"])
        best = lowest.get(batch)
        if best is None or _load(report, row) < _load(report, best):
            lowest[batch] = row
    found = []
    for batch, row in sorted(lowest.items()):
        memory = number(report, MEMORY_MB, row.get(MEMORY_MB) or 0) * 1e6 / 2**30
        if RATE_MA not in row and MEMORY_MB in row:
            found.append(Figures(batch, memory_gib=memory))
            continue
        latency_ms, source = _read_closed_loop(report, batch, row) or _latency(report, row, COMPUTE_MS, AVERAGE_MS, 1.0)
        found.append(Figures(batch, latency_ms, source=source, memory_gib=memory))
    return found


def _select_configuration(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of the configuration with the most batches; of equals the first, which meets the goal best."""
    batches: dict[str, set[str]] = {}
    for row in rows:
        batches.setdefault(row.get(CONFIGURATION, ""), set()).add(row["Batch"])
    chosen = max(batches, key=lambda name: len(batches[name]))
    return [row for row in rows if row.get(CONFIGURATION, "") == chosen]


def _read_closed_loop(report: ToolReport, batch: int, row: Row) -> tuple[float, str] | None:
    """Returns the mean latency that a concurrency and its throughput have; None where a column states a time."""
    if row.get(COMPUTE_MS[1]) or row.get(AVERAGE_MS) or not row.get(LOADS[0]) or not row.get(RATE_MA):
        return None
    rate = number(report, RATE_MA, row[RATE_MA])
    if rate <= 0:
        raise report.refused(f"{RATE_MA} is 0")
    return 1000 * batch * _load(report, row) / rate, "client"


def _load(report: ToolReport, row: Row) -> float:
    return next((number(report, name, row[name]) for name in LOADS if row.get(name)), 1.0)


def _latency(
    report: ToolReport, row: Row, compute: Sequence[str], average: str, factor: float
) -> tuple[float, str]:  # fmt: skip
    """Returns milliseconds, and whose clock they are of."""
    parts = [number(report, name, row[name]) for name in compute if row.get(name)]
    if parts and row.get(compute[1]):
        found, source = sum(parts) * factor, "server"
    elif row.get(average):
        found, source = number(report, average, row[average]) * factor, "client"
    else:
        raise report.refused(f"it has neither the column {compute[1]!r} nor {average!r}")
    if found <= 0:
        raise report.refused("the time of a batch is 0")
    return found, source


def _read_by_gpu(report: ToolReport, field: str, row: Row) -> list[float]:
    """Reads `GPU-1f..:0.93;GPU-2a..:0.1;`, as perf_analyzer writes a value for each GPU."""
    text = row.get(field, "")
    return [number(report, field, value) for value in re.findall(r":([^:;]+)(?:;|$)", text)]
