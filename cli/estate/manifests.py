"""The estate as manifests that every verb takes; comments say what a cluster does not tell."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agents.contract.gpus import Sheet, read_sheets
from app.manifests.model import API_VERSION
from app.manifests.prices import NANO
from cli.catalogue import manifest
from cli.estate.assessment import Assessment
from cli.estate.certified import summarize_campaigns, summarize_certified
from cli.estate.sharing import summarize_sharing
from cli.output import format_yaml, plain
from clusters.bill import NodePrice
from clusters.estate import OURS, ClusterWorkload, GpuNode, WorkloadName
from clusters.measured import MeasuredLoads, MeasuredSeries
from clusters.promises import WorkloadPromise
from clusters.savings.floors import HOST

HEAD = """\
What stands in the cluster, at the prices of the assessment. Missing are the Profiles of models, without which nothing
is planned (`gpuwright profile` measures them). Without --prometheus the rates of services are missing, too:
`ratePerSecond` is 1 if left out. With it, it is the highest of a quarter of an hour."""


class PricedNode(NamedTuple):
    """A node, and what it costs."""

    node: GpuNode
    price: NodePrice

    @property
    def region(self) -> str:
        return _word(self.node.region) or "default"

    @property
    def purchase(self) -> str:
        """Returns how it is paid; a node that a reservation covers is reserved, whatever its label says."""
        is_covered = self.price.is_committed and self.node.purchase in ("", "onDemand")
        return "reserved" if is_covered else self.node.purchase or "onDemand"


def write_manifests(found: Assessment, promises: Mapping[WorkloadName, WorkloadPromise]) -> str:
    """Returns the file. What is a comment of it would be refused, and says what it lacks."""
    by_product = {product: sheet for sheet in read_sheets().values() for product in sheet.products}
    priced = [PricedNode(*each) for each in zip(found.estate.nodes, found.bill.nodes, strict=True)]
    known = [each for each in priced if each.node.gpus and each.node.product in by_product]
    unknown = [each for each in priced if each.node.gpus and each.node.product not in by_product]
    names = _distinct([each.node.name for each in priced])
    documents = [*_gpu_types(known, by_product)]
    documents += [format_yaml(_node(each, names, by_product[each.node.product].name)) for each in known]
    documents += [
        _comment(_node(each, names, "unknown"), f"no sheet of the catalogue is of {each.node.product or 'its GPUs'}")
        for each in unknown
    ]
    documents += _services(found.estate.workloads, promises, found.reading.loads if found.reading else None)
    return _comment_out("\n".join((HEAD, *_levels(found)))) + "\n---\n".join(documents) + "\n"


def _levels(found: Assessment) -> Iterator[str]:
    """Yields what could be saved, a sentence for each level that is not certain by the cluster's data alone."""
    if found.sharing:
        yield summarize_sharing(found.bill, found.sharing)
    if found.certified:
        yield summarize_certified(found.bill, found.certified)
    if found.campaigns:
        yield summarize_campaigns(found.bill, found.campaigns)


def _gpu_types(priced: Sequence[PricedNode], by_product: Mapping[str, Sheet]) -> Iterator[str]:
    """Yields each GPU type at what its GPUs cost here, by region and purchase; the mean where machines differ."""
    groups: dict[str, list[PricedNode]] = defaultdict(list)
    for each in priced:
        groups[by_product[each.node.product].name].append(each)
    for name in sorted(groups):
        members = groups[name]
        sheet = by_product[members[0].node.product]
        amounts: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for each in members:
            if each.price.nano_per_hour is not None:
                amounts[each.region, each.purchase].append((each.price.nano_per_hour, each.node.gpus))
        prices = {
            place: sum(nano for nano, _ in paid) / (NANO * sum(gpus for _, gpus in paid))
            for place, paid in sorted(amounts.items())
            if any(nano for nano, _ in paid)  # a manifest's price is over 0
        }
        document = manifest(sheet, max(prices.values(), default=None))
        if prices:
            document["spec"]["prices"] = [
                {"region": region, "purchase": purchase, "perHour": price}
                for (region, purchase), price in prices.items()
            ]
        unpriced = sum(each.price.nano_per_hour is None for each in members)
        note = _comment_out(f"{unpriced} of its nodes have no known price: theirs is pricePerHour") if unpriced else ""
        yield note + format_yaml(document)


