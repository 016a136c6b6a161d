"""Orders of pools are found by their end and by their node, however many there have been."""

from __future__ import annotations

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None
SERVES = "0038"

UP = [
    # Those of a day, of this month, and those that are too old.
    "CREATE INDEX rented_node_ended ON rented_node (ended_at)",
    # A later order of the same node.
    "CREATE INDEX rented_node_of ON rented_node (node, asked_at)",
]
DOWN = ["DROP INDEX rented_node_of, rented_node_ended"]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
