"""The changes that each tenant, and each token without a tenant, makes a day are counted."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = [
    """
    CREATE TABLE change_count (
        account text COLLATE "C" NOT NULL,
        day date NOT NULL,
        units bigint NOT NULL,
        PRIMARY KEY (account, day)
    )
    """,
    "CREATE INDEX change_count_day ON change_count (day)",
]

DOWN = ["DROP TABLE change_count"]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
