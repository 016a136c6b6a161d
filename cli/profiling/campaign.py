"""Measures on a node: asks the server for a campaign, or takes up the one that runs, and follows it to its end."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

from app.manifests.model import Kind
from cli import exits
from cli.exits import Failed
from cli.output import OutputTable, age, plain, print_data, say, seconds_since
from cli.profiling.applied import apply_profiles
from cli.profiling.asked import GpuPlace, ModelVariant, name_remedy, say_measured, setting_words, show
from cli.talk.client import ApiClient
from cli.talk.refusals import ServerRefusal
from cli.talk.selection import find

POLL_SECONDS = 1.0
PATH = "/api/v1/campaigns"


class NothingMeasured(Failed):
    """A campaign that ended without a single measurement."""


def has_measured_nothing(failure: Failed) -> bool:
    """Returns whether there is no campaign, or it ended without a measurement. While a server is away it goes on."""
    refused = isinstance(failure, ServerRefusal) and failure.status < 500 and failure.status != 429
    return refused or isinstance(failure, NothingMeasured)


def check_place(client: ApiClient, place: GpuPlace) -> None:
    """Refuses a node or GPU that is not there, before anything is declared for it."""
    node = find(client, Kind.NODE, place.node)
    gpus = node["spec"]["gpus"]
    if place.gpu is not None and place.gpu >= gpus:
        raise Failed(f"node {place.node} has GPUs 0..{gpus - 1}; there is no GPU {place.gpu}", exits.NO)


def run_campaign(client: ApiClient, args: argparse.Namespace, wanted: ModelVariant, place: GpuPlace) -> int:
    """Follows a campaign of this model on this node until it ends; prints the Profile, and applies it if asked to."""
    campaign = _running(client, wanted, place, args.neighbours) or _ask(client, args, wanted, place)
    try:
        ended = _follow(client, campaign["id"])
    except KeyboardInterrupt:
        say(f"campaign {campaign['id']} goes on; follow it: the same command; end it: gpuwright profile --stop "
            f"{campaign['id']}")  # fmt: skip
        raise
    if ended["state"] != "done":
        message = f"campaign {ended['id']} {ended['state']}: {ended['message'] or ended['reason']}"
        raise Failed(message, exits.NO) if ended["measurements"] else NothingMeasured(message, exits.NO)
    for failure in ended["failures"]:
        words = setting_words(failure["setting"], ended["neighbours"], ended["clocksMhz"])
        say(f"left out: {words}: {failure['message']}")
    if ended["message"]:
        say(plain(ended["message"]))
    seconds = _seconds(ended)
    profiles = ended["profiles"]
    show(args, profiles, len(ended["measurements"]), seconds, ended["leftOutError"])
    if args.apply:
        apply_profiles(client, profiles, _find_remedy(ended), as_draft=args.as_draft)
    return exits.OK


def _find_remedy(ended: Mapping[str, Any]) -> str:
    """Returns what would make the Profiles of a campaign surer."""
    if ended["neighbours"]:
        return "measure it alone once more"
    return name_remedy(len(ended["measurements"]), ended.get("nextSetting"), ended["clocksMhz"])


def stop_campaign(client: ApiClient, args: argparse.Namespace) -> int:
    found = client.send("DELETE", f"{PATH}/{args.stop}").json()
    if not print_data(found, "json" if args.json else "text"):
        print(plain(f"campaign {found['id']} is {found['state']}"))
    return exits.OK


def list_campaigns(client: ApiClient, args: argparse.Namespace) -> int:
    items = client.get(PATH)["items"]
    if not print_data(items, "json" if args.json else "text"):
        OutputTable(["CAMPAIGN", "MODEL", "GPU", "STATE", "MEASURED", "AGE", "MESSAGE"]).rows(
            [
                item["id"], f"{item['model']}/{item['variant']}", f"{item['node']}/{item['gpu']}", item["state"],
                f"{item['measured']}/{item['most']}", age(item["askedAt"]), item["message"] or "",
            ]
            for item in items
        )  # fmt: skip
    return exits.OK


def _running(
    client: ApiClient, wanted: ModelVariant, place: GpuPlace, neighbours: list[ModelVariant] | None
) -> dict[str, Any] | None:
    """Returns the campaign that measures this on the node already."""
    beside = sorted(neighbour.model for neighbour in neighbours or ())
    for item in client.get(PATH)["items"]:
        is_same = item["model"] == wanted.model and wanted.variant in ("", item["variant"])
        is_same = is_same and beside == sorted(name.partition("/")[0] for name in item["neighbours"])
        if item["endedAt"] is None and is_same and item["node"] == place.node and place.gpu in (None, item["gpu"]):
            say(f"campaign {item['id']} measures this since {age(item['askedAt'])}; following it")
            return dict(item)
    return None


def _ask(client: ApiClient, args: argparse.Namespace, wanted: ModelVariant, place: GpuPlace) -> dict[str, Any]:
    given = {
        "variant": wanted.variant or None,
        "gpu": place.gpu,
        "accuracy": args.accuracy,
        "most": args.most,
        "batches": args.batches,
        "smPercents": args.sm,
        "clocksMhz": args.clocks,
        "leastSeconds": args.seconds,
        "neighbours": [neighbour.words for neighbour in args.neighbours] if args.neighbours else None,
    }
    body = {"model": wanted.model, "node": place.node}
    body |= {name: value for name, value in given.items() if value is not None}
    made: dict[str, Any] = client.send("POST", PATH, body=json.dumps(body).encode()).json()
    beside = f" beside {', '.join(made['neighbours'])}" if made["neighbours"] else ""
    say(f"campaign {made['id']} measures {made['model']}/{made['variant']}{beside} on {made['node']}/{made['gpu']}")
    return made


def _follow(client: ApiClient, campaign: str) -> dict[str, Any]:
    known, waits_for = 0, ""
    while True:
        found: dict[str, Any] = client.get(f"{PATH}/{campaign}")
        measured = found["measurements"]
        for index in range(known, len(measured)):
            left = found.get("secondsLeft") if index == len(measured) - 1 else None
            say_measured(index + 1, found["most"], measured[index], left, found["clocksMhz"])
        known = len(measured)
        if found["endedAt"] is not None:
            return found
        message = _waiting(found)
        if message and message != waits_for:
            say(message)
        waits_for = message
        time.sleep(POLL_SECONDS)


def _waiting(found: Mapping[str, Any]) -> str:
    """Returns what a campaign waits for; empty while it measures."""
    if found["state"] != "waiting":
        return ""
    return f"waiting for GPU {found['node']}/{found['gpu']}: {found['message'] or 'its node has not asked yet'}"


def _seconds(ended: Mapping[str, Any]) -> float:
    """Returns how long a campaign took, by the server's clock."""
    began, end = seconds_since(ended["askedAt"], 0.0), seconds_since(ended["endedAt"], 0.0)
    return 0.0 if began is None or end is None else began - end
