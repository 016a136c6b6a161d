"""The whole schema. Revisions before this one never shipped; a database that has one is refused."""

from __future__ import annotations

from alembic import op

from migrations.start import cycle, minutes, money, report, requests, scale, telemetry, webhooks, world

revision = "0038"
down_revision = None
branch_labels = None
depends_on = None

NOUNS = (world, telemetry, minutes, cycle, requests, money, scale, webhooks, report)
UP = [sql for noun in NOUNS for sql in noun.UP]
DOWN = [sql for noun in reversed(NOUNS) for sql in noun.DOWN]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
