"""What a node reports may also be that its cluster drains it: a notice without a time."""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None
SERVES = "0025"

UP = [
    "ALTER TABLE reclaim_notice ALTER COLUMN deadline DROP NOT NULL",
    "ALTER TABLE reclaim_notice ADD CONSTRAINT asked_with_time CHECK (deadline IS NOT NULL OR source = 'node')",
]
DOWN = [
    "ALTER TABLE reclaim_notice DROP CONSTRAINT asked_with_time",
    "DELETE FROM reclaim_notice WHERE deadline IS NULL",
    "ALTER TABLE reclaim_notice ALTER COLUMN deadline SET NOT NULL",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
