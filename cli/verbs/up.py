"""`gpuwright up`: a whole control plane on this machine, and a fleet for it to plan, until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from cli import exits
from cli.arguments import completes, whole
from cli.exits import Failed
from cli.planner_argument import add_planner_argument
from cli.serving import add_listening_arguments, listen, settings_from, write_logs
from cli.truth import add_truth_arguments, truth_order
from cli.up.cores import CoresNode, cores_node, cores_screen, declare_cores, running_cores
from cli.up.first_screen import (
    NEXT_CORES,
    NEXT_EMPTY,
    NEXT_FLEET,
    console_line,
    ending,
    first_screen,
    fleet_screen,
    reachable,
)
from cli.up.first_service import await_served
from cli.up.fleet import DeclaredFleet, FleetSize, declare_fleet, planning, running
from cli.up.own_database import admin_token, connects_directly, console_link, migrate, own_database

if TYPE_CHECKING:
    from app.http.server import RunningServer
    from app.settings import Settings
    from cli.up.local_context import LocalContext
    from simulation.truths import TruthOrder

EPILOG = """\
On an empty database a fleet is declared (examples/fleet.yaml: 16 GPUs of three types, 12 services, 2 jobs), simulated
under a load that moves, and planned. Where HAProxy is installed two of its services are real: processes of
gpuwright-serve behind a real gateway, under a real agent on simulated GPUs. --empty declares nothing: the planner
plans what you apply, in the mode of your Policy (default: advisory, which only shows what it would do).

While it runs it is the current context, named after its folder (`local` for .gpuwright); the context ends with it.

--llm declares examples/llm.yaml instead: of its 12 services four are language models, each a process of gpuwright-llm
that streams real answers through a real gateway, on one GPU or two.

--cores N offers CPU cores of this machine instead, to models in ONNX and TorchScript files: the world is one node
called `here`, with the GPU type `cpu`, behind a real gateway. A share in percent is a share of the cores' time, which
cgroups enforce (as root).

The data is in the folder of --data-dir: `postgres/` (the database), `admin.token`, logs.
With DATABASE_URL set, that database is used and no Postgres is started.

Examples:
  gpuwright up
  gpuwright up --gpus 1000 --services 300
  gpuwright up --planner hetsev
  gpuwright up --llm
  gpuwright up --cores 2 --models /srv/models
  gpuwright up --empty --data-dir /srv/gpuwright --port 9000
