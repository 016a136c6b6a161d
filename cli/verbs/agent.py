"""`gpuwright agent join|run`: the agent of a GPU node; needs the [agent] extra and nothing else."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cli import exits
from cli.exits import Failed

EPILOG = """\
Examples:
  gpuwright token join --node node-1            (as an admin) prints a one-time token
  gpuwright agent join --server https://plane:8080 --node node-1 --gpu-type v100-pcie-16gb --gpus 4 < token
  gpuwright agent run

The one-time token is read from --token-file, GPUWRIGHT_JOIN_TOKEN or the standard input: an argument could be
seen by everybody on this machine.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    join = what.add_parser("join", help="spend a one-time token on this node's own credential")
    join.add_argument("--server", metavar="URL", required=True)
    join.add_argument("--ca-file", metavar="FILE", default="", help="certificates to trust, PEM")
    join.add_argument("--node", metavar="NAME", required=True)
    join.add_argument("--token-file", metavar="FILE", type=Path, help="default: standard input")
    join.add_argument("--gpu-type", metavar="NAME", required=True)
    join.add_argument("--gpus", metavar="N", type=int, required=True)
    join.add_argument("--cpu-cores", metavar="N", type=int, default=os.cpu_count() or 1)
    join.add_argument("--memory-gib", metavar="N", type=int, default=_memory_gib())
    run_ = what.add_parser("run", help="report and follow assignments until stopped")
    for sub in (join, run_):
        sub.add_argument("--state-dir", metavar="DIR", type=Path, default=_state_dir(), help="default %(default)s")


def run(args: argparse.Namespace) -> int:
    return _join(args) if args.what == "join" else _run(args)


def _join(args: argparse.Namespace) -> int:
    from agents.join import join
    from agents.link import LinkError
    from agents.state import Folder

    spec = {
        "gpuType": args.gpu_type,
        "gpus": args.gpus,
        "cpuCores": args.cpu_cores,
        "memoryGib": args.memory_gib,
    }
    try:
        joined = join(Folder(args.state_dir), args.server, _token(args), args.node, spec, args.ca_file)
    except LinkError as error:
        raise Failed(str(error), exits.REFUSED if error.status else exits.UNREACHABLE) from error
    except (OSError, ValueError) as error:
        raise Failed(str(error)) from error
    there = "" if args.state_dir == _state_dir() else f" --state-dir {args.state_dir}"
    print(f"node {joined.node} has joined; next: gpuwright agent run{there}")
    return exits.OK


def _run(args: argparse.Namespace) -> int:
    import logging
    import signal

    from agents.agent import Agent
    from agents.state import Folder

    folder = Folder(args.state_dir)
    credential = folder.credential()
    if credential is None:
        raise Failed(f"no credential in {args.state_dir}; run `gpuwright agent join` first")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    agent = Agent(folder, credential)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    logging.info("node %s reports to %s until stopped", credential.node, credential.server)
    agent.run()
    return exits.OK


def _token(args: argparse.Namespace) -> str:
    if args.token_file:
        token, place = str(args.token_file.read_text()), str(args.token_file)
    elif "GPUWRIGHT_JOIN_TOKEN" in os.environ:
        token, place = os.environ["GPUWRIGHT_JOIN_TOKEN"], "GPUWRIGHT_JOIN_TOKEN"
    else:
        if sys.stdin.isatty():
            print("one-time token: ", end="", file=sys.stderr, flush=True)
        token, place = sys.stdin.readline(), "the standard input"
    if not token.strip():
        raise Failed(f"there is no one-time token in {place}; an admin makes one with: gpuwright token join")
    return token.strip()


def _state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "gpuwright-agent"


def _memory_gib() -> int:
    return max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30)
