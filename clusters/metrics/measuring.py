"""Reads what Prometheus has of an estate: loads of workloads, use of GPUs, prices; quantiles are taken on its side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from app.manifests.prices import HIGHEST, NANO
from clusters.estate import MOST_REPLICAS, Estate, UnknownFigure, WorkloadName
from clusters.gpu_use import MeasuredGpu, WorkloadUse
from clusters.measured import USUAL_PERCENTILE, MeasuredLoads, MeasuredSeries, WorkloadSeries
from clusters.metrics.asking import SUBJECT, MetricsReader
from clusters.metrics.finding_servers import FindServers, TellUnread, find_servers, name_renamed
from clusters.metrics.gpu_metrics import read_gpus, uses_of
from clusters.metrics.latency_steps import read_latency, read_quantile
from clusters.metrics.passing_gpus import read_passing_gpus
from clusters.metrics.prometheus import MetricSample, MetricsSource, PrometheusFailed
from clusters.metrics.renamed_labels import check_renamed, match_own
from clusters.metrics.server_metrics import MetricsOfWorkload
from clusters.reading.gpu_nodes import GPU_RESOURCE_LABEL

STEP_SECONDS = 900
WINDOW = f"{STEP_SECONDS}s"
PEAK_WINDOW, PEAK_STEP = "2m", "1m"
MOST_SKEW_SECONDS = 300
MOST_AGE_SECONDS = 180  # of the newest sample of a load that counts as now
WHOLE_SHARE = 0.9  # of the steps
QUERIES_AT_ONCE = 4  # a Prometheus of one core takes as long, and one of many is not overrun


@dataclass(frozen=True, slots=True)
class PrometheusReading:
    """All that Prometheus has of an estate, and what it has not."""

    loads: MeasuredLoads
    gpus: tuple[MeasuredGpu, ...]
    uses: Mapping[WorkloadName, WorkloadUse]
    node_prices: Mapping[str, int]  # OpenCost's, in billionths an hour
    unknown: tuple[UnknownFigure, ...]


def measure(
    estate: Estate, source: MetricsSource, seconds: float, here: float, percentiles: Mapping[WorkloadName, float]
) -> PrometheusReading:
    """Returns what the source has of the last `seconds`; PrometheusFailed where it does not answer at all.

    `here` is the time of this machine, which is compared with the source's; `percentiles` are those of promises.
    """
    now = source.now()
    unknown: list[UnknownFigure] = []
    if abs(now - here) > MOST_SKEW_SECONDS:
        reason = f"its clock is {_span(now - here)} {'ahead of' if now > here else 'behind'} this machine's"
        unknown.append(UnknownFigure(SUBJECT, reason, "times are counted back from its clock; set one of the two"))
    ends = _step_ends(now - now % STEP_SECONDS, seconds)  # the last step is over
    reader = MetricsReader(source, ends, now, seconds)
    servers = _find_servers(estate, reader, unknown)

    def tell(name: WorkloadName, failed: PrometheusFailed) -> None:
        reader.tell(f"load of {name}", failed)

    with ThreadPoolExecutor(QUERIES_AT_ONCE) as threads:  # those that take longest first
        of_gpus = threads.submit(_read_gpus, estate, reader)
        passing = threads.submit(
            _read_by_node, reader, "GPUs that jobs and people held at other times",
            lambda: read_passing_gpus(estate, reader, WINDOW, PEAK_STEP),
        )  # fmt: skip
        standing = threads.submit(
            _read_by_node, reader, "how long each node stood",
            lambda: read_standing_nodes(reader, WINDOW, PEAK_STEP),
        )  # fmt: skip
        of_nodes = threads.submit(_read_node_prices, reader)
        found = _read_loads(estate, reader, percentiles, servers, tell, threads)
    (gpus, problems), (prices, refused) = of_gpus.result(), of_nodes.result()
    unknown += [*_lacking(found, len(reader.ends)), *refused]
    loads = MeasuredLoads(
        round(ends[0]) - STEP_SECONDS, STEP_SECONDS, len(ends), SUBJECT, found, passing.result(), standing.result()
    )
    return PrometheusReading(loads, gpus, uses_of(estate, gpus), prices, (*unknown, *reader.failures, *problems))


def measure_loads(
    estate: Estate, source: MetricsSource, seconds: float, percentiles: Mapping[WorkloadName, float],
    find: FindServers = find_servers,
) -> MeasuredLoads:  # fmt: skip
    """Returns the loads of the last `seconds` until this moment, for changes of replicas.

    What could not be read is not a load of nothing: the workloads whose queries have no answer are `unread`.
    PrometheusFailed where that are all of them. Who wrote only labels that Prometheus renamed has no load here.
    """
    now = source.now()
    ends = _step_ends(now, seconds)
    reader = MetricsReader(source, ends, now, seconds)
    unread: dict[WorkloadName, PrometheusFailed] = {}
    servers = find(estate, reader, unread.__setitem__)
    trusted = {name: each for name, each in servers.items() if not each.is_renamed}
    with ThreadPoolExecutor(QUERIES_AT_ONCE) as threads:
        found = _read_loads(estate, reader, percentiles, trusted, unread.__setitem__, threads)
    current = set()
    for name in list(found):
        try:
            if any(sample.value >= now - MOST_AGE_SECONDS for sample in reader.read_samples(trusted[name].sampled_at)):
                current.add(name)
        except PrometheusFailed as failed:
            unread[name] = failed
            del found[name]
    if reader.end:
        raise reader.end
    reasons = {name: str(failed) for name, failed in unread.items()}
    start = round(ends[0]) - STEP_SECONDS
    return MeasuredLoads(start, STEP_SECONDS, len(ends), SUBJECT, found, current=frozenset(current), unread=reasons)


def _read_by_node(
    reader: MetricsReader, subject: str, read: Callable[[], dict[str, MeasuredSeries]]
) -> dict[str, MeasuredSeries]:
    try:
        return read()
    except PrometheusFailed as failed:
        reader.tell(subject, failed)
        return {}


def _find_servers(
    estate: Estate, reader: MetricsReader, unknown: list[UnknownFigure]
) -> dict[WorkloadName, MetricsOfWorkload]:
    """Returns whose counters there are, and adds sentences on those that are missing."""
    try:
        servers = find_servers(estate, reader)
    except PrometheusFailed as failed:
        reader.tell("loads of workloads", failed)
        return {}
    reason = "Prometheus has no counters of vLLM, SGLang, TGI, Triton, gpuwright-serve or Istio of its pods"
    unknown += [
        UnknownFigure(f"workload {each.name}", reason, "let Prometheus scrape its servers")
        for each in estate.workloads
        if each.is_scalable and each.gpus and each.name not in servers
    ]
    unknown += name_renamed(servers)
    return servers


def _read_loads(
    estate: Estate,
    reader: MetricsReader,
    percentiles: Mapping[WorkloadName, float],
    servers: Mapping[WorkloadName, MetricsOfWorkload],
    tell: TellUnread,
    threads: ThreadPoolExecutor,
) -> dict[WorkloadName, WorkloadSeries]:
    """Returns the load of each workload that can be scaled, as far as there are counters of it; tells of failures.

    A load is read whole or not at all: without its peaks or its lengths it would promise too much.
    """

    def read(name: WorkloadName) -> WorkloadSeries | None:
        try:
            return _read_load(reader, servers[name], percentiles.get(name, USUAL_PERCENTILE))
        except PrometheusFailed as failed:
            tell(name, failed)
            return None

    names = [each.name for each in estate.workloads if each.is_scalable and each.name in servers]
    return {name: load for name, load in zip(names, threads.map(read, names), strict=True) if load}


def _read_load(reader: MetricsReader, series: MetricsOfWorkload, percentile: float) -> WorkloadSeries:
    metrics, rates = series.metrics, reader.read_steps(series.rate(WINDOW))
    ready = reader.read_steps(f"max_over_time(({series.replicas})[{WINDOW}:{PEAK_STEP}])")
    most = max((value for value in ready if value is not None), default=0.0)
    if most > MOST_REPLICAS:
        raise PrometheusFailed(f"it says that it had {most:g} replicas, which is above {MOST_REPLICAS:,}")
    return WorkloadSeries(
        rates_per_second=rates,
        ready_replicas=ready,
        fewest_replicas=reader.read_steps(f"min_over_time(({series.replicas})[{WINDOW}:{PEAK_STEP}])"),
        latency_ms=read_latency(reader, series, percentile, WINDOW),
        input_tokens=_read_mean(reader, series, metrics.input_tokens, rates),
        output_tokens=_read_mean(reader, series, metrics.output_tokens, rates),
        server=metrics.server,
        peaks_per_second=reader.read_steps(f"max_over_time(({series.rate(PEAK_WINDOW)})[{WINDOW}:{PEAK_STEP}])"),
        first_token_ms=read_quantile(reader, series, percentile, (metrics.first_token,), WINDOW),
        token_ms=read_quantile(reader, series, percentile, metrics.token, WINDOW),
    )


def _read_mean(reader: MetricsReader, series: MetricsOfWorkload, counter: str, rates: MeasuredSeries) -> MeasuredSeries:
    """Returns how much of this each request had; nothing where nobody counts it."""
    amounts = reader.read_steps(series.amount(counter, WINDOW)) if counter else ()
    pairs = zip(amounts, rates, strict=True) if amounts and rates else ()
    means = tuple(None if amount is None or not rate else amount / rate for amount, rate in pairs)
    return means if any(mean is not None for mean in means) else ()


def _read_gpus(estate: Estate, reader: MetricsReader) -> tuple[tuple[MeasuredGpu, ...], list[UnknownFigure]]:
    """Returns what GPUs did. No metric counts as missing where a query had no answer, which has a sentence already."""
    is_whole = True

    def ask(query: str) -> list[MetricSample]:
        nonlocal is_whole
        found = reader.find_samples(query)
        is_whole = is_whole and found is not None
        return found or []

    gpus, problems = read_gpus(estate, ask, reader.span)
    return gpus, problems if is_whole else []


def _read_node_prices(reader: MetricsReader) -> tuple[dict[str, int], list[UnknownFigure]]:
    """Returns OpenCost's price of each node, in billionths an hour, and sentences on what is no price."""
    found: dict[str, int] = {}
    unknown: list[UnknownFigure] = []
    prices = reader.find_samples(f"avg by (node) (node_total_hourly_cost{{{match_own('node')}}})")
    if prices == []:
        try:
            check_renamed(reader, "node_total_hourly_cost", "OpenCost", "node")
        except PrometheusFailed as failed:
            reader.tell("prices of nodes", failed)
    for labels, value in prices or ():
        node = labels.get("node", "")
        if node and 0 < value <= HIGHEST:
            found[node] = round(value * NANO)
        elif node and value:
            reason = f"OpenCost's price of {value:g} an hour is outside 0..{HIGHEST:g}"
            unknown.append(UnknownFigure(f"node {node}", reason, "name its price in the file of --prices"))
    return found, unknown


