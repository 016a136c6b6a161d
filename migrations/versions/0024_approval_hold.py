"""After a rollback the fleet waits for approval until a person resumes it; the row says since when."""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = """
    CREATE TABLE approval_hold (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        generation bigint NOT NULL,
        since timestamptz NOT NULL
    )
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute("DROP TABLE approval_hold")
