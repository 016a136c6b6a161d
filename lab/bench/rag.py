"""Plans a service of retrieved passages online, by a static fleet and by throughput, on the same recorded requests."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cli.arguments import positive, whole
from cli.bench.plan_arguments import Say
from cli.exits import Failed

if TYPE_CHECKING:
    from app.manifests.offline import DeclaredFiles
    from lab.rag.promises import PromiseShares
    from lab.rag.replayed import MakePlan, ReplayOrder
    from lab.rag.trace import RagRequests, RagTrace
    from simulation.fleet_truth import FleetTruth
    from solvers.planning.plan import Plan

Found = TypeVar("Found")
MODELS = ("8b", "70b")
HOURS = 2.0
SHOWN = ("planner", "service", "requests", "ttft", "tpot", "both", "costPerHour", "ratioToStatic", "factor", "seconds")
SUM = "all"
STATIC_TICK_SECONDS = 30.0  # nothing changes there
PEAK_SECONDS = 600.0  # over which the largest rate counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", required=True, help="folder that holds the published files")
    hours = f"of the recording that are played; default {HOURS:g}"
    parser.add_argument("--hours", metavar="N", type=positive, default=HOURS, help=hours)
    parser.add_argument("--from-hour", metavar="H", type=whole(0), default=0, help="the first of them; default 0")
    repeat = "how often each request is repeated; default 76, about one a second"
    parser.add_argument("--repeat", metavar="K", type=whole(1, 10_000), default=76, help=repeat)
    models = "the service of this model only; may be repeated"
    parser.add_argument("--model", choices=MODELS, action="append", help=models)
    parser.add_argument("--seed", metavar="S", type=whole(0), default=0, help="of arrivals and searches; default 0")


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each planner and service, and one for their sum."""
    from lab.data.missing_data import DataMissing
    from lab.rag import catalogue, trace
    from solvers.compiled import call_before_compiling

    call_before_compiling(lambda: say("compiling the planner's loops, this once: about a minute"))
    try:
        recorded = trace.read_trace(Path(args.data), catalogue.CONTEXT_TOKENS)
        costs = {size: catalogue.measured_costs(Path(args.data), size) for size in catalogue.sizes_of(args.model)}
    except DataMissing as missing:
        raise Failed(str(missing)) from None
    requests = _requests(args, recorded)
    rate = args.repeat * len(recorded.requests.times) / (3600 * recorded.requests.hours)
    documents = catalogue.documents(costs, recorded.requests.lengths, rate)
    return _Comparison(args, documents, requests, say).run() | {
        "hours": args.hours, "fromHour": args.from_hour, "repeat": args.repeat, "seed": args.seed,
        "declaredRate": round(rate, 4), "promise": {"ttftMs": catalogue.TTFT_MS, "tpotMs": catalogue.TPOT_MS},
        "trace": {
            "requests": len(recorded.requests.times), "hours": recorded.requests.hours,
            "knownPrefixShare": round(recorded.known_share, 4),
        },
    }  # fmt: skip


def _requests(args: argparse.Namespace, recorded: RagTrace) -> dict[str, RagRequests]:
    """Returns the requests of each service in the chosen hours, drawn for each by itself."""
    from lab.rag.catalogue import MODELS as BY_SIZE
    from lab.rag.catalogue import sizes_of

    until = args.from_hour + args.hours
    if until > recorded.requests.hours:
        raise Failed(f"--from-hour and --hours end at hour {until:g}; the recording has {recorded.requests.hours}")
    found = {}
    for size in sizes_of(args.model):
        seed = [args.seed, *size.encode()]
        repeated = recorded.requests.repeated(args.repeat, seed)
        found[BY_SIZE[size].full_name] = repeated.slice_seconds(3600.0 * args.from_hour, 3600.0 * until)
    empty = [name for name, requests in found.items() if not len(requests.times)]
    if empty:
        raise Failed(f"no request is in hours {args.from_hour} to {until:g}")
    return found


@dataclass(frozen=True, slots=True)
class _StaticFleet:
    """What a fleet that was planned once for a factor of the peak serves, and costs."""

    factor: float
    shares: PromiseShares


def _first(fleets: Sequence[_StaticFleet], wanted: float) -> _StaticFleet:
    """Returns the first fleet that serves this share within both promises; the last one if none does."""
    return next((fleet for fleet in fleets if fleet.shares.both >= wanted), fleets[-1])


def _once(plan: Plan) -> MakePlan:
    """Returns what gives the plan at the beginning, and changes nothing afterwards."""
    plans = iter([plan])
    return lambda rates: next(plans, None)


