"""A service to test."""

from tests.integration.services.fixtures import clean_engine, shared_engine, world

__all__ = ["clean_engine", "shared_engine", "world"]
