"""An assessment as people read it: what is paid now, by workload and by machine, and what is not known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cli.estate.backtest import backtest_data, show_backtest
from cli.estate.certified import campaigns_data, show_campaigns, show_certified, write_certified_data
from cli.estate.language import show_advice, write_advice
from cli.estate.loads import reading_data, write_loads
from cli.estate.money import cents_of, count_of, gpus_text, money
from cli.estate.savings import savings_data, show_savings
from cli.estate.sharing import sharing_data, show_sharing
from cli.output import TableText, name_some, plain
from clusters.backtesting import Backtest
from clusters.bill import HOURS_A_MONTH, Bill, BillRow
from clusters.certified.savings import CertifiedSavings
from clusters.estate import Autoscaler, ClusterWorkload, Estate, GpuNode, UnknownFigure
from clusters.metrics.measuring import PrometheusReading
from clusters.savings import Savings
from clusters.sharing import SharingEstimate
from clusters.sharing.worth import CampaignWorth

if TYPE_CHECKING:
    from clusters.certified.language import LanguageAdvice

MOST_LINES = 40  # of sentences about what is unknown
NOT_MEASURED = UnknownFigure("what can be saved", "no load was measured", "give --prometheus")


@dataclass(frozen=True, slots=True)
class Assessment:
    """What was read, and what it costs."""

    estate: Estate
    bill: Bill
    reading: PrometheusReading | None = None  # without a Prometheus
    savings: Savings | None = None  # without a measured load
    backtest: Backtest | None = None  # unless it was asked for
    sharing: SharingEstimate | None = None  # without a measured load
    certified: CertifiedSavings | None = None  # without profiles, or a measured load
    campaigns: Sequence[CampaignWorth] = ()  # the largest first
    language: Sequence[LanguageAdvice] = ()  # without profiles, or a measured load

    @property
    def unknown(self) -> tuple[UnknownFigure, ...]:
        found = (*self.estate.unknown, *self.bill.unknown, *(self.reading.unknown if self.reading else ()))
        nothing = (NOT_MEASURED,) if self.estate.nodes else ()
        found = (*found, *(self.backtest.unknown if self.backtest else ()))
        return (*found, *(self.savings.unknown if self.savings else nothing))


def show(found: Assessment) -> None:
    """Prints the assessment as text."""
    estate, bill = found.estate, found.bill
    if not estate.nodes:
        print("No node of this cluster shows GPUs.")
    else:
        print(plain(summarize_bill(estate, bill)))
        print()
        write_rows(estate, bill).show()
        print()
        write_machines(estate, bill).show()
    if found.reading and (found.reading.loads.workloads or found.reading.uses):
        print()
        write_loads(estate, found.reading).show()
    if found.savings and estate.nodes:
        print()
        show_savings(bill, found.savings)
    if found.sharing and estate.nodes:
        print()
        show_sharing(bill, found.sharing)
    if found.certified and estate.nodes:
        print()
        show_certified(bill, found.certified)
    if found.language:
        print()
        show_advice(found.language, bill.currency)
    if found.campaigns:
        print()
        show_campaigns(bill, found.campaigns)
    if found.backtest and found.backtest.hours:
        print()
        show_backtest(found.backtest, bill.currency)
    unknown = list(join_unknown(found.unknown))
    if unknown:
        print("\nWhat is not known:")
        for line in unknown[:MOST_LINES]:
            print(plain(f"- {line}"))
        if len(unknown) > MOST_LINES:
            print(f"- and {len(unknown) - MOST_LINES} more: -o json has all")


def summarize_bill(estate: Estate, bill: Bill) -> str:
    gpus, unpriced = sum(node.gpus for node in estate.nodes), note_unpriced(bill)
    month = f"{money(bill.nano_per_hour * HOURS_A_MONTH)} a month of {HOURS_A_MONTH} hours"
    text = f"Paid now: {money(bill.nano_per_hour)} {bill.currency} an hour, {month},"
    text += f" for {count_of(gpus, 'GPU')} on {count_of(len(estate.nodes), 'node')}"
    return text + (f", {unpriced}." if unpriced else ".")


def note_unpriced(bill: Bill) -> str:
    """Returns what the sums leave out; nothing where every GPU has a price."""
    unpriced = sum((row.unpriced_gpus for row in bill.rows), Fraction(0))
    if not unpriced:
        return ""
    return f"without the price of {gpus_text(unpriced)} {'GPU' if unpriced == 1 else 'GPUs'}"


def write_rows(estate: Estate, bill: Bill) -> TableText:
    """Returns who holds what, and what is paid for it."""
    workloads = {each.name: each for each in estate.workloads}
    order = sorted(bill.rows, key=lambda row: (row.kind != "workload", -row.nano_per_hour, row.label))
    cents = list(cents_of([row.nano_per_hour for row in order]))
    lines: list[tuple[str, ...]] = []
    for row, amount in zip(order, cents, strict=True):
        workload = workloads[row.workload] if row.workload else None
        lines.append(
            (
                row.label,
                gpus_text(row.gpus) if row.gpus else "0",
                _replicas(workload) if workload else "",
                _name_scaler(workload) if workload else "",
                _amount(row, amount),
                _share(row, bill),
            )
        )
    lines.append(
        ("all", gpus_text(sum((row.gpus for row in order), Fraction(0))), "", "", f"{sum(cents) / 100:,.2f}", "")
    )
    return TableText(("WORKLOAD", "GPUS", "REPLICAS", "SCALED BY", "AN HOUR", "SHARE"), lines)


def _amount(row: BillRow, cents: int) -> str:
    if not row.unpriced_gpus:
        return f"{cents / 100:,.2f}"
    return "unknown" if row.unpriced_gpus == row.gpus else f"{cents / 100:,.2f} and unknown"


def _share(row: BillRow, bill: Bill) -> str:
    """Returns a part of what is paid; of a row whose whole price is unknown there is none."""
    is_unknown = bool(row.unpriced_gpus) and row.unpriced_gpus == row.gpus
    return "" if is_unknown or not bill.nano_per_hour else f"{100 * row.nano_per_hour / bill.nano_per_hour:.1f} %"


def _replicas(workload: ClusterWorkload) -> str:
    text = str(workload.running)
    if workload.replicas is not None and workload.replicas != workload.running:
        text += f" of {workload.replicas}"
    if workload.pods_per_replica > 1:
        text += f", each {workload.pods_per_replica} pods"
    return text + (f", {count_of(workload.waiting_pods, 'pod')} waiting" if workload.waiting_pods else "")


def _name_scaler(workload: ClusterWorkload) -> str:
    if workload.autoscaler:
        return autoscaler_text(workload.autoscaler)
    return "hand" if workload.is_scalable else ", ".join(workload.owners) or workload.name.kind


def autoscaler_text(autoscaler: Autoscaler) -> str:
    name = {"HorizontalPodAutoscaler": "HPA", "ScaledObject": "KEDA"}.get(autoscaler.kind, autoscaler.kind)
    return f"{name} {autoscaler.least}..{autoscaler.most}" + (", paused" if autoscaler.is_paused else "")


def write_machines(estate: Estate, bill: Bill) -> TableText:
    """Returns the nodes that are alike, what they cost, and where that is from."""
    groups: dict[tuple[str, ...], list[tuple[GpuNode, int | None]]] = defaultdict(list)
    for node, price in zip(estate.nodes, bill.nodes, strict=True):
        place = ", ".join(filter(None, (node.region, PURCHASE_WORDS[node.purchase])))
        each = "unknown" if price.nano_per_hour is None else money(price.nano_per_hour)
        key = (node.instance_type, f"{node.gpus} {node.product}", _sharing(node), place, each, price.source)
        groups[key].append((node, price.nano_per_hour))
    headings = ("NODES", "MACHINE", "GPUS", "SHARED", "PAID", "EACH AN HOUR", "PRICE FROM")
    return TableText(headings, [(str(len(members)), *key) for key, members in sorted(groups.items())])


PURCHASE_WORDS = {"": "", "owned": "owned", "reserved": "reserved", "onDemand": "on demand", "spot": "spot"}


def _sharing(node: GpuNode) -> str:
    words = {"timeSlicing": "time slices", "mps": "MPS", "mig": "MIG"}
    return ", ".join(
        f"{words[slots.sharing]}, {slots.slots} slots" for slots in node.offers if slots.sharing in words
    )  # fmt: skip


def join_unknown(unknown: Iterable[UnknownFigure]) -> Iterator[str]:
    """Joins figures that are missing for the same reason."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for figure in unknown:
        alike[figure.reason, figure.remedy].append(figure.subject)
    for (reason, remedy), subjects in alike.items():
        yield f"{name_some(subjects)}: {reason}; {remedy}"


