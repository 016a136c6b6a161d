"""The declared world: objects, their references and changes, tokens, audit, idempotency."""

from __future__ import annotations

UP = [
    # One row for each stream of versions. Writers lock it first, so versions become visible in commit order.
    """
    CREATE TABLE version (
        name text PRIMARY KEY,
        value bigint NOT NULL DEFAULT 0,
        floor bigint NOT NULL DEFAULT 0 CHECK (floor <= value)
    ) WITH (fillfactor = 50)
    """,
    "INSERT INTO version (name) VALUES ('object'), ('assignment'), ('token'), ('plan'), ('wake'), ('log')",
    """
    CREATE TABLE object (
        uid uuid PRIMARY KEY,
        kind text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL DEFAULT '',
        name text COLLATE "C" NOT NULL,
        labels jsonb NOT NULL,
        spec jsonb NOT NULL,
        status jsonb NOT NULL,
        generation bigint NOT NULL,
        resource_version bigint NOT NULL,
        admits text[],
        selectable text[] NOT NULL,
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL,
        UNIQUE (kind, tenant, name)
    )
    """,
    "CREATE INDEX object_selectable ON object USING gin (selectable)",
    """
    CREATE TABLE reference (
        referrer uuid NOT NULL REFERENCES object ON DELETE CASCADE,
        kind text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL DEFAULT '',
        name text COLLATE "C" NOT NULL,
        part text COLLATE "C" NOT NULL DEFAULT '',
        PRIMARY KEY (referrer, kind, tenant, name, part)
    )
    """,
    "CREATE INDEX reference_target ON reference (kind, tenant, name, part)",
    """
    CREATE TABLE change (
        version bigint PRIMARY KEY,
        kind text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        uid uuid NOT NULL,
        action text NOT NULL CHECK (action IN ('added', 'modified', 'deleted')),
        admits text[],
        admitted_before text[],
        object jsonb NOT NULL,
        at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    # A token of a node may replace another, which ends when this one is first used. A gateway's token speaks for that
    # gateway alone.
    """
    CREATE TABLE token (
        id text PRIMARY KEY,
        secret_hash bytea NOT NULL,
        scope text NOT NULL CHECK (scope IN ('viewer', 'operator', 'admin', 'node', 'gateway')),
        tenant text NOT NULL DEFAULT '',
        node text NOT NULL DEFAULT '',
        label text NOT NULL DEFAULT '',
        created_by text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        expires_at timestamptz,
        revoked_at timestamptz,
        last_used_at timestamptz,
        replaces text NOT NULL DEFAULT '',
        taken_up_at timestamptz,
        gateway text NOT NULL DEFAULT '',
        CHECK ((scope = 'node') = (node <> '')),
        CONSTRAINT token_gateway_check CHECK ((scope = 'gateway') = (gateway <> ''))
    )
    """,
    "CREATE INDEX token_node ON token (node) WHERE node <> '' AND revoked_at IS NULL",
    "CREATE INDEX token_replaces ON token (replaces) WHERE replaces <> ''",
    "CREATE INDEX token_ended ON token (expires_at) WHERE scope = 'node'",
    "CREATE INDEX token_sessions ON token (created_by, created_at) WHERE label = 'console · session'",
    "CREATE INDEX token_people ON token (created_by, created_at) WHERE created_by LIKE 'person:%'",
    "CREATE INDEX token_over ON token (least(revoked_at, CASE WHEN scope <> 'node' THEN expires_at END))",
    """
    CREATE TABLE join_token (
        id text PRIMARY KEY,
        secret_hash bytea NOT NULL,
        node text NOT NULL DEFAULT '',
        created_by text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        expires_at timestamptz NOT NULL,
        used_at timestamptz,
        used_by text NOT NULL DEFAULT ''
    )
    """,
    "CREATE INDEX join_token_over ON join_token (least(expires_at, used_at))",
    """
    CREATE TABLE audit (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at timestamptz NOT NULL DEFAULT clock_timestamp(),
        request_id text NOT NULL,
        principal text NOT NULL,
        scope text NOT NULL,
        principal_tenant text NOT NULL,
        verb text NOT NULL,
        outcome text NOT NULL,
        kind text NOT NULL,
        tenant text NOT NULL DEFAULT '',
        name text NOT NULL,
        detail text NOT NULL DEFAULT '',
        before jsonb,
        after jsonb
    )
    """,
    """
    CREATE FUNCTION refuse_to_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        -- Housekeeping alone deletes, and nothing younger than this, whatever its setting says.
        IF TG_OP = 'DELETE' THEN
            IF OLD.at < now() - interval '90 days' THEN
                RETURN OLD;
            END IF;
        END IF;
        RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
    END $$
    """,
    "CREATE INDEX audit_subject ON audit (kind, tenant, name, id)",
    """
    CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION refuse_to_rewrite()
    """,
    """
    CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_to_rewrite()
    """,
    """
    CREATE TABLE idempotency (
        principal text NOT NULL,
        key text NOT NULL,
        request_hash bytea NOT NULL,
        status int NOT NULL,
        headers jsonb NOT NULL,
        body bytea NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (principal, key)
    )
    """,
    "CREATE INDEX idempotency_created_at ON idempotency (created_at)",
    # The changes that each tenant, and each token without a tenant, makes a day.
    """
    CREATE TABLE change_count (
        account text COLLATE "C" NOT NULL,
        day date NOT NULL,
        units bigint NOT NULL,
        PRIMARY KEY (account, day)
    )
    """,
    "CREATE INDEX change_count_day ON change_count (day)",
]

DOWN = [
    "DROP TABLE change_count, idempotency, audit, join_token, token, change, reference, object, version",
    "DROP FUNCTION refuse_to_rewrite()",
]
