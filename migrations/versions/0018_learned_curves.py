"""Corrections of profiles have factors for places of the curve, and one for what neighbours do."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
SERVES = "0008"

# latency_factor stays the highest factor: a server of the version before plans the whole curve with it. What such a
# server learned holds for every batch.
UP = [
    """
    ALTER TABLE correction
        ADD latency jsonb NOT NULL DEFAULT '[]',
        ADD sensitivity_factor double precision NOT NULL DEFAULT 1
    """,
    """
    UPDATE correction
    SET latency = jsonb_build_array(jsonb_build_object('batch', 0, 'sm_percent', 100, 'factor', latency_factor))
    WHERE latency_factor <> 1
    """,
]
DOWN = "ALTER TABLE correction DROP latency, DROP sensitivity_factor"


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    op.execute(DOWN)
