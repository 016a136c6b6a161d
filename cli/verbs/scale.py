"""`gpuwright scale`: how many replicas workloads of Kubernetes or Ray Serve should have; what operators say of it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cli import exits
from cli.arguments import add_connection_arguments, whole
from cli.exits import Failed
from cli.output import OutputTable, age, number, print_data, say, shorten
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve

EPILOG = """\
A scaler (gpuwright scaler) decides for each workload that annotations, or a file for Ray Serve, adopt. Its mode
says what follows: advisory shows the number, approve waits for you, auto writes it. Several workloads are approved
together, or none of them.

Examples:
  gpuwright scale
  gpuwright scale approve 12 shop/Deployment/ranker shop/Deployment/search
  gpuwright scale reject 12 shop/Deployment/ranker
  gpuwright scale pause -m "load test"   every workload is advisory, at once
  gpuwright scale resume                 each workload has its own mode again
"""
MOST = 2**53
LONGEST_WHY = 100  # characters, in a table
DECISIONS = ("approve", "reject")
ACTIONS = (*DECISIONS, "pause", "resume")
RESUME = "gpuwright scale resume"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "action",
        nargs="?",
        choices=ACTIONS,
        help="what to say of WORKLOADs, or of all scalers; without it: the newest plan",
    )
    parser.add_argument(
        "generation", nargs="?", type=whole(1, MOST), metavar="PLAN", help="the number of the plan that you have seen"
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help="NAMESPACE/KIND/NAME, such as shop/Deployment/ranker"
    )
    parser.add_argument("-m", "--message", metavar="TEXT", default="", help="why all are paused, for the record")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.action in DECISIONS and not args.workloads:
        raise Failed(f"name the plan and the workloads: gpuwright scale {args.action} PLAN NAMESPACE/KIND/NAME")
    if args.action not in DECISIONS and args.generation is not None:
        raise Failed(f"{args.action} is about all scalers: it takes no plan and no workloads", exits.BAD_INPUT)
    if args.message and args.action != "pause":
        raise Failed("--message says why all are paused: give it with pause", exits.BAD_INPUT)
    with ApiClient(resolve(args)) as client:
        if args.action in ("pause", "resume"):
            answer = client.send("POST", f"/api/v1/scale/{args.action}", {"message": args.message or None}).json()
            if not print_data(answer, args.output):
                say(_describe_pause(answer))
            return exits.OK
        if args.action is None:
            plan = client.get("/api/v1/scale")
        else:
            path = f"/api/v1/scale/{args.generation}/{args.action}"
            plan = client.send("POST", path, body=json.dumps({"workloads": args.workloads}).encode()).json()
    if not print_data(plan, args.output):
        show(plan)
    return exits.OK


def show(plan: Mapping[str, Any]) -> None:
    """Prints the plan as a table."""
    say(f"plan {plan['generation']}, made {age(plan['at'])} ago, confirmed {age(plan['confirmedAt'])} ago")
    if plan["pause"]["paused"]:
        say(_describe_pause(plan["pause"]))
    if not plan["items"]:
        say("no workload is adopted; adopt one: kubectl annotate deployment NAME gpuwright.io/service=NAME,")
        say("or, of Ray Serve, by an entry of the file that the scaler's GPUWRIGHT_RAY_SERVICES names")
        return
    table = OutputTable(("WORKLOAD", "SERVICE", "MODE", "REPLICAS", "WANTED", "STATE", "WHY"))
    table.rows(_cells(row) for row in plan["items"])


def _cells(row: Mapping[str, Any]) -> Sequence[str]:
    name = "/".join((row["namespace"], row["kind"], row["name"]))
    why = shorten(_explain(row), LONGEST_WHY)
    counts = number(row["replicas"]), number(row["wanted"])
    return (name, row["service"], row["mode"], *counts, row["state"], why)


def _explain(row: Mapping[str, Any]) -> str:
    """Returns why a row is as it is; what was refused has when it is tried again first."""
    why: str = row["hold"] or row["outcome"] or row["why"]
    if row["state"] != "refused":
        return why
    return f"tried {number(row['tries'])} times, again at {row['retryAt'][11:19]} UTC: {why}"


def _describe_pause(pause: Mapping[str, Any]) -> str:
    if not pause["paused"]:
        return "scalers are resumed: each workload has its own mode again from the next look on"
    why = f": {pause['message']}" if pause["message"] else ""
    begun = f"; {number(pause['writing'])} writes that had begun may still be done" if pause["writing"] else ""
    return (
        f"scalers are paused by {pause['by']}, {age(pause['since'])} ago{why}; "
        f"every workload is advisory until `{RESUME}`{begun}"
    )
