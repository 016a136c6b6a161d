"""Advice for workloads on language models: servers that do both against prefill and decode apart, by their profiles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.manifests.prices import NANO
from clusters.bill import Bill
from clusters.certified.posing import KnownProfiles, find_variant
from clusters.estate import Estate, WorkloadName
from clusters.measured import MeasuredLoads, MeasuredSeries, WorkloadSeries
from clusters.promises import WorkloadPromise
from clusters.sharing.demand import peak_rate
from solvers.planning.language import TokenLengths, TokenPromise, TokenService
from solvers.planning.problem import Policy, Problem, Service
from solvers.pools.links import ServerLink
from solvers.pools.size import ServerMarket, ServiceSize, size_service

P95_TIMES = 2.5  # the mean length: means are measured, and percentiles are not

# How many nodes of so many GPUs there are, by type -> links
JoinGpus = Callable[[Mapping[str, Counter[int]]], Sequence[ServerLink]]


@dataclass(frozen=True, slots=True)
class LanguageAdvice:
    """What would serve a workload at its peak, or why nothing is advised."""

    workload: WorkloadName
    size: ServiceSize | None
    lack: str = ""


def advise_language_models(
    estate: Estate, bill: Bill, measured: MeasuredLoads, promises: Mapping[WorkloadName, WorkloadPromise],
    known: KnownProfiles, join_gpus: JoinGpus, say: Callable[[str], None],
) -> Iterator[LanguageAdvice]:  # fmt: skip
    """Yields advice for each workload that promises times of tokens, each as if it had all GPUs of the cluster."""
    market = find_market(estate, bill, known, join_gpus)
    for name in (each.name for each in estate.workloads):
        promise = promises.get(name)
        if promise is None or "ttftMs" not in promise.slo:
            continue
        found = _pose_service(name, promise, measured.workloads.get(name), known)
        if isinstance(found, str):
            yield LanguageAdvice(name, None, found)
        elif not market.most_gpus:
            yield LanguageAdvice(name, None, "no GPU type of the cluster has both a price and a Profile")
        else:
            profiles = {profile.key: profile for profile in known.profiles}
            problem = Problem(known.gpu_types, {}, known.models, profiles, {found.name: found}, policy=Policy())
            say(f"{name}: servers for {found.rate_per_second:g} requests a second, together and apart")
            yield LanguageAdvice(name, size_service(problem, found, market))


def find_market(estate: Estate, bill: Bill, known: KnownProfiles, join_gpus: JoinGpus) -> ServerMarket:
    """Returns the GPUs of the cluster that profiles know, each type at the mean that is paid for one of it."""
    nodes: dict[str, Counter[int]] = defaultdict(Counter)
    bills: Counter[str] = Counter()
    paid = {each.node: each.nano_per_hour for each in bill.nodes}
    for node in estate.nodes:
        name, nano = known.types_of_products.get(node.product, ""), paid.get(node.name)
        if name in known.gpu_types and node.gpus and nano:
            nodes[name][node.gpus] += 1
            bills[name] += nano
    gpus = {name: sum(sizes.elements()) for name, sizes in nodes.items()}
    prices = {name: bills[name] / NANO / count for name, count in gpus.items()}
    return ServerMarket(gpus, prices, join_gpus(nodes), nodes)


def _pose_service(
    name: WorkloadName, promise: WorkloadPromise, series: WorkloadSeries | None, known: KnownProfiles
) -> Service | str:
    """Returns the service, or what is missing for it."""
    if not promise.model or promise.model not in known.models:
        return f"no Profile is of model {promise.model}" if promise.model else "no annotation names its model"
    variant = find_variant(promise, known)
    size = next((each.llm for each in known.models[promise.model] if each.name == variant), None)
    if size is None:
        return f"no Model with `llm` says how large {promise.model} is"
    rate = peak_rate(series) if series else 0.0
    tokens = [_find_longest(each) for each in (series.input_tokens, series.output_tokens)] if series else [0.0]
    if not rate or not all(tokens):
        return "its rate, or the lengths of its requests, were not measured"
    inputs, outputs = (max(1.0, min(each, size.context_tokens / 2)) for each in tokens)
    lengths = TokenLengths(inputs, P95_TIMES * inputs, outputs, P95_TIMES * outputs, context_tokens=size.context_tokens)
    slo = promise.slo
    kept = TokenPromise(slo["ttftMs"], slo["tpotMs"], slo["percentile"])
    return Service(
        str(name), name.namespace, promise.model, (variant,), slo["ttftMs"], slo["percentile"], rate,
        tokens=TokenService(kept, lengths),
    )  # fmt: skip


def _find_longest(series: MeasuredSeries) -> float:
    """Returns the largest mean of a step."""
    return max((value for value in series if value), default=0.0)
