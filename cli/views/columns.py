"""The columns of `get` for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from app.manifests.drafts import describe_draft
from app.manifests.model import Kind
from cli.currency import head_amounts
from cli.output import age, ahead, gib, labels, number, spell_copies

Object = Mapping[str, Any]


class TableColumn(NamedTuple):
    """A heading and how its cell follows from an object; `wide` columns come with `-o wide` only."""

    heading: str
    cell: Callable[[Object], str]
    wide: bool = False
    is_money: bool = False


def _rate_reclaims(item: Object) -> str:
    """Returns how often an hour a pool's node is taken back, as learned; empty for pools that are not spot."""
    reclaims = item.get("status", {}).get("reclaims")
    return number(reclaims["ratePerHour"]) if reclaims else ""


def spec(path: str, show: Callable[[object], str] = number, default: str = "") -> Callable[[Object], str]:
    """Returns a cell that shows a field of the spec; `default` is what the server assumes where it is absent."""

    def cell(item: Object) -> str:
        value: Any = item.get("spec", {})
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return default if value is None else show(value)

    return cell


def condition(kind: str) -> Callable[[Object], str]:
    """Returns a cell that shows the status of a condition."""

    def cell(item: Object) -> str:
        for entry in item.get("status", {}).get("conditions", []):
            if entry.get("type") == kind:
                return str(entry.get("status", ""))
        return ""

    return cell


def read_reclaimed(item: Object) -> str:
    """Returns when the node's cloud takes it back."""
    deadline = item.get("status", {}).get("reclaimAt")
    return ahead(str(deadline)) if deadline else ""


def read_fit(item: Object) -> str:
    """Returns the error of a Profile that is a draft."""
    return describe_draft(item.get("spec", {}))


def kept_off(item: Object) -> str:
    """Returns what keeps plans off the node or some of its GPUs: cordon, drain, or a campaign that measures."""
    found = item.get("cordons") or ()
    return ", ".join(
        str(cordon["mode"]) if cordon.get("gpu") is None else f"{cordon['mode']} of GPU {cordon['gpu']}"
        for cordon in found
        if cordon["mode"] != "reclaim"  # has a column of its own
    )


