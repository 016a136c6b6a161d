"""Money: dated prices, GPUs that are paid for, and what every quarter-hour of them was used for and cost."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None
SERVES = "0004"

# One row for all rows of a key: an open one is closed once, nothing else of it ever changes, and no two overlap.
DATED = """
    CREATE FUNCTION {table}_is_dated() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            IF EXISTS (SELECT FROM {table} AS other
                       WHERE {same} AND tstzrange(other.valid_from, other.valid_to)
                                        && tstzrange(NEW.valid_from, NEW.valid_to)) THEN
                RAISE EXCEPTION 'two rows of {table} are in force at one moment' USING ERRCODE = 'exclusion_violation';
            END IF;
            RETURN NEW;
        END IF;
        IF TG_OP = 'UPDATE' AND OLD.valid_to IS NULL AND NEW.valid_to IS NOT NULL
           AND to_jsonb(OLD) - 'valid_to' = to_jsonb(NEW) - 'valid_to' THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'a row of {table} is opened once and closed once' USING ERRCODE = 'insufficient_privilege';
    END $$
"""
GUARDED = """
    CREATE TRIGGER {table}_is_dated BEFORE INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {table}_is_dated()
"""
# What a share of a GPU in a time was: the same words in the slices and in their sums.
WHAT = """
    node text COLLATE "C" NOT NULL,
    gpu int NOT NULL,
    owned bigint NOT NULL,
    gpu_type text COLLATE "C" NOT NULL,
    region text COLLATE "C" NOT NULL,
    purchase text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    service text COLLATE "C" NOT NULL,
    job text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('used', 'idle', 'unallocated')),
    evidence text COLLATE "C" NOT NULL CHECK (evidence IN ('measured', 'gap')),
    gpu_microseconds bigint NOT NULL,
    nano bigint NOT NULL,
    energy_mj bigint
"""

UP = [
    # A billionth of the currency for a GPU's hour. Where a GpuType names no price of its own, its usual one.
    """
    CREATE TABLE price (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        gpu_type text COLLATE "C" NOT NULL,
        region text COLLATE "C" NOT NULL,
        purchase text COLLATE "C" NOT NULL,
        nano_per_hour bigint NOT NULL CHECK (nano_per_hour >= 0),
        valid_from timestamptz NOT NULL,
        valid_to timestamptz,
        CHECK (valid_to >= valid_from)
    )
    """,
    "CREATE UNIQUE INDEX price_in_force ON price (gpu_type, region, purchase) WHERE valid_to IS NULL",
    "CREATE INDEX price_of ON price (gpu_type, region, purchase, valid_from)",
    DATED.format(
        table="price",
        same="(other.gpu_type, other.region, other.purchase) = (NEW.gpu_type, NEW.region, NEW.purchase)",
    ),
    GUARDED.format(table="price"),
    # The GPUs 0 .. gpus - 1 of a node, from its declaration to its deletion.
    """
    CREATE TABLE gpu_owned (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        node text COLLATE "C" NOT NULL,
        gpus int NOT NULL CHECK (gpus > 0),
        gpu_type text COLLATE "C" NOT NULL,
        region text COLLATE "C" NOT NULL,
        purchase text COLLATE "C" NOT NULL,
        memory_gib double precision NOT NULL CHECK (memory_gib > 0),
        valid_from timestamptz NOT NULL,
        valid_to timestamptz,
        CHECK (valid_to >= valid_from)
    )
    """,
    "CREATE UNIQUE INDEX gpu_owned_in_force ON gpu_owned (node) WHERE valid_to IS NULL",
    "CREATE INDEX gpu_owned_of ON gpu_owned (node, valid_from)",
    DATED.format(table="gpu_owned", same="other.node = NEW.node"),
    GUARDED.format(table="gpu_owned"),
    # How far each node is accounted for; from `gap_since` on by presumption.
    """
    CREATE TABLE ledger_node (
        node text COLLATE "C" PRIMARY KEY,
        allocated_until timestamptz NOT NULL,
        gap_since timestamptz,
        owned_until timestamptz
    ) WITH (fillfactor = 50)
    """,
    # Usage that was told of time that may be accounted for already: from `since` on the node is looked at again.
    'CREATE TABLE usage_news (node text COLLATE "C" NOT NULL, since timestamptz NOT NULL)',
    "CREATE INDEX usage_news_node ON usage_news (node)",
    # Open usage that its node does not name among its copies.
    """
    CREATE TABLE usage_missing (
        node text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        since timestamptz NOT NULL,
        PRIMARY KEY (node, id)
    )
    """,
    # What an agent said of usage that had been closed for it; the newest row counts, no end means that it goes on.
    """
    CREATE TABLE usage_truth (
        node text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        told_at timestamptz NOT NULL,
        ended_at timestamptz,
        evidence text NOT NULL,
        PRIMARY KEY (node, id, told_at)
    )
    """,
    "ALTER TABLE usage_interval ADD COLUMN model text COLLATE \"C\" NOT NULL DEFAULT ''",
    "DROP INDEX usage_interval_ended, usage_interval_started",
    "CREATE INDEX usage_interval_ended ON usage_interval (node, ended_at) WHERE ended_at IS NOT NULL",
    "CREATE INDEX usage_interval_presumed ON usage_interval (node) WHERE evidence = 'gap' AND ended_at IS NOT NULL",
    # A quarter-hour of a GPU, by who held which part of it. `correction`: a counter-entry to what stood there before.
    f"""
    CREATE TABLE allocation (
        slice timestamptz NOT NULL,
        {WHAT},
        instance text COLLATE "C" NOT NULL,
        correction boolean NOT NULL,
        written_at timestamptz NOT NULL
    ) PARTITION BY RANGE (slice)
    """,
    "CREATE INDEX allocation_slice ON allocation (slice, node)",
    """
    CREATE FUNCTION allocation_stands() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'an allocation stands; what was wrong is countered by another entry'
            USING ERRCODE = 'insufficient_privilege';
    END $$
    """,
    """
    CREATE TRIGGER allocation_stands BEFORE UPDATE OR DELETE ON allocation
    FOR EACH ROW EXECUTE FUNCTION allocation_stands()
    """,
    """
    CREATE TRIGGER usage_truth_stands BEFORE UPDATE OR DELETE ON usage_truth
    FOR EACH ROW EXECUTE FUNCTION allocation_stands()
    """,
    # Sums of allocations, kept in the transactions that write those.
    f"""
    CREATE TABLE cost_hour (
        hour timestamptz NOT NULL,
        {WHAT},
        PRIMARY KEY (hour, node, gpu, owned, tenant, service, job, model, kind, evidence)
    ) PARTITION BY RANGE (hour)
    """,
    f"""
    CREATE TABLE cost_day (
        day timestamptz NOT NULL,
        {WHAT},
        PRIMARY KEY (day, node, gpu, owned, tenant, service, job, model, kind, evidence)
    )
    """,
]

DOWN = [
    "DROP TABLE cost_day, cost_hour, allocation, usage_truth, usage_missing, usage_news, ledger_node, gpu_owned, price",
    "DROP FUNCTION allocation_stands(), price_is_dated(), gpu_owned_is_dated()",
    "DROP INDEX usage_interval_ended, usage_interval_presumed",
    "CREATE INDEX usage_interval_ended ON usage_interval (ended_at) WHERE ended_at IS NOT NULL",
    "CREATE INDEX usage_interval_started ON usage_interval (started_at)",
    "ALTER TABLE usage_interval DROP COLUMN model",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
