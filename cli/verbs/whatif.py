"""`gpuwright what-if`: what a change would cost, move and do to each service, without making it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.control.answer.whatif.move_points import find_few, list_distinct
from app.control.answer.whatif.wire import MovePointWire, RiskPriceWire
from app.manifests.model import Kind
from cli import exits, sources
from cli.arguments import add_connection_arguments, add_file_arguments, completes, positive, whole
from cli.currency import head_amounts, name_currency
from cli.exits import Failed
from cli.output import OutputTable, number, plain, print_data, say
from cli.patience import waiting
from cli.planner_argument import add_compared_argument
from cli.talk.client import FILES_MEDIA, ApiClient
from cli.talk.contexts import resolve
from cli.talk.selection import find
from cli.views.division import list_division, write_manifests
from solvers.planning.plan_fields import spell_changes

EPILOG = """\
The present world is planned twice, with the same effort: as it is, and as it would be. Nothing is stored.

Examples:
  gpuwright what-if --add-gpu a100-sxm4-80gb=4
  gpuwright what-if --slo shop/search=80ms --rate shop/ads=x2
  gpuwright what-if --lose-node gpu-7
  gpuwright what-if --risk 0.01                 of the Policy; --risk shop/search=0.2 of a service
  gpuwright what-if --least-change              what moving 0, 3, 10 or all services would save now
  gpuwright what-if -f changes.yaml             manifests, as apply takes them
  gpuwright what-if --planner hetsev            another planner for the same fleet
  gpuwright what-if --price-slos                what each promise costs an hour, and what is paid now
  gpuwright what-if --price-slo shop/search
  gpuwright what-if --risk-prices prices.svg    what the fleet costs at six risks, and a picture of it
  gpuwright what-if --objective                 plans between money, energy, carbon and accuracy
  gpuwright what-if --divide divided            which GPUs to divide into MIG devices; manifests go into a folder
"""
SERVICES_SHOWN = 30
SMALL = 1e-6  # of an amount
LONGEST_SECONDS = 40  # the server takes no more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file_arguments(parser, required=False)
    several = {"action": "append", "default": []}
    parser.add_argument("--add-gpu", metavar="TYPE=N", help="more GPUs of a type", **several)  # type: ignore[arg-type]
    parser.add_argument("--lose-node", metavar="NODE", help="a node that is gone", **several)  # type: ignore[arg-type]
    parser.add_argument("--slo", metavar="SERVICE=TIME", help="another latency: 80ms, 1.5s", **several)  # type: ignore[arg-type]
    parser.add_argument("--rate", metavar="SERVICE=RATE", help="x2: twice the load; 500: requests a second", **several)  # type: ignore[arg-type]
    parser.add_argument("--risk", metavar="[SERVICE=]R", help="another share of hours that may overspend", **several)  # type: ignore[arg-type]
    add_compared_argument(parser)
    parser.add_argument(
        "--price-slos", action="store_true", help="what each SLO costs an hour, the most expensive first"
    )
    parser.add_argument("--price-slo", metavar="SERVICE", help="the cost of this service's SLO", **several)  # type: ignore[arg-type]
    parser.add_argument(
        "--risk-prices", metavar="FILE.svg", nargs="?", const="", help="what the fleet costs at six risks; as a picture"
    )
    parser.add_argument("--objective", action="store_true", help="a front of money, energy, carbon and accuracy")
    completes(
        parser.add_argument(
            "--divide",
            metavar="FOLDER",
            nargs="?",
            const="",
            help="which GPUs to divide into MIG devices, in which order; manifests for it go into the folder",
        ),
        "files",
    )
    parser.add_argument(
        "--least-change", action="store_true", help="what moving few services would save, also without a change"
    )
    parser.add_argument(
        "--seconds",
        type=positive,
        metavar="S",
        help="most time, up to 40, as with --work; default 6, prices 20, a front, a division or prices of risks 30",
    )
    parser.add_argument("--work", type=whole(0), metavar="N", help="deterministic steps of each search")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    parser.add_argument("--json", action="store_true", help="the same as -o json")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    prices = args.price_slos or bool(args.price_slo)
    compares = bool(args.files or args.add_gpu or args.lose_node or args.slo or args.rate or args.risk or args.planner)
    prices_risks = args.risk_prices is not None
    compares = compares or args.least_change
    divides = args.divide is not None
    if args.divide and not Path(args.divide).is_dir():
        raise Failed(f"{args.divide} is no folder: make it first")
    if not (compares or prices or prices_risks or args.objective or divides):
        changes = "-f, --add-gpu, --lose-node, --slo, --rate, --risk, --planner"
        allowed = f"{changes}, --least-change, --price-slos, --risk-prices, --objective or --divide"
        raise Failed(f"nothing to try: use {allowed}; see: gpuwright what-if --help")
    body = None
    if args.files:
        files = sources.read(args.files, recursive=args.recursive)
        text = json.dumps({"files": [{"name": name, "text": text} for name, text in files]}, ensure_ascii=False)
        body = text.encode()
    with ApiClient(resolve(args)) as client:
        query = {
            "addGpu": args.add_gpu,
            "loseNode": args.lose_node,
            "slo": [_add_tenant(client, change) for change in args.slo],
            "rate": [_add_tenant(client, change) for change in args.rate],
            "risk": [_add_tenant(client, change) if "=" in change else change for change in args.risk],
            "planner": args.planner,
            "priceSlo": [_add_tenant(client, change) for change in args.price_slo],
            "priceSlos": args.price_slos or None,
            "riskPrices": prices_risks or None,
            "objective": args.objective or None,
            "leastChange": args.least_change or None,
            "divide": divides or None,
            "seconds": args.seconds or _usual_seconds(args, prices=prices),
            "work": args.work,
        }
        with waiting(f"planning twice, for at most {query['seconds']:g} s"):
            answer = client.send("POST", "/api/v1/whatif", query, body, FILES_MEDIA).json()
    if not print_data(answer, "json" if args.json else args.output):
        for line in lines(answer, client.currency, compare=compares):
            print(name_currency(line, client.currency))
        if compares and answer["seconds"] < query["seconds"] and not args.work:
            longer = f"; --seconds {LONGEST_SECONDS} looks longer" if query["seconds"] < LONGEST_SECONDS else ""
            say(f"nothing better was found for a while, after {answer['seconds']:.1f} s{longer}")
    if args.risk_prices:  # last: a file that cannot be written takes no answer away
        _draw_risks(answer["riskPrices"], args.risk_prices, client.currency)
    if args.divide:
        write_manifests(answer["division"], Path(args.divide))
    return exits.OK


def _usual_seconds(args: argparse.Namespace, *, prices: bool) -> int:
    """Returns the most time of a question; one whose work is counted has the same answer on a busy machine."""
    if args.work is not None:
        return LONGEST_SECONDS
    if args.objective or args.risk_prices is not None or args.divide is not None:
        return 30
    return 20 if prices else 6


def _add_tenant(client: ApiClient, text: str) -> str:
    """`search=80ms` as `shop/search=80ms`: of the context's tenant, or of the only service of that name."""
    name, equals, value = text.partition("=")
    if "," in value:
        raise Failed(f"{text!r} is not understood: give the option once for each service")
    if "/" in name or not name:
        return text
    found = find(client, Kind.SERVICE, name)["metadata"]
    return f"{found['tenant']}/{found['name']}{equals}{value}"


