"""A service's limit says how many open requests each of its copies answers within the SLO."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
SERVES = "0008"

# By place, `node/gpu`; a place that is missing is unknown.
UP = "ALTER TABLE traffic_limit ADD in_time jsonb NOT NULL DEFAULT '{}'"
DOWN = "ALTER TABLE traffic_limit DROP in_time"


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
