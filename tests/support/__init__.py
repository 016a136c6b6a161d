"""What tests start and stop: databases, a pooler, server processes."""
