"""Webhooks and what they shall get: a delivery for each new event, written in the event's own transaction.

Also an index by which the tokens of a person who signed in are found.
"""

from __future__ import annotations

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None
SERVES = "0025"

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
        error text NOT NULL DEFAULT ''
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
        WHERE (severities = '{}' OR NEW.severity = ANY (severities))
            AND (reasons = '{}' OR NEW.reason = ANY (reasons))
            AND (tenants = '{}' OR NEW.tenant = ANY (tenants))
            AND NOT (NEW.kind = 'Webhook' AND NEW.name = webhook.name);
        RETURN NULL;
    END $$
    """,
    "CREATE INDEX token_people ON token (created_by, created_at) WHERE created_by LIKE 'person:%'",
    "CREATE TRIGGER event_for_webhooks AFTER INSERT ON event FOR EACH ROW EXECUTE FUNCTION note_for_webhooks()",
]
DOWN = [
    "DROP INDEX token_people",
    "DROP TRIGGER event_for_webhooks ON event",
    "DROP FUNCTION note_for_webhooks()",
    "DROP TABLE webhook_delivery",
    "DROP TABLE webhook",
]


def upgrade() -> None:
    for sql in UP:
        op.execute(sql)


def downgrade() -> None:
    for sql in DOWN:
        op.execute(sql)
