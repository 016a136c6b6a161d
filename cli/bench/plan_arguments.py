"""The arguments of all benchmarks of plans: sizes, families, seeds, limits."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from cli.arguments import completes, not_negative, whole

Say: TypeAlias = Callable[[str], None]  # progress, on stderr

GPUS, SERVICES, FAMILY, SEEDS = 100, 50, "A", 5
LETTERS = ("A", "B", "C", "D", "E", "F", "G", "L")


def add_size_arguments(parser: argparse.ArgumentParser, *, seeds: int = SEEDS) -> None:
    """Adds GPUs, services, family and seeds."""
    parser.add_argument("--gpus", metavar="G", type=whole(1), default=GPUS, help=f"GPUs; default {GPUS}")
    parser.add_argument(
        "--services", metavar="N", type=whole(1), default=SERVICES, help=f"services; default {SERVICES}"
    )
    about = f"A to G, or L with language models; default {FAMILY}"
    parser.add_argument("--family", metavar="F", choices=LETTERS, default=FAMILY, help=about)
    parser.add_argument("--seeds", metavar="K", type=whole(1), default=seeds, help=f"seeds 0 to K - 1; default {seeds}")


def add_fleet_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds fleets of files, and their moved rates, in place of a family; these come after sizes and seeds."""
    action = parser.add_argument(
        "-f", "--file", dest="files", metavar="FILE", nargs="+", action="extend", default=[],
        help="fleets from manifests, each file or folder one of them, in place of a family; may be given several times",
    )  # fmt: skip
    completes(action, "files")
    moved = "plan each fleet of -f K times, each service's rate times 0.7 to 1.3, by seeds 0 to K - 1"
    parser.add_argument("--moved", metavar="K", type=whole(1), help=moved)
    # With -f these have no meaning; unset, they differ from any value that was given.
    parser.set_defaults(gpus=None, services=None, family=None, seeds=None)


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
