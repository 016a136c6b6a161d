"""`gpuwright config`: contexts, that is servers and tokens by name."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from agents.host.plaintext import plaintext_refusal
from cli import exits
from cli.arguments import completes
from cli.exits import Failed
from cli.output import OutputTable, plain, print_data, say
from cli.talk.client import ApiClient
from cli.talk.contexts import ServerContext, check_token, config_path, load, read_token, remember, resolve, save

EPILOG = """\
The file is $GPUWRIGHT_CONFIG, else ~/.config/gpuwright/config.json. GPUWRIGHT_CONTEXT, GPUWRIGHT_SERVER and
GPUWRIGHT_TOKEN override it; flags override both. Tokens are never shown.

Examples:
  gpuwright config set prod --server https://gpus.example.com --token-file ~/prod.token --tenant shop
  gpuwright config use prod
  gpuwright config contexts
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="contexts|current|use|set|delete")
    listing = actions.add_parser("contexts", help="list all contexts")
    listing.add_argument("-o", "--output", choices=("table", "json", "name"), default="table")
    actions.add_parser("current", help="print the name of the context in use")
    use = actions.add_parser("use", help="switch to a context")
    change = actions.add_parser("set", help="create or change a context")
    delete = actions.add_parser("delete", help="remove a context")
    for sub in (use, change, delete):
        completes(sub.add_argument("name", metavar="NAME"), "contexts")
    change.add_argument("--server", metavar="URL", help="http(s)://HOST[:PORT]")
    completes(change.add_argument("--token-file", metavar="FILE", help="read at each use"), "files")
    change.add_argument("--token-stdin", action="store_true", help="keep the token read from stdin in the config")
    completes(
        change.add_argument("--ca-file", metavar="FILE", help="CA that signed the server's certificate"),
        "files",
    )
    change.add_argument("--tenant", metavar="TENANT", help="tenant of services and jobs named without one")
    change.add_argument("--use", action="store_true", help="also switch to this context")


def run(args: argparse.Namespace) -> int:
    path = config_path()
    if args.action == "set":
        return change(args, path)
    config = load(path)
    contexts = config["contexts"]
    if args.action == "contexts":
        return show(args, config)
    if args.action == "current":
        print(plain(resolve(argparse.Namespace()).context or "none"))
        return exits.OK
    if args.name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise Failed(f"context {args.name!r} does not exist in {path}; known contexts: {known}", exits.NO)
    if args.action == "use":
        config["current"] = args.name
        save(path, config)
        print(plain(f"context {args.name} is in use"))
        if os.environ.get("GPUWRIGHT_CONTEXT", args.name) != args.name:
            say("warning: GPUWRIGHT_CONTEXT is set and overrides it")
        return exits.OK
    del contexts[args.name]
    if config["current"] == args.name:
        config["current"] = ""
    save(path, config)
    print(plain(f"context {args.name} deleted"))
    return exits.OK


def change(args: argparse.Namespace, path: Path) -> int:
    """Sets the given fields and keeps the rest."""
    entry = dict(load(path)["contexts"].get(args.name, {}))
    if args.token_file and args.token_stdin:
        raise Failed("--token-file and --token-stdin exclude each other")
    if args.server:
        server = args.server.rstrip("/")
        if server != entry.get("server", server) and not (args.token_file or args.token_stdin):
            entry.pop("token", None)  # a token is for one server
            entry.pop("tokenFile", None)
        entry["server"] = server
    if "server" not in entry:
        raise Failed(f"context {args.name} is new: it needs --server URL")
    ApiClient(ServerContext(entry["server"])).close()  # refuses a malformed address
    _set_token(args, entry)
    if args.ca_file:
        if not Path(args.ca_file).expanduser().is_file():
            raise Failed(f"the file {args.ca_file} does not exist")
        entry["caFile"] = str(Path(args.ca_file).expanduser().resolve())
    if args.tenant is not None:
        entry["tenant"] = args.tenant
    remember(args.name, entry, select=args.use, path=path)
    print(plain(f"context {args.name} set"))
    if refusal := plaintext_refusal(entry["server"]):
        say(f"warning: no token is sent: {refusal}")
    return exits.OK


def _set_token(args: argparse.Namespace, entry: dict[str, str]) -> None:
    if args.token_file:
        read_token(args.token_file)
        entry.pop("token", None)
        entry["tokenFile"] = str(Path(args.token_file).expanduser().resolve())
    if args.token_stdin:
        entry.pop("tokenFile", None)
        entry["token"] = check_token(sys.stdin.readline(), "stdin")


def show(args: argparse.Namespace, config: dict[str, dict[str, dict[str, str]]]) -> int:
    """Prints the contexts and the places of their tokens."""
    current, contexts = str(config["current"]), config["contexts"]
    if args.output == "name":
        for name in sorted(contexts):
            print(plain(name))
        return exits.OK
    rows = [
        {
            "name": name,
            "current": name == current,
            "server": entry.get("server", ""),
            "tenant": entry.get("tenant", ""),
            "token": entry.get("tokenFile") or ("in the config file" if entry.get("token") else "none"),
        }
        for name, entry in sorted(contexts.items())
    ]
    if print_data(rows, args.output):
        return exits.OK
    table = OutputTable(["CURRENT", "NAME", "SERVER", "TENANT", "TOKEN"])
    table.rows(
        ["*" if row["current"] else " ", *(row[key] for key in ("name", "server", "tenant", "token"))] for row in rows
    )
    if not rows:
        say("there are no contexts; create one with: gpuwright config set NAME --server URL --token-file FILE")
    return exits.OK
