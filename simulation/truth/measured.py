"""Published measurements as shapes of latency: HAS-GPU's V100 by SM%, ParvaGPU's A100 by slice; Zeus for power.

A declared model keeps its scale and gets the shape of a measured one. The tables hold few models and two kinds of GPU,
so a model of another name gets the shape that a seed draws.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from simulation.truth.family import generator
from simulation.truth.fitting import KnownFigures, LoadKey

HASGPU = "hasgpu/v100_sm_quota_batch_latency.csv"
PARVAGPU = "parvagpu/prof_data"
ZEUS = ("zeus-power/summary_power_v100.csv", "zeus-power/summary_power_a40.csv")
TRAINING = ("dataset", "network", "batch_size", "optimizer")  # what names a training of Zeus
SLICES = 7  # of an A100
LEAST_LIMIT_SHARE = 0.45  # of the highest; far below, voltage falls no more and another law holds
IDLE_W = 40.0  # of the GPUs of Zeus, of about this size

Table: TypeAlias = Mapping[int, Sequence[tuple[float, float]]]  # batch -> (SM%, ms)


class MeasurementsMissing(ValueError):
    """A folder that lacks a published file, or holds another."""


@dataclass(frozen=True)
class MeasuredShapes:
    """The measured tables by family of GPU, and the power exponent that limits of power show."""

    seed: int
    v100: Mapping[str, Table]
    a100: Mapping[str, Table]
    power_exponent: float

    @classmethod
    def read(cls, data: Path, seed: int) -> MeasuredShapes:
        return cls(seed, read_hasgpu(data / HASGPU), read_parvagpu(data / PARVAGPU), read_zeus(data))

    def reshape(self, key: LoadKey, known: KnownFigures) -> KnownFigures:
        """Returns the figures with a measured shape, at the scale of those known."""
        *model, gpu_type = key
        table = self._table("/".join(model), gpu_type)
        shape = {
            batch: [(sm, _interpolate(table, batch, sm)) for sm, _ in curve] for batch, curve in known.points.items()
        }
        ratios = [
            np.log(ms / of_shape)
            for batch, curve in known.points.items()
            for (_, ms), (_, of_shape) in zip(curve, shape[batch], strict=True)
        ]
        scale = float(np.exp(np.mean(ratios)))
        points = {batch: tuple((sm, ms * scale) for sm, ms in curve) for batch, curve in shape.items()}
        return replace(known, points=points)

    def _table(self, model: str, gpu_type: str) -> Table:
        """Returns the table of the model's name, or of one that the seed draws for it."""
        tables = self.v100 if "v100" in gpu_type or "t4" in gpu_type else self.a100
        plain = model.replace("-", "").replace("_", "").lower()
        named = [name for name in sorted(tables) if name.replace("_", "").lower() in plain]
        name = named[0] if named else sorted(tables)[generator(self.seed, "shape", model).integers(len(tables))]
        return tables[name]


def read_hasgpu(path: Path) -> dict[str, Table]:
    """Reads models by batch and SM%, at the whole time quota."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for row in _rows(path, "quota_percent", "model"):
        if row.words["quota_percent"] == "100":
            table = found.setdefault(row.words["model"], {})
            table.setdefault(int(row.number("batch")), []).append((row.number("sm_percent"), row.number("latency_ms")))
    if not found:
        raise MeasurementsMissing(f"{path} holds no time at the whole quota")
    return {name: _falling(table) for name, table in found.items()}


def read_parvagpu(folder: Path) -> dict[str, Table]:
    """Reads models by batch and slice, with one process; the latency is the batch over the throughput."""
    files = sorted(folder.glob("*.csv")) if folder.is_dir() else []
    if not files:
        raise MeasurementsMissing(f"{folder} holds no measurements of ParvaGPU")
    found: dict[str, Table] = {}
    for path in files:
        table: dict[int, list[tuple[float, float]]] = {}
        for row in _rows(path, "Workload Number"):
            throughput = row.number("Throughput")
            if row.words["Workload Number"] == "1" and throughput > 0:  # 0: it did not fit
                percent, batch = 100.0 * row.number("Mig instance") / SLICES, int(row.number("Batch size"))
                table.setdefault(batch, []).append((percent, 1000.0 * batch / throughput))
        if not table:
            raise MeasurementsMissing(f"{path} holds no time of one process")
        found[path.stem] = _falling(table)
    return found


def read_zeus(data: Path) -> float:
    """Returns by which power of the speed the watts above idle grow, as the median over trainings under limits."""
    found = []
    for name in ZEUS:
        runs: dict[tuple[str, ...], list[tuple[float, float]]] = {}
        rows = _rows(data / name, *TRAINING)
        highest = max((row.number("power_limit") for row in rows), default=0.0)
        for row in rows:
            training = tuple(row.words[column] for column in TRAINING)
            watts, limit = row.number("average_power"), row.number("power_limit")
            if limit >= LEAST_LIMIT_SHARE * highest and watts > 0.85 * limit:  # the limit held it back
                runs.setdefault(training, []).append((row.number("time_per_epoch"), watts - IDLE_W))
        for points in runs.values():
            slowest, fastest = max(points), min(points)
            if slowest[0] > 1.05 * fastest[0] and fastest[1] > slowest[1] > 0:
                found.append(np.log(fastest[1] / slowest[1]) / np.log(slowest[0] / fastest[0]))
    if not found:
        raise MeasurementsMissing(f"{data} holds no training of Zeus that a limit of power slows")
    return float(np.clip(np.median(found), 1.0, 3.5))


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A row of a published file."""

    path: Path
    words: Mapping[str, str]

    def number(self, column: str) -> float:
        """Returns the number of a column, at least 0. Raises MeasurementsMissing."""
        text = self.words.get(column)
        if text is None:
            raise MeasurementsMissing(f"{self.path} is not the published file: a row has no {column}")
        try:
            found = float(text)
        except ValueError:
            found = float("nan")
        if not 0 <= found < float("inf"):
            raise MeasurementsMissing(f"{self.path} is not the published file: {column} {text!r} is no number from 0")
        return found


def _rows(path: Path, *columns: str) -> list[MeasuredRow]:
    """Returns the rows of a file, each with words in these columns. Raises MeasurementsMissing."""
    try:
        with path.open(newline="", encoding="utf-8") as opened:
            rows = list(csv.DictReader(opened))
    except OSError as error:
        raise MeasurementsMissing(f"cannot read {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise MeasurementsMissing(f"cannot read {path}: {error}") from None
    for column in columns:
        if any(row.get(column) is None for row in rows):
            raise MeasurementsMissing(f"{path} is not the published file: a row has no {column}")
    return [MeasuredRow(path, row) for row in rows]


def _falling(table: Mapping[int, Sequence[tuple[float, float]]]) -> Table:
    """Returns the table without noise that would make more SMs slower."""
    found = {}
    for batch, curve in sorted(table.items()):
        least = float("inf")
        points = []
        for percent, ms in sorted(curve):
            least = min(least, ms)
            points.append((percent, least))
        found[batch] = tuple(points)
    return found


def _interpolate(table: Table, batch: float, percent: float) -> float:
    """Interpolates in logarithms; beyond the largest batch the time grows with the batch."""
    batches = sorted(table)
    times = [_interpolate_between(percent, *zip(*table[size], strict=True)) for size in batches]
    if batch > batches[-1]:
        return times[-1] * batch / batches[-1]
    return _interpolate_between(batch, batches, times)


def _interpolate_between(at: float, places: Sequence[float], values: Sequence[float]) -> float:
    return float(np.exp(np.interp(np.log(at), np.log(places), np.log(values))))
