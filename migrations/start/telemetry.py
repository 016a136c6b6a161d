"""Reports of nodes: their state, minutes and usage; and the assignments of nodes."""

from __future__ import annotations

UP = [
    # One narrow row a node, rewritten by every report: free space keeps the updates inside their page.
    """
    CREATE TABLE node_state (
        node text COLLATE "C" PRIMARY KEY,
        ordinal bigint NOT NULL,
        received_at timestamptz NOT NULL,
        at timestamptz NOT NULL,
        boot_id text NOT NULL,
        health text NOT NULL,
        message text NOT NULL,
        epoch bigint NOT NULL,
        generation bigint NOT NULL,
        assignment_version bigint NOT NULL
    ) WITH (fillfactor = 40)
    """,
    """
    CREATE TABLE node_inventory (
        node text COLLATE "C" PRIMARY KEY,
        ordinal bigint NOT NULL,
        changed_at timestamptz NOT NULL,
        inventory jsonb NOT NULL,
        noted boolean NOT NULL DEFAULT false
    )
    """,
    # What a node last reported beyond its state; rewritten only when it changes. `noted`: the Node's status holds the
    # health of its devices. `requested_at`: when it last asked for another partition of each GPU, for as long as plans
    # remember it.
    """
    CREATE TABLE node_detail (
        node text COLLATE "C" PRIMARY KEY,
        changed_at timestamptz NOT NULL,
        detail jsonb NOT NULL,
        noted boolean NOT NULL DEFAULT false,
        requested_at jsonb NOT NULL DEFAULT '{}'
    ) WITH (fillfactor = 70)
    """,
    # One row for each node, instance and generation, so that each refusal is audited once.
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
    # The newest report of each node and minute, until the minute is over and becomes rows of gpu_minute and
    # instance_minute: a report costs one small write instead of one for every GPU and instance. It comes
    # compressed, small enough to stay in the row: no TOAST, and updates that stay in their page.
    """
    CREATE TABLE report_minute (
        minute timestamptz NOT NULL,
        node text COLLATE "C" NOT NULL,
        ordinal bigint NOT NULL,
        received_at timestamptz NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (minute, node)
    ) WITH (fillfactor = 50, toast_tuple_target = 8160,
            autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
            autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000)
    """,
    # In CREATE TABLE only since Postgres 16.
    "ALTER TABLE report_minute ALTER COLUMN body SET STORAGE EXTERNAL",
    """
    CREATE TABLE gpu_minute (
        minute timestamptz NOT NULL,
        node text COLLATE "C" NOT NULL,
        gpu smallint NOT NULL,
        ordinal bigint NOT NULL,
        health text NOT NULL,
        utilization_percent double precision NOT NULL,
        memory_used_gib double precision NOT NULL,
        power_mean_w double precision NOT NULL,
        power_peak_w double precision NOT NULL,
        energy_counter_mj bigint NOT NULL,
        temperature_c double precision NOT NULL,
        sm_clock_mhz double precision NOT NULL,
        throttle_reasons text[] NOT NULL,
        reason text NOT NULL DEFAULT '',
        fenced boolean NOT NULL DEFAULT false,
        limits jsonb,
        PRIMARY KEY (node, minute, gpu)
    ) PARTITION BY RANGE (minute)
    """,
    """
    CREATE TABLE instance_minute (
        minute timestamptz NOT NULL,
        node text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        ordinal bigint NOT NULL,
        gpu smallint NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        service text COLLATE "C" NOT NULL,
        job text COLLATE "C" NOT NULL,
        sm_percent double precision NOT NULL,
        memory_gib double precision NOT NULL,
        requests bigint NOT NULL,
        errors bigint NOT NULL,
        latency_counts bigint[] NOT NULL,
        batch_mean double precision NOT NULL,
        queue_mean double precision NOT NULL,
        busy_seconds double precision NOT NULL,
        limits jsonb,
        source text NOT NULL DEFAULT '',
        steps double precision NOT NULL DEFAULT 0,
        tokens_in bigint NOT NULL DEFAULT 0,
        tokens_out bigint NOT NULL DEFAULT 0,
        paced bigint NOT NULL DEFAULT 0,
        pace_late bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (node, minute, instance)
    ) PARTITION BY RANGE (minute)
    """,
    "CREATE INDEX instance_minute_service ON instance_minute (tenant, service, minute) WHERE service <> ''",
    """
    CREATE TABLE gpu_hour (
        hour timestamptz NOT NULL,
        node text COLLATE "C" NOT NULL,
        gpu smallint NOT NULL,
        minutes smallint NOT NULL,
        utilization_percent double precision NOT NULL,
        memory_used_gib double precision NOT NULL,
        power_mean_w double precision NOT NULL,
        power_peak_w double precision NOT NULL,
        energy_mj bigint NOT NULL,
        temperature_c double precision NOT NULL,
        PRIMARY KEY (node, hour, gpu)
    ) PARTITION BY RANGE (hour)
    """,
    """
    CREATE TABLE instance_hour (
        hour timestamptz NOT NULL,
        node text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        minutes smallint NOT NULL,
        gpu smallint NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        service text COLLATE "C" NOT NULL,
        job text COLLATE "C" NOT NULL,
        sm_percent double precision NOT NULL,
        memory_gib double precision NOT NULL,
        requests bigint NOT NULL,
        errors bigint NOT NULL,
        latency_counts bigint[] NOT NULL,
        batch_mean double precision NOT NULL,
        queue_mean double precision NOT NULL,
        busy_seconds double precision NOT NULL,
        PRIMARY KEY (node, hour, instance)
    ) PARTITION BY RANGE (hour)
    """,
    "CREATE INDEX instance_hour_service ON instance_hour (tenant, service, hour) WHERE service <> ''",
    # Hours that received minutes since they were last rolled up. `nodes` are all that were touched where `nodes_at` is
    # `touched_at`.
    """
    CREATE TABLE pending_hour (
        hour timestamptz PRIMARY KEY,
        touched_at timestamptz NOT NULL,
        nodes text[],
        nodes_at timestamptz
    )
    """,
    """
    CREATE TABLE usage_interval (
        node text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        gpu smallint NOT NULL,
        gpu_uuid text NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        service text COLLATE "C" NOT NULL,
        job text COLLATE "C" NOT NULL,
        sm_percent double precision NOT NULL,
        memory_gib double precision NOT NULL,
        dedicated boolean NOT NULL,
        started_at timestamptz NOT NULL,
        ended_at timestamptz,
        evidence text NOT NULL,
        opened_at timestamptz NOT NULL DEFAULT now(),
        closed_at timestamptz,
        model text COLLATE "C" NOT NULL DEFAULT '',
        PRIMARY KEY (node, id),
        CHECK (ended_at >= started_at)
    )
    """,
    "CREATE INDEX usage_interval_claimed ON usage_interval (node, instance, gpu, started_at)",
    "CREATE INDEX usage_interval_open ON usage_interval (node) WHERE ended_at IS NULL",
    "CREATE INDEX usage_interval_ended ON usage_interval (node, ended_at) WHERE ended_at IS NOT NULL",
    "CREATE INDEX usage_interval_presumed ON usage_interval (node) WHERE evidence = 'gap' AND ended_at IS NOT NULL",
    """
    CREATE FUNCTION usage_closes_once() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        -- So long ago that neither a late report nor a correction looks at it.
        IF TG_OP = 'DELETE' AND OLD.ended_at < now() - interval '430 days' THEN
            RETURN OLD;
        END IF;
        IF TG_OP = 'UPDATE' AND OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL THEN
            -- Nothing else changes. Compared as rows: as jsonb it took as long as all the rest of closing an interval.
            OLD.ended_at := NEW.ended_at;
            OLD.closed_at := NEW.closed_at;
            OLD.evidence := NEW.evidence;
            IF OLD IS NOT DISTINCT FROM NEW THEN
                RETURN NEW;
            END IF;
        END IF;
        RAISE EXCEPTION 'a usage interval is opened once and closed once'
            USING ERRCODE = 'insufficient_privilege';
    END $$
    """,
    """
    CREATE TRIGGER usage_closes_once BEFORE UPDATE OR DELETE ON usage_interval
    FOR EACH ROW EXECUTE FUNCTION usage_closes_once()
    """,
    """
    CREATE TABLE assignment (
        node text COLLATE "C" PRIMARY KEY,
        epoch bigint NOT NULL,
        generation bigint NOT NULL,
        version bigint NOT NULL,
        body text NOT NULL,
        written_at timestamptz NOT NULL
    ) WITH (fillfactor = 70)
    """,
    "CREATE UNIQUE INDEX assignment_version ON assignment (version)",
    "CREATE INDEX assignment_epoch ON assignment (epoch)",
]

DOWN = [
    "DROP TABLE assignment, usage_interval, pending_hour, instance_hour, gpu_hour",
    "DROP TABLE instance_minute, gpu_minute, report_minute, refusal, node_detail, node_inventory, node_state",
    "DROP FUNCTION usage_closes_once()",
]
