"""The tables behind the reports besides the ledger's, who may read them, and the rows that each reader gets."""

from __future__ import annotations

TABLES = [
    # The requests and work of a service in an hour, with the SLO in force when the hour was first summed up.
    """
    CREATE TABLE service_hour (
        hour timestamptz NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        service text COLLATE "C" NOT NULL,
        model text COLLATE "C" NOT NULL,
        slo_ms double precision,
        percentile double precision,
        requests bigint NOT NULL,
        answers bigint NOT NULL,
        errors bigint NOT NULL,
        in_time numeric NOT NULL,
        tokens bigint NOT NULL DEFAULT 0,
        asked_minutes smallint NOT NULL,
        violation_minutes smallint NOT NULL,
        busy_seconds numeric NOT NULL,
        instance_seconds numeric NOT NULL,
        tokens_in bigint NOT NULL DEFAULT 0,
        tpot_ms double precision,
        paced bigint NOT NULL DEFAULT 0,
        pace_in_time numeric NOT NULL DEFAULT 0,
        PRIMARY KEY (hour, tenant, service)
    )
    """,
    # The cost of services in an hour by the plan in force, by each baseline for the same load, and of what they really
    # held; null is unknown.
    """
    CREATE TABLE saving (
        hour timestamptz NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        generation bigint NOT NULL,
        plan_nano bigint NOT NULL,
        one_per_gpu_nano bigint NOT NULL,
        hetsev_nano bigint NOT NULL,
        largest_nano bigint NOT NULL,
        held_nano bigint,
        PRIMARY KEY (hour, tenant)
    )
    """,
    # GPUs of a kind: the most that were paid for at once in the 30 days before, and those that still are.
    """
    CREATE TABLE release_hour (
        hour timestamptz NOT NULL,
        gpu_type text COLLATE "C" NOT NULL,
        region text COLLATE "C" NOT NULL,
        purchase text COLLATE "C" NOT NULL CHECK (purchase IN ('onDemand', 'spot')),
        gpus_before int NOT NULL,
        gpus_now int NOT NULL CHECK (gpus_now <= gpus_before),
        nano bigint NOT NULL,
        PRIMARY KEY (hour, gpu_type, region, purchase)
    )
    """,
    """
    CREATE TABLE carbon_intensity (
        region text COLLATE "C" NOT NULL,
        valid_from date NOT NULL,
        valid_to date CHECK (valid_to > valid_from),
        grams_per_kwh numeric NOT NULL CHECK (grams_per_kwh >= 0),
        source text NOT NULL DEFAULT '',
        PRIMARY KEY (region, valid_from)
    )
    """,
    # The tenants whose reports a role reads; an empty tenant means the whole fleet.
    """
    CREATE TABLE report_reader (
        role text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        granted_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (role, tenant)
    )
    """,
    # The utilisation of a node's GPUs in an hour: measured minutes and their sums.
    """
    CREATE TABLE node_hour (
        hour timestamptz NOT NULL,
        node text COLLATE "C" NOT NULL,
        gpu_minutes bigint NOT NULL,
        busy_minutes double precision NOT NULL,
        gib_minutes double precision NOT NULL,
        watt_minutes double precision NOT NULL,
        PRIMARY KEY (hour, node)
    )
    """,
]
SCHEMA = [
    """
    CREATE SCHEMA report;
    COMMENT ON SCHEMA report IS 'The cost of GPUs, the work of services, and the savings of planning.'
    """,
    # The days of the views. A table, so that an index finds a day, and then another index its hours.
    """
    CREATE TABLE report.calendar (day date PRIMARY KEY);
    INSERT INTO report.calendar
        SELECT CAST(day AS date) FROM generate_series(timestamp '2026-01-01', timestamp '2099-12-31', '1 day') AS day;
    COMMENT ON TABLE report.calendar IS 'Every day from 2026 to 2099.';
    COMMENT ON COLUMN report.calendar.day IS 'The day.'
    """,
    # SQL-standard bodies are bound to their tables now, so a reader's temporary tables cannot replace them.
    """
    CREATE FUNCTION report.reads_fleet() RETURNS boolean LANGUAGE sql STABLE RETURN (
        SELECT (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class
                WHERE oid = CAST('public.report_reader' AS regclass))
            OR EXISTS (SELECT FROM public.report_reader AS reader JOIN pg_roles ON rolname = reader.role
                       WHERE reader.tenant = '' AND pg_has_role(pg_roles.oid, 'USAGE'))
    );
    COMMENT ON FUNCTION report.reads_fleet() IS 'True if the current role reads the reports of the whole fleet.';
    CREATE FUNCTION report.reads_tenants() RETURNS text[] LANGUAGE sql STABLE RETURN (
        SELECT coalesce(array_agg(DISTINCT reader.tenant), '{}')
        FROM public.report_reader AS reader JOIN pg_roles ON rolname = reader.role
        WHERE reader.tenant <> '' AND pg_has_role(pg_roles.oid, 'USAGE')
    );
    COMMENT ON FUNCTION report.reads_tenants() IS 'The tenants whose reports the current role reads.'
    """,
]
OF_TENANTS = ("allocation", "cost_hour", "cost_day", "service_hour", "saving")
OF_FLEET = ("node_hour", "release_hour", "idle_node", "gpu_owned")
OF_ALL = ("price", "carbon_intensity")
FLEET = "(SELECT report.reads_fleet())"
TENANTS = "ANY (CAST((SELECT report.reads_tenants()) AS text[]))"
ROWS_OF_READERS = {
    **dict.fromkeys((*OF_TENANTS, "service_load", "service_load_hour"), f"{FLEET} OR tenant = {TENANTS}"),
    **dict.fromkeys((*OF_FLEET, "plan"), FLEET),
    "object": f"(kind = 'Tenant' AND ({FLEET} OR name = {TENANTS})) OR (kind = 'Policy' AND {FLEET})",
    "report_reader": "EXISTS (SELECT FROM pg_roles WHERE rolname = role AND pg_has_role(pg_roles.oid, 'USAGE'))",
}
# None of these policies bind the owner of the tables, as whom the control plane connects.
POLICIES = [
    f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;\nCREATE POLICY report_reader ON {table} FOR SELECT USING ({rows})"
    for table, rows in ROWS_OF_READERS.items()
]
_READ = ", ".join((*OF_TENANTS, *OF_FLEET, *OF_ALL, "report_reader"))
_OF_LOADS = "seconds, requests, planned, low, high, bands, bands_held"


