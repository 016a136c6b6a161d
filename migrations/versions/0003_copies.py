"""What runs on a node and what it refused; how its devices are; tokens of nodes that take turns."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

UP = [
    # What a node last said beside its state: one row, written only when it says something else.
    # `noted`: the devices' health in it stands in the Node's status.
    """
    CREATE TABLE node_detail (
        node text COLLATE "C" PRIMARY KEY,
        changed_at timestamptz NOT NULL,
        detail jsonb NOT NULL,
        noted boolean NOT NULL DEFAULT false
    ) WITH (fillfactor = 70)
    """,
    "ALTER TABLE node_inventory ADD COLUMN noted boolean NOT NULL DEFAULT false",
    # Once a node, instance and generation: that it is written down here puts it into the audit.
    """
    CREATE TABLE refusal (
        node text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        generation bigint NOT NULL,
        at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (node, instance, generation)
    )
    """,
    "CREATE INDEX refusal_at ON refusal (at)",
    # The token that this one takes the place of, and when it was first used: from then on the other one ends.
    "ALTER TABLE token ADD COLUMN replaces text NOT NULL DEFAULT '', ADD COLUMN taken_up_at timestamptz",
    "CREATE INDEX token_replaces ON token (replaces) WHERE replaces <> ''",
    "CREATE INDEX token_ended ON token (expires_at) WHERE scope = 'node'",
    """
    ALTER TABLE gpu_minute ADD COLUMN reason text NOT NULL DEFAULT '',
        ADD COLUMN fenced boolean NOT NULL DEFAULT false, ADD COLUMN limits jsonb
    """,
    """
    ALTER TABLE instance_minute ADD COLUMN source text NOT NULL DEFAULT '',
        ADD COLUMN steps double precision NOT NULL DEFAULT 0
    """,
]

DOWN = [
    "ALTER TABLE instance_minute DROP COLUMN source, DROP COLUMN steps",
    "ALTER TABLE gpu_minute DROP COLUMN reason, DROP COLUMN fenced, DROP COLUMN limits",
    "DROP INDEX token_replaces, token_ended",
    "ALTER TABLE token DROP COLUMN replaces, DROP COLUMN taken_up_at",
    "DROP TABLE refusal, node_detail",
    "ALTER TABLE node_inventory DROP COLUMN noted",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
