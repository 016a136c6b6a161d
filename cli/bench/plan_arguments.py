"""The arguments of all benchmarks of plans: sizes, families, seeds, limits."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from cli.arguments import not_negative, whole

Say: TypeAlias = Callable[[str], None]  # progress, on stderr

LETTERS = ("A", "B", "C", "D", "E", "F", "G", "L")


def add_size_arguments(parser: argparse.ArgumentParser, *, seeds: int = 5) -> None:
    """Adds GPUs, services, family and seeds."""
    parser.add_argument("--gpus", metavar="G", type=whole(1), default=100, help="GPUs; default 100")
    parser.add_argument("--services", metavar="N", type=whole(1), default=50, help="services; default 50")
    parser.add_argument(
        "--family", metavar="F", choices=LETTERS, default="A", help="A to G, or L with language models; default A"
    )
    parser.add_argument("--seeds", metavar="K", type=whole(1), default=seeds, help=f"seeds 0 to K - 1; default {seeds}")


def add_family_argument(parser: argparse.ArgumentParser) -> None:
    """Adds a family with a single load."""
    names = [name for letter in LETTERS for name in families(letter)]
    parser.add_argument("--family", metavar="F", choices=names, default="A", help=f"{', '.join(names)}; default A")


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the limits of each plan."""
    parser.add_argument(
        "--seconds", metavar="S", type=not_negative, default=10.0, help="time for each plan; default 10"
    )
    parser.add_argument(
        "--work", metavar="N", type=whole(1), help="deterministic steps for each plan; default: no limit"
    )


def families(letter: str) -> list[str]:
    """Returns the families of a letter: G has two loads."""
    return ["G30", "G95"] if letter == "G" else [letter]
