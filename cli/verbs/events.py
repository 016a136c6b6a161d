"""`gpuwright events`: what happened, newest last, the same counted."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any

from cli import exits
from cli.arguments import add_connection_arguments, duration, whole
from cli.currency import name_currency
from cli.output import OutputTable, age, name_subject, print_data, say
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve

EPILOG = """\
Examples:
  gpuwright events
  gpuwright events --severity alarm --since 1d
  gpuwright events --for shop/search
  gpuwright events --reason not_worth_its_churn -o json
"""
KINDS = {"node": "Node", "plan": "Plan", "service": "Service", "job": "Job"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--for",
        dest="about",
        metavar="NAME",
        help="only events about this object: TENANT/NAME, a node's name, node/NAME, or job/TENANT/NAME",
    )
    parser.add_argument(
        "--kind", metavar="KIND", default="", help="only events about this kind: Service, Job, Node, Plan"
    )
    parser.add_argument(
        "--reason", metavar="REASON", action="append", default=[], help="only events with this reason; may be repeated"
    )
    parser.add_argument("--severity", choices=("info", "warning", "alarm"), action="append", default=[])
    parser.add_argument("--since", type=duration, metavar="TIME", help="only events of the last 15m, 2h, 7d")
    parser.add_argument("--limit", type=whole(1, 500), metavar="N", default=50, help="how many; default 50")
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    add_connection_arguments(parser, tenant=True)


def run(args: argparse.Namespace) -> int:
    with ApiClient(resolve(args)) as client:
        tenant, kind, name = client.connection.tenant, args.kind, ""
        if args.about:
            first, _, name = args.about.rpartition("/")
            word, _, owner = first.partition("/")
            tenant, kind = (owner, KINDS[word.lower()]) if word.lower() in KINDS else (first, kind)
        since = datetime.now(UTC) - timedelta(seconds=args.since) if args.since else None
        page = client.get(
            "/api/v1/events",
            {
                "tenant": tenant,
                "name": name,
                "kind": kind,
                "reason": args.reason,
                "severity": args.severity,
                "since": since.isoformat() if since else None,
                "limit": args.limit,
            },
        )
    items: list[dict[str, Any]] = page["items"]
    if not print_data(items, args.output):
        if not items:
            say("no events found")
        OutputTable(["AGE", "TIMES", "SEVERITY", "REASON", "ABOUT", "MESSAGE"]).rows(
            [
                age(event["lastAt"]),
                event["times"],
                event["severity"],
                event["reason"],
                name_subject(event),
                name_currency(event["message"], client.currency),
            ]
            for event in reversed(items)
        )
    return exits.OK