def lines(answer: Mapping[str, Any], currency: str, *, compare: bool) -> Iterator[str]:
    """Yields the comparison in words if there is one, and prices; prints the services that change."""
    if compare:
        named = {service["service"] for service in answer["services"]}
        for sentence in answer["sentences"]:
            if sentence.partition(":")[0] not in named:  # those are in the table
                yield plain(sentence)
        _services(answer["services"], currency)
        if points := answer.get("leastChange"):
            yield from _curve(points, currency)
        for rule in answer.get("notKept", ())[:10]:
            yield plain(f"not kept: {rule['service']}: {rule['reason']}")
        for rest in answer["unserved"][:10]:
            change = f"; least change: {rest['relaxation']}" if rest.get("relaxation") else ""
            rate = f"{number(rest['ratePerSecond'])} a second"
            yield plain(f"unserved: {rest['service']}: {rate}: {rest['reason']}{change}")
        after = answer["after"]
        if after["bound"] is not None and not after["unserved"]:  # else it holds a penalty, which is no cost
            yield f"after the change no plan can cost less than {number(after['bound'])} an hour"
    if "sloPrices" in answer:
        _prices(answer["sloPrices"], currency)
        _latencies(answer["sloPrices"], currency)
        _percentiles(answer["sloPrices"], currency)
        yield "PAID NOW: for the service's copies in the plan in force, at its present SLO"
        yield "COSTS: how much more the best plan for an empty fleet costs with the service than without it"
        if left := answer.get("notPriced"):
            services = "1 service is" if left == 1 else f"{left} services are"
            yield f"{services} not priced: the time was up (--seconds, at most {LONGEST_SECONDS})"
    if "riskPrices" in answer:
        _risk_prices(answer["riskPrices"], currency)
    if "front" in answer:
        _front(answer["front"], currency)
    yield from list_division(answer.get("division"))


def _services(services: list[dict[str, Any]], currency: str) -> None:
    def cells(service: dict[str, Any]) -> list[str]:
        old, new = service["before"] or {}, service["after"] or {}
        return [
            service["service"],
            _arrow(old.get("instances"), new.get("instances")),
            _arrow(old.get("costPerHour"), new.get("costPerHour")),
            _arrow(old.get("latencyMs"), new.get("latencyMs")),
            _arrow(old.get("unservedPerSecond"), new.get("unservedPerSecond")),
        ]

    if services:
        print("each row: a plan made now without the change -> one made with it; neither is the plan in force")
    OutputTable(["SERVICE", "INSTANCES", head_amounts("COST/H", currency), "LATENCY MS", "UNSERVED/S"]).rows(
        cells(service) for service in services[:SERVICES_SHOWN]
    )
    if len(services) > SERVICES_SHOWN:
        print(f"and {len(services) - SERVICES_SHOWN} more services; -o json has them all")