def write_data(found: Assessment) -> dict[str, Any]:
    """Returns the whole assessment as JSON's types; money is in billionths, as in the ledger."""
    estate, bill = found.estate, found.bill
    return {
        "currency": bill.currency,
        "nanoPerHour": bill.nano_per_hour,
        "unpricedGpus": float(sum(row.unpriced_gpus for row in bill.rows)),
        "rows": [
            {
                "kind": row.kind, "label": row.label, "gpus": float(row.gpus),
                "unpricedGpus": float(row.unpriced_gpus), "nanoPerHour": row.nano_per_hour,
            }
            for row in bill.rows
        ],
        "nodes": [
            {
                "name": node.name, "gpus": node.gpus, "product": node.product, "memoryGib": node.memory_gib,
                "instanceType": node.instance_type, "region": node.region, "pool": node.pool,
                "purchase": node.purchase, "ready": node.is_ready, "cordoned": node.is_cordoned,
                "offers": [
                    {
                        "resource": slots.resource, "slots": slots.slots, "gpusPerSlot": float(slots.gpus_per_slot),
                        "sharing": slots.sharing,
                    }
                    for slots in node.offers
                ],
                "nanoPerHour": price.nano_per_hour, "priceSource": price.source, "committed": price.is_committed,
                "source": node.source,
            }
            for node, price in zip(estate.nodes, bill.nodes, strict=True)
        ],
        "workloads": [_workload_data(each) for each in estate.workloads],
        "pods": [
            {
                "namespace": pod.namespace, "name": pod.name, "workload": str(pod.workload), "node": pod.node,
                "gpus": float(pod.gpus), "slots": dict(pod.slots), "devices": list(pod.devices),
                "replica": pod.replica, "ready": pod.is_ready,
            }
            for pod in estate.pods
        ],
        "unknown": [
            {"subject": figure.subject, "reason": figure.reason, "remedy": figure.remedy}
            for figure in found.unknown
        ],
        **({"measured": reading_data(found.reading)} if found.reading else {}),
        **({"savings": savings_data(found.savings)} if found.savings else {}),
        **(backtest_data(found.backtest) if found.backtest else {}),
        **({"sharing": sharing_data(found.sharing)} if found.sharing else {}),
        **({"certified": write_certified_data(found.certified)} if found.certified else {}),
        **({"languageModels": write_advice(found.language)} if found.language else {}),
        **({"campaigns": campaigns_data(found.campaigns)} if found.campaigns else {}),
    }  # fmt: skip


def _workload_data(workload: ClusterWorkload) -> dict[str, Any]:
    autoscaler = workload.autoscaler
    return {
        "namespace": workload.name.namespace, "kind": workload.name.kind, "name": workload.name.name,
        "owners": list(workload.owners), "scalable": workload.is_scalable, "replicas": workload.replicas,
        "running": workload.running, "ready": workload.ready, "waitingPods": workload.waiting_pods,
        "podsPerReplica": workload.pods_per_replica, "slotsPerReplica": dict(workload.slots_per_replica),
        "gpus": float(workload.gpus), "images": list(workload.images), "annotations": dict(workload.annotations),
        "autoscaler": autoscaler and {
            "kind": autoscaler.kind, "name": autoscaler.name, "least": autoscaler.least, "most": autoscaler.most,
            "metrics": list(autoscaler.metrics), "paused": autoscaler.is_paused,
        },
        "budgets": [
            {"name": each.name, "minAvailable": each.min_available, "maxUnavailable": each.max_unavailable}
            for each in workload.budgets
        ],
        "spread": [{"topology": each.topology, "maxSkew": each.max_skew} for each in workload.spread],
    }  # fmt: skip
