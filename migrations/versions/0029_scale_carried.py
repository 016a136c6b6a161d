"""Finds the decisions on replicas that only repeat an earlier plan's, which are forgotten first."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = """
    CREATE INDEX scale_decision_carried ON scale_decision (generation)
        WHERE since < generation AND resource_version = ''
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute("DROP INDEX scale_decision_carried")
