"""What sharing GPUs could save, for people and as data: level L1 as an interval, with what it rests on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from cli.estate.loads import spell_interval
from cli.estate.money import money
from cli.output import TableText, gib, name_some, number, plain
from clusters.bill import HOURS_A_MONTH, Bill
from clusters.estate import WorkloadName
from clusters.gpu_use import UseInterval
from clusters.sharing import SharingEstimate

L1_BASIS = """\
It is counted from what is paid now, as L0 is, and nodes that come free without sharing are in both: the two are never
added. It rests on what GPUs did, on rates and on latency, and takes for granted:"""
L1_ASSUMPTIONS = (
    "replicas share GPUs of the kind that they hold now, with memory and SMs of their own, as MPS gives them;",
    "a request takes the SMs and the time that activity and latency show; batches and neighbours are usual ones;",
    "minReplicas, PodDisruptionBudgets and spread stay, and free GPUs for what the loss of any one node ends;",
    "CPU, host memory, ports and other devices of pods are not compared.",
)


def show_sharing(bill: Bill, found: SharingEstimate) -> None:
    """Prints the interval, what it takes for granted, and a row for each workload that could share."""
    print(plain(summarize_sharing(bill, found)))
    print(L1_BASIS)
    for text in L1_ASSUMPTIONS:
        print(f"- {text}")
    for sentence in stay_sentences(found.staying):
        print(plain(sentence))
    table = write_sharing(found)
    if table.rows:
        print()
        table.show()


def summarize_sharing(bill: Bill, found: SharingEstimate) -> str:
    """Returns the interval as a sentence."""
    low, high = found.low_nano_per_hour, found.high_nano_per_hour
    month = _spell_range(low * HOURS_A_MONTH, high * HOURS_A_MONTH)
    return (
        f"L1, an interval and not certified: {spell_range(low, high, bill)} could be saved where GPUs are shared:"
        f" {_spell_range(low, high)} {bill.currency} an hour, {month} a month."
    )


def write_sharing(found: SharingEstimate) -> TableText:
    """Returns a row for each workload that could share."""
    headings = ("WORKLOAD", "GPUS NOW", "SHARED, AT ITS PEAK", "MEMORY OF A REPLICA", "WIDE, BECAUSE")
    return TableText(headings, [
        (
            str(demand.workload), number(round(sharer.gpus_per_replica * sharer.replicas, 2)),
            spell_interval(demand.gpus, 2), _memory_cell(demand.memory_gib), demand.missing,
        )
        for each in found.kinds
        for sharer, demand in zip(each.kind.sharers, each.demands, strict=True)
    ])  # fmt: skip


def spell_range(low: int, high: int, bill: Bill) -> str:
    """Returns an interval of money as a part of what is paid: `from 8.1 to 21.4 %`."""
    parts = [f"{100 * nano / bill.nano_per_hour:.1f}" if bill.nano_per_hour else "0" for nano in (low, high)]
    return f"{parts[0]} %" if parts[0] == parts[1] else f"from {parts[0]} to {parts[1]} %"


def stay_sentences(staying: Mapping[WorkloadName, str]) -> Iterator[str]:
    """Gives a sentence for each reason why workloads stay as they are."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in sorted(staying.items()):
        by_reason[reason].append(str(name))
    for reason, names in by_reason.items():
        yield f"{name_some(names)} {'stays as it is' if len(names) == 1 else 'stay as they are'}: {reason}."


def _spell_range(low: int, high: int) -> str:
    return money(low) if money(low) == money(high) else f"{money(low)} to {money(high)}"


def _memory_cell(memory: UseInterval) -> str:
    return "" if memory.high == float("inf") else f"{number(round(memory.low, 1))}..{gib(round(memory.high, 1))}"


def sharing_data(found: SharingEstimate) -> dict[str, Any]:
    """Returns the interval as JSON's types; money is in billionths an hour."""
    return {
        "level": "L1", "certified": False, "lowNanoPerHour": found.low_nano_per_hour,
        "highNanoPerHour": found.high_nano_per_hour,
        "kinds": [
            {
                "product": each.kind.product, "nodes": [node.name for node in each.kind.nodes],
                "lowNanoPerHour": each.low_nano_per_hour, "highNanoPerHour": each.high_nano_per_hour,
                "workloads": [
                    {
                        "workload": str(demand.workload), "gpusNow": sharer.gpus_per_replica * sharer.replicas,
                        "leastReplicas": sharer.least, "gpus": [demand.gpus.low, demand.gpus.high],
                        "likelyGpus": demand.likely_gpus,
                        "memoryGib": None if demand.memory_gib.high == float("inf") else [
                            demand.memory_gib.low, demand.memory_gib.high,
                        ],
                        "missing": demand.missing,
                    }
                    for sharer, demand in zip(each.kind.sharers, each.demands, strict=True)
                ],
            }
            for each in found.kinds
        ],
        "staying": [{"workload": str(name), "reason": reason} for name, reason in sorted(found.staying.items())],
    }  # fmt: skip
