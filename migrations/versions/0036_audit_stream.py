"""Webhooks that get the audit: a delivery that names each new entry, written in the entry's own transaction."""

from __future__ import annotations

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None
SERVES = "0025"

EVENTS = """
    CREATE OR REPLACE FUNCTION note_for_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO webhook_delivery (hook, event, due_at)
        SELECT name, jsonb_build_object(
            'at', NEW.at, 'reason', NEW.reason, 'severity', NEW.severity, 'kind', NEW.kind, 'tenant', NEW.tenant,
            'name', NEW.name, 'message', NEW.message, 'generation', NEW.generation), now()
        FROM webhook
        WHERE {condition}(severities = '{{}}' OR NEW.severity = ANY (severities))
            AND (reasons = '{{}}' OR NEW.reason = ANY (reasons))
            AND (tenants = '{{}}' OR NEW.tenant = ANY (tenants))
            AND NOT (NEW.kind = 'Webhook' AND NEW.name = webhook.name);
        RETURN NULL;
    END $$
"""
UP = [
    "ALTER TABLE webhook ADD COLUMN IF NOT EXISTS audit boolean NOT NULL DEFAULT false",
    EVENTS.format(condition="NOT audit AND "),
    """
    CREATE OR REPLACE FUNCTION note_audit_for_webhooks() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO webhook_delivery (hook, event, due_at)
        SELECT webhook.name, jsonb_build_object('audit', fresh.id), now()
        FROM fresh, webhook WHERE webhook.audit ORDER BY fresh.id;
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE TRIGGER audit_for_webhooks AFTER INSERT ON audit REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION note_audit_for_webhooks()
    """,
]
DOWN = [
    "DROP TRIGGER audit_for_webhooks ON audit",
    "DROP FUNCTION note_audit_for_webhooks()",
    EVENTS.format(condition=""),
    "DELETE FROM webhook WHERE audit",
    "ALTER TABLE webhook DROP COLUMN audit",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
