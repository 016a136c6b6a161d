"""The cycle: leases, snapshots, plans with their rollout, loads, corrections, jobs, events and gateways."""

from __future__ import annotations

UP = [
    # The clock of leases, lateness and deadlines: the database's. A simulation sets its own, in its own sessions.
    """
    CREATE FUNCTION moment() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
        SELECT coalesce(CAST(nullif(current_setting('gpuwright.moment', true), '') AS timestamptz), clock_timestamp())
    $$
    """,
    # One row for each kind of leader. The epoch rises with every new holder, the generation with every decision.
    """
    CREATE TABLE lease (
        name text PRIMARY KEY,
        holder text NOT NULL DEFAULT '',
        epoch bigint NOT NULL DEFAULT 0,
        generation bigint NOT NULL DEFAULT 0,
        renewed_at timestamptz NOT NULL DEFAULT '-infinity',
        expires_at timestamptz NOT NULL DEFAULT '-infinity'
    ) WITH (fillfactor = 50)
    """,
    # Parts of snapshots and plans, compressed, each stored once under the hash of its content.
    """
    CREATE TABLE piece (
        hash bytea PRIMARY KEY,
        body bytea NOT NULL,
        kept_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "ALTER TABLE piece ALTER COLUMN body SET STORAGE EXTERNAL",
    # Decisions. Advisory, proposed, rejected and expired plans were never acted upon.
    """
    CREATE TABLE plan (
        generation bigint PRIMARY KEY,
        epoch bigint NOT NULL,
        at timestamptz NOT NULL,
        lane text NOT NULL CHECK (lane IN ('full', 'fast', 'operator', 'rollback')),
        state text NOT NULL CHECK (state IN (
            'advisory', 'proposed', 'rejected', 'expired', 'rolling', 'paused', 'done', 'stopped', 'aborted',
            'superseded')),
        reason text NOT NULL DEFAULT '',
        message text NOT NULL DEFAULT '',
        base bigint,
        snapshot jsonb NOT NULL,
        body bytea NOT NULL,
        desired bytea NOT NULL,
        method text NOT NULL DEFAULT '',
        seed bigint NOT NULL DEFAULT 0,
        work bigint NOT NULL DEFAULT 0,
        solved_by jsonb NOT NULL DEFAULT '{}',
        cost double precision,
        bound double precision,
        gap double precision,
        changes jsonb NOT NULL DEFAULT '{}',
        services text[] NOT NULL DEFAULT '{}',
        decided_by text NOT NULL DEFAULT '',
        decided_at timestamptz,
        asked jsonb NOT NULL DEFAULT '{}',
        rollout jsonb NOT NULL DEFAULT '{}',
        others jsonb NOT NULL DEFAULT '[]',
        cross_check jsonb
    )
    """,
    "CREATE INDEX plan_state ON plan (state) WHERE state IN ('proposed', 'rolling', 'paused')",
    "CREATE INDEX plan_at ON plan (at)",
    """
    CREATE INDEX plan_in_force ON plan (generation)
    WHERE state IN ('rolling', 'paused', 'done', 'stopped', 'aborted')
    """,
    "CREATE INDEX plan_proven ON plan (generation) WHERE rollout ? 'proven'",
    # The plans that changed something of a tenant. A restore fills this table before `plan`, whose trigger then finds
    # every row. No second index, on the generation alone: Postgres may then read the plans of other tenants to find
    # the newest of one.
    """
    CREATE TABLE own_plan (
        tenant text COLLATE "C" NOT NULL,
        generation bigint NOT NULL,
        PRIMARY KEY (tenant, generation)
    )
    """,
    """
    CREATE FUNCTION plan_is_listed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            DELETE FROM own_plan WHERE generation = OLD.generation
                AND tenant = ANY (SELECT split_part(name, '/', 1) FROM unnest(OLD.services) AS name);
        ELSE
            INSERT INTO own_plan SELECT DISTINCT split_part(name, '/', 1), NEW.generation
            FROM unnest(NEW.services) AS name ON CONFLICT DO NOTHING;
        END IF;
        RETURN NULL;
    END $$
    """,
    "CREATE TRIGGER plan_is_listed AFTER INSERT OR DELETE ON plan FOR EACH ROW EXECUTE FUNCTION plan_is_listed()",
    # After a rollback the fleet waits for approval until a person resumes it; the row says since when.
    """
    CREATE TABLE approval_hold (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        generation bigint NOT NULL,
        since timestamptz NOT NULL
    )
    """,
    # Every cycle with its snapshot and outcome, even if it changed nothing.
    """
    CREATE TABLE cycle (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at timestamptz NOT NULL,
        epoch bigint NOT NULL,
        outcome text NOT NULL,
        reason text NOT NULL DEFAULT '',
        message text NOT NULL DEFAULT '',
        generation bigint,
        snapshot jsonb NOT NULL,
        said jsonb NOT NULL DEFAULT '{}'
    )
    """,
    "CREATE INDEX cycle_at ON cycle (at)",
    # The requests of a service in a few seconds, from a rate, and latencies in the buckets of a report's histogram.
    # `planned`, in requests too: the planned rate times the seconds, null where it is unknown.
    # Past hours become one row each.
    """
    CREATE TABLE service_load (
        tenant text COLLATE "C" NOT NULL,
        service text COLLATE "C" NOT NULL,
        at timestamptz NOT NULL,
        seconds double precision NOT NULL,
        requests double precision NOT NULL,
        answers double precision NOT NULL DEFAULT 0,
        errors bigint NOT NULL DEFAULT 0,
        latency_counts bigint[] NOT NULL DEFAULT '{}',
        slow double precision NOT NULL DEFAULT 0,
        source text NOT NULL DEFAULT '',
        tokens_in bigint NOT NULL DEFAULT 0,
        tokens_out bigint NOT NULL DEFAULT 0,
        paced bigint NOT NULL DEFAULT 0,
        pace_late bigint NOT NULL DEFAULT 0,
        planned double precision,
        low double precision,
        high double precision,
        bands smallint NOT NULL DEFAULT 0,
        bands_held smallint NOT NULL DEFAULT 0,
        hours_ahead double precision[],
        PRIMARY KEY (tenant, service, at)
    )
    """,
    "CREATE INDEX service_load_at ON service_load (at)",
    """
    CREATE TABLE service_load_hour (
        tenant text COLLATE "C" NOT NULL,
        service text COLLATE "C" NOT NULL,
        hour timestamptz NOT NULL,
        seconds double precision NOT NULL,
        requests double precision NOT NULL,
        answers double precision NOT NULL,
        errors double precision NOT NULL,
        slow double precision NOT NULL,
        tokens_in double precision NOT NULL DEFAULT 0,
        tokens_out double precision NOT NULL DEFAULT 0,
        paced double precision NOT NULL DEFAULT 0,
        pace_late double precision NOT NULL DEFAULT 0,
        planned double precision,
        low double precision,
        high double precision,
        bands int NOT NULL DEFAULT 0,
        bands_held int NOT NULL DEFAULT 0,
        PRIMARY KEY (tenant, service, hour)
    )
    """,
    "CREATE INDEX service_load_hour_hour ON service_load_hour (hour)",
    # A measured correction of a profile: factors for places of its latency curve, the highest of them, and one for what
    # neighbours do.
    """
    CREATE TABLE correction (
        model text COLLATE "C" NOT NULL,
        variant text COLLATE "C" NOT NULL,
        gpu_type text COLLATE "C" NOT NULL,
        latency_factor double precision NOT NULL DEFAULT 1,
        memory_factor double precision NOT NULL DEFAULT 1,
        power_factor double precision NOT NULL DEFAULT 1,
        evidence jsonb NOT NULL DEFAULT '{}',
        at timestamptz NOT NULL,
        latency jsonb NOT NULL DEFAULT '[]',
        sensitivity_factor double precision NOT NULL DEFAULT 1,
        PRIMARY KEY (model, variant, gpu_type)
    )
    """,
    """
    CREATE TABLE job_state (
        tenant text COLLATE "C" NOT NULL,
        job text COLLATE "C" NOT NULL,
        phase text NOT NULL CHECK (phase IN ('queued', 'starting', 'running', 'preempted', 'finished', 'failed')),
        done double precision NOT NULL DEFAULT 0,
        per_second double precision NOT NULL DEFAULT 0,
        since timestamptz NOT NULL,
        first_started_at timestamptz,
        finished_at timestamptz,
        failures int NOT NULL DEFAULT 0,
        detail jsonb NOT NULL DEFAULT '{}',
        PRIMARY KEY (tenant, job)
    )
    """,
    # Events are never rewritten; a repetition is only counted.
    """
    CREATE TABLE event (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at timestamptz NOT NULL,
        last_at timestamptz NOT NULL,
        times int NOT NULL DEFAULT 1,
        reason text NOT NULL,
        severity text NOT NULL DEFAULT 'info' CHECK (severity IN ('info', 'warning', 'alarm')),
        kind text NOT NULL DEFAULT '',
        tenant text COLLATE "C" NOT NULL DEFAULT '',
        name text COLLATE "C" NOT NULL DEFAULT '',
        message text NOT NULL,
        generation bigint,
        fingerprint bytea NOT NULL
    )
    """,
    "CREATE INDEX event_subject ON event (kind, tenant, name, id)",
    "CREATE INDEX event_tenant ON event (tenant, id)",
    "CREATE INDEX event_last_at ON event (last_at)",
    "CREATE INDEX event_fingerprint ON event (fingerprint, at)",
    "CREATE TABLE outlook (name text PRIMARY KEY, at timestamptz NOT NULL, body jsonb NOT NULL)",
    'CREATE TABLE idle_node (node text COLLATE "C" PRIMARY KEY, since timestamptz NOT NULL)',
    # The newest counters of each gateway since its start, by service.
    """
    CREATE TABLE gateway_state (
        gateway text COLLATE "C" PRIMARY KEY,
        received_at timestamptz NOT NULL,
        sequence bigint NOT NULL,
        endpoints bigint NOT NULL DEFAULT 0,
        body bytea NOT NULL
    ) WITH (fillfactor = 40)
    """,
    # The share of a service's requests that gateways accept; without a row: all. `in_time`: how many open requests the
    # copy at a place, `node/gpu`, answers within the SLO; a place that is missing is unknown.
    """
    CREATE TABLE traffic_limit (
        tenant text COLLATE "C" NOT NULL,
        service text COLLATE "C" NOT NULL,
        queue_limit int NOT NULL DEFAULT 0 CHECK (queue_limit >= 0),
        shed_share double precision NOT NULL DEFAULT 0 CHECK (shed_share BETWEEN 0 AND 1),
        retry_after_seconds int NOT NULL DEFAULT 2 CHECK (retry_after_seconds BETWEEN 1 AND 3600),
        in_time jsonb NOT NULL DEFAULT '{}',
        PRIMARY KEY (tenant, service)
    )
    """,
    # Called last in a statement that changes copies: a transaction that holds this row holds all others already.
    """
    CREATE FUNCTION advance_endpoint() RETURNS bigint LANGUAGE plpgsql AS $$
    DECLARE latest bigint;
    BEGIN
        UPDATE version SET value = value + 1 WHERE name = 'endpoint' RETURNING value INTO latest;
        PERFORM pg_notify('gpuwright', 'endpoint:' || latest);
        RETURN latest;
    END $$
    """,
    # Endpoints begin with version 1: a gateway without endpoints has 0.
    "INSERT INTO version (name, value) VALUES ('endpoint', 1)",
]

DOWN = [
    "DROP TABLE idle_node, outlook, traffic_limit, service_load, service_load_hour",
    "DROP TABLE gateway_state, event, job_state, correction, cycle, approval_hold, own_plan, plan, piece, lease",
    "DROP FUNCTION plan_is_listed(), advance_endpoint(), moment()",
]
