"""`gpuwright plan`: what was decided, what it changes, and what operators say to it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cli import exits
from cli.arguments import add_connection_arguments, whole
from cli.currency import head_amounts, name_currency
from cli.exits import Failed
from cli.output import OutputTable, age, colour, number, plain, print_data, say, shorten
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.verbs.delete import confirm
from cli.views.rollout import rollout_lines
from solvers.planning.plan_fields import (
    OTHER_PLANNERS,
    gpu_bound,
    held_gpus,
    spell_changes,
    spell_gap_of_gpus,
    spell_other,
    spell_shortfall,
)

EPILOG = """\
A plan is named by its generation, the number that `history` shows; without one the plan in force is meant, and by
approve and reject the newest that waits for approval.

Examples:
  gpuwright plan history
  gpuwright plan diff                    what the plan in force changed, service by service
  gpuwright plan diff 41 --against 38
  gpuwright plan show 41 --json          the whole plan, as `verify` takes it
  gpuwright plan approve                 roll out what waits for approval
  gpuwright plan pause                   take no further step of the rollout
  gpuwright plan rollback                bring nodes back to the plan before; shows what changes, and asks
  gpuwright plan rollback --to 38        bring nodes back to plan 38
  gpuwright plan resume --fleet          after a rollback: carry plans out by themselves again
