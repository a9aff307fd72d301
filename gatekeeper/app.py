"""The application: API, pages, sweeper, courier."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from gatekeeper import api, tracing
from gatekeeper.api import openapi, problems
from gatekeeper.api.guard import Guard
from gatekeeper.api.traced import Traced
from gatekeeper.domain.errors import ServiceUnavailable
from gatekeeper.queue import Doorbell, make_celery
from gatekeeper.roll_call import RollCall
from gatekeeper.services.context import Context
from gatekeeper.services.periodic import Periodic
from gatekeeper.services.sweep import sweep_and_tell
from gatekeeper.services.webhooks import deliver_due
from gatekeeper.settings import Settings
from gatekeeper.storage.database import make_engine, make_sessions
from gatekeeper.web import router as pages

DESCRIPTION = "Gates KV-cache changes of LLM serving: may this change go to production?"


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the application. Without `settings`, those of the environment. Nothing is connected until it starts."""
    settings = settings if settings is not None else Settings()
    app = FastAPI(
        title="gatekeeper",
        version=api.VERSION,
        description=DESCRIPTION,
        lifespan=partial(_lifespan, settings=settings),
        generate_unique_id_function=lambda route: route.name,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Guard, token=settings.api_token)
    if tracing.is_configured():
        app.add_middleware(Traced)
    problems.install(app)
    openapi.install(app)
    for router in api.ROUTERS:
        app.include_router(router)
    app.include_router(pages)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI, *, settings: Settings) -> AsyncIterator[None]:
    """Connect, sweep and deliver while the application runs; routes find the context in its state."""
    end_tracing = tracing.start("gatekeeper-api")
    engine = make_engine(_database_url(settings))
    celery = make_celery(settings)
    doorbell, roll_call = Doorbell(celery), RollCall(celery)
    context = Context(
        settings=settings, sessions=make_sessions(engine), doorbell=doorbell, roll_call=roll_call
    )
    background = _background(context)
    app.state.context = context
    for periodic in background:
        periodic.start()
    await run_in_threadpool(_settle)
    try:
        yield
    finally:
        for periodic in background:
            await run_in_threadpool(periodic.stop)
        roll_call.close()
        doorbell.close()
        engine.dispose()
        await run_in_threadpool(end_tracing)


def _settle() -> None:
    """Take what was loaded out of the garbage collector's sight: it stays, and looking through it takes a tenth of a
    second, in which no page is served.
    """
    gc.collect()
    gc.freeze()


def _background(context: Context) -> tuple[Periodic, ...]:
    """What the service does without being asked: it sweeps, and it delivers messages."""
    settings, sessions = context.settings, context.sessions
    seconds = settings.sweep_seconds
    return (
        Periodic("sweeper", partial(sweep_and_tell, sessions, ring=context.doorbell.ring), seconds=seconds),
        Periodic("courier", partial(deliver_due, sessions, settings=settings), seconds=seconds),
    )


def _database_url(settings: Settings) -> str:
    if settings.database_url is None:
        raise ServiceUnavailable("DATABASE_URL is not set; `gatekeeper up` brings its own database")
    return settings.database_url
