"""The whole schema. Revisions before this one never shipped; a database that has one is refused."""

from __future__ import annotations

from alembic import op

from migrations.start import cycle, minutes, money, report, requests, telemetry, world

revision = "0025"
down_revision = None
branch_labels = None
depends_on = None

UP = [*world.UP, *telemetry.UP, *minutes.UP, *cycle.UP, *requests.UP, *money.UP, *report.UP]
DOWN = [*report.DOWN, *money.DOWN, *requests.DOWN, *cycle.DOWN, *minutes.DOWN, *telemetry.DOWN, *world.DOWN]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
