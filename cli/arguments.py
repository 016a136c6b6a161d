"""Arguments that several verbs share, and how they mark what the shell may complete."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Literal

from app.manifests.numbers import finite_number
from cli.talk.contexts import DEFAULT_SERVER

Completes = Literal["kinds", "names", "nodes", "files", "contexts", "verbs"]
MOST = 1_000_000_000  # that any number here may be
MOST_VERSION = 10**18 - 1  # of a resource
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
LONGEST_DAYS = 3_660  # ten years: later than any date that a verb has use for


def completes(action: argparse.Action, what: Completes) -> None:
    """Lets the shell offer `what` for the value of this argument."""
    action.completes = what  # type: ignore[attr-defined]


def add_connection_arguments(parser: argparse.ArgumentParser, *, tenant: bool = False) -> None:
    """Adds the flags of every verb that talks to the server; `tenant` where names or lists need one."""
    group = parser.add_argument_group("connection")
    completes(group.add_argument("--context", metavar="NAME", help="context of the config file"), "contexts")
    group.add_argument("--server", metavar="URL", help=f"server address, for example {DEFAULT_SERVER}")
    completes(group.add_argument("--token-file", metavar="FILE", help="file that holds the token"), "files")
    if tenant:
        group.add_argument("--tenant", metavar="TENANT", help="tenant of services and jobs named without one")
    group.add_argument(
        "--request-timeout",
        type=positive,
        metavar="SECONDS",
        default=60.0,
        help="time limit of a request; default 60",
    )
    group.add_argument("-v", "--verbose", action="store_true", help="show requests on stderr, without secrets")


def add_file_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Adds `-f FILE|DIR|-`, which may be repeated."""
    action = parser.add_argument(
        "-f", "--file", dest="files", metavar="FILE", action="append", required=required, default=None,
        help="a file, a folder (its .yaml, .yml and .json files) or - for stdin; may be given several times",
    )  # fmt: skip
    completes(action, "files")
    parser.add_argument("-R", "--recursive", action="store_true", help="go into folders below the folders given")


def add_kind_argument(
    parser: argparse.ArgumentParser, help_text: str, *, many: bool = False, optional: bool = False
) -> None:
    """Adds the KIND argument; `svc`, `service` and `services` mean the same."""
    nargs = "?" if optional else None
    action = parser.add_argument("kind", nargs=nargs, metavar="KINDS" if many else "KIND", help=help_text)
    completes(action, "kinds")


def add_selector_arguments(parser: argparse.ArgumentParser, *, fields: bool = True) -> None:
    """Adds `-l`, and `--field-selector` where whole lists are asked for."""
    parser.add_argument("-l", "--selector", metavar="LABELS", default="", help="by labels: a=b,c!=d,e,!f")
    if fields:
        parser.add_argument("--field-selector", metavar="FIELDS", default="", help="by fields: spec.model=resnet50")


def finite(text: str) -> float:
    """Returns a finite number; the verb checks what it may be."""
    value = finite_number(text)
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a number")
    return value


def positive(text: str) -> float:
    """Returns a number over 0."""
    value = finite_number(text)
    if value is None or not 0 < value < MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a number over 0 and under {MOST:g}")
    return value


def not_negative(text: str) -> float:
    """Returns a number of at least 0."""
    value = finite_number(text)
    if value is None or not 0 <= value < MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a number of at least 0 and under {MOST:g}")
    return value


def part(text: str) -> float:
    """Returns a share over 0 and up to 1."""
    value = finite_number(text)
    if value is None or not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a share over 0 and up to 1, like 0.05")
    return value


def whole(least: int, most: int = MOST) -> Callable[[str], int]:
    """Returns a reader of whole numbers from `least` to `most`."""

    def read(text: str) -> int:
        # Eighteen digits at most: int() refuses thousands of them in words of its own.
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a whole number from {least} to {most}")
        return int(text)

    return read


def duration(text: str) -> int:
    """Returns the seconds of `90`, `90s`, `15m`, `12h`, `30d` or `2w`."""
    match = re.fullmatch(r"([0-9]{1,9})([smhdw]?)", text)
    seconds = int(match[1]) * UNITS[match[2] or "s"] if match else 0
    if not 0 < seconds <= LONGEST_DAYS * UNITS["d"]:
        allowed = f"a time like 90s, 15m, 12h, 30d or 2w, over 0 and up to {LONGEST_DAYS}d"
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: {allowed}{_duration_meant(text)}")
    return seconds


def _duration_meant(text: str) -> str:
    """Returns the form that `5minutes`, `2 hours` or `99y` stand for, to be added to a message; empty: none."""
    match = re.fullmatch(r"([1-9][0-9]{0,6}) ?([a-z]+)", text.lower())
    if match is None or match[2][0] not in UNITS or match[2] in UNITS or match[2].startswith("mo"):
        return ""
    return f"; did you mean {match[1]}{match[2][0]}?"
