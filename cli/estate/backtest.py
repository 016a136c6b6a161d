"""A backtest for people and as data: what replicas by load would have cost and kept, by day or hour, and the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from app.manifests.prices import NANO
from cli.estate.money import count_of, money
from cli.output import TableText, number, plain
from clusters.backtesting import HOUR_SECONDS, Backtest, BacktestHour
from clusters.backtesting.judging import JudgedRequests

MOST_HOURS = 48  # shown as rows; more are shown by day


@dataclass(frozen=True, slots=True)
class BacktestRow:
    """Some hours together; money is an hour's, in billionths."""

    label: str
    start: float
    paid_nano: int
    planned_nano: int
    limit_nano: int
    judged: JudgedRequests
    judged_then: JudgedRequests
    changes: float  # an hour
    changes_then: float


def rows_of(hours: Sequence[BacktestHour]) -> list[BacktestRow]:
    """Returns a row for each hour, or for each day where they are many; times are UTC's."""
    form = "%Y-%m-%d %H:%M" if len(hours) <= MOST_HOURS else "%Y-%m-%d"
    labelled = groupby(hours, key=lambda hour: datetime.fromtimestamp(hour.start, UTC).strftime(form))
    return [sum_up(label, list(members)) for label, members in labelled]


def take_for_granted(found: Backtest) -> list[str]:
    """Returns what the figures rest on."""
    minutes = f"{found.start_seconds / 60:g} minutes"
    return [
        "prices are those of now; what is not decided stays as it is now, with room for the most that jobs ever held;",
        f"an added replica serves after {minutes}; one that goes is paid for {minutes} more, and then empty nodes end;",
        "nodes are added like those that are paid by the hour; pods of Deployments move where that empties a node;",
        "replicas are enough where each has been seen to serve as much within its SLO, at any time of the range.",
    ]


def sum_up(label: str, hours: Sequence[BacktestHour]) -> BacktestRow:
    """Returns hours as one; they must be some."""
    seconds = sum(hour.seconds for hour in hours)

    def mean(values: Sequence[int]) -> int:
        return sum(value * hour.seconds for value, hour in zip(values, hours, strict=True)) // seconds

    return BacktestRow(
        label=label,
        start=hours[0].start,
        paid_nano=mean([hour.paid_nano for hour in hours]),
        planned_nano=mean([hour.planned_nano for hour in hours]),
        limit_nano=mean([hour.limit_nano for hour in hours]),
        judged=sum((hour.judged for hour in hours), JudgedRequests()),
        judged_then=sum((hour.judged_then for hour in hours), JudgedRequests()),
        changes=sum(hour.changes for hour in hours) * HOUR_SECONDS / seconds,
        changes_then=sum(hour.changes_then for hour in hours) * HOUR_SECONDS / seconds,
    )


def summarize_backtest(found: Backtest, currency: str) -> Iterator[str]:
    """Gives what all hours come to, as sentences."""
    whole = sum_up("all", found.hours)
    change = whole.paid_nano - whole.planned_nano
    yield (
        f"Backtest of {count_of(len(found.hours), 'hour')}, by what was known at each moment:"
        f" {money(whole.planned_nano)} {currency} an hour instead of {money(whole.paid_nano)},"
        f" {share_text(abs(change), whole.paid_nano)} {'less' if change >= 0 else 'more'}."
        f" No plan saves more than {share_text(whole.limit_nano, whole.paid_nano)}."
    )
    if found.gone_nodes:
        gone = count_of(found.gone_nodes, "node")
        yield f"More was paid than that: {gone} with GPUs ran then and not now, at a price that is not known."
    enough = (
        f"Replicas are enough for {attainment_text(whole.judged)} of the requests, and those that stood there were for"
        f" {attainment_text(whole.judged_then)}"
        if whole.judged.requests and whole.judged_then.requests
        else "No request is known to have come"
    )
    yield (
        f"{enough}; {number(round(whole.changes, 2))} changes an hour,"
        f" where the past had {number(round(whole.changes_then, 2))}."
    )
    if found.added_nodes:
        yield f"At times it takes {count_of(found.added_nodes, 'node')} more than there are now."


