"""`gpuwright report`: usage, costs, savings and attained SLOs."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from cli import exits
from cli.arguments import UNITS, add_connection_arguments, completes
from cli.currency import head_amounts
from cli.exits import Failed
from cli.output import OutputTable, format_json, number, plain, say
from cli.talk.client import ApiClient
from cli.talk.contexts import reason, resolve

EPILOG = """\
Times are dates (midnight in --zone), moments as 2026-11-01T12:00:00Z, `now`, or so long ago: 7d. Without --from it is
the month so far. `gpuwright report` alone lists the reports, and by what each can be asked.

Examples:
  gpuwright report cost
  gpuwright report cost --by service,day --from 7d
  gpuwright report slo --by service --from 2026-11-01 --to 2026-12-01
  gpuwright report savings --from 2026-11-01 -o json
  gpuwright report cost --by tenant,month --from 2026-01-01 --zone Europe/Berlin -o csv > cost.csv
  gpuwright report cost --by hour -o focus > focus.csv
  gpuwright report energy --by gpuType,day --from 30d --chart energy.svg
"""
AGO = re.compile(r"(\d{1,6})([smhdw])")
COMES = {
    "cost": "the cost of a quarter-hour comes some minutes after its end",
    "savings": "the savings of an hour come some minutes after its end",
    "savings_realised": "the savings of an hour come some minutes after its end",
}
DRAWN = {"cost": "totalCost", "slo": "attainment", "energy": "energyKwh"}  # of other reports the last figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "name", nargs="?", metavar="REPORT", help="cost, usage, slo, energy, savings, ...; none: a list"
    )
    parser.add_argument(
        "--by", metavar="WORDS", default="", help="group by, for example service,day; each report has a default"
    )
    parser.add_argument("--from", dest="begins", type=moment, metavar="TIME", default="", help="default: this month")
    parser.add_argument("--to", dest="ends", type=moment, metavar="TIME", default="", help="default: now")
    parser.add_argument(
        "--zone", metavar="ZONE", default="UTC", help="time zone of days and months, for example Europe/Berlin"
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json", "csv", "focus", "parquet"), default="table",
        help="focus: charges as CSV in the columns of FOCUS; parquet needs pyarrow, and --out",
    )  # fmt: skip
    completes(parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file"), "files")
    completes(parser.add_argument("--chart", type=Path, metavar="FILE", help="draw a chart, .png or .svg"), "files")
    add_connection_arguments(parser, tenant=True)


def moment(text: str) -> str:
    """Returns a time as the server reads it; `7d` is seven days ago."""
    if match := AGO.fullmatch(text):
        return (datetime.now(UTC) - timedelta(seconds=int(match[1]) * UNITS[match[2]])).isoformat(timespec="seconds")
    if text not in ("", "now") and not text[0].isdigit():
        allowed = "a date like 2026-11-01, a moment like 2026-11-01T12:00:00Z, so long ago (1d, 12h), or now"
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; allowed: {allowed}")
    return text


def run(args: argparse.Namespace) -> int:
    if args.output == "parquet" and args.out is None:
        raise Failed("-o parquet needs a file: use --out FILE")
    if args.chart and args.chart.suffix not in (".png", ".svg"):
        raise Failed(f"--chart {args.chart}: allowed are .png and .svg")
    with ApiClient(resolve(args)) as client:
        if not args.name:
            return _list(client.get("/api/v1/reports")["items"])
        query = {"by": args.by, "from": args.begins, "to": args.ends, "timeZone": args.zone}
        query["tenant"] = args.tenant or _own_tenant(client, args.name)
        path = f"/api/v1/reports/{args.name}"
        if args.output in ("csv", "focus"):
            _write(args.out, client.text(path, {**query, "format": args.output}, "text/csv"))
            if not args.chart:
                return exits.OK
        answer = client.send("GET", path, query).body
    # A float would not hold every digit of a large sum.
    report = json.loads(answer, parse_float=Decimal)
    if args.chart:
        from cli.views.charts import draw

        with _writing(args.chart):
            draw(report, DRAWN.get(args.name, ""), args.chart)
        say(f"drawn: {args.chart}")
    if args.output == "json":
        _write(args.out, format_json(json.loads(answer)) + "\n")
    elif args.output == "parquet":
        from cli.views.parquet import write

        with _writing(args.out):
            write(flat(report), args.out)
    elif args.output == "table":
        show(report)
    return exits.OK


def _list(reports: Sequence[Mapping[str, Any]]) -> int:
    for report in reports:
        print(plain(f"{report['name']}: {report['about']}"))
        print(plain(f"  by     {', '.join(report['by'])}"))
        print(plain(f"  shows  {', '.join(report['values'])}"))
    return exits.OK


def _own_tenant(client: ApiClient, name: str) -> str:
    """Returns the context's tenant; none for a report of the whole fleet, which has no tenants."""
    tenant = client.connection.tenant
    if not tenant:
        return ""
    reports = {report["name"]: report for report in client.get("/api/v1/reports")["items"]}
    return "" if name in reports and "tenant" not in reports[name]["by"] else tenant


def flat(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of a table: the period first, then what it is by, then the figures."""
    return [
        {
            **({"start": item["start"]} if "start" in item else {}),
            **item["properties"],
            **{key: value for key, value in item.items() if key not in ("name", "start", "properties")},
        }
        for item in report["items"]
    ]


def show(report: Mapping[str, Any]) -> None:
    """Prints a table, with the total last."""
    rows = flat(report)
    if not rows:
        begins, ends = (re.sub(r"(:\d\d)\.\d+", r"\1", report["window"][end]) for end in ("start", "end"))
        comes = COMES.get(report["report"], "")
        say(f"nothing from {begins} to {ends}" + (f"; {comes}" if comes else ""))
        return
    hidden = {"gpuCost", "sharedCost"}  # they are in the JSON: of GPUs is all cost, and none is shared out
    names = [name for name in rows[0] if name not in hidden]
    last = {name: report["total"].get(name, "") for name in names}
    last[names[0]] = "total" if report["total"] else ""
    zone_days = report["by"] and report["by"][-1] in ("day", "month")
    OutputTable([heading(name, report["currency"]) for name in names]).rows(
        [shown(name, row[name], days=bool(zone_days)) for name in names]
        for row in (*rows, *([last] if report["total"] and len(rows) > 1 else ()))
    )


def heading(name: str, currency: str) -> str:
    """`totalCost` -> `TOTAL COST EUR`, `costPer1000Requests` -> `COST PER 1000 REQUESTS EUR`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=[0-9])", " ", name).upper()
    return head_amounts(words, currency) if "cost" in name.lower() or name == "saved" else words


def shown(name: str, value: object, *, days: bool) -> str:
    """Returns a cell: two decimals of money, parts as per cent."""
    if name == "start" and days:
        return str(value)[:10]
    if value is None or isinstance(value, str):
        return plain(value or "")
    figure = float(str(value))
    if name in ("attainment", "utilisation", "allocatedShare", "smUtilisation"):
        return f"{figure:.2%}"
    if name in ("totalCost", "heldCost", "cost", "saved", "baselineCost"):
        return f"{figure:,.2f}"
    return number(figure)


def _write(file: Path | None, text: str) -> None:
    if file is None:
        sys.stdout.write(text)
        return
    with _writing(file):
        file.write_bytes(text.encode())  # line ends as the server sent them


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failed(f"cannot write {file}: {reason(error)}") from None