"""
PLANS_YOURS = "  planner   plans what you apply for the nodes that report; see: gpuwright explain plan"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    completes(
        parser.add_argument(
            "--data-dir", metavar="DIR", type=Path, default=Path(".gpuwright"), help="default ./.gpuwright"
        ),
        "files",
    )
    parser.add_argument("--empty", action="store_true", help="no fleet: a control plane that plans what you apply")
    parser.add_argument(
        "--gpus", metavar="G", type=whole(1), help="declare a generated fleet with this many GPUs instead"
    )
    parser.add_argument("--services", metavar="N", type=whole(1), help="services of the generated fleet")
    add_planner_argument(parser)
    parser.add_argument(
        "--cores", metavar="N", type=whole(1), help="instead of simulated GPUs: N CPU cores of this machine, as a node"
    )
    parser.add_argument(
        "--llm", action="store_true", help="declare a fleet with language models, which stream through a real gateway"
    )
    models = parser.add_argument("--models", metavar="DIR", type=Path, help="with --cores: their models; default .")
    completes(models, "files")
    allow_list = parser.add_argument(
        "--allow-list", metavar="FILE", type=Path, help="with --cores: commands of yours that the node starts"
    )
    completes(allow_list, "files")
    add_truth_arguments(parser)
    add_listening_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.empty and args.cores:
        raise Failed("--empty declares nothing, and --cores declares a node: use one of them; see: gpuwright up --help")
    _refuse_beside_llm(args)
    started = time.monotonic()
    data_dir: Path = args.data_dir.expanduser().resolve()
    contexts: list[LocalContext] = []
    with _end_by_signals() as serving, _report_interruption(data_dir, serving), _leave_at_the_end(contexts):
        settings = settings_from(args)
        order = truth_order(args)
        _refuse_before_any_work(data_dir, settings)
        cores = cores_node(args.cores, args.models, args.allow_list)
        with own_database(data_dir, settings, say) as url:
            settings = replace(settings, database_url=url, database_direct=connects_directly(settings))
            log = _write_logs(data_dir, settings)
            say("preparing the database")
            migrate(url)
            token = admin_token(data_dir, settings)
            fleet = (
                None
                if args.empty or cores
                else _fleet(data_dir, settings, FleetSize(args.gpus, args.services, args.llm), order, args.planner)
            )
            if cores is not None:
                _declare(cores, settings)
            say("starting the server")
            with contextlib.ExitStack() as children:

                def ready(listening: RunningServer) -> None:
                    serving.append(listening)
                    reached = reachable(listening.url)
                    context = _remember(data_dir, reached, settings.tls_cert, contexts)
                    seconds = time.monotonic() - started
                    print(first_screen(data_dir, reached, url, token, context, log, seconds), flush=True)
                    print(console_line(reached, console_link(data_dir, settings)), flush=True)
                    if fleet is not None:
                        gateway = children.enter_context(running(fleet, data_dir, settings, reached, say))
                        print(fleet_screen(fleet, gateway), flush=True)
                        _tell_when_served(children, settings, started)
                    elif cores is not None:
                        gateway = children.enter_context(running_cores(cores, data_dir, settings, reached, say))
                        print(cores_screen(cores, gateway), flush=True)
                    else:
                        children.enter_context(planning(data_dir, settings, say))
                        print(PLANS_YOURS, flush=True)
                    print(ending(NEXT_FLEET if fleet else NEXT_CORES if cores else NEXT_EMPTY), flush=True)

                listen(settings, ready)
        say(f"stopped; the data is safe in {data_dir}")
    return exits.OK


def _refuse_beside_llm(args: argparse.Namespace) -> None:
    """Raises Failed for what --llm cannot be combined with, or if nothing here could stream."""
    if not args.llm:
        return
    from simulation.real.part import haproxy_path

    others = {"--empty": args.empty, "--cores": args.cores, "--gpus": args.gpus, "--services": args.services}
    others |= {"--truth": args.truth not in (None, "planner"), "--tls-cert": args.tls_cert}
    wrong = next((flag for flag, given in others.items() if given), None)
    if wrong:
        raise Failed(f"--llm declares a fleet of its own, without {wrong}; see: gpuwright up --help")
    if haproxy_path() is None:
        raise Failed("--llm streams through HAProxy, which is not installed (Debian: apt-get install haproxy)")


def _fleet(
    data_dir: Path, settings: Settings, wanted: FleetSize, order: TruthOrder, planner: str | None
) -> DeclaredFleet | None:
    from app.store.database.database import Database

    database = Database(settings.database_url, pool_size=1, direct=settings.database_direct)
    try:
        return declare_fleet(database, data_dir, wanted, say, order, planner)
    finally:
        database.close()


def _declare(cores: CoresNode, settings: Settings) -> None:
    from app.store.database.database import Database

    database = Database(settings.database_url, pool_size=1, direct=settings.database_direct)
    try:
        declare_cores(database, cores)
    finally:
        database.close()


def _tell_when_served(children: contextlib.ExitStack, settings: Settings, started: float) -> None:
    ended = threading.Event()
    telling = threading.Thread(
        target=await_served, args=(settings, lambda line: print(line, flush=True), started, ended), daemon=True
    )
    children.callback(ended.set)
    telling.start()


def say(line: str) -> None:
    """To stderr at once: stdout may be a pipe."""
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _end_by_signals() -> Iterator[list[RunningServer]]:
    """SIGTERM and a closed terminal end us as Ctrl-C does, whether or not the server listens yet."""
    serving: list[RunningServer] = []

    def end(number: int, frame: FrameType | None) -> None:
        if not serving:
            raise KeyboardInterrupt
        serving[0].stop()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield serving
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _refuse_before_any_work(data_dir: Path, settings: Settings) -> None:
    """Fails at once where another one runs on the folder, or something listens on the port."""
    from app.http.server import refuse_taken_port
    from app.postgres.faults import PostgresError
    from app.postgres.lock import FolderLock
    from app.settings import SettingsError

    try:
        if data_dir.is_dir():
            FolderLock(data_dir).release()
        refuse_taken_port(settings)
    except (PostgresError, SettingsError, OSError) as error:
        raise Failed(str(error)) from error


@contextlib.contextmanager
def _report_interruption(data_dir: Path, serving: list[RunningServer]) -> Iterator[None]:
    """Says what became of a start that was interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        if not serving:
            say(f"stopped while starting; nothing runs any more, and the next start on {data_dir} continues")
        raise


@contextlib.contextmanager
def _leave_at_the_end(contexts: list[LocalContext]) -> Iterator[None]:
    from cli.up.local_context import leave

    try:
        yield
    finally:
        for context in contexts:
            with contextlib.suppress(Failed):
                leave(context)


def _remember(data_dir: Path, server: str, certificate: Path | None, contexts: list[LocalContext]) -> str:
    """Makes this server the current context, and returns the words about it for the first screen."""
    from cli.up.local_context import enter

    entry = {"server": server, "tokenFile": str(data_dir / "admin.token")}
    if certificate is not None:
        entry["caFile"] = str(certificate.resolve())
    try:
        # Made current: what is typed next is meant for this one, not for a production in another context.
        made = enter(data_dir, entry)
    except Failed as error:
        say(f"{error.message}; use --server {server} --token-file {entry['tokenFile']}")
        return ""
    contexts.append(made)
    return f"{made.name}, now current, in {made.path}"


def _write_logs(data_dir: Path, settings: Settings) -> str:
    """Sends the JSON lines to a file in the data folder, so that the terminal shows only the first screen."""
    from app.embedded import LOG_BYTES
    from app.postgres.admission import append_privately

    write_logs(settings)
    path = data_dir / "server.log"
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(io.TextIOWrapper(append_privately(path), encoding="utf-8", line_buffering=True))
    return str(path)
