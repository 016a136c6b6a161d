"""Turns reports of other tools into a Profile."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agents.contract.campaigns import CopySetting, MeasuredSetting
from app.campaigns.limits import FULL_PERCENT
from app.campaigns.profile import ProfileSubject, profile_of
from app.campaigns.reports import Figures, ReportRefused, ToolReport, add_memory, read_report
from cli.exits import Failed
from cli.profiling.asked import batches_of, read_model, show
from cli.profiling.at_url import ANY_CLOCK_MHZ, DEFAULT_VARIANT

MOST_BYTES = 64 * 1024 * 1024


def import_files(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the Profile that the files make, and returns it."""
    if not args.model or not args.gpu_type:
        raise Failed("an import needs --model MODEL[/VARIANT] and --gpu-type NAME: the files do not name them")
    wanted = read_model(args.model)
    files: list[str] = args.files
    stated = batches_of(args)
    if stated and len(stated) != len(files):
        raise Failed(f"--batches names {len(stated)} batches for {len(files)} files; name one for each, ascending")
    batches: Sequence[int | None] = stated or [None] * len(files)
    began = time.monotonic()
    figures: list[Figures] = []
    at = datetime.fromtimestamp(0, UTC)
    for name, batch in zip(files, batches, strict=True):
        found, written_at = _read(name, batch)
        figures, at = figures + found, max(at, written_at)
    sm_percent = args.sm_percent or FULL_PERCENT
    measured = [_make_setting(index, found, sm_percent, at) for index, found in enumerate(add_memory(figures), 1)]
    if not measured:
        raise Failed("the files state memory but no times; import metrics-model-inference.csv with them")
    twice = [batch for batch, times in Counter(found.setting.batch for found in measured).items() if times > 1]
    if twice:
        raise Failed(f"batch {twice[0]} is in the files more than once; import one measurement of each batch")
    subject = ProfileSubject(wanted.model, wanted.variant or DEFAULT_VARIANT, args.gpu_type, ANY_CLOCK_MHZ)
    made = profile_of(subject, measured)
    show(args, [made.manifest], len(measured), time.monotonic() - began, made.left_out_error)
    return [made.manifest]


def _read(name: str, batch: int | None) -> tuple[list[Figures], datetime]:
    """Returns what a file says, and when it was written."""
    report = open_report(name, batch)
    try:
        return read_report(report), datetime.fromtimestamp(Path(name).stat().st_mtime, UTC)
    except ReportRefused as refused:
        raise Failed(str(refused)) from refused


def open_report(name: str, batch: int | None = None) -> ToolReport:
    """Returns a file of another tool, with the batch that its user states. Raises Failed."""
    path = Path(name)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise Failed(f"{name} is larger than {MOST_BYTES >> 20} MiB")
        return ToolReport(name, path.read_text(encoding="utf-8"), batch)
    except OSError as error:
        raise Failed(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failed(f"{name} is not UTF-8 at byte {error.start}") from error


def _make_setting(sequence: int, found: Figures, sm_percent: int, at: datetime) -> MeasuredSetting:
    return MeasuredSetting(
        sequence,
        CopySetting(found.batch, float(sm_percent), ANY_CLOCK_MHZ),
        at,
        latency_ms=found.latency_ms,
        spread_ms=found.spread_ms,
        samples=found.samples,
        source=found.source,
        memory_gib=found.memory_gib,
    )
