"""`gpuwright db grant-report|revoke-report|readers|carbon`: who reads whose reports; the grid they count by."""

from __future__ import annotations

import argparse
import re
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli import exits
from cli.exits import Failed

if TYPE_CHECKING:
    from app.store.access.readers import ReportReader

MOST_GRAMS = 10_000
PLACES = 9


def add_actions(actions: Any) -> list[argparse.ArgumentParser]:
    """Their parsers, for what all actions have in common."""
    grant = actions.add_parser(
        "grant-report", help="let a role read the reports in SQL: of some tenants, or of the whole fleet"
    )
    grant.add_argument(
        "role", metavar="ROLE", help="the role; created with a password, shown once, if it does not exist"
    )
    whose = grant.add_mutually_exclusive_group(required=True)
    whose.add_argument("--tenant", metavar="NAME", action="append", type=_tenant, help="its rows; may be repeated")
    whose.add_argument("--fleet", action="store_true", help="the rows of the whole fleet")
    revoke = actions.add_parser("revoke-report", help="take back what grant-report gave; the role itself stays")
    revoke.add_argument("role", metavar="ROLE")
    readers = actions.add_parser("readers", help="list the roles that read reports, and whose")
    carbon = actions.add_parser("carbon", help="how much carbon a region's grid emits, from a day on, for reports")
    carbon.add_argument(
        "region", metavar="REGION", type=_region, help="region of the nodes; `default` if they name none"
    )
    carbon.add_argument("grams", metavar="GRAMS", type=_amount, help="grams of CO2 equivalent per kilowatt-hour")
    carbon.add_argument("--from", dest="begins", metavar="DATE", type=_day, required=True, help="UTC day")
    carbon.add_argument("--source", default="", help="source of the figure")
    return [grant, revoke, readers, carbon]


def _tenant(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("a tenant's name is empty; use --fleet for every tenant")
    return text


def _region(text: str) -> str:
    from app.manifests.words import WORD  # nodes' regions are such words, and no other is ever looked up

    if not re.fullmatch(WORD, text):
        raise argparse.ArgumentTypeError(f"{text!r} is no region; allowed are 1 to 63 letters, digits, - _ and .")
    return text


def _amount(text: str) -> Decimal:
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("nan")
    if not found.is_finite() or not 0 <= found <= MOST_GRAMS or round(found, PLACES) != found:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to {MOST_GRAMS} of at most {PLACES} decimals")
    return found.copy_abs()  # not -0


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a day; allowed is YYYY-MM-DD, as 2026-02-01") from None


def run(args: argparse.Namespace, url: str) -> int:
    """Runs the action on the database of `url`."""
    from app.store.access.readers import ReaderRefused
    from app.store.database.database import Database

    database = Database(url, pool_size=1)
    try:
        verbs = {"grant-report": _grant, "revoke-report": _revoke, "readers": _readers, "carbon": _carbon}
        return verbs[args.action](args, url, database)
    except ReaderRefused as refused:
        raise Failed(str(refused), exits.REFUSED) from refused
    finally:
        database.close()


def _grant(args: argparse.Namespace, url: str, database: Any) -> int:
    import psycopg

    from app.store.access import readers
    from app.store.database import schema
    from cli.output import say

    database.read(schema.require)
    tenants = readers.FLEET if args.fleet else sorted(set(args.tenant))
    database.read(lambda connection: readers.check(connection, args.role, tenants))
    with psycopg.connect(_maker(args.data_dir, url), autocommit=True) as connection:
        password = readers.create_role(connection, args.role)
        if password:  # printed before anything else can fail: it cannot be shown later
            print(f"{args.role} was created with the password {password}, which is not shown again", flush=True)
        left_to_run = readers.limit_connections(connection, args.role)
    database.write(lambda connection: readers.grant(connection, args.role, tenants))
    print(f"{args.role} reads the reports of {'the whole fleet' if tenants is readers.FLEET else ', '.join(tenants)}")
    if left_to_run:
        say(f"{args.role} can take every connection of Postgres; as a superuser of the database: {left_to_run}")
    return exits.OK


def _maker(data_dir: Path | None, url: str) -> str:
    """Returns the URL of the user that makes the role: the superuser of an embedded server, else that of `url`."""
    import os

    from app.postgres.admission import admin_of_running
    from app.postgres.cluster import SUPERUSER
    from app.store.database.urls import libpq_url

    own = None
    if data_dir is not None or not os.environ.get("DATABASE_URL"):
        own = admin_of_running((data_dir or Path(".gpuwright")).expanduser().resolve(), SUPERUSER)
    return own or libpq_url(url)


def _revoke(args: argparse.Namespace, url: str, database: Any) -> int:
    from app.store.access import readers

    if not database.write(lambda connection: readers.revoke(connection, args.role)):
        raise Failed(f"{args.role} reads no reports", exits.REFUSED)
    print(f"{args.role} reads no reports any more")
    return exits.OK


def _carbon(args: argparse.Namespace, url: str, database: Any) -> int:
    from app.store.money import carbon

    database.write(lambda connection: carbon.put(connection, args.region, args.begins, args.grams, args.source))
    print(f"{args.region} emits {args.grams:f} g a kWh from {args.begins} on")
    return exits.OK


def _readers(args: argparse.Namespace, url: str, database: Any) -> int:
    from app.store.access import readers
    from cli.output import OutputTable

    found = database.read(readers.list_readers)
    OutputTable(["ROLE", "READS", "NOTE"]).rows(
        [reader.role, "the whole fleet" if reader.tenant is readers.FLEET else reader.tenant, _note(reader)]
        for reader in found
    )
    return exits.OK


def _note(reader: ReportReader) -> str:
    if not reader.is_known:
        return "the role does not exist: grant again"
    return "" if reader.is_admitted else "may not read the views: grant again"
