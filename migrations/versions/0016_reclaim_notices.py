"""Notices that a node will be reclaimed, by those who give them: a request, or the node's own agent."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None
SERVES = "0008"

# A notice of the node's agent that an operator withdrew stays, so that the next report does not give it again.
UP = """
    CREATE TABLE reclaim_notice (
        node text COLLATE "C" NOT NULL,
        source text NOT NULL CHECK (source IN ('request', 'node')),
        deadline timestamptz NOT NULL,
        is_withdrawn boolean NOT NULL DEFAULT false,
        asked_by text NOT NULL,
        asked_at timestamptz NOT NULL DEFAULT now(),
        message text NOT NULL DEFAULT '',
        PRIMARY KEY (node, source)
    )
"""
DOWN = "DROP TABLE reclaim_notice"


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
