"""The application: API, pages, sweeper."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from gatekeeper import api
from gatekeeper.api import openapi, problems
from gatekeeper.api.guard import Guard
from gatekeeper.domain.errors import ServiceUnavailable
from gatekeeper.queue import Doorbell, make_celery
from gatekeeper.services.context import Context
from gatekeeper.services.sweep import Sweeper
from gatekeeper.settings import Settings
from gatekeeper.storage.database import make_engine, make_sessions
from gatekeeper.web import router as pages

DESCRIPTION = "Gates KV-cache changes of LLM serving: may this change go to production?"


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the application. Without `settings`, those of the environment. Nothing is connected until it starts."""
    settings = settings if settings is not None else Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine = make_engine(_database_url(settings))
        doorbell = Doorbell(make_celery(settings))
        context = Context(settings=settings, sessions=make_sessions(engine), doorbell=doorbell)
        sweeper = Sweeper(context.sessions, ring=doorbell.ring, seconds=settings.sweep_seconds)
        app.state.context = context
        sweeper.start()
        try:
            yield
        finally:
            await run_in_threadpool(sweeper.stop)
            doorbell.close()
            engine.dispose()

    app = FastAPI(
        title="gatekeeper",
        version=api.VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Guard, token=settings.api_token)
    problems.install(app)
    openapi.install(app)
    for router in api.ROUTERS:
        app.include_router(router)
    app.include_router(pages)
    return app


def _database_url(settings: Settings) -> str:
    if settings.database_url is None:
        raise ServiceUnavailable("DATABASE_URL is not set; `gatekeeper up` brings its own database")
    return settings.database_url
