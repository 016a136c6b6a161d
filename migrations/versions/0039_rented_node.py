"""Nodes that are rented from pools, from order to return, and a view of their hours and wasted minutes."""

from __future__ import annotations

from alembic import op

from migrations.start.report.tables import FLEET, READERS
from migrations.start.report.view import Column, View

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None
SERVES = "0038"

NODES = """
    CREATE TABLE rented_node (
        key text COLLATE "C" PRIMARY KEY,
        node text COLLATE "C" NOT NULL,
        pool text COLLATE "C" NOT NULL,
        hook text COLLATE "C" NOT NULL,
        state text COLLATE "C" NOT NULL,
        asked_at timestamptz NOT NULL,
        since timestamptz NOT NULL,
        start_seconds double precision NOT NULL,
        minimum_seconds double precision NOT NULL,
        paid_at timestamptz,
        joined_at timestamptz,
        called_at timestamptz,
        returned boolean NOT NULL DEFAULT false,
        ended_at timestamptz,
        idle_seconds double precision NOT NULL DEFAULT 0,
        message text NOT NULL DEFAULT ''
    )
"""
# One order at a time has a node; an ended one keeps its name until another takes it.
LIVE = "CREATE UNIQUE INDEX rented_node_live ON rented_node (node) WHERE ended_at IS NULL"
OF_FLEET = (
    "ALTER TABLE rented_node ENABLE ROW LEVEL SECURITY",
    f"CREATE POLICY report_reader ON rented_node FOR SELECT USING ({FLEET})",
)
RENTED = View(
    "rented",
    "Nodes rented from pools by the day on which their order was made. Only for readers of the whole fleet.",
    [
        Column("day", "CAST(asked_at AS date)", "The day of the order, of the session's time zone."),
        Column("pool", "pool", "The pool."),
        Column("orders", "count(*)", "Orders that were made."),
        Column("refused", "count(*) FILTER (WHERE state = 'refused')", "Those that were refused or only tried."),
        Column("returned", "count(*) FILTER (WHERE state = 'gone')", "Those whose node was given back."),
        Column(
            "rented_hours",
            "round(CAST(coalesce(sum(extract(epoch FROM coalesce(ended_at, moment()) - paid_at)), 0) / 3600"
            " AS numeric), 3)",
            "Hours of nodes, from the accepted order to the return.",
        ),
        Column(
            "wasted_minutes",
            "round(CAST(sum(idle_seconds + CASE WHEN paid_at IS NULL THEN 0 ELSE"
            " extract(epoch FROM coalesce(joined_at, ended_at, moment()) - paid_at) END) / 60 AS numeric), 1)",
            "Minutes of them in which a node started or nothing was planned on it.",
        ),
    ],
    "FROM rented_node GROUP BY CAST(asked_at AS date), pool",
)
OF_OBJECTS = "SELECT (kind, tenant, name, spec) ON object"
ADMIT_AND_DISMISS = READERS[-1].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
ADMIT_READERS = (
    "SELECT report.admit(role) FROM (SELECT DISTINCT role FROM report_reader JOIN pg_roles ON rolname = role) AS known"
)
DISMISS_READERS = ADMIT_READERS.replace("admit", "dismiss")


def _also_grant(right: str) -> str:
    """Returns the functions that admit and dismiss readers, with one right more."""
    lines = ADMIT_AND_DISMISS.split("\n")
    return "\n".join(
        "\n".join([line, line.replace(OF_OBJECTS, right)]) if OF_OBJECTS in line else line for line in lines
    )


UP = [NODES, LIVE, *OF_FLEET, RENTED.statement, _also_grant("SELECT ON rented_node"), ADMIT_READERS]
DOWN = ["DROP VIEW report.rented", DISMISS_READERS, ADMIT_AND_DISMISS, ADMIT_READERS, "DROP TABLE rented_node"]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
