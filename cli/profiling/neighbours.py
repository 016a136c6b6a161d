"""Turns latencies that were measured beside neighbours into pressures and sensitivities."""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.manifests.drafts import write_error
from app.manifests.numbers import finite_number
from cli.exits import Failed
from cli.output import format_yaml, plain, print_data, say

if TYPE_CHECKING:
    from solvers.interference.observation import Neighbour, SlowdownObservation

COLUMNS = ("model", "smPercent", "neighbours", "latencyMs")
MOST_ROWS = 20_000
MOST_CLOCK_MHZ = 100_000


@dataclass(frozen=True, slots=True)
class NeighbourRow:
    """A line of the file: a model at a batch and SM%, its neighbours, and how long its batches took."""

    gpu_type: str
    model: str
    batch: int
    sm_percent: int
    neighbours: tuple[Neighbour, ...]
    latency_ms: float
    samples: int
    clock_mhz: int | None  # that the GPU had; None: the highest, as far as the file says


def neighbours(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints pressures and sensitivities from the files' measurements; returns them by GPU type and model."""
    from app.campaigns.neighbour_profiles import interference_fields
    from solvers.interference.choice import fit
    from solvers.interference.profile_factors import name_candidate, pressure_and_sensitivity

    rows = [row for name in args.files for row in read_rows(name, args.gpu_type or "")]
    found = []
    for gpu_type, observations in sorted(slowdowns(rows).items()):
        chosen = fit(observations)
        factors = pressure_and_sensitivity(observations)
        found.append(
            {
                "gpuType": gpu_type,
                "measurements": len(observations),
                "profiles": {name: interference_fields(each) for name, each in factors.items()},
                "stated": name_candidate(factors),
                "method": chosen.method,
                "left_out_error": chosen.error,
                "left_out_errors": chosen.errors,
            }
        )
    if not print_data({"gpuTypes": found}, "json" if args.json else "text"):
        for each in found:
            print(format_yaml({each["gpuType"]: each["profiles"]}))
            say(plain(_said(each)))
    return found


def _said(found: Mapping[str, Any]) -> str:
    error, stated = found["left_out_error"], found["left_out_errors"].get(found["stated"])
    head = f"{found['gpuType']}: {found['measurements']} measurements beside neighbours"
    if error is None or stated is None:
        return f"{head}; too few different mixes to leave some out"
    missed = f"these pressures and sensitivities ({found['stated']}) miss a left-out mix by {write_error(stated)}"
    return f"{head}; {missed}; best is {found['method']} with {write_error(error)}"


def slowdowns(rows: Sequence[NeighbourRow]) -> dict[str, list[SlowdownObservation]]:
    """Returns observations by GPU type: each latency over that of the same model, batch, SM% and clock alone.

    At its power limit a GPU lowers its clock. Plans count that by watts, so that it is no slowdown by neighbours.
    """
    from solvers.interference.observation import SharedRun, SlowdownObservation

    alone: dict[tuple[str, str, int, int, int | None], list[float]] = defaultdict(list)
    for row in rows:
        if not row.neighbours:
            alone[row.gpu_type, row.model, row.batch, row.sm_percent, row.clock_mhz].append(row.latency_ms)
    found: dict[str, list[SlowdownObservation]] = defaultdict(list)
    for row in rows:
        if row.neighbours:
            times = alone.get((row.gpu_type, row.model, row.batch, row.sm_percent, row.clock_mhz))
            if not times:
                clock = f" at {row.clock_mhz} MHz" if row.clock_mhz else ""
                where = f"batch {row.batch} and {row.sm_percent} % on {row.gpu_type or 'the GPU'}{clock}"
                raise Failed(f"{row.model} was not measured alone at {where}; add a line without neighbours")
            run = SharedRun(row.model, row.sm_percent, row.neighbours)
            found[row.gpu_type].append(SlowdownObservation(run, row.latency_ms * len(times) / sum(times), row.samples))
    if not found:
        raise Failed("no line has neighbours; write them as MODEL:SM%, several with + between them")
    return dict(found)


def read_rows(name: str, gpu_type: str) -> Iterator[NeighbourRow]:
    """Reads a CSV file; Failed names the line that is wrong."""
    try:
        with Path(name).open(encoding="utf-8-sig", newline="") as text:  # spreadsheets begin a file with a mark
            reader = csv.DictReader(text, strict=True, skipinitialspace=True)
            lacking = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
            if lacking:
                raise Failed(f"{name} lacks the column {lacking[0]}; it needs {', '.join(COLUMNS)}")
            for number, line in enumerate(reader, start=2):
                if number > MOST_ROWS:
                    raise Failed(f"{name} has more than {MOST_ROWS} lines")
                where = f"{name}, line {reader.line_num}"
                if None in line or None in line.values():
                    raise Failed(f"{where}: it has another number of fields than the header")
                yield _row(line, where, gpu_type)
    except csv.Error as error:
        raise Failed(f"{name}, line {reader.line_num + 1}: {error}; fields have commas between them") from error
    except OSError as error:
        raise Failed(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failed(f"{name} is not UTF-8 at byte {error.start}") from error


def _row(line: Mapping[str, str], where: str, gpu_type: str) -> NeighbourRow:
    from solvers.interference.observation import Neighbour

    def number(text: str, what: str, most: float, least: float = 1) -> float:
        found = finite_number(text)
        if found is None:
            raise Failed(f"{where}: {what} {text!r} is not a number; allowed: {least:g}..{most:g}")
        if not least <= found <= most:
            raise Failed(f"{where}: {what} {found:g} is outside {least:g}..{most:g}")
        return found

    def whole(text: str, what: str, most: float) -> int:
        found = number(text, what, most)
        if found != int(found):
            raise Failed(f"{where}: {what} {found:g} is not a whole number; allowed: 1..{most:g}")
        return int(found)

    def beside(text: str) -> Neighbour:
        model, _, percent = text.strip().rpartition(":")
        if not model:
            raise Failed(f"{where}: neighbour {text!r} has no SM%; write MODEL:SM%")
        return Neighbour(model, whole(percent, "SM%", 100))

    model = line["model"].strip()
    if not model:
        raise Failed(f"{where}: it names no model")
    names = [each for each in line["neighbours"].split("+") if each.strip()]
    return NeighbourRow(
        line.get("gpuType", "").strip() or gpu_type,
        model,
        whole(line.get("batch") or "1", "batch", 256),
        whole(line["smPercent"], "smPercent", 100),
        tuple(sorted(beside(each) for each in names)),
        number(line["latencyMs"], "latencyMs", 1e9, 1e-6),
        whole(line.get("samples") or "1", "samples", 1e9),
        whole(line["clockMhz"], "clockMhz", MOST_CLOCK_MHZ) if line.get("clockMhz") else None,
    )
