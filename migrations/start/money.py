"""Money: dated prices, GPUs that are paid for, the allocation and cost of every quarter-hour, and assignments."""

from __future__ import annotations

# Rows of a key never overlap: an open row is closed once, and nothing else in it ever changes.
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
# Dimensions and amounts of a share of a GPU: the same columns in the slices and in their sums.
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
    # In billionths of the currency for a GPU's hour: the price of (region, purchase), else the GpuType's usual price.
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
    # The time up to which each node is accounted for; from `gap_since` on by presumption.
    """
    CREATE TABLE ledger_node (
        node text COLLATE "C" PRIMARY KEY,
        allocated_until timestamptz NOT NULL,
        gap_since timestamptz,
        owned_until timestamptz
    ) WITH (fillfactor = 50)
    """,
    # Nodes whose usage cannot be accounted for wait by themselves.
    """
    CREATE TABLE ledger_quarantine (
        node text COLLATE "C" PRIMARY KEY,
        since timestamptz NOT NULL,
        failures integer NOT NULL,
        retry_at timestamptz NOT NULL,
        reason text NOT NULL
    )
    """,
    # Usage reported late, for time that may be accounted for already: the node is accounted for again from `since` on.
    'CREATE TABLE usage_news (node text COLLATE "C" NOT NULL, since timestamptz NOT NULL)',
    "CREATE INDEX usage_news_node ON usage_news (node)",
    # Open usage that is missing among the copies of its node's report.
    """
    CREATE TABLE usage_missing (
        node text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        since timestamptz NOT NULL,
        PRIMARY KEY (node, id)
    )
    """,
    # An agent's correction of usage that was ended by rule; the newest row counts, and no end means that usage goes on.
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
    # A quarter-hour of a GPU, by holder and share. `correction`: a counter-entry to an earlier row.
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
        RAISE EXCEPTION 'an allocation is never changed; correct it by a counter-entry'
            USING ERRCODE = 'insufficient_privilege';
    END $$
    """,
    """
    CREATE TRIGGER allocation_stands BEFORE UPDATE OR DELETE ON allocation
    FOR EACH ROW EXECUTE FUNCTION allocation_stands()
    """,
    """
    CREATE FUNCTION usage_truth_stands() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' AND OLD.told_at < now() - interval '430 days' THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'a report about closed usage is never changed' USING ERRCODE = 'insufficient_privilege';
    END $$
    """,
    """
    CREATE TRIGGER usage_truth_stands BEFORE UPDATE OR DELETE ON usage_truth
    FOR EACH ROW EXECUTE FUNCTION usage_truth_stands()
    """,
    # Sums of allocations, updated in the transactions that write those.
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
    # One row for each instance and GPU, with the largest share ever assigned there: usage is billed to it at most.
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
    "CREATE INDEX assigned_owner ON assigned (tenant, service, job, first_at)",
    # A trigger, so that every writer of assignments is covered. An argument may contain NUL, which jsonb cannot store:
    # it is removed here, where arguments do not matter. Each GPU of an instance on several is assigned.
    r"""
    CREATE FUNCTION assigned_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        without_nul text := regexp_replace(NEW.body, '(?<!\\)((\\\\)*)\\u0000', '\1', 'g');
        instances jsonb := coalesce(CAST(without_nul AS jsonb) -> 'instances', '[]');
    BEGIN
        INSERT INTO assigned AS known (node, instance, gpu, tenant, service, job, sm_percent, memory_gib, dedicated,
                                       first_at)
        SELECT NEW.node, id, place, max(coalesce(tenant, '')), max(coalesce(service, '')), max(coalesce(job, '')),
               max(coalesce("smPercent", 0)), max(coalesce("memoryGib", 0)), bool_or(coalesce(dedicated, false)),
               NEW.written_at
        FROM jsonb_to_recordset(instances) AS line (
            id text, gpu smallint, tenant text, service text, job text, "smPercent" double precision,
            "memoryGib" double precision, dedicated boolean, gpus smallint[])
        CROSS JOIN LATERAL unnest(CASE WHEN cardinality(gpus) > 1 THEN gpus ELSE ARRAY[gpu] END) AS place
        GROUP BY id, place
        ON CONFLICT (node, instance, gpu) DO UPDATE SET
            sm_percent = greatest(known.sm_percent, excluded.sm_percent),
            memory_gib = greatest(known.memory_gib, excluded.memory_gib),
            dedicated = known.dedicated OR excluded.dedicated, withdrawn_at = NULL
        WHERE known.withdrawn_at IS NOT NULL OR known.sm_percent < excluded.sm_percent
           OR known.memory_gib < excluded.memory_gib OR known.dedicated < excluded.dedicated;
        UPDATE assigned SET withdrawn_at = NEW.written_at
        WHERE node = NEW.node AND withdrawn_at IS NULL
          AND NOT instances @> jsonb_build_array(jsonb_build_object('id', instance, 'gpu', gpu))
          AND NOT instances @> jsonb_build_array(jsonb_build_object('id', instance, 'gpus', jsonb_build_array(gpu)));
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER assigned_is_kept AFTER INSERT OR UPDATE ON assignment
    FOR EACH ROW EXECUTE FUNCTION assigned_is_kept()
    """,
]

DOWN = [
    "DROP TRIGGER assigned_is_kept ON assignment",
    "DROP TABLE assigned, cost_day, cost_hour, allocation, usage_truth, usage_missing, usage_news",
    "DROP TABLE ledger_quarantine, ledger_node",
    "DROP TABLE gpu_owned, price",
    "DROP FUNCTION assigned_is_kept(), allocation_stands(), usage_truth_stands()",
    "DROP FUNCTION price_is_dated(), gpu_owned_is_dated()",
]
