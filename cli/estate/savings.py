"""What can be saved in a cluster, for people and as data: nodes and GPUs by level L0, and what no plan exceeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cli.estate.money import count_of, gpus_text, money
from cli.output import TableText, number, plain
from clusters.bill import HOURS_A_MONTH, Bill
from clusters.measured import LatencyPromise
from clusters.savings import ReplicaSaving, Savings
from clusters.savings.needs import NOTHING_CAME, LoadNeed

SIGNIFICANT_DIGITS = 3
ASSUMPTIONS = (
    "machines and prices are those of this cluster, and what is committed is paid anyway;",
    "no replica shares a GPU that has one for itself now;",
    "a replica serves no more than one can have served here: the highest rate of its workload, of two minutes or of a\n"
    "  step, by the fewest replicas that were there in that step, as if load was even among them;",
    "minReplicas of autoscalers stay; a workload that is scaled by hand may go to none while nothing is asked of it;",
    "whatever has no measured load stays as it is.",
)


def show_savings(bill: Bill, savings: Savings) -> None:
    """Prints what the data shows, then the limit with what it takes for granted, then a row for each workload."""
    for line in summarize_savings(bill, savings):
        print(plain(line))
    limit, wide = summarize_limits(bill, savings)
    print(plain(limit))
    for text in ASSUMPTIONS:
        print(f"- {text}")
    print(f"{plain(wide)}\n")
    write_savings(savings).show()


def summarize_savings(bill: Bill, savings: Savings) -> Iterator[str]:
    """Gives what the data shows, as sentences."""
    nano, nodes = savings.nano_per_hour, len(savings.nodes)
    yield (
        f"L0, shown by your own data of {_span(savings.hours)}: {money(nano)} {bill.currency} an hour can be saved,"
        f" {share_of(nano, bill)}{note_base(bill)},"
        f" {money(nano * HOURS_A_MONTH)} a month: {count_of(nodes, 'node')}"
        + (f", after {count_of(savings.moves, 'move')} of pods." if nodes else ".")
    )
    if nodes:
        yield f"Nodes that can go: {', '.join(each.node for each in savings.nodes)}."
    if savings.moves:
        yield "Not compared with the new nodes of pods that move: CPU, memory, ports, devices, and soft rules of place."
    if savings.stuck_rollouts:
        names = ", ".join(map(str, savings.stuck_rollouts))
        yield f"No room is left then for the pod that a rollout starts first: {names}."
    if savings.more_nodes:
        yield f"Another packing might free {savings.more_nodes} more, and not more than that."
    yield (
        f"GPUs of replicas beyond the load: {gpus_text(savings.gpus_freed)}. Then {gpus_text(savings.idle_gpus)} GPUs"
        " are idle inside nodes that stay, which saves nothing yet."
    )


def summarize_limits(bill: Bill, savings: Savings) -> tuple[str, str]:
    """Returns what no plan exceeds under the assumptions, and what none exceeds on the cheapest GPUs."""
    of_what = note_base(bill)
    return (
        f"No plan saves more than {share_of(savings.limit_nano_per_hour, bill)}{of_what} under these assumptions:",
        "If each replica served as much on the cheapest GPUs of this cluster, no plan would save more than"
        f" {share_of(savings.wide_limit_nano_per_hour, bill)}{of_what}.",
    )


def write_savings(savings: Savings) -> TableText:
    """Returns a row for each workload that has replicas."""
    headings = (
        "WORKLOAD",
        "REPLICAS",
        "NEEDED",
        "GPUS FREED",
        "PEAK A SECOND",
        "SHOWN FOR EACH",
        "SLO",
        "WHY NOT FEWER",
    )
    return TableText(headings, [
        (
            str(each.workload), str(each.now), str(each.needed), gpus_text(each.gpus_freed) if each.gpus_freed else "",
            *_load_cells(each.need), "; ".join(each.reasons),
        )
        for each in sorted(savings.workloads, key=lambda each: (-each.gpus_freed, each.workload))
        if each.now
    ])  # fmt: skip


def share_of(nano: int, bill: Bill) -> str:
    return f"{100 * nano / bill.nano_per_hour:.1f} %" if bill.nano_per_hour else "0 %"


def note_base(bill: Bill) -> str:
    """Returns what a share is of, where that is not everything."""
    return " of what priced nodes cost" if any(row.unpriced_gpus for row in bill.rows) else ""


def _load_cells(need: LoadNeed | str) -> tuple[str, str, str]:
    if isinstance(need, str):
        return "", "", ""
    shown = need.shown
    return _rate(need.peak_rate_per_second), _rate(shown.rate_per_second) if shown else "", _promise_cell(need.promise)


def _promise_cell(promise: LatencyPromise) -> str:
    """Returns what is to be kept, and who says so."""
    if promise.source == NOTHING_CAME:
        return NOTHING_CAME
    times = (("", promise.latency_ms), ("first token ", promise.first_token_ms), ("a token ", promise.token_ms))
    kept = ", ".join(f"{label}{_rate(value)} ms" for label, value in times if value is not None)
    return f"p{promise.percentile:g} {kept}: {promise.source.partition(' of ')[0]}"


def _rate(value: float) -> str:
    return number(float(f"{value:.{SIGNIFICANT_DIGITS}g}"))


def savings_data(savings: Savings) -> dict[str, Any]:
    """Returns the savings as JSON's types; money is in billionths an hour."""
    return {
        "level": "L0", "hours": savings.hours, "nanoPerHour": savings.nano_per_hour,
        "nodes": [{"name": each.node, "nanoPerHour": each.nano_per_hour} for each in savings.nodes],
        "moreNodesAtMost": savings.more_nodes, "moves": savings.moves, "gpusFreed": float(savings.gpus_freed),
        "idleGpus": float(savings.idle_gpus), "limitNanoPerHour": savings.limit_nano_per_hour,
        "wideLimitNanoPerHour": savings.wide_limit_nano_per_hour,
        "stuckRollouts": list(map(str, savings.stuck_rollouts)),
        "workloads": [_workload_data(each) for each in savings.workloads],
    }  # fmt: skip


def _workload_data(each: ReplicaSaving) -> dict[str, Any]:
    need = each.need
    return {
        "workload": str(each.workload), "replicas": each.now, "needed": each.needed, "survivors": each.survivors,
        "gpusFreed": float(each.gpus_freed), "reasons": list(each.reasons),
        "load": None if isinstance(need, str) else {
            "promise": {
                "latencyMs": need.promise.latency_ms, "ttftMs": need.promise.first_token_ms,
                "tpotMs": need.promise.token_ms, "percentile": need.promise.percentile, "source": need.promise.source,
            },
            "peakReplicas": need.peak_replicas, "peakStep": need.peak_step, "peakPerSecond": need.peak_rate_per_second,
            "mostReady": need.most_ready, "meanReady": need.mean_ready, "meanNeeded": need.mean_needed,
            "shown": need.shown and {
                "ratePerSecond": need.shown.rate_per_second, "replicas": need.shown.replicas,
                "inputTokens": need.shown.input_tokens, "outputTokens": need.shown.output_tokens,
                "step": need.shown.step,
            },
        },
    }  # fmt: skip


def _span(hours: float) -> str:
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.0f} hours"