"""
OUTCOMES = {
    "approve": "approved: its rollout begins",
    "reject": "rejected",
    "pause": "paused: it takes no further step",
    "resume": "resumed",
    "abort": "aborted: nodes stay as they are now",
}
RESUME_FLEET = "gpuwright plan resume --fleet"
WAITING = ("approve", "reject")
MOST = 2**53
SERVICES_SHOWN = 50
NAMES_SHOWN = 4  # in a sentence
REASONS_SHOWN = 3  # of a service
LONGEST_WHY = 80  # characters, in a table
COLOUR = re.compile(r"\x1b\[[\d;]*m")
COLOURS = {"done": "green", "rolling": "yellow", "stopped": "red", "aborted": "red", "proposed": "bold"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="|".join(("history", "show", "diff", *OUTCOMES, "rollback"))
    )
    history = actions.add_parser("history", help="decisions, newest first")
    history.add_argument("--limit", type=whole(1, 500), metavar="N", default=20, help="how many; default 20")
    show = actions.add_parser("show", help="one plan, with its proof and its reasons")
    show.add_argument("--json", action="store_true", help="the plan as one JSON object on stdout, for verify")
    diff = actions.add_parser("diff", help="what a plan changes, service by service")
    diff.add_argument(
        "--against", type=whole(0, MOST), metavar="PLAN", help="the plan to compare with; default the previous one"
    )
    for sub in (show, diff):
        sub.add_argument("generation", nargs="?", type=whole(1, MOST), metavar="PLAN", help="its generation")
    for verb, help_text in (
        ("approve", "let a plan that waits for approval be rolled out"),
        ("reject", "refuse a plan that waits for approval"),
        ("pause", "take no further step of a rollout"),
        ("resume", "continue a rollout that was paused, or that stopped"),
        ("abort", "end a rollout at its present step"),
        ("rollback", "undo a plan: bring nodes back to the one that it replaced"),
    ):
        sub = actions.add_parser(verb, help=help_text)
        sub.add_argument("generation", nargs="?", type=whole(1, MOST), metavar="PLAN", help="its generation")
        if verb == "rollback":
            sub.add_argument("-y", "--yes", action="store_true", help="do not ask")
            earlier = "an earlier plan that was carried out; default the one that PLAN replaced"
            sub.add_argument("--to", type=whole(1, MOST), metavar="EARLIER", help=earlier)
        elif verb == "resume":
            fleet = "after a rollback: let plans follow the policy's mode again"
            sub.add_argument("--fleet", action="store_true", help=fleet)
        if verb != "rollback":
            sub.add_argument("-m", "--message", metavar="TEXT", default="", help="why, for the record")
    for sub in actions.choices.values():
        sub.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
        add_connection_arguments(sub)


def run(args: argparse.Namespace) -> int:
    with ApiClient(resolve(args)) as client:
        if args.action == "history":
            page = client.get("/api/v1/plans", {"limit": args.limit})
            print_value(args, page["items"], history(page["items"], client.currency))
            _say_held(client)
        elif args.action == "show":
            plan = client.get(f"/api/v1/plans/{args.generation or 'current'}")
            if args.json:
                args.output = "json"
            print_value(args, plan, shown(plan), client.currency)
        elif args.action == "resume" and args.fleet:
            if args.generation or args.message:
                raise Failed("--fleet is about no single plan: it takes no PLAN and no message", exits.BAD_INPUT)
            answer = client.send("DELETE", "/api/v1/plans/hold").json()
            print_value(args, answer, ["the fleet is resumed: plans follow the policy's mode again"])
        elif args.action == "diff":
            generation = args.generation or client.get("/api/v1/plans/current")["generation"]
            diff = client.get(f"/api/v1/plans/{generation}/diff", {"against": args.against})
            print_value(args, diff, differences(diff), client.currency)
        else:
            answer = submit(client, args)
            print_value(args, answer, [sentence(args.action, answer)])
    return exits.OK


def submit(client: ApiClient, args: argparse.Namespace) -> dict[str, Any]:
    """Sends the action for the plan that is meant."""
    generation = args.generation or _meant(client, args.action)
    if args.action == "rollback" and not args.yes and not _agree_to_rollback(client, generation, args.to):
        raise Failed("nothing was undone", exits.NO)
    query = {"to": args.to} if args.action == "rollback" else {"message": args.message}
    answer: dict[str, Any] = client.send("POST", f"/api/v1/plans/{generation}/{args.action}", query).json()
    return answer


def _agree_to_rollback(client: ApiClient, generation: int, to: int | None) -> bool:
    """Shows what going back changes, and asks; where there is no plan to go back to, the server says so instead."""
    plan = client.get(f"/api/v1/plans/{generation}")
    earlier = to or client.get(f"/api/v1/plans/{generation}/diff")["against"]
    if not earlier:
        return True
    back = client.get(f"/api/v1/plans/{earlier}/diff", {"against": generation})
    lines = [
        f"plan {generation}, {age(plan['at'])} old, is undone; the leader makes a new plan of plan {earlier}, as far",
        f"as today's rates allow, and then plans wait for approval until: {RESUME_FLEET}",
        *(COLOUR.sub("", name_currency(line, client.currency)) for line in differences(back)),
    ]
    return confirm(lines, f"go back to plan {earlier}", "nothing was undone")


def _meant(client: ApiClient, action: str) -> int:
    if action not in WAITING:
        return int(client.get("/api/v1/plans/current")["generation"])
    newest = client.get("/api/v1/plans", {"limit": 100})["items"]
    waiting = [plan["generation"] for plan in newest if plan["state"] == "proposed"]
    if not waiting:
        raise Failed("no plan waits for approval; see: gpuwright plan history", exits.NO)
    return int(waiting[0])


def sentence(action: str, answer: Mapping[str, Any]) -> str:
    """Returns a line that says what was done."""
    name = f"plan {answer['generation']}"
    if action == "rollback":
        then = f"then plans wait for approval until: {RESUME_FLEET}"
        return f"{name}: the leader will go back to plan {answer['to']} (see: gpuwright plan history); {then}"
    return f"{name} {OUTCOMES[action]}"


def print_value(args: argparse.Namespace, value: Any, lines: Iterator[str] | list[str], currency: str = "") -> None:
    """Prints the value as JSON or YAML if requested, else the lines, with the currency of their money."""
    if not print_data(value, args.output):
        for line in lines:
            print(name_currency(line, currency))


def _say_held(client: ApiClient) -> None:
    hold = client.get("/api/v1/plans/hold")
    if hold["held"]:
        say(f"plans wait for approval since the rollback by plan {hold['generation']}; end this: {RESUME_FLEET}")


def history(items: list[dict[str, Any]], currency: str) -> Iterator[str]:
    """Yields a table, printed as it is made."""
    if not items:
        say("there is no plan yet; why: gpuwright explain plan")
    cost = head_amounts("COST/H", currency)
    OutputTable(["PLAN", "AGE", "STATE", "BY", "WHY", cost, "UNSERVED/S", "GAP", "CHANGES", "OF"]).rows(
        [
            plan["generation"], age(plan["at"]), plan["state"], plan["lane"],
            shorten(name_currency(plan["why"], currency), LONGEST_WHY),
            number(plan.get("resourceCost")), number(plan.get("unservedPerSecond")), _percent(plan.get("gap")),
            spell_changes(plan.get("changes") or {}) or "none",
            _some(plan.get("services") or []),
        ]
        for plan in items
    )  # fmt: skip
    yield from ()


def shown(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yields the plan in short: its state, proof, services and what is left out."""
    head = f"plan {plan['generation']} ({plan['lane']}), {age(plan['at'])} old: "
    yield plain(head) + colour(plain(plan["state"]), COLOURS.get(plan["state"], "dim"))
    if plan["why"]:
        yield plain(f"why it was made: {plan['why']}")
    if plan.get("message") and plan["message"] != plan["why"]:
        yield plain(plan["message"])
    if plan.get("certificate"):
        yield plain(_cost(plan["certificate"]))
        if check := plan.get("crossCheck"):
            yield plain(f"{check['message']} ({age(check['at'])} ago)")
        if others := plan["certificate"].get("otherPlanners"):
            yield plain(f"{OTHER_PLANNERS}: {'; '.join(spell_other(other) for other in others)}")
    yield from _services(plan["instances"])
    for shortfall in (plan.get("certificate") or {}).get("shortfalls") or ():
        yield plain(spell_shortfall(shortfall))
    for unserved in plan["unserved"]:
        yield plain(f"unserved: {unserved['service']}: {number(unserved['ratePerSecond'])} a second: {_why(unserved)}")
    for unplaced in plan["unplaced"]:
        yield plain(f"unplaced: {unplaced['job']}: {_why(unplaced)}")
    for held in plan["heldBack"]:
        yield plain(f"held back: {held['service'] or 'the plan'} ({held['reason']}): {held['message']}")
    if beside := plan.get("others"):
        yield f"of others: {beside['instances']} instances, {beside['jobs']} jobs"
    yield from rollout_lines(plan)


