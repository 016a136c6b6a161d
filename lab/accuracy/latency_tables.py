"""Published latencies of models alone on a GPU, over batch and share of the SMs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab.data.csv_rows import read_rows
from lab.data.missing_data import DataMissing
from solvers.curves.measurement import Setting

CLOCK_MHZ = 1  # neither table states one; all was measured at the same
WHOLE_QUOTA = "100"
SLICES = 7  # compute slices of an A100
HASGPU = Path("hasgpu") / "v100_sm_quota_batch_latency.csv"
HASGPU_COLUMNS = ("model", "batch", "sm_percent", "quota_percent", "latency_ms")
PARVAGPU = Path("parvagpu") / "prof_data"
PARVAGPU_COLUMNS = ("Mig instance", "Batch size", "Workload Number", "Latency", "Throughput")

Table = Mapping[Setting, float]  # to milliseconds


def hasgpu(data: Path) -> dict[str, Table]:
    """Returns each model's latencies on a V100, without a quota of time."""
    tables: dict[str, dict[Setting, float]] = {}
    for row in read_rows(data / HASGPU, HASGPU_COLUMNS):
        if row["quota_percent"] == WHOLE_QUOTA:
            setting = Setting(int(row["batch"]), float(row["sm_percent"]), CLOCK_MHZ)
            tables.setdefault(row["model"], {})[setting] = float(row["latency_ms"])
    return dict(tables)


def parvagpu(data: Path, printed: bool = False) -> dict[str, Table]:
    """Returns each model's latencies on slices of an A100, with one process.

    The column of latencies is rounded to whole milliseconds, up to a tenth of the value. A batch's time is also batch /
    throughput, which is printed to three decimals; that is taken unless `printed`. A throughput of 0 means that the
    batch did not fit into the slice's memory.
    """
    paths = sorted((data / PARVAGPU).glob("*.csv"))
    if not paths:
        raise DataMissing(f"{data / PARVAGPU} holds no profile; --data names a folder with {PARVAGPU}")
    return {path.stem: _slices(path, printed) for path in paths}


def _slices(path: Path, printed: bool) -> Table:
    table: dict[Setting, float] = {}
    for row in read_rows(path, PARVAGPU_COLUMNS):
        per_second = float(row["Throughput"])
        if row["Workload Number"] == "1" and per_second > 0.0:
            batch = int(row["Batch size"])
            setting = Setting(batch, 100.0 * int(row["Mig instance"]) / SLICES, CLOCK_MHZ)
            table[setting] = 1000.0 * (float(row["Latency"]) if printed else batch / per_second)
    return table
