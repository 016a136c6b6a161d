"""What CP-SAT found of plans of small fleets, beside each plan that was checked, and a view of it."""

from __future__ import annotations

from alembic import op

from migrations.start.report.tables import READERS
from migrations.start.report.view import Column, View

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None
SERVES = "0025"

OF_OBJECTS = "SELECT (kind, tenant, name, spec) ON object"
FIRST = READERS[-1].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


def _admit_to(columns: str) -> str:
    """Returns the function that lets who reads reports read these columns of plans, too."""
    of_plans = f"SELECT ({columns}) ON plan"
    lines = FIRST.split("\n")
    return "\n".join(f"{line}\n{line.replace(OF_OBJECTS, of_plans)}" if OF_OBJECTS in line else line for line in lines)


CROSS_CHECKS = View(
    "cross_checks",
    "What CP-SAT found of plans of fleets of at most 8 GPUs and 6 services. Only for readers of the whole fleet.",
    [
        Column("generation", "plan.generation", "The plan."),
        Column("checked_at", "checked.at", "When it was checked."),
        Column("outcome", "checked.outcome",
               "`same`: no plan is cheaper. `dearer`: one is. `unproved`: CP-SAT ran out of work. `contradiction`: one "
               "of the two is wrong. `unchecked`: see the message."),
        Column("cost_per_hour", "round(checked.cost, 9)", "What the plan costs an hour, hand-overs and jobs aside."),
        Column("bound_per_hour", "round(checked.bound, 9)", "What any plan costs at least, by CP-SAT."),
        Column("message", "checked.message", "The outcome in words."),
    ],
    """FROM plan CROSS JOIN LATERAL jsonb_to_record(plan.cross_check) AS checked (
    outcome text, message text, cost numeric, bound numeric, at timestamptz)
WHERE plan.cross_check IS NOT NULL""",
)  # fmt: skip

UP = [
    "ALTER TABLE plan ADD COLUMN cross_check jsonb",
    _admit_to("generation, at, others, cross_check"),
    CROSS_CHECKS.statement,
    "SELECT report.admit(role) FROM (SELECT DISTINCT role FROM report_reader JOIN pg_roles ON rolname = role) AS known",
]
DOWN = [
    "DROP VIEW report.cross_checks",
    _admit_to("generation, at, others"),
    "ALTER TABLE plan DROP COLUMN cross_check",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