def join_values(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def keys(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, dict) else ""


def names(value: object) -> str:
    return ",".join(str(entry.get("name")) for entry in value) if isinstance(value, list) else ""


def count(value: object) -> str:
    return str(len(value)) if isinstance(value, list | dict) else ""


def first_to_last(value: object) -> str:
    """Returns the range of a list of numbers, or of the keys of a map that are numbers."""
    given = list(value) if isinstance(value, list | dict) else []
    numbers = sorted(float(entry) for entry in given)
    if not numbers:
        return ""
    return number(numbers[0]) if len(numbers) == 1 else f"{number(numbers[0])}..{number(numbers[-1])}"


def fastest(value: object) -> str:
    """Returns the lowest latency of a map batch -> SM% -> ms."""
    rows = value.values() if isinstance(value, dict) else []
    cells = [mean(ms) for row in rows if isinstance(row, dict) for ms in row.values()]
    return f"{number(min(cells))} ms" if cells else ""


def mean(value: Any) -> Any:
    """Returns the mean of an uncertain value, and any other value as it is."""
    return value.get("mean") if isinstance(value, dict) else value


def ms(value: object) -> str:
    return f"{number(value)} ms"


def promise(slo: object) -> str:
    """Returns the latency of an SLO; for an SLO of tokens, the times of the first token and of each further token."""
    if not isinstance(slo, Mapping):
        return ""
    if "latencyMs" in slo:
        return ms(slo["latencyMs"])
    return f"{ms(slo.get('ttftMs'))}, {ms(slo.get('tpotMs'))} a token"


def watts(value: object) -> str:
    """Returns one number, or the numbers of a list, with their unit."""
    return f"{','.join(map(number, value)) if isinstance(value, list) else number(value)} W"


def steps_or_requests(item: Object) -> str:
    given = item.get("spec", {})
    return number(given.get("steps") or given.get("requestCount") or given.get("requests"))


def status_of(field: str) -> Callable[[Object], str]:
    """Returns a column of a field of the status; empty where it has none."""
    return lambda item: str((item.get("status") or {}).get(field, ""))


def spell_routed(item: Object) -> str:
    """Returns how many of a service's planned copies get requests."""
    copies = (item.get("status") or {}).get("copies")
    if not isinstance(copies, Mapping):
        return ""
    return spell_copies(copies.get("planned", 0), copies.get("routed", 0), copies.get("silent", 0))


def job_progress(status: object) -> str:
    """Returns how far a job is, and in brackets how much of its work is not saved."""
    if not isinstance(status, dict) or not isinstance(status.get("progress"), int | float):
        return ""
    unsaved = status.get("stepsUnsaved") or status.get("requestsUnsaved") or 0
    return f"{status['progress']:.0%}" + (f" ({number(unsaved)} unsaved)" if unsaved else "")


def read_repeated(status: object) -> float:
    """Returns the work that a job had to do once more."""
    known = status if isinstance(status, dict) else {}
    found = known.get("stepsRepeated") or known.get("requestsRepeated") or 0.0
    return float(found) if isinstance(found, int | float) else 0.0


def accuracy(value: object) -> str:
    """Returns the best accuracy among the variants."""
    found = [entry.get("accuracy") for entry in value] if isinstance(value, list) else []
    best = [entry for entry in found if isinstance(entry, int | float)]
    return f"{max(best):.4g}" if best else ""


NAME = TableColumn("NAME", lambda item: str(item["metadata"]["name"]))
TENANT = TableColumn("TENANT", lambda item: str(item["metadata"].get("tenant", "")))
AGE = TableColumn("AGE", lambda item: age(item["metadata"].get("createdAt", "")))
LABELS = TableColumn("LABELS", lambda item: labels(item["metadata"].get("labels")), wide=True)
GENERATION = TableColumn("GENERATION", lambda item: number(item["metadata"].get("generation")), wide=True)

CORDON = TableColumn("CORDON", kept_off)  # of nodes, where the cordons were read with them

BETWEEN: Mapping[Kind, tuple[TableColumn, ...]] = {
    Kind.SERVICE: (
        TENANT,
        TableColumn("MODEL", spec("model")),
        TableColumn("SLO", spec("slo", promise)),
        TableColumn("P", spec("slo.percentile")),
        TableColumn("RATE", spec("ratePerSecond", lambda value: f"{number(value)}/s")),
        TableColumn("PRIORITY", spec("priority", default="100")),
        TableColumn("ATTAINABLE", condition("SloAttainable")),
        TableColumn("PLANNED", condition("Planned")),
        TableColumn("COPIES", spell_routed),
        TableColumn("IN SLO", condition("SloAttained")),
        TableColumn("VARIANTS", spec("variants", join_values), wide=True),
        TableColumn("ACCURACY", spec("minAccuracy"), wide=True),
        TableColumn("GPUTYPES", spec("gpuTypes", join_values, default="any"), wide=True),
        TableColumn("MIN", spec("minInstances", default="1"), wide=True),
        TableColumn("SPREAD", spec("availability.spread", default="gpu"), wide=True),
        TableColumn("SURVIVES", spec("availability.surviveNodes", default="0"), wide=True),
        TableColumn("SPOT", spec("availability.maxSpotShare", default="1"), wide=True),
        TableColumn("ISOLATION", spec("isolation", default="shared"), wide=True),
    ),
    Kind.JOB: (
        TENANT,
        TableColumn("TYPE", spec("type")),
        TableColumn("WORK", steps_or_requests),
        TableColumn("PHASE", status_of("phase")),
        TableColumn("DONE", lambda item: job_progress(item.get("status"))),
        TableColumn("DEADLINE", spec("deadline", default="none")),
        TableColumn("PRIORITY", spec("priority", default="100")),
        TableColumn("EXIT CODE", status_of("exitCode"), wide=True),
        TableColumn("REPEATED", lambda item: number(read_repeated(item.get("status"))), wide=True),
        TableColumn("PREEMPTIONS", status_of("preemptions"), wide=True),
        TableColumn("RESTARTS", status_of("restarts"), wide=True),
        TableColumn("PREEMPTIBLE", spec("preemptible", lambda value: str(value).lower()), wide=True),
        TableColumn("GPUTYPES", spec("profiles", keys), wide=True),
    ),
    Kind.NODE: (
        TableColumn("TYPE", spec("gpuType")),
        TableColumn("GPUS", spec("gpus")),
        TableColumn("REGION", spec("region", default="default")),
        TableColumn("PURCHASE", spec("purchase", default="onDemand")),
        TableColumn("REPORTING", condition("Reporting")),
        TableColumn("HEALTHY", condition("GpusHealthy")),
        TableColumn("RECLAIM", read_reclaimed),
        TableColumn("MISMATCH", condition("InventoryMismatch"), wide=True),
        TableColumn("CPU", spec("cpuCores"), wide=True),
        TableColumn("MEMORY", spec("memoryGib", gib), wide=True),
        TableColumn("CAP", spec("capW", watts), wide=True),
        TableColumn("TEMPLATES", spec("templates", join_values, default="all"), wide=True),
    ),
    Kind.POOL: (
        TableColumn("TYPE", spec("gpuType")),
        TableColumn("GPUS", spec("gpusPerNode")),
        TableColumn("MIN", spec("min", default="0")),
        TableColumn("MAX", spec("max")),
        TableColumn("NODES", lambda item: number(item.get("status", {}).get("rented", 0))),
        TableColumn("RENTING", condition("Renting")),
        TableColumn("REGION", spec("region", default="default"), wide=True),
        TableColumn("PURCHASE", spec("purchase", default="onDemand")),
        TableColumn("RECLAIMS/H", _rate_reclaims, wide=True),
        TableColumn("HOOK", spec("hook"), wide=True),
    ),
    Kind.GPU_TYPE: (
        TableColumn("MEMORY", spec("memoryGib", gib)),
        TableColumn("SMS", spec("smCount")),
        TableColumn("PRICE/H", spec("pricePerHour"), is_money=True),
        TableColumn("MAX", spec("maxW", watts)),
        TableColumn("IDLE", spec("idleW", watts), wide=True),
        TableColumn("MHZ", spec("clocksMhz", first_to_last), wide=True),
        TableColumn("PRICES", spec("prices", count), wide=True),
    ),
    Kind.MODEL: (
        TableColumn("VARIANTS", spec("variants", names)),
        TableColumn("ACCURACY", spec("variants", accuracy)),
        TableColumn("TENANTS", spec("tenants", join_values, default="all")),
    ),
    Kind.PROFILE: (
        TableColumn("MODEL", spec("model")),
        TableColumn("VARIANT", spec("variant")),
        TableColumn("GPUTYPE", spec("gpuType")),
        TableColumn("BATCH", spec("latencyMs", first_to_last)),
        TableColumn("FASTEST", spec("latencyMs", fastest)),
        TableColumn("FIT", read_fit),
        TableColumn("START", spec("startSeconds", lambda value: f"{number(mean(value))} s", default="20 s"), wide=True),
    ),
    Kind.POLICY: (
        TableColumn("MODE", spec("mode", default="advisory")),
        TableColumn("PRICING", spec("pricing", default="node")),
        TableColumn("UTILIZATION", spec("utilization", default="0.8")),
        TableColumn("CYCLE", spec("cycleSeconds", lambda value: f"{number(value)} s", default="30 s")),
        TableColumn("HANDOVER", spec("handover", default="overlap"), wide=True),
    ),
    Kind.TENANT: (
        TableColumn("GUARANTEE", spec("guarantee.gpus")),
        TableColumn("LIMIT", spec("limit.gpus")),
        TableColumn("PRICE/H", spec("limit.pricePerHour"), is_money=True),
        TableColumn("BUDGET", spec("budget.perMonth"), is_money=True),
        TableColumn("OVERBUDGET", spec("overBudget", default="alarm")),
    ),
}


def columns(kind: Kind, *, wide: bool) -> list[TableColumn]:
    """Returns the columns of a table of `kind`."""
    every = (NAME, *BETWEEN[kind], AGE, GENERATION, LABELS)
    return [column for column in every if wide or not column.wide]


def list_headings(shown: Sequence[TableColumn], currency: str) -> list[str]:
    """Returns the headings of these columns, those of money with its currency."""
    return [head_amounts(column.heading, currency) if column.is_money else column.heading for column in shown]
