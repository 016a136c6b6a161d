"""When a node last asked for another partition of each of its GPUs, for as long as plans remember it."""

from __future__ import annotations

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None
SERVES = "0025"

UP = ["ALTER TABLE node_detail ADD COLUMN requested_at jsonb NOT NULL DEFAULT '{}'"]
DOWN = ["ALTER TABLE node_detail DROP COLUMN requested_at"]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
