"""Profiling campaigns, and the measurements that they have taken."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = [
    """
    CREATE TABLE campaign (
        id text COLLATE "C" PRIMARY KEY,
        node text COLLATE "C" NOT NULL,
        gpu int NOT NULL,
        model text COLLATE "C" NOT NULL,
        variant text COLLATE "C" NOT NULL,
        gpu_type text COLLATE "C" NOT NULL,
        request jsonb NOT NULL,
        state text NOT NULL CHECK (state IN ('waiting', 'measuring', 'done', 'stopped', 'failed')),
        reason text NOT NULL DEFAULT '',
        message text NOT NULL DEFAULT '',
        asked_by text NOT NULL,
        asked_at timestamptz NOT NULL DEFAULT now(),
        began_at timestamptz,
        ended_at timestamptz,
        pending jsonb,
        failures jsonb NOT NULL DEFAULT '[]',
        CHECK ((ended_at IS NOT NULL) = (state IN ('done', 'stopped', 'failed')))
    )
    """,
    # A node measures for one campaign at a time.
    "CREATE UNIQUE INDEX campaign_live ON campaign (node) WHERE state IN ('waiting', 'measuring')",
    "CREATE INDEX campaign_asked ON campaign (asked_at)",
    """
    CREATE TABLE campaign_measurement (
        campaign text COLLATE "C" NOT NULL REFERENCES campaign ON DELETE CASCADE,
        sequence int NOT NULL,
        measured jsonb NOT NULL,
        received_at timestamptz NOT NULL,
        PRIMARY KEY (campaign, sequence)
    )
    """,
]
DOWN = ["DROP TABLE campaign_measurement", "DROP TABLE campaign"]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
