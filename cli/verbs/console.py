"""`gpuwright console`: a new link that signs a browser in to the console, once."""

from __future__ import annotations

import argparse
import webbrowser

from cli import exits
from cli.arguments import add_connection_arguments
from cli.output import plain, print_data, say
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve

EPILOG = """\
The link is for the holder of the token that the command uses, and shows what that token may see.

Examples:
  gpuwright console
  gpuwright console --open          in the browser of this machine
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--open", action="store_true", help="open it in a browser")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    with ApiClient(resolve(args)) as client:
        made = client.send("POST", "/api/v1/sign-in-links").json()
        link = f"{client.connection.server}{made['path']}"
    if not print_data({"link": link, "seconds": made["seconds"]}, args.output):
        print(plain(link))
        say(f"signs a browser in once, within {made['seconds']} s")
    if args.open and not webbrowser.open(link):
        say("no browser could be opened here")
    return exits.OK
