"""`gpuwright whoami`: which token is used and what it may do."""

from __future__ import annotations

import argparse

from cli import exits
from cli.arguments import add_connection_arguments
from cli.output import plain, print_data
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    with ApiClient(resolve(args)) as client:
        answer = client.get("/api/v1/whoami")
        if print_data(answer, args.output):
            return exits.OK
        facts = {
            "server": client.connection.server,
            "context": client.connection.context,
            "from": client.connection.origin,
            **answer,
        }
        for name, value in facts.items():
            if value not in (None, "", [], {}):
                shown = ", ".join(map(str, value)) if isinstance(value, list) else value
                print(f"{plain(name) + ':':<12}{plain(shown)}")
    return exits.OK
