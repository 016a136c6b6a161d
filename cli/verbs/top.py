"""`gpuwright top`: services, GPUs, cost and decisions, live."""

from __future__ import annotations

import argparse
import shutil
import sys
import time

from cli import exits
from cli.arguments import add_connection_arguments, positive
from cli.exits import Failed
from cli.output import COLOURS, format_json, shows_colours
from cli.talk.client import ApiClient
from cli.talk.contexts import resolve
from cli.views.frame import frame

EPILOG = """\
RATE/S is what was answered in the last minute, ATTAINED the share of the last 30 minutes within the SLO, PREDICTED
the plan's latency at the SLO's percentile; held is the price of the GPUs that hold copies of services now, which during
a rollout is not that of the plan. Ctrl-C ends it.

Examples:
  gpuwright top
  gpuwright top --once
  gpuwright top --once -o json
"""
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # a screen of its own, without a cursor
HOME, REST, LINE = "\x1b[H", "\x1b[J", "\x1b[K"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--once", action="store_true", help="print one frame and exit")
    parser.add_argument("--every", type=positive, metavar="SECONDS", default=2.0, help="between frames; default 2")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="json with --once only")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.output == "json" and not args.once:
        raise Failed("-o json works only with --once")
    paint = {name: f"\x1b[{code}m" for name, code in COLOURS.items()} if shows_colours(sys.stdout) else {}
    with ApiClient(resolve(args)) as client:
        if args.once or not sys.stdout.isatty():
            overview = client.get("/api/v1/overview")
            print(
                format_json(overview)
                if args.output == "json"
                else "\n".join(frame(overview, None, paint, client.currency))
            )
            return exits.OK
        return _live(client, args.every, paint)


def _live(client: ApiClient, every: float, paint: dict[str, str]) -> int:
    sys.stdout.write(ENTER)
    try:
        while True:
            size = shutil.get_terminal_size()
            try:
                overview = client.get("/api/v1/overview")
                lines = frame(overview, size.lines - 1, paint, client.currency)
            except Failed as failure:  # it may come back
                lines = [failure.message]
            shown = "".join(f"{_cut(line, size.columns)}{LINE}\n" for line in lines)
            sys.stdout.write(f"{HOME}{shown}{REST}")
            sys.stdout.flush()
            time.sleep(every)
    except KeyboardInterrupt:
        return exits.OK
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()


def _cut(line: str, columns: int) -> str:
    """A line that would wrap moves everything below it."""
    return line if len(line) <= columns or line.startswith("\x1b") else line[:columns]
