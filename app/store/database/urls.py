"""Spells a Postgres URL as SQLAlchemy, or as psycopg and libpq, need it."""

from __future__ import annotations

from app.settings import SettingsError


def sqlalchemy_url(url: str) -> str:
    """Returns any spelling of a Postgres URL in the form of SQLAlchemy with psycopg 3."""
    for prefix in ("postgresql+psycopg://", "postgresql://", "postgres://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    raise SettingsError("DATABASE_URL must begin with postgresql://")


def libpq_url(url: str) -> str:
    """Returns any spelling of a Postgres URL in the form of psycopg and libpq."""
    return sqlalchemy_url(url).replace("postgresql+psycopg://", "postgresql://", 1)
