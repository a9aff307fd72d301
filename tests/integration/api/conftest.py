"""The application, served in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from gatekeeper.app import create_app
from tests.integration.services.fixtures import clean_engine, shared_engine, world
from tests.integration.services.seeds import World, make_settings

__all__ = ["clean_engine", "shared_engine", "world"]


@pytest.fixture(scope="module")
def served(shared_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of an application that runs for all tests of a module."""
    url = shared_engine.url.render_as_string(hide_password=False)
    app = create_app(make_settings(url, tmp_path_factory.mktemp("home")))
    # What no handler knows becomes 500, as in production.
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(served: TestClient, world: World) -> TestClient:  # noqa: ARG001 - asking for it empties the database
    """The same on an emptied database with one model."""
    return served
