"""Runs benchmarks for which others have published figures and data."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from cli.bench.plan_arguments import Say
from cli.exits import Failed

MODULES = {"inferno": "inferno", "parvagpu": "parvagpu"}  # of lab.published, by verb


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", required=True, help="folder that holds the published files")


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Runs the benchmark of that name."""
    from lab.data.missing_data import DataMissing

    module = import_module(f"lab.published.{MODULES[args.what]}")
    say(f"reading {args.data}")
    try:
        found: dict[str, Any] = module.run(args.data)
    except DataMissing as missing:
        raise Failed(str(missing)) from None
    return found
