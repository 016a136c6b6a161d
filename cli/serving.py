"""What verbs that serve or lead share: where they listen, settings, the log, and why a database does not answer."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cli import exits
from cli.arguments import completes
from cli.exits import Failed

if TYPE_CHECKING:
    from app.http.server import RunningServer
    from app.settings import Settings


def add_listening_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of address, port, TLS and plaintext."""
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on; default 127.0.0.1")
    parser.add_argument("--port", metavar="PORT", type=_port, help="default 8080; 0 for any free one")
    completes(parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="certificate, PEM"), "files")
    completes(parser.add_argument("--tls-key", metavar="FILE", type=Path, help="its key, PEM"), "files")
    parser.add_argument(
        "--allow-plaintext",
        action="store_true",
        default=None,
        help="listen beyond this machine without TLS; tokens can then be read in transit",
    )


def settings_from(args: argparse.Namespace) -> Settings:
    """Returns the environment, overruled by the command line; refused where tokens would travel unprotected."""
    from app.http.server import check
    from app.settings import SettingsError, read_environment
    from app.store.database.urls import libpq_url

    try:
        settings = read_environment(
            host=args.host,
            port=args.port,
            tls_cert=args.tls_cert,
            tls_key=args.tls_key,
            allow_plaintext=args.allow_plaintext,
        )
        check(settings)
        if settings.database_url:
            libpq_url(settings.database_url)  # refuses what is no Postgres
    except SettingsError as error:
        raise Failed(str(error)) from error
    return settings


def write_logs(settings: Settings) -> None:
    """JSON lines on stderr, without what is secret."""
    from app.http import logs

    logs.configure(settings.log_level, secrets=settings.secrets())


def refuse_unknown_schema(settings: Settings) -> None:
    """One line now, rather than 503 to every request."""
    from app.store.database import schema
    from app.store.database.database import Database, Unavailable

    database = Database(settings.database_url, pool_size=1, direct=settings.database_direct)
    try:
        database.read(schema.require)
    except schema.SchemaError as error:
        raise Failed(str(error), exits.REFUSED) from error
    except Unavailable as error:
        raise Failed(f"{error}: {cause_of(error)}", exits.UNREACHABLE) from error
    finally:
        database.close()


def cause_of(error: BaseException) -> str:
    """Returns the driver's first message on one line, without the URL and its password."""
    innermost = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    original = getattr(innermost, "orig", None) or innermost
    return " ".join(str(original).split())[:300]


def listen(settings: Settings, on_ready: Callable[[RunningServer], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM."""
    from app.http.server import StartupFailed, serve
    from app.main import create_app
    from app.settings import SettingsError
    from cli.reviewing import choose_review

    try:
        serve(create_app(settings, choose_review(settings)), settings, on_ready=on_ready)
    except (SettingsError, StartupFailed) as error:
        raise Failed(str(error)) from error


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0..65535")
    return int(text)
