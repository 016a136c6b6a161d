"""The sums that reports rest on beside the ledger, who may read them, and what each reader sees."""

from __future__ import annotations

TABLES = [
    ";".join(
        [
            # What a service was asked and did in an hour, by the SLO in force when the hour was first summed up.
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
        PRIMARY KEY (hour, tenant, service)
    )
    """,
            # What the plan in force paid for services in an hour, and what baselines would have paid for the same load.
            """
    CREATE TABLE saving (
        hour timestamptz NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        generation bigint NOT NULL,
        plan_nano bigint NOT NULL,
        one_per_gpu_nano bigint NOT NULL,
        hetsev_nano bigint NOT NULL,
        largest_nano bigint NOT NULL,
        PRIMARY KEY (hour, tenant)
    )
    """,
            # GPUs of one kind: the most that were paid for at once in the 30 days before, and those that still are.
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
            # Whose reports a role reads: a tenant's; those of the whole fleet where the tenant is empty.
            """
    CREATE TABLE report_reader (
        role text COLLATE "C" NOT NULL,
        tenant text COLLATE "C" NOT NULL,
        granted_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (role, tenant)
    )
    """,
            # How far a node's GPUs were used in an hour: minutes of them, and what those add up to.
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
            """
    INSERT INTO node_hour
    SELECT hour, node, sum(minutes), sum(utilization_percent / 100 * minutes), sum(memory_used_gib * minutes),
        sum(power_mean_w * minutes)
    FROM gpu_hour GROUP BY hour, node
    """,
        ]
    )
]
SCHEMA = [
    ";".join(
        [
            """
    CREATE SCHEMA report;
    COMMENT ON SCHEMA report IS 'What GPUs cost, what services did for it, what planning saves.'
    """,
            # Days that views speak of. A table: a day is found by its key, and then its hours by theirs.
            """
    CREATE TABLE report.calendar (day date PRIMARY KEY);
    INSERT INTO report.calendar
        SELECT CAST(day AS date) FROM generate_series(timestamp '2026-01-01', timestamp '2099-12-31', '1 day') AS day;
    COMMENT ON TABLE report.calendar IS 'Every day from 2026 to 2099.';
    COMMENT ON COLUMN report.calendar.day IS 'The day.'
    """,
            # Bodies are bound to their tables here, not by the names that a reader's temporary tables could take.
            """
    CREATE FUNCTION report.reads_fleet() RETURNS boolean LANGUAGE sql STABLE RETURN (
        SELECT (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class
                WHERE oid = CAST('public.report_reader' AS regclass))
            OR EXISTS (SELECT FROM public.report_reader AS reader JOIN pg_roles ON rolname = reader.role
                       WHERE reader.tenant = '' AND pg_has_role(pg_roles.oid, 'USAGE'))
    );
    COMMENT ON FUNCTION report.reads_fleet() IS 'Whether the current role reads the reports of the whole fleet.';
    CREATE FUNCTION report.reads_tenants() RETURNS text[] LANGUAGE sql STABLE RETURN (
        SELECT coalesce(array_agg(DISTINCT reader.tenant), '{}')
        FROM public.report_reader AS reader JOIN pg_roles ON rolname = reader.role
        WHERE reader.tenant <> '' AND pg_has_role(pg_roles.oid, 'USAGE')
    );
    COMMENT ON FUNCTION report.reads_tenants() IS 'The tenants whose reports the current role reads.'
    """,
        ]
    )
]
OF_TENANTS = ("allocation", "cost_hour", "cost_day", "service_hour", "saving")
OF_FLEET = ("node_hour", "release_hour", "idle_node", "gpu_owned")
OF_ALL = ("price", "carbon_intensity")
FLEET = "(SELECT report.reads_fleet())"
TENANTS = "ANY (CAST((SELECT report.reads_tenants()) AS text[]))"
GUARDS = {
    **dict.fromkeys(OF_TENANTS, f"{FLEET} OR tenant = {TENANTS}"),
    **dict.fromkeys(OF_FLEET, FLEET),
    "object": f"(kind = 'Tenant' AND ({FLEET} OR name = {TENANTS})) OR (kind = 'Policy' AND {FLEET})",
    "report_reader": "EXISTS (SELECT FROM pg_roles WHERE rolname = role AND pg_has_role(pg_roles.oid, 'USAGE'))",
}
# The owner of the tables, whom the control plane connects as, is bound by none of these.
POLICIES = [
    f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;\nCREATE POLICY report_reader ON {table} FOR SELECT USING ({rows})"
    for table, rows in GUARDS.items()
]
_READ = ", ".join((*OF_TENANTS, *OF_FLEET, *OF_ALL, "report_reader"))


def _grants(verb: str, to: str) -> str:
    rights = (
        "USAGE ON SCHEMA report",
        "SELECT ON ALL TABLES IN SCHEMA report",
        f"SELECT ON {_READ}",
        "SELECT (kind, tenant, name, spec) ON object",
    )
    return "\n".join(f"        EXECUTE format('{verb} {right} {to} %I', role);" for right in rights)


# A role can be granted by whoever owns the tables; it is made by whoever may make roles: those are the server's.
GUARDS_AND_ROLES = [
    ";\n".join(POLICIES),
    f"""
    CREATE FUNCTION report.admit(role text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
{_grants("GRANT", "TO")}
    END $$;
    COMMENT ON FUNCTION report.admit(text) IS 'Lets a role read the views; report_reader says which rows it sees.';
    CREATE FUNCTION report.dismiss(role text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
{_grants("REVOKE", "FROM")}
    END $$;
    COMMENT ON FUNCTION report.dismiss(text) IS 'Takes back what report.admit gave.'
    """,
]
# Grants end before the policies do: without those they would show everything.
DOWN = [
    """
    DO $$
    BEGIN
        PERFORM report.dismiss(rolname) FROM pg_roles WHERE rolname IN (SELECT role FROM report_reader);
    END $$
    """,
    ";\n".join(
        f"DROP POLICY report_reader ON {table}; ALTER TABLE {table} DISABLE ROW LEVEL SECURITY" for table in GUARDS
    ),
    "DROP SCHEMA report CASCADE",
    "DROP TABLE report_reader, carbon_intensity, release_hour, saving, node_hour, service_hour",
]