def _step_ends(last: float, seconds: float) -> list[float]:
    """Returns the ends of steps until the last end."""
    count = max(1, int(seconds // STEP_SECONDS))
    return [last - STEP_SECONDS * back for back in reversed(range(count))]


def _lacking(loads: Mapping[WorkloadName, WorkloadSeries], steps: int) -> list[UnknownFigure]:
    """Returns sentences on loads that are there in parts: without times, or not for all of the time."""
    found = []
    for name, load in loads.items():
        subject = f"workload {name}"
        known = sum(value is not None for value in load.rates_per_second)
        late = next((back for back, value in enumerate(reversed(load.rates_per_second)) if value is not None), 0)
        if late:
            reason = f"Prometheus has nothing of its last {_span(late * STEP_SECONDS)}"
            found.append(UnknownFigure(subject, reason, "see whether its pods are still scraped"))
        if known < WHOLE_SHARE * steps:
            reason = f"Prometheus has its load for {_span(known * STEP_SECONDS)} of {_span(steps * STEP_SECONDS)}"
            found.append(UnknownFigure(subject, reason, "what is shown is of that time alone"))
        if any(load.rates_per_second) and not load.latency_ms and not load.first_token_ms:
            remedy = "let Prometheus scrape its latencies"
            if load.server == "triton":
                remedy = "run Triton with --metrics-config summary_latencies=true"
            found.append(UnknownFigure(subject, f"no metric of {load.server} says which latency it keeps", remedy))
    return found


def _span(seconds: float) -> str:
    hours = abs(seconds) / 3600
    if hours < 1:
        return f"{hours * 60:.0f} minutes"
    return f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} hours"


SEEN = f"kube_node_status_capacity{{{match_own('node')}}}"  # of nodes without GPUs, too
CAPACITY = f'kube_node_status_capacity{{resource=~"{GPU_RESOURCE_LABEL}",{match_own("node")}}}'


def read_standing_nodes(reader: MetricsReader, window: str, every: str) -> dict[str, MeasuredSeries]:
    """Returns of each node for how much of each step it stood; a step without kube-state-metrics is a gap.

    PrometheusFailed if there is no answer.
    """
    found = reader.read_by_label(f"count_over_time((max by (node) ({CAPACITY}) > 0)[{window}:{every}])", "node")
    seen = reader.read_steps(f"count_over_time((count({SEEN}))[{window}:{every}])")  # how often anything was seen
    if not seen or seen[-1] is None:
        check_renamed(reader, "kube_node_status_capacity", "kube-state-metrics", "node")
    moments = [round(end) for end in reader.ends]
    return {
        node: tuple(
            min(1.0, values.get(moment, 0.0) / times) if times else None
            for moment, times in zip(moments, seen, strict=True)
        )
        for node, values in found.items()
        if node and seen
    }
