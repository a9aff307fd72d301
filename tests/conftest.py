"""Fixtures for all tests."""

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

pytest_plugins = ["tests.fixtures_postgres"]
