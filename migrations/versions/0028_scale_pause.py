"""A person puts all scalers into advisory until a person resumes them; the row says who did, since when, and why."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = """
    CREATE TABLE scale_pause (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        paused_by text NOT NULL,
        since timestamptz NOT NULL,
        message text NOT NULL
    )
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute("DROP TABLE scale_pause")