def _grants(verb: str, to: str) -> str:
    rights = (
        "USAGE ON SCHEMA report",
        "SELECT ON ALL TABLES IN SCHEMA report",
        f"SELECT ON {_READ}",
        "SELECT (kind, tenant, name, spec) ON object",
        "SELECT (generation, at, others, cross_check) ON plan",
        f"SELECT (tenant, service, at, latency_counts, {_OF_LOADS}) ON service_load",
        f"SELECT (tenant, service, hour, {_OF_LOADS}) ON service_load_hour",
    )
    return "\n".join(f"        EXECUTE format('{verb} {right} {to} %I', role);" for right in rights)


# The tables' owner may grant rights to a role; only a role with CREATEROLE may create it.
READERS = [
    ";\n".join(POLICIES),
    f"""
    CREATE FUNCTION report.admit(role text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
{_grants("GRANT", "TO")}
    END $$;
    COMMENT ON FUNCTION report.admit(text) IS 'Lets a role read the views; its rows in report_reader name its tenants.';
    CREATE FUNCTION report.dismiss(role text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
{_grants("REVOKE", "FROM")}
    END $$;
    COMMENT ON FUNCTION report.dismiss(text) IS 'Revokes what report.admit granted.'
    """,
]
DOWN = [
    "DROP SCHEMA report CASCADE",
    "DROP TABLE report_reader, carbon_intensity, release_hour, saving, node_hour, service_hour",
]