def _curve(points: list[MovePointWire], currency: str) -> Iterator[str]:
    """Yields the least change beside the best plan, and why each service moves where few others do."""
    plans = list_distinct(points)
    if len(plans) > 1:
        costs = head_amounts("COSTS/H", currency)
        OutputTable(["OTHERS MOVED", costs, "SAVES/H", "UNSERVED/S", "CHANGES"]).rows(
            [
                len(plan["moved"]), number(plan["resourceCost"]), number(plan["savesPerHour"]),
                number(plan["unservedPerSecond"]), spell_changes(plan["changes"]) or "none",
            ]
            for plan in plans
        )  # fmt: skip
    few = find_few(points)
    if few["services"]:
        count = len(few["moved"])
        yield f"with {count} other{'s' * (count > 1)} moved:" if count else "with no other service moved:"
    for service in few["services"][:SERVICES_SHOWN]:
        yield plain(f"  {service['service']}: {service['words']}; {'; '.join(service['reasons'])}")


def _prices(prices: list[dict[str, Any]], currency: str) -> None:
    paid = head_amounts("PAID NOW/H", currency)
    OutputTable(["SERVICE", "SLO MS", paid, "COSTS/H", "10 % SHORTER ADDS", "10 % LONGER SAVES"]).rows(
        [
            service["service"], number(service["sloMs"]), number(service["paidPerHour"]),
            _price(service["costsPerHour"]), _price(service["shorterAddsPerHour"]),
            _price(service["longerSavesPerHour"]),
        ]
        for service in prices
    )  # fmt: skip


def _latencies(prices: list[dict[str, Any]], currency: str) -> None:
    """Prints what the SLOs of named services would cost at other latencies."""
    rows = [
        [service["service"], number(price["sloMs"]), _price(price["costsPerHour"])]
        for service in prices for price in service.get("latencies", ())
    ]  # fmt: skip
    if rows:
        OutputTable(["SERVICE", "AT SLO MS", head_amounts("COSTS/H", currency)]).rows(rows)


def _percentiles(prices: list[dict[str, Any]], currency: str) -> None:
    """Prints what the SLOs of named services cost at other percentiles."""
    rows = [
        [service["service"], f"{price['percentile']:g}", _price(price["costsPerHour"]),
         "yes" if price["isMeasured"] else "no"]
        for service in prices for price in service.get("percentiles", ())
    ]  # fmt: skip
    if rows:
        OutputTable(["SERVICE", "PERCENTILE", head_amounts("COSTS/H", currency), "MEASURED"]).rows(rows)


def _risk_prices(prices: list[dict[str, Any]], currency: str) -> None:
    OutputTable(["RISK", head_amounts("COSTS/H", currency), "PLANNED/S", "UNSERVED/S"]).rows(
        [
            f"{price['risk']:g}", number(price["resourceCost"]), number(price["plannedPerSecond"]),
            number(price["unservedPerSecond"]),
        ]
        for price in prices
    )  # fmt: skip


def _draw_risks(prices: list[RiskPriceWire], name: str, currency: str) -> None:
    from app.console.charts.prices import draw_risks
    from cli.views.drawings import write_svg

    if not prices:
        raise Failed("no plan was found for any risk, so there is no picture; --seconds looks longer")
    try:
        Path(name).write_text(write_svg(draw_risks(prices, currency)), encoding="utf-8")
    except OSError as error:
        raise Failed(f"{name} cannot be written: {error.strerror}") from None


def _front(points: list[dict[str, Any]], currency: str) -> None:
    """Prints a plan a line, the cheapest first; no plan is worse than another in everything."""
    print("Plans from an empty fleet without jobs: what runs now, and what a change costs, is left out.")
    money = head_amounts("MONEY/H", currency)
    OutputTable(["BEST IN", money, "ENERGY KWH/H", "CARBON KG/H", "ACCURACY", "GPUS"]).rows(
        [
            ", ".join(point["best"]), number(point["moneyPerHour"]), number(point["energyKwh"]),
            "" if point["carbonKg"] is None else number(point["carbonKg"]),
            "" if point["accuracy"] is None else f"{point['accuracy']:.4f}", point["gpus"],
        ]
        for point in points
    )  # fmt: skip


def _price(amount: dict[str, float] | None) -> str:
    """Formats the money for GPUs, and the price of what would be unserved, by the policy."""
    if amount is None:
        return "not in time"
    unserved = amount["unserved"]
    sign = "and" if unserved > 0 else "less"
    apart = f" {sign} {number(abs(unserved))} unserved" if abs(unserved) > SMALL else ""
    return f"{amount['gpus']:.4g}{apart}"


def _arrow(before: float | None, after: float | None) -> str:
    old, new = ("none" if value is None else f"{value:.4g}" for value in (before, after))
    return old if old == new else f"{old} -> {new}"
