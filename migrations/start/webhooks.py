"""Webhooks and what they shall get: a delivery for each new event or entry of the audit, written in its transaction."""

from __future__ import annotations

UP = [
    """
    CREATE TABLE webhook (
        name text COLLATE "C" PRIMARY KEY,
        severities text[] NOT NULL,
        reasons text[] NOT NULL,
        tenants text[] NOT NULL,
        seen_at timestamptz NOT NULL,
        sent bigint NOT NULL DEFAULT 0,
        sent_at timestamptz,
        error text NOT NULL DEFAULT '',
        audit boolean NOT NULL DEFAULT false
    )
    """,
    # Without a time when it is due it is a dead letter.
    """
    CREATE TABLE webhook_delivery (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        hook text COLLATE "C" NOT NULL REFERENCES webhook ON DELETE CASCADE,
        event jsonb NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        due_at timestamptz,
        attempts int NOT NULL DEFAULT 0,
        error text NOT NULL DEFAULT ''
    )
    """,
    "CREATE INDEX webhook_delivery_due ON webhook_delivery (hook, due_at, id)",
    # A hook hears nothing of its own failures: they would go on without end.
    """
    CREATE FUNCTION note_for_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO webhook_delivery (hook, event, due_at)
        SELECT name, jsonb_build_object(
            'at', NEW.at, 'reason', NEW.reason, 'severity', NEW.severity, 'kind', NEW.kind, 'tenant', NEW.tenant,
            'name', NEW.name, 'message', NEW.message, 'generation', NEW.generation), now()
        FROM webhook
        WHERE NOT audit AND (severities = '{}' OR NEW.severity = ANY (severities))
            AND (reasons = '{}' OR NEW.reason = ANY (reasons))
            AND (tenants = '{}' OR NEW.tenant = ANY (tenants))
            AND NOT (NEW.kind = 'Webhook' AND NEW.name = webhook.name);
        RETURN NULL;
    END $$
    """,
    "CREATE TRIGGER event_for_webhooks AFTER INSERT ON event FOR EACH ROW EXECUTE FUNCTION note_for_webhooks()",
    """
    CREATE FUNCTION note_audit_for_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO webhook_delivery (hook, event, due_at)
        SELECT webhook.name, jsonb_build_object('audit', fresh.id), now()
        FROM fresh, webhook WHERE webhook.audit ORDER BY fresh.id;
        RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER audit_for_webhooks AFTER INSERT ON audit REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION note_audit_for_webhooks()
    """,
]

DOWN = [
    "DROP TABLE webhook_delivery, webhook",
    "DROP TRIGGER event_for_webhooks ON event; DROP TRIGGER audit_for_webhooks ON audit",
    "DROP FUNCTION note_for_webhooks(), note_audit_for_webhooks()",
]
