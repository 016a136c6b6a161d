"""An hour that is to be rolled up again names the nodes whose minutes came in late."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = [
    # The nodes are all that were touched where `nodes_at` is `touched_at`: a server of the version before names none.
    "ALTER TABLE pending_hour ADD nodes text[], ADD nodes_at timestamptz",
]

DOWN = ["ALTER TABLE pending_hour DROP nodes, DROP nodes_at"]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