class _Comparison:
    """The four ways to run the services, on the same requests and the same truth."""

    def __init__(
        self, args: argparse.Namespace, documents: list[dict[str, Any]], requests: Mapping[str, RagRequests], say: Say
    ) -> None:
        from lab.rag.replayed import ReplayOrder
        from simulation import world as worlds
        from simulation.serving.arrivals import PlayedRequests

        self._requests, self._say = requests, say
        self._world: DeclaredFiles = worlds.read_documents(documents)
        self._truth: FleetTruth = worlds.truth_of(self._world)
        played = {name: PlayedRequests(each.times, each.inputs, each.outputs) for name, each in requests.items()}
        self._order: ReplayOrder = ReplayOrder(played, 3600 * args.hours, args.seed)

    def run(self) -> dict[str, Any]:
        """Returns the rows."""
        online, online_seconds = _timed(self._online)
        unlimited, unlimited_seconds = _timed(self._unlimited)
        tried, static_seconds = _timed(lambda: self._static(online))
        last_value, last_value_seconds = _timed(self._last_value)
        static = {name: _first(found, online[name].both) for name, found in tried.items()}
        promised = {name: _first(found, self._promised(name)) for name, found in tried.items()}
        costs = {name: found.shares.cost_per_hour for name, found in static.items()}
        rows = [
            *_rows("online", online, costs, online_seconds),
            *_rows("static", {name: found.shares for name, found in static.items()}, costs, static_seconds),
            *_rows("static promised", {name: found.shares for name, found in promised.items()}, costs),
            *_rows("last value", last_value, costs, last_value_seconds),
            *[{"planner": "unlimited", "service": name, **shares} for name, shares in unlimited.items()],
        ]
        for row in rows:
            factors = {"static": static, "static promised": promised}.get(row["planner"], {})
            if row["service"] in factors:
                row["factor"] = factors[row["service"]].factor
            if row["planner"] == "unlimited":
                row["seconds"] = unlimited_seconds
        return {"rows": rows}

    def _promised(self, name: str) -> float:
        return self._truth.problem.services[name].percentile / 100

    def _online(self) -> dict[str, PromiseShares]:
        from lab.rag.replayed import replay_online
        from simulation.own_database import own_database

        with own_database("gpuwright-bench-", self._say) as url:
            return replay_online(url, self._world, self._order, self._say)

    def _unlimited(self) -> dict[str, dict[str, Any]]:
        from lab.rag import fleets

        found = {}
        for name, requests in self._requests.items():
            service = self._truth.problem.services[name]
            assert service.tokens
            shapes = fleets.shapes(self._truth.problem, service)
            shares = fleets.unlimited(shapes, requests, service.tokens.promise)
            found[name] = {"requests": len(requests.times), "ttft": round(shares.ttft, 6),
                           "tpot": round(shares.tpot, 6), "both": round(shares.both, 6)}  # fmt: skip
        return found

    def _static(self, online: Mapping[str, PromiseShares]) -> dict[str, list[_StaticFleet]]:
        """Returns static fleets of each service, each dearer than those before.

        The last one serves at least the promised share, and as many requests as planning online, if any fleet does.
        """
        from lab.rag import fleets
        from lab.rag.replayed import replay_planned

        found: dict[str, list[_StaticFleet]] = {}
        for name, requests in self._requests.items():
            problem = self._truth.problem
            service, wanted = problem.services[name], max(online[name].both, self._promised(name))
            truth = replace(self._truth, problem=replace(problem, services={name: service}))
            order = replace(self._order, requests={name: self._order.requests[name]})
            found[name] = []
            for factor, plan in fleets.static_plans(problem, service, requests.peak_rate(PEAK_SECONDS)):
                shares = replay_planned(truth, order, _once(plan), STATIC_TICK_SECONDS)[name]
                served = f"{100 * shares.both:.2f} % at {shares.cost_per_hour:.2f} an hour"
                self._say(f"{name}, static, {factor:g} times the peak: {served}")
                found[name].append(_StaticFleet(factor, shares))
                if shares.both >= wanted:
                    break
        return found

    def _last_value(self) -> dict[str, PromiseShares]:
        from lab.rag import fleets
        from lab.rag.replayed import replay_planned

        self._say("last value by throughput")
        planner = fleets.ThroughputPlanner.choose(self._truth.problem, self._requests)
        return replay_planned(self._truth, self._order, planner.plan)


def _timed(run: Callable[[], Found]) -> tuple[Found, float]:
    """Returns what it found, and the seconds that it took."""
    began = time.monotonic()
    found = run()
    return found, round(time.monotonic() - began, 1)


def _rows(
    planner: str,
    found: Mapping[str, PromiseShares],
    static_costs: Mapping[str, float],
    seconds: float | None = None,
) -> list[dict[str, Any]]:
    """Returns a row for each service, and one for their sum."""
    rows = [
        {"planner": planner, "service": name, **shares.figures(),
         "ratioToStatic": round(shares.cost_per_hour / static_costs[name], 4)}
        for name, shares in found.items()
    ]  # fmt: skip
    requests = sum(shares.requests for shares in found.values())
    cost = sum(shares.cost_per_hour for shares in found.values())
    means = {
        what: round(sum(getattr(shares, what) * shares.requests for shares in found.values()) / max(1, requests), 6)
        for what in ("ttft", "tpot", "both")
    }
    rows.append({"planner": planner, "service": SUM, "requests": requests, **means, "costPerHour": round(cost, 4),
                 "ratioToStatic": round(cost / sum(static_costs.values()), 4), "seconds": seconds})  # fmt: skip
    return rows