def _cost(certificate: Mapping[str, Any]) -> str:
    """Returns the plan's cost, how it is known to be good, and the method."""
    bound = certificate.get("bound")
    reason, age_seconds = certificate.get("noBoundReason"), certificate.get("boundAgeSeconds")
    least, penalty = gpu_bound(certificate), certificate["unservedCost"]
    if bound is None:
        proof = f"no bound{f': {reason}' if reason else ' known'}"
    elif least is None:
        proof = f"with the penalty at least {number(bound)} by proof"
    else:
        proof = f"at least {number(least)} by proof{' with as much unserved' if penalty else ''}"
    proof += f" {number(age_seconds)} s old" if age_seconds else ""
    gap = f", gap {_percent(certificate['gap'])}" if certificate.get("gap") is not None else ""
    gap += spell_gap_of_gpus(certificate)
    parts = f"GPUs cost {number(certificate['resourceCost'])} an hour, {proof}{gap}"
    if penalty:
        parts += f"; the penalty for what is unserved is {number(penalty)}"
    return f"{parts}; by {certificate['method']}"


def _services(instances: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields a line for each service, as far as they are shown."""
    by_service: dict[str, list[Mapping[str, Any]]] = {}
    for instance in instances:
        by_service.setdefault(instance["service"], []).append(instance)
    OutputTable(["SERVICE", "INSTANCES", "RATE/S", "LATENCY", "ON"]).rows(
        [
            name, len(mine), number(sum(instance["ratePerSecond"] for instance in mine)),
            f"{max(instance['predicted']['latencyMs'] for instance in mine):.4g} ms",
            _some(sorted({f"{line['node']}/{','.join(map(str, held_gpus(line)))}" for line in mine})),
        ]
        for name, mine in sorted(by_service.items())[:SERVICES_SHOWN]
    )  # fmt: skip
    if len(by_service) > SERVICES_SHOWN:
        yield f"and {len(by_service) - SERVICES_SHOWN} more services; --json has them all"


def differences(diff: Mapping[str, Any]) -> Iterator[str]:
    """Per service before and after, with the reason."""
    against = f"plan {diff['against']}" if diff["against"] else "nothing"
    cost = diff.get("cost") or {}
    nothing = {"resourceCost": 0.0}
    before, after = cost.get("before") or nothing, cost.get("after") or nothing
    money = f": GPUs cost {number(before['resourceCost'])} -> {number(after['resourceCost'])} an hour" if cost else ""
    yield f"plan {diff['generation']} against {against}{money}"
    for service in diff["services"]:
        if not service["service"]:  # what is held back of the plan as a whole
            yield from (plain(f"  the plan: {reason}") for reason in service["reasons"][:REASONS_SHOWN])
            continue
        tint = (
            "green" if not service["before"]["instances"] else "red" if not service["after"]["instances"] else "yellow"
        )
        yield colour(plain(f"  {service['service']}: {service['words']}"), tint)
        old, new = service["before"], service["after"]
        if old["shapes"] != new["shapes"]:
            yield plain(f"    {'; '.join(old['shapes']) or 'nothing'} -> {'; '.join(new['shapes']) or 'nothing'}")
        if old["unservedPerSecond"] or new["unservedPerSecond"]:
            rates = f"{number(old['unservedPerSecond'])} -> {number(new['unservedPerSecond'])}"
            yield f"    unserved {rates} a second"
        for reason in service["reasons"][:REASONS_SHOWN]:
            yield plain(f"    {reason}")
    for job in diff["jobs"]:
        yield colour(plain(f"  job {job['job']}: {job['before']} -> {job['after']}"), "yellow")
        if job["reason"]:
            yield plain(f"    {job['reason']}")
    same = diff["unchanged"]
    if same or not diff["services"]:
        yield f"{same} {'service is' if same == 1 else 'services are'} as before"


def _why(unserved: Mapping[str, Any]) -> str:
    change = f"least change: {unserved['relaxation']}" if unserved.get("relaxation") else ""
    return (
        "; ".join(part for part in (unserved.get("reason"), change) if part)
        or f"see: gpuwright explain service {unserved.get('service')}"
    )


def _percent(gap: float | None) -> str:
    return "" if gap is None else f"{100 * gap:.2f} %"


def _some(names: list[str]) -> str:
    left = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {left} more" if left > 0 else "")
