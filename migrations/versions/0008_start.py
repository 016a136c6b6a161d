"""The whole schema. Revisions before this one never shipped; a database that has one is refused."""

from __future__ import annotations

from alembic import op

from migrations.start import cycle, money, report, telemetry, world

revision = "0008"
down_revision = None
branch_labels = None
depends_on = None

UP = [*world.UP, *telemetry.UP, *cycle.UP, *money.UP, *report.UP]
DOWN = [*report.DOWN, *money.DOWN, *cycle.DOWN, *telemetry.DOWN, *world.DOWN]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
