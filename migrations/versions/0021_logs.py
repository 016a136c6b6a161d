"""Requests for the logs of services and jobs, until the nodes that hold them have answered."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0019"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = [
    """
    CREATE TABLE log_request (
        id text COLLATE "C" PRIMARY KEY,
        tenant text COLLATE "C" NOT NULL,
        node text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        begins text NOT NULL,
        version bigint NOT NULL,
        until timestamptz NOT NULL,
        answered_at timestamptz,
        ends text NOT NULL DEFAULT '',
        body text NOT NULL DEFAULT '' CHECK (octet_length(body) <= 1048576)
    )
    """,
    "CREATE INDEX log_request_version ON log_request (version)",
    "CREATE INDEX log_request_until ON log_request (until)",
    "CREATE INDEX assigned_owner ON assigned (tenant, service, job, first_at)",
    "INSERT INTO version (name) VALUES ('log')",
]
DOWN = [
    "DELETE FROM version WHERE name = 'log'",
    "DROP INDEX assigned_owner",
    "DROP TABLE log_request",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
