"""What plans of other planners cost and serve, beside each plan, and a view of those of the newest."""

from __future__ import annotations

from alembic import op

from migrations.start.report.tables import FLEET, READERS
from migrations.start.report.view import Column, View

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None
SERVES = "0025"

# Who reads reports may read these columns of plans, too; the policy shows rows to readers of the whole fleet alone.
OF_OBJECTS, OF_PLANS = "SELECT (kind, tenant, name, spec) ON object", "SELECT (generation, at, others) ON plan"
BEFORE = READERS[-1].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
AFTER = "\n".join(
    f"{line}\n{line.replace(OF_OBJECTS, OF_PLANS)}" if OF_OBJECTS in line else line for line in BEFORE.split("\n")
)
OTHER_PLANNERS = View(
    "other_planners",
    "What other planners' plans cost and serve, for the newest problem that any was asked about. Only "
    "for readers of the whole fleet.",
    [
        Column("generation", "plan.generation", "The newest plan whose certificate lists them."),
        Column("planner", "other.planner", "The planner by whose rules, as we read them, the plan was made."),
        Column("cost_per_hour", "round(other.\"resourceCost\", 9)",
               "The price of its GPUs, of an hour. Null if the plan breaks a rule, or there is none."),
        Column("churn_cost", "round(other.\"churnCost\", 9)", "The price of its changes to what ran, once."),
        Column("served_share", "CASE WHEN other.\"resourceCost\" IS NOT NULL THEN round(other.\"servedShare\", 6) END",
               "The part of all requests that it serves. A plan that serves less is no cheaper."),
        Column("refused", "other.refused", "The rules that it breaks, or why there is none; empty otherwise."),
        Column("asked_at", "plan.at - other.\"ageSeconds\" * interval '1 second'", "When it was made."),
        Column("age_seconds",
               "round(CAST(extract(epoch FROM moment() - plan.at) + other.\"ageSeconds\" AS numeric), 3)",
               "The seconds since then."),
    ],
    """FROM plan CROSS JOIN LATERAL jsonb_to_recordset(plan.others) AS other (
    planner text, "resourceCost" numeric, "churnCost" numeric, "servedShare" numeric, refused text,
    "ageSeconds" double precision)
WHERE plan.generation = (SELECT max(generation) FROM plan WHERE others <> '[]')""",
)  # fmt: skip

UP = [
    "ALTER TABLE plan ADD COLUMN others jsonb NOT NULL DEFAULT '[]'",
    f"ALTER TABLE plan ENABLE ROW LEVEL SECURITY;\nCREATE POLICY report_reader ON plan FOR SELECT USING ({FLEET})",
    AFTER,
    OTHER_PLANNERS.statement,
    "SELECT report.admit(role) FROM (SELECT DISTINCT role FROM report_reader JOIN pg_roles ON rolname = role) AS known",
]
DOWN = [
    "DROP VIEW report.other_planners",
    BEFORE,
    "DROP POLICY report_reader ON plan;\nALTER TABLE plan DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE plan DROP COLUMN others",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
