"""Takes what a node has measured for its campaign, and gives it the next setting, in one transaction."""

from __future__ import annotations

from sqlalchemy import Connection

from agents.contract.campaigns import (
    CopySetting,
    MeasuredSetting,
    NeighbourCopy,
    ProfilingAnswer,
    ProfilingReport,
    ProfilingTask,
)
from app.campaigns import guard
from app.campaigns.choosing import choose
from app.campaigns.ending import end_if_harmful, finish
from app.campaigns.neighbours import choose_neighbour_setting
from app.store.fleet import campaigns
from app.store.fleet.campaigns import Campaign, SettingFailure

OVER = ProfilingAnswer(is_over=True)
WAIT_SECONDS = 1.0


def advance(connection: Connection, node: str, report: ProfilingReport) -> ProfilingAnswer:
    """Stores the report's result and returns what to measure next.

    A result counts once, and only if it is of the setting that was asked for: repeating a report changes nothing.
    """
    campaign = campaigns.live_of_node(connection, node)
    if campaign is None:
        return OVER
    if report.campaign == campaign.id:
        _take(connection, campaign, report)
    campaign = campaigns.get(connection, campaign.id)
    assert campaign is not None
    measured = campaigns.measurements(connection, campaign.id)
    if end_if_harmful(connection, campaign):
        return OVER
    there = guard.occupants(connection, node, campaign.gpu)
    occupied = report.occupied or (f"assigned to GPU {campaign.gpu}: {', '.join(there[:5])}" if there else "")
    if occupied:
        campaigns.wait(connection, campaign.id, occupied)
        return ProfilingAnswer(len(measured), wait_seconds=WAIT_SECONDS)
    return _next(connection, campaign, measured)


def _take(connection: Connection, campaign: Campaign, report: ProfilingReport) -> None:
    due = len(campaigns.measurements(connection, campaign.id)) + 1
    result = report.measured or report.failed
    if result is None or result.sequence != due or result.setting != campaign.pending:
        return  # taken before, or of a setting that is not wanted any more
    if report.measured:
        campaigns.add(connection, campaign.id, report.measured)
    elif report.failed and report.failed.attempt == _attempt(campaign, result.setting):
        failure = SettingFailure(report.failed.setting, report.failed.reason, report.failed.message)
        campaigns.fail_setting(connection, campaign.id, failure)


def _attempt(campaign: Campaign, setting: CopySetting) -> int:
    """Returns the number of the next try of a setting, counted from 1."""
    return 1 + sum(failure.setting == setting for failure in campaign.failures)


def _next(connection: Connection, campaign: Campaign, measured: list[MeasuredSetting]) -> ProfilingAnswer:
    setting = campaign.pending or _choose(campaign, measured)
    if setting is None:
        if measured:
            finish(connection, campaign, "done", message=guard.describe_passed_over(connection, campaign))
        else:
            last = campaign.failures[-1] if campaign.failures else None
            why = f"{last.reason}: {last.message}" if last else "there is nothing to measure"
            finish(connection, campaign, "failed", last.reason if last else "nothing_to_measure", why)
        return OVER
    campaigns.issue(connection, campaign.id, setting)
    return ProfilingAnswer(len(measured), _task(campaign, setting, len(measured) + 1))


def _choose(campaign: Campaign, measured: list[MeasuredSetting]) -> CopySetting | None:
    request = campaign.request
    if not request.neighbours:
        return choose(request.settings, measured, campaign.failures, request.accuracy, request.most)
    names, failed = campaign.names, [failure.setting for failure in campaign.failures]
    return choose_neighbour_setting(request.settings, names, measured, failed, request.accuracy, request.most)


def _task(campaign: Campaign, setting: CopySetting, sequence: int) -> ProfilingTask:
    request = campaign.request
    return ProfilingTask(
        campaign.id,
        sequence,
        campaign.gpu,
        campaign.model,
        campaign.variant,
        request.template,
        setting,
        _attempt(campaign, setting),
        request.args,
        request.runtime,
        request.example,
        locks_clock=len({other.clock_mhz for other in request.settings}) > 1,
        beside=tuple(
            NeighbourCopy(
                request.neighbours[neighbour.number].model,
                request.neighbours[neighbour.number].variant,
                request.neighbours[neighbour.number].template,
                CopySetting(neighbour.batch, neighbour.sm_percent, setting.clock_mhz),
                request.neighbours[neighbour.number].args,
            )
            for neighbour in setting.beside
        ),
        accuracy=request.accuracy,
        least_seconds=request.least_seconds,
    )
