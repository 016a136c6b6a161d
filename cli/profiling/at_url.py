"""Measures a model that is served at a URL, from here."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agents.contract.campaigns import CopySetting, MeasuredSetting
from agents.profiling.at_url import BatchRange, ModelAtUrl, NoAddress
from agents.profiling.batches import TimingEffort
from agents.profiling.closed_loop import LoopFailed
from app.campaigns.choosing import choose
from app.campaigns.limits import ACCURACY_SHARE, BATCHES, FULL_PERCENT, MOST_MEASUREMENTS, grid
from app.campaigns.profile import MeasuredProfile, ProfileSubject, profile_of
from app.manifests.drafts import find_error_goal
from cli import exits
from cli.exits import Failed
from cli.output import say
from cli.profiling.asked import ModelVariant, batches_of, name_remedy, say_measured, show
from cli.profiling.journal import MeasurementJournal, usual_journal

ANY_CLOCK_MHZ = 1000  # the clock of a server at a URL is not known, and does not change
LEAST_SECONDS = 0.5
UNNAMED = "unnamed"
DEFAULT_VARIANT = "default"


@dataclass(frozen=True, slots=True)
class MeasuredAtUrl:
    """What a server at a URL has been measured to be, where that is kept, and what would make it surer."""

    profile: MeasuredProfile
    journal: MeasurementJournal
    remedy: str


def measure_url(args: argparse.Namespace, wanted: ModelVariant) -> MeasuredAtUrl:
    """Measures what the server admits and prints the Profile; its journal may be removed once the Profile is safe."""
    began = time.monotonic()
    try:
        server = ModelAtUrl(args.url)
    except NoAddress as refused:
        raise Failed(str(refused)) from refused
    sm_percent = args.sm_percent or FULL_PERCENT
    settings = grid(batches_of(args) or BATCHES, [sm_percent], [ANY_CLOCK_MHZ])
    subject = {
        "url": args.url, "model": wanted.model, "variant": wanted.variant, "gpuType": args.gpu_type or "",
        "smPercent": sm_percent,
    }  # fmt: skip
    journal = MeasurementJournal(Path(args.journal) if args.journal else usual_journal(subject), subject)
    if journal.measured:
        say(f"{len(journal.measured)} settings were measured before, and are not measured again")
    try:
        possible = _measure(args, server, settings, journal)
    except LoopFailed as failure:
        raise Failed(str(failure), exits.UNREACHABLE) from failure
    gpu_type = args.gpu_type or UNNAMED
    if not args.gpu_type:
        say(f"the GPU type is not known: the Profile says {UNNAMED!r}; state it with --gpu-type")
    about = ProfileSubject(
        wanted.model,
        wanted.variant or DEFAULT_VARIANT,
        gpu_type,
        ANY_CLOCK_MHZ,
        error_goal=find_error_goal(args.accuracy),
    )
    made = profile_of(about, journal.measured, settings)
    show(args, [made.manifest], len(journal.measured), time.monotonic() - began, made.left_out_error)
    following = choose(possible, journal.measured, (), 0.0, len(journal.measured) + 1)
    remedy = name_remedy(len(journal.measured), msgspec.to_builtins(following) if following else None)
    return MeasuredAtUrl(made, journal, remedy)


def _measure(
    args: argparse.Namespace, server: ModelAtUrl, settings: Sequence[CopySetting], journal: MeasurementJournal
) -> Sequence[CopySetting]:
    """Measures what the server admits of the settings, and returns all of these."""
    found = server.batch_range()
    if found.largest == 1:
        say("the batch of the server cannot be set, so only batch 1 is measured")
    possible = [setting for setting in settings if setting.batch <= found.largest]
    if not possible:
        raise Failed(f"the server takes batches of 1..{found.largest}; none of --batches is one")
    try:
        _measure_all(args, server, found, possible, journal)
    finally:
        if found.largest > 1:
            server.restore(found)
    return possible


def _measure_all(
    args: argparse.Namespace,
    server: ModelAtUrl,
    found: BatchRange,
    settings: Sequence[CopySetting],
    journal: MeasurementJournal,
) -> None:
    accuracy, most = args.accuracy or ACCURACY_SHARE, args.most or MOST_MEASUREMENTS
    effort = TimingEffort(accuracy, LEAST_SECONDS if args.seconds is None else args.seconds)
    began, before = time.monotonic(), len(journal.measured)
    while setting := choose(settings, journal.measured, (), accuracy, most):
        measured = server.measure(len(journal.measured) + 1, setting, found, effort)
        journal.add(measured)
        count = len(journal.measured)
        left = min(most, len(settings)) - count
        say_measured(
            count, min(most, len(settings)), _wire(measured), left * (time.monotonic() - began) / (count - before)
        )


def _wire(measured: MeasuredSetting) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(measured)
    return found