def show_backtest(found: Backtest, currency: str) -> None:
    """Prints the sums, a row for each day or hour, and a row for each workload."""
    for line in summarize_backtest(found, currency):
        print(plain(line))
    print("Taken for granted:")
    for text in take_for_granted(found):
        print(f"- {text}")
    print()
    write_hours(found).show()
    print()
    write_decisions(found).show()


def write_hours(found: Backtest) -> TableText:
    """Returns a row for each day or hour, and one for all."""
    time = "DAY" if len(found.hours) > MOST_HOURS else "HOUR"
    headings = (time, "PAID", "PLANNED", "SAVED", "AT MOST", "ENOUGH", "BEFORE", "CHANGES AN HOUR", "BEFORE")
    return TableText(headings, [
        (
            row.label, money(row.paid_nano), money(row.planned_nano),
            share_text(row.paid_nano - row.planned_nano, row.paid_nano), share_text(row.limit_nano, row.paid_nano),
            attainment_text(row.judged), attainment_text(row.judged_then), number(round(row.changes, 2)),
            number(round(row.changes_then, 2)),
        )
        for row in [*rows_of(found.hours), sum_up("all", found.hours)]
    ])  # fmt: skip


def write_decisions(found: Backtest) -> TableText:
    """Returns a row for each workload that is scaled."""
    headings = ("WORKLOAD", "REPLICAS BEFORE", "DECIDED", "MOST", "ENOUGH", "BEFORE", "CHANGES", "LAST DECISION")
    return TableText(headings, [
        (
            str(each.name), number(round(each.mean_then, 2)), number(round(each.mean_decided, 2)),
            str(each.most_decided), attainment_text(each.judged), attainment_text(each.judged_then), str(each.changes),
            each.last_reason,
        )
        if not each.why_not
        else (str(each.name), "", "", "", "", "", "", f"not decided: {each.why_not}")
        for each in found.workloads
    ])  # fmt: skip


def attainment_text(judged: JudgedRequests) -> str:
    share = judged.attainment
    return "" if share is None else f"{100 * share:.2f} %"


def share_text(nano: int, whole: int) -> str:
    """Returns a share, which may be below nothing."""
    return f"{100 * nano / whole + 0.0:.1f} %" if whole else ""


def backtest_data(found: Backtest) -> dict[str, Any]:
    """Returns the backtest as JSON's types. Money of hours is in the currency, an hour's."""
    return {
        "hours": [
            {
                "start": datetime.fromtimestamp(hour.start, UTC).isoformat().replace("+00:00", "Z"),
                "seconds": hour.seconds,
                "paid": hour.paid_nano / NANO,
                "planned": hour.planned_nano / NANO,
                "upperLimit": hour.limit_nano / NANO,
                "attainment": hour.judged.attainment,
                "attainmentBefore": hour.judged_then.attainment,
                "requests": hour.judged.requests,
                "changes": hour.changes,
                "changesBefore": hour.changes_then,
            }
            for hour in found.hours
        ],
        "backtest": {
            "moves": found.moves,
            "addedNodes": found.added_nodes,
            "goneNodes": found.gone_nodes,
            "takenForGranted": take_for_granted(found),
            "workloads": [
                {
                    "workload": str(each.name), "notDecided": each.why_not or None,
                    "replicasBefore": each.mean_then, "replicas": each.mean_decided, "most": each.most_decided,
                    "attainment": each.judged.attainment, "attainmentBefore": each.judged_then.attainment,
                    "changes": each.changes, "lastDecision": each.last_reason or None,
                }
                for each in found.workloads
            ],
        },
    }  # fmt: skip
