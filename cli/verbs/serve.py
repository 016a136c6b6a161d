"""`gpuwright serve`: the API on the database of DATABASE_URL, and nothing else."""

from __future__ import annotations

import argparse

from cli import exits
from cli.exits import Failed
from cli.serving import add_listening_arguments, listen, refuse_unknown_schema, settings_from, write_logs

EPILOG = """\
Everything else is set in the environment: DATABASE_URL, DATABASE_LISTEN_URL, GPUWRIGHT_POOL_SIZE, ...

The first admin token of a database comes from `gpuwright db token --out admin.token` with the same DATABASE_URL. The
same makes a new one when all were lost or revoked.

Examples:
  DATABASE_URL=postgresql://gpuwright@db/gpuwright gpuwright db migrate
  DATABASE_URL=postgresql://gpuwright@db/gpuwright gpuwright serve
  gpuwright serve --host 0.0.0.0 --port 443 --tls-cert cert.pem --tls-key key.pem
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_listening_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = settings_from(args)
    if not settings.database_url:
        raise Failed("DATABASE_URL is not set; set it, or run `gpuwright up`, which brings a Postgres along")
    write_logs(settings)
    refuse_unknown_schema(settings)
    listen(settings)
    return exits.OK
