"""Nodes whose usage cannot be accounted for wait by themselves, and claimed usage is counted by instance and time."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = [
    """
    CREATE TABLE ledger_quarantine (
        node text COLLATE "C" PRIMARY KEY,
        since timestamptz NOT NULL,
        failures integer NOT NULL,
        retry_at timestamptz NOT NULL,
        reason text NOT NULL
    )
    """,
    "CREATE INDEX usage_interval_claimed ON usage_interval (node, instance, gpu, started_at)",
]

DOWN = [
    "DROP INDEX usage_interval_claimed",
    "DROP TABLE ledger_quarantine",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
