"""A decision on replicas stands while it is held or refused: what a person said of it stays, and when it is tried."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = """
    ALTER TABLE scale_decision
        ADD COLUMN resumes text NOT NULL DEFAULT '',
        ADD COLUMN is_blind boolean NOT NULL DEFAULT false,
        ADD COLUMN tries int NOT NULL DEFAULT 0,
        ADD COLUMN retry_at timestamptz
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(
        "ALTER TABLE scale_decision DROP COLUMN resumes, DROP COLUMN is_blind, DROP COLUMN tries, DROP COLUMN retry_at"
    )
