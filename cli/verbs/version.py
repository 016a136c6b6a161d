"""`gpuwright version`: versions of client and server."""

from __future__ import annotations

import argparse

from cli import exits
from cli.arguments import add_connection_arguments
from cli.exits import Failed
from cli.output import plain, print_data, say
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--client", action="store_true", help="the version of this command line only, without a server")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from importlib.metadata import PackageNotFoundError, version  # slow, hence here

    try:
        found = {"client": version("gpuwright")}
    except PackageNotFoundError:
        found = {"client": "not installed"}
    if not args.client:
        try:
            with ApiClient(resolve(args)) as client:
                found["server"] = str(client.get("/openapi.json")["info"]["version"])
        except Failed as failure:
            say(failure.message)
            found["server"] = "unknown"
    if not print_data(found, args.output):
        for name, value in found.items():
            print(f"{name + ':':<9}{plain(value)}")
    return exits.OK if found.get("server") != "unknown" else exits.UNREACHABLE
