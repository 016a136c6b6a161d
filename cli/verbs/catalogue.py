"""`gpuwright catalogue`: data sheets of GPU types, to look at and to declare."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agents.contract.gpus import Sheet, read_sheets
from app.manifests.numbers import finite_number
from cli import exits
from cli.arguments import add_connection_arguments
from cli.catalogue import find_sheets, manifest
from cli.exits import Failed
from cli.output import OutputTable, format_json, format_yaml, gib, say
from cli.talk.client import FILES_MEDIA, ApiClient
from cli.talk.contexts import resolve
from cli.verbs.apply import report

EPILOG = """\
Memory, SMs, power and clocks are the data sheets'. Idle power is typical, and prices are examples only.

Examples:
  gpuwright catalogue list
  gpuwright catalogue show l4-24gb
  gpuwright catalogue show l4-24gb -o yaml > types.yaml     a manifest to edit
  gpuwright catalogue apply l4-24gb t4-16gb --price l4-24gb=0.71
"""
KEPT = (
    "pricePerHour",
    "prices",
    "rentable",
    "nvlinkGroup",
    "nvlinkGbit",
    "pcieGbit",
    "networkGbit",
    "networkPricePerGib",
)  # the user's: no sheet knows them, or only as they are usually


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="list | show | apply", required=True)

    listing = actions.add_parser("list", help="all GPU types", description="List all GPU types.")
    listing.add_argument("-o", "--output", choices=("table", "json", "yaml", "name"), default="table")

    showing = actions.add_parser("show", help="one sheet, or more", description="Show data sheets.")
    _add_names(showing)
    showing.add_argument(
        "-o", "--output", choices=("text", "json", "yaml"), default="text",
        help="yaml and json are GpuType manifests",
    )  # fmt: skip

    applying = actions.add_parser(
        "apply",
        help="declare GPU types to the server",
        description="Declare GPU types to the server. A type that it knows keeps its price and its links.",
    )
    _add_names(applying)
    applying.add_argument("--dry-run", action="store_true", help="let the server check, but store nothing")
    add_connection_arguments(applying)
    for each in (showing, applying):
        each.add_argument(
            "--price", metavar="NAME=PRICE", type=_price, action="append", default=[],
            help="price per hour of one type, instead of the example",
        )  # fmt: skip


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="names as `catalogue list` shows them")
    parser.add_argument("--all", action="store_true", help="every type of the catalogue")


def run(args: argparse.Namespace) -> int:
    if args.action == "list":
        _list(list(read_sheets().values()), args.output)
        return exits.OK
    if bool(args.names) == args.all:
        raise Failed("name the GPU types, or use --all; see: gpuwright catalogue list")
    chosen = list(read_sheets().values()) if args.all else find_sheets(args.names)
    prices = _prices(args.price, chosen)
    if args.action == "show":
        _show(chosen, prices, args.output)
    else:
        _apply(args, chosen, prices)
    return exits.OK


def _list(all_sheets: Sequence[Sheet], output: str) -> None:
    if output == "name":
        print("\n".join(sheet.name for sheet in all_sheets))
    elif output == "table":
        OutputTable(("NAME", "ARCHITECTURE", "YEAR", "FORM", "MEMORY", "SMS", "IDLE", "MAX", "CLOCK")).rows(
            (
                sheet.name, sheet.architecture, sheet.year, sheet.form, gib(sheet.memory_gib), sheet.sm_count,
                f"{sheet.idle_w} W", f"{sheet.max_w} W", f"{sheet.clocks_mhz[-1]} MHz",
            )
            for sheet in all_sheets
        )  # fmt: skip
    else:
        _print_manifests([manifest(sheet) for sheet in all_sheets], output)


def _show(chosen: Sequence[Sheet], prices: Mapping[str, float], output: str) -> None:
    if output == "text":
        print("\n\n".join(_text(sheet, prices.get(sheet.name)) for sheet in chosen))
    else:
        _print_manifests([manifest(sheet, prices.get(sheet.name)) for sheet in chosen], output)


def _text(sheet: Sheet, price_per_hour: float | None) -> str:
    price = (
        f"{sheet.example_price_per_hour:g} per hour (an example: set yours with --price)"
        if price_per_hour is None
        else f"{price_per_hour:g} per hour"
    )
    facts = {
        "Name": sheet.name,
        "GPU": f"{sheet.title}, {sheet.architecture}, {sheet.year}, {sheet.form}",
        "Memory": f"{gib(sheet.memory_gib)} {sheet.memory_type}",
        "SMs": str(sheet.sm_count),
        "Power": f"{sheet.max_w} W at most; typically {sheet.idle_w} W idle",
        "Clocks": " ".join(map(str, sheet.clocks_mhz)) + " MHz",
        "Price": price,
        "Source": sheet.source,
    }
    return "\n".join(f"{name + ':':<9}{fact}" for name, fact in facts.items())


def _print_manifests(manifests: Sequence[dict[str, Any]], output: str) -> None:
    if output == "json":
        print(format_json(manifests if len(manifests) > 1 else manifests[0]))
    else:
        print("\n---\n".join(format_yaml(each) for each in manifests))


def _apply(args: argparse.Namespace, chosen: Sequence[Sheet], prices: Mapping[str, float]) -> None:
    with ApiClient(resolve(args)) as client:
        declared = {
            item["metadata"]["name"]: item["spec"]
            for page in client.pages("/api/v1/gputypes", {})
            for item in page["items"]
        }
        manifests = []
        for sheet in chosen:
            wanted = manifest(sheet, prices.get(sheet.name))
            known = declared.get(sheet.name, {})
            wanted["spec"] |= {
                key: known[key] for key in KEPT if key in known and (key != "pricePerHour" or sheet.name not in prices)
            }
            manifests.append(wanted)
        body = {"files": [{"name": "catalogue", "text": json.dumps(manifests)}]}
        answer = client.send(
            "POST", "/api/v1/apply", {"dryRun": args.dry_run or None}, json.dumps(body).encode(), FILES_MEDIA
        ).json()
    report(answer, names_only=False)
    examples = [sheet.name for sheet in chosen if sheet.name not in prices and sheet.name not in declared]
    if examples:
        say(f"{', '.join(examples)}: the prices are examples; set yours with --price NAME=PRICE")


def _prices(given: Sequence[tuple[str, float]], chosen: Sequence[Sheet]) -> dict[str, float]:
    prices = dict(given)
    stray = sorted(prices.keys() - {sheet.name for sheet in chosen})
    if stray:
        raise Failed(f"--price names {', '.join(stray)}, which is not one of the chosen GPU types")
    return prices


def _price(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    price = finite_number(number)
    if not name or price is None or not 0 < price <= 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: NAME=PRICE, a price over 0, as in l4-24gb=0.71")
    return name, price
