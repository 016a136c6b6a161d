"""Reports in SQL: the schema `report` with its views, and what each reader sees of them."""

from __future__ import annotations

from alembic import op

from migrations.report import cost, fleet, money, services, tables

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
SERVES = "0004"

VIEWS = [
    *cost.PERIOD_VIEWS, *cost.COST_VIEWS, *services.SERVICE_VIEWS, *fleet.FLEET_VIEWS, *money.MONEY_VIEWS,
]  # fmt: skip
# Few statements, each of many: a migration is tried with a death at every one of them.
UP = [
    *tables.TABLES,
    *tables.SCHEMA,
    ";\n".join(view.statement for view in VIEWS),
    *tables.GUARDS_AND_ROLES,
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in tables.DOWN:
        op.execute(sql)
