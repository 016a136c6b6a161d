"""What was ever assigned to a node: whom its usage may be billed to, by at most which share, and since when."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None
SERVES = "0004"

UP = [
    # One row an instance and GPU, with the largest share that it was ever given there.
    """
    CREATE TABLE assigned (
        node text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        gpu smallint NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        service text COLLATE "C" NOT NULL,
        job text COLLATE "C" NOT NULL,
        sm_percent double precision NOT NULL,
        memory_gib double precision NOT NULL,
        dedicated boolean NOT NULL,
        first_at timestamptz NOT NULL,
        withdrawn_at timestamptz,
        PRIMARY KEY (node, instance, gpu)
    ) WITH (fillfactor = 80)
    """,
    "CREATE INDEX assigned_now ON assigned (node) WHERE withdrawn_at IS NULL",
    # Of every writer of assignments, also of a server that does not know this table yet. An argument may hold the one
    # character that jsonb has no room for: it is left out here, where no argument is looked at.
    r"""
    CREATE FUNCTION assigned_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        sayable text := regexp_replace(NEW.body, '(?<!\\)((\\\\)*)\\u0000', '\1', 'g');
        told jsonb := coalesce(CAST(sayable AS jsonb) -> 'instances', '[]');
    BEGIN
        INSERT INTO assigned AS known (node, instance, gpu, tenant, service, job, sm_percent, memory_gib, dedicated,
                                       first_at)
        SELECT NEW.node, id, gpu, max(coalesce(tenant, '')), max(coalesce(service, '')), max(coalesce(job, '')),
               max(coalesce("smPercent", 0)), max(coalesce("memoryGib", 0)), bool_or(coalesce(dedicated, false)),
               NEW.written_at
        FROM jsonb_to_recordset(told) AS one (
            id text, gpu smallint, tenant text, service text, job text, "smPercent" double precision,
            "memoryGib" double precision, dedicated boolean)
        GROUP BY id, gpu
        ON CONFLICT (node, instance, gpu) DO UPDATE SET
            sm_percent = greatest(known.sm_percent, excluded.sm_percent),
            memory_gib = greatest(known.memory_gib, excluded.memory_gib),
            dedicated = known.dedicated OR excluded.dedicated, withdrawn_at = NULL
        WHERE known.withdrawn_at IS NOT NULL OR known.sm_percent < excluded.sm_percent
           OR known.memory_gib < excluded.memory_gib OR known.dedicated < excluded.dedicated;
        UPDATE assigned SET withdrawn_at = NEW.written_at
        WHERE node = NEW.node AND withdrawn_at IS NULL
          AND NOT told @> jsonb_build_array(jsonb_build_object('id', instance, 'gpu', gpu));
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER assigned_is_kept AFTER INSERT OR UPDATE ON assignment
    FOR EACH ROW EXECUTE FUNCTION assigned_is_kept()
    """,
    # What was billed before anybody asked is as it was; what is assigned now is known by its assignment.
    """
    INSERT INTO assigned
    SELECT node, instance, gpu, (array_agg(tenant ORDER BY started_at DESC))[1],
           (array_agg(service ORDER BY started_at DESC))[1], (array_agg(job ORDER BY started_at DESC))[1],
           max(sm_percent), max(memory_gib), bool_or(dedicated), min(started_at)
    FROM usage_interval GROUP BY node, instance, gpu
    """,
    "UPDATE assignment SET body = body",
]

DOWN = [
    "DROP TRIGGER assigned_is_kept ON assignment",
    "DROP FUNCTION assigned_is_kept()",
    "DROP TABLE assigned",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
