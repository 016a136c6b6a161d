"""`gpuwright webhook`: how webhooks do, what they did not get; tries one, sends or discards its dead letters."""

from __future__ import annotations

import argparse

from cli import exits
from cli.arguments import add_connection_arguments
from cli.exits import Failed
from cli.output import OutputTable, age, plain, print_data, say
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.verbs.delete import confirm

EPILOG = """\
Webhooks stand in the file of the server's GPUWRIGHT_WEBHOOKS_FILE. It needs an admin's token.

Examples:
  gpuwright webhook list
  gpuwright webhook try on-call        send an event or an entry to it; `list` then says whether it arrived
  gpuwright webhook dead on-call       what it did not get in twelve tries
  gpuwright webhook retry on-call      send that again
  gpuwright webhook discard siem --id 17    give up what it will never take; without --id, all that `dead` lists
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|try|dead|retry|discard")
    for name, words in (
        ("list", "all webhooks, with what waits and what failed"),
        ("try", "send an event to one webhook"),
        ("dead", "what a webhook did not get"),
        ("retry", "send a webhook's dead letters again"),
        ("discard", "delete a webhook's dead letters"),
    ):
        sub = actions.add_parser(name, help=words)
        if name != "list":
            sub.add_argument("name", metavar="NAME")
        if name == "discard":
            sub.add_argument("--id", type=int, action="append", metavar="ID", help="only this one; may be repeated")
            sub.add_argument("-y", "--yes", action="store_true", help="do not ask before they are deleted")
        sub.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
        add_connection_arguments(sub)


def run(args: argparse.Namespace) -> int:
    with ApiClient(resolve(args)) as client:
        if args.action == "list":
            _show(args, client.get("/api/v1/webhooks")["items"])
        elif args.action == "dead":
            _show_dead(args, client.get(f"/api/v1/webhooks/{args.name}/dead-letters")["items"])
        elif args.action == "discard":
            _discard(args, client)
        else:
            done = client.send("POST", f"/api/v1/webhooks/{args.name}/{args.action}").json()
            if not print_data(done, args.output):
                print(plain(f"webhook {args.name}: {done['queued']} to be sent; see: gpuwright webhook list"))
    return exits.OK


def _show(args: argparse.Namespace, items: list[dict[str, object]]) -> None:
    if print_data(items, args.output):
        return
    if not items:
        say("there are no webhooks: the server has no GPUWRIGHT_WEBHOOKS_FILE")
    table = OutputTable(["NAME", "HOST", "FORMAT", "STREAM", "SENT", "LAST", "WAITING", "DEAD", "LAST ERROR"])
    table.rows(
        [
            *(str(one[key]) for key in ("name", "host", "format", "stream", "sent")),
            age(str(one["sentAt"])) if one["sentAt"] else "never",
            *(str(one[key]) for key in ("waiting", "dead")),
            str(one["error"] or ""),
        ]
        for one in items
    )


def _show_dead(args: argparse.Namespace, items: list[dict[str, object]]) -> None:
    if print_data(items, args.output):
        return
    table = OutputTable(["ID", "AGE", "TRIES", "WHAT", "ERROR"])
    table.rows(
        [str(one["id"]), age(str(one["at"])), str(one["attempts"]), _name(one["event"]), str(one["error"])]
        for one in items
    )


def _discard(args: argparse.Namespace, client: ApiClient) -> None:
    path = f"/api/v1/webhooks/{args.name}/dead-letters"
    letters = [each for each in client.get(path)["items"] if not args.id or each["id"] in args.id]
    ids = args.id or [each["id"] for each in letters]
    if not ids:
        raise Failed(f"webhook {args.name} has no dead letters", exits.NO)
    names = [f"{each['id']}: {_name(each['event'])}, {each['error']}" for each in letters]
    if not (args.yes or confirm(names)):
        raise Failed("nothing was deleted", exits.NO)
    done = client.send("DELETE", path, {"id": ids}).json()  # what was shown, and nothing that died since
    if not print_data(done, args.output):
        print(plain(f"webhook {args.name}: {len(done['discarded'])} discarded"))


def _name(event: object) -> str:
    assert isinstance(event, dict)
    if "audit" in event:
        return f"audit entry {event['audit']}"
    subject = "/".join(str(event[key]) for key in ("kind", "tenant", "name") if event.get(key))
    return f"{event.get('reason')} {subject}"
