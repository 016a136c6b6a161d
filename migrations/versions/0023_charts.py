"""Each minute of the whole fleet is one row, and buckets of loads have the planned rate: what charts of time show."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = [
    # Costs are per hour, of the last cycle in the minute; GPUs are those that reported it, as whole minutes come in;
    # answers are those of buckets that ended in it. Null is unknown.
    """
    CREATE TABLE fleet_minute (
        minute timestamptz PRIMARY KEY,
        held_cost double precision,
        planned_cost double precision,
        bound double precision,
        gpus int,
        busy_gpus double precision,
        power_w double precision,
        answers double precision,
        errors double precision,
        slow double precision
    ) WITH (fillfactor = 50)
    """,
    # In requests, as `requests` is: the planned rate times the seconds. Null is unknown: buckets from before, and those
    # that a server of the version before writes.
    "ALTER TABLE service_load ADD planned double precision",
    "ALTER TABLE service_load_hour ADD planned double precision",
]
DOWN = [
    "ALTER TABLE service_load_hour DROP planned",
    "ALTER TABLE service_load DROP planned",
    "DROP TABLE fleet_minute",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