def _node(each: PricedNode, names: Mapping[str, str], gpu_type: str) -> dict[str, Any]:
    node = each.node
    spec = {
        "gpuType": gpu_type,
        "gpus": node.gpus,
        "cpuCores": node.cpu_cores or 0,
        "memoryGib": node.host_memory_gib or 0,
        "region": each.region,
        "purchase": each.purchase,
    }
    return {"apiVersion": API_VERSION, "kind": "Node", "metadata": {"name": names[node.name]}, "spec": spec}


def _services(
    workloads: Iterable[ClusterWorkload],
    promises: Mapping[WorkloadName, WorkloadPromise],
    loads: MeasuredLoads | None,
) -> Iterator[str]:
    """Yields the service of each workload that is scaled, and its model; a comment where no promise is known."""
    models: set[str] = set()
    scaled = [workload for workload in workloads if workload.is_scalable]
    taken: set[tuple[str, str]] = set()
    for workload in scaled:
        promise = promises[workload.name]
        model, slo = promise.model, promise.slo
        document = _service(workload, model, slo)
        heading = document["metadata"]
        if (heading["tenant"], heading["name"]) in taken:  # of another kind with the same name
            heading["name"] = _name(f"{heading['name'][:40]}-{workload.name.kind}")
        taken.add((heading["tenant"], heading["name"]))
        rates = [] if loads is None else [rate for rate in _rates(loads, workload.name) if rate]
        if rates:
            document["spec"]["ratePerSecond"] = max(rates)
        missing = [f"{OURS}model"] if model != _name(model) else []
        missing += [f"{OURS}slo-p99-ms"] if not slo else []
        if missing:
            yield _comment(document, f"annotate {workload.name} with {' and '.join(missing)}")
            continue
        if "ttftMs" in slo:
            lengths = {"input": {"mean": "TOKENS", "p95": "TOKENS"}, "output": {"mean": "TOKENS", "p95": "TOKENS"}}
            document["spec"]["tokens"] = lengths
            yield _comment(
                document, f"the lengths of requests of {workload.name} are missing, and its Model with `llm`"
            )
            continue
        if model not in models:
            models.add(model)
            variant = _word(promise.variant) or "served"
            spec = {"variants": [{"name": variant, "accuracy": 1}]}
            declared = {"apiVersion": API_VERSION, "kind": "Model", "metadata": {"name": model}, "spec": spec}
            yield _comment_out("its accuracy matters only beside other variants") + format_yaml(declared)
        yield format_yaml(document)


def _rates(loads: MeasuredLoads, name: WorkloadName) -> MeasuredSeries:
    found = loads.workloads.get(name)
    return found.rates_per_second if found else ()


def _service(workload: ClusterWorkload, model: str, slo: Mapping[str, float]) -> dict[str, Any]:
    spec: dict[str, Any] = {"model": model or "MODEL", "slo": dict(slo) or {"latencyMs": "MS", "percentile": 99}}
    if workload.autoscaler and workload.autoscaler.least > 1:
        spec["minInstances"] = workload.autoscaler.least
    if any(rule.topology == HOST for rule in workload.spread):
        spec["availability"] = {"spread": "node"}
    metadata = {"name": _name(workload.name.name), "tenant": _name(workload.name.namespace)}
    return {"apiVersion": API_VERSION, "kind": "Service", "metadata": metadata, "spec": spec}


def _distinct(names: Sequence[str]) -> dict[str, str]:
    """Returns a name that manifests allow for each node: dots become dashes, and no two are alike."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        base, number = _name(name), 1
        candidate = base
        while candidate in taken:
            number += 1
            candidate = f"{base[: 62 - len(str(number))]}-{number}"
        taken.add(candidate)
        found[name] = candidate
    return found


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", text.lower())[:63].strip("-") or "unnamed"


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:63].strip("-_.")


def _comment(document: Mapping[str, Any], reason: str) -> str:
    return _comment_out(f"{reason}:\n{format_yaml(document)}").rstrip("\n")


def _comment_out(text: str) -> str:
    return "".join(f"# {plain(line)}\n" for line in text.split("\n"))
