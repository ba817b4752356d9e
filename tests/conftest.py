"""Fixtures that tests of every folder may want."""

from __future__ import annotations

from support.postgres import engine, fresh_location, postgres, store_location

__all__ = ["engine", "fresh_location", "postgres", "store_location"]
