"""What all benchmarks of plans are asked for: sizes, families, seeds."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

Say: TypeAlias = Callable[[str], None]  # progress, on stderr

LETTERS = ("A", "B", "C", "D", "E", "F", "G")


def add_size_arguments(parser: argparse.ArgumentParser, *, seeds: int = 5) -> None:
    """GPUs, services, family, seeds."""
    parser.add_argument("--gpus", metavar="G", type=count, default=100, help="GPUs; default 100")
    parser.add_argument("--services", metavar="N", type=count, default=50, help="services; default 50")
    parser.add_argument("--family", metavar="F", choices=LETTERS, default="A", help="A to G; default A")
    parser.add_argument("--seeds", metavar="K", type=count, default=seeds, help=f"seeds 0 to K - 1; default {seeds}")


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """How long each plan may take."""
    parser.add_argument("--seconds", metavar="S", type=seconds, default=10.0, help="time for each plan; default 10")
    parser.add_argument("--work", metavar="N", type=count, help="deterministic steps for each plan; default: no limit")


def families(letter: str) -> list[str]:
    """The families of a letter: G stands for two loads."""
    return ["G30", "G95"] if letter == "G" else [letter]


def count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is outside 1..1000000000")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def part(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a part of 1, as 0.05")
    return value
