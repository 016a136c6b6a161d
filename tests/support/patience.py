"""How long a browser may take: a guard against hanging, since a busy machine has no upper limit."""

PATIENCE_MS = 300_000.0
