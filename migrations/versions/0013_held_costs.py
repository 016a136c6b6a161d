"""Savings have what the services of a tenant really held in the hour beside what the plan says that they cost."""

from __future__ import annotations

from alembic import op

from migrations.start.report.cost import NANO
from migrations.start.report.fleet import FLEET_VIEWS
from migrations.start.report.view import Column, View

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None
SERVES = "0008"

BEFORE = [view for view in FLEET_VIEWS if view.name in ("savings", "savings_daily", "savings_monthly")]
HELD = Column(
    "held_cost", f"CASE WHEN count(fact.held_nano) = count(*) THEN sum(fact.held_nano) * {NANO} END",
    "The price of the GPUs on which copies of the services really were, each once, both of a hand-over; the same for "
    "every baseline. Null where it is unknown for any hour.",
)  # fmt: skip
AFTER = [View(view.name, view.comment, [*view.columns, HELD], view.source) for view in BEFORE]
NAMES = ", ".join(f"report.{view.name}" for view in BEFORE)

UP = [
    # Null is unknown: hours from before, and those that a server of the version before writes.
    "ALTER TABLE saving ADD held_nano bigint",
    # Replaced and not dropped, so that readers keep their rights.
    *(view.statement.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1) for view in AFTER),
]
DOWN = [
    f"DROP VIEW {NAMES}",
    "ALTER TABLE saving DROP held_nano",
    *(view.statement for view in BEFORE),
    "DO $$ BEGIN PERFORM report.admit(rolname) FROM pg_roles WHERE rolname IN (SELECT role FROM report_reader); END $$",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
