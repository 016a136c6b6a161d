"""Runs migrations on the connection of app.store.database.schema and in its transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
# Not context.begin_transaction(): the caller's transaction holds the migration lock and commits the step.
context.run_migrations()
