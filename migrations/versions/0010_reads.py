"""A tenant's events and plans, the plan in force the sessions of a token and ended tokens are found by index."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None
SERVES = "0008"

UP = [
    "CREATE INDEX event_tenant ON event (tenant, id)",
    # The plans that changed something of a tenant. A restore fills this table before `plan`, whose trigger then finds
    # every row.
    """
    CREATE TABLE own_plan (
        tenant text COLLATE "C" NOT NULL,
        generation bigint NOT NULL,
        PRIMARY KEY (tenant, generation)
    )
    """,
    "CREATE INDEX own_plan_generation ON own_plan (generation)",
    """
    CREATE FUNCTION plan_is_listed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            DELETE FROM own_plan WHERE generation = OLD.generation;
        ELSE
            INSERT INTO own_plan SELECT DISTINCT split_part(name, '/', 1), NEW.generation
            FROM unnest(NEW.services) AS name ON CONFLICT DO NOTHING;
        END IF;
        RETURN NULL;
    END $$
    """,
    "CREATE TRIGGER plan_is_listed AFTER INSERT OR DELETE ON plan FOR EACH ROW EXECUTE FUNCTION plan_is_listed()",
    "INSERT INTO own_plan SELECT DISTINCT split_part(name, '/', 1), generation FROM plan, unnest(services) AS name",
    """
    CREATE INDEX plan_in_force ON plan (generation)
    WHERE state IN ('rolling', 'paused', 'done', 'stopped', 'aborted')
    """,
    "CREATE INDEX plan_proven ON plan (generation) WHERE rollout ? 'proven'",
    "CREATE INDEX token_sessions ON token (created_by, created_at) WHERE label = 'console · session'",
    "CREATE INDEX token_over ON token (least(revoked_at, CASE WHEN scope <> 'node' THEN expires_at END))",
    "CREATE INDEX join_token_over ON join_token (least(expires_at, used_at))",
]

DOWN = [
    "DROP INDEX join_token_over, token_over, token_sessions, plan_proven, plan_in_force, event_tenant",
    "DROP TRIGGER plan_is_listed ON plan",
    "DROP FUNCTION plan_is_listed()",
    "DROP TABLE own_plan",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
