"""The routes of what stands beside the runs: history, comparison, baselines, policies, workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Final
from uuid import UUID

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from gatekeeper import catalog
from gatekeeper.domain.errors import FieldProblem, GatekeeperError, InvalidInput, NotFound
from gatekeeper.domain.metric import METRICS
from gatekeeper.services import baselines, history, models, workers
from gatekeeper.services.baselines import BaselineView
from gatekeeper.services.comparison import compare_runs
from gatekeeper.services.context import Context
from gatekeeper.services.ids import row_id_of, run_id_of
from gatekeeper.services.rejudge import rejudge
from gatekeeper.storage.database import Sessions
from gatekeeper.web import badges, filters, links, rejudging
from gatekeeper.web.attending import worker_lines
from gatekeeper.web.calculator import calculator
from gatekeeper.web.comparison import comparison
from gatekeeper.web.failures import PageRoute
from gatekeeper.web.kept import baseline_lines
from gatekeeper.web.past import past
from gatekeeper.web.rendering import render
from gatekeeper.web.requests import Form, context_for_form, context_of
from gatekeeper.web.times import moment

router = APIRouter(include_in_schema=False, route_class=PageRoute)

ACTIONS: Final[Mapping[str, Callable[[Sessions, int], BaselineView]]] = {
    "pin": baselines.pin,
    "unpin": baselines.unpin,
    "refresh": baselines.refresh,
}
"""What the buttons of a baseline do."""


@router.get("/history")
def show_history(request: Request, model: str = "", metric: str = "decode_kl", scheme: str = "") -> Response:
    """One metric of one model over its runs."""
    sessions = context_of(request).sessions
    known = [entry.name for entry in models.list_models(sessions)]
    chosen = model or next(iter(known), "")
    if metric not in METRICS:
        raise InvalidInput(
            [FieldProblem(field="metric", problem=f"unknown {metric!r}", allowed=", ".join(METRICS))]
        )
    deltas = history.list_past(sessions, chosen, metric, scheme=scheme or None) if chosen else ()
    return render(
        "history.html",
        choices=(
            filters.choice("model", known, chosen),
            filters.choice("metric", list(METRICS), metric),
            filters.choice("scheme", filters.SCHEMES, scheme),
        ),
        model=chosen,
        past=past(metric, deltas, now=datetime.now(UTC)),
        api_url=links.api_all_deltas(model=chosen, metric=metric, scheme=scheme),
    )


@router.get("/compare")
def show_comparison(request: Request) -> Response:
    """Two or more runs side by side: /compare?run=ID&run=ID."""
    found = compare_runs(context_of(request).sessions, request.query_params.getlist("run"))
    return render("compare.html", comparison=comparison(found))


@router.get("/baselines")
def list_baselines(request: Request, retired: bool = False) -> Response:
    """The baselines that later runs use again."""
    context, now = context_of(request), datetime.now(UTC)
    found = baselines.list_baselines(context.sessions, retired=retired)
    return render(
        "baselines.html",
        lines=baseline_lines(
            found,
            baselines.list_dependents(context.sessions, found),
            max_age=timedelta(days=context.settings.baseline_max_age_days),
            now=now,
        ),
        retired=retired,
        max_age_days=f"{context.settings.baseline_max_age_days:g}",
        needs_token=context.settings.api_token is not None,
    )


@router.post("/baselines/{baseline_id}/{verb}")
def change_baseline(request: Request, baseline_id: str, verb: str) -> Response:
    """A button of a baseline."""
    context = context_for_form(request)
    if verb not in ACTIONS:
        raise NotFound(f"action {verb!r}")
    ACTIONS[verb](context.sessions, row_id_of(baseline_id, "baseline"))
    return RedirectResponse("/baselines", HTTPStatus.SEE_OTHER)


@router.get("/policies")
def list_policies(request: Request) -> Response:
    """Every policy that a change can name."""
    extra = context_of(request).settings.catalog_dir
    found: list[tuple[str, str, int, str]] = []
    for name in catalog.list_names("policies", extra):
        try:
            policy = catalog.get_policy(name, extra=extra)
            found.append((name, policy.description, len(policy.rules), ""))
        except GatekeeperError as error:
            found.append((name, "", 0, str(error)))
    return render("policies.html", policies=found)


@router.get("/policies/{name}")
def show_policy(request: Request, name: str, against: str = "") -> Response:
    """One policy; with `against` beside another one."""
    extra = context_of(request).settings.catalog_dir
    names = catalog.list_names("policies", extra)
    if name not in names:
        raise NotFound(f"policy {name!r}")
    policy = catalog.get_policy(name, extra=extra)
    other = catalog.get_policy(against, extra=extra) if against else None
    return render(
        "policy.html",
        policy=policy,
        other=other,
        choice=filters.choice("against", [known for known in names if known != name], against),
        lines=rejudging.rule_lines(policy, other),
    )


@router.get("/runs/{run_id}/rejudge")
def show_margins(request: Request, run_id: str) -> Response:
    """The form with the margins of the run's own policy. Judges nothing, which would take seconds."""
    return _margins(context_of(request), run_id_of(run_id), {}, is_judged=False)


@router.post("/runs/{run_id}/rejudge")
def rejudge_run(request: Request, run_id: str, given: Form) -> Response:
    """The run under the policy and the margins of the form. Stores nothing."""
    return _margins(context_of(request), run_id_of(run_id), given, is_judged=True)


def _margins(context: Context, known: UUID, given: Mapping[str, str], *, is_judged: bool) -> Response:
    extra = context.settings.catalog_dir
    before = history.get_run(context.sessions, known)
    chosen = catalog.get_policy(given.get("policy") or before.policy, extra=extra)
    fields = rejudging.margin_fields(chosen, {} if given.get("shown") != chosen.name else given)
    problem, after = "", None
    if is_judged:
        try:
            document = {"policy": rejudging.changed_policy(chosen, fields)}
            after = rejudge(context.sessions, known, document, settings=context.settings)
        except InvalidInput as error:
            problem = error.detail or str(error)
    return render(
        "rejudge.html",
        status=HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK,
        name=before.name,
        run_url=links.run(known),
        policy=chosen.name,
        choice=filters.choice("policy", catalog.list_names("policies", extra), chosen.name),
        fields=fields,
        problem=problem,
        sentence=after.sentence if after else "",
        before=badges.of_run(before.state, before.verdict),
        after=badges.of_run(after.state, after.verdict) if after else None,
        lines=rejudging.outcome_lines(before, after) if after else (),
        needs_token=context.settings.api_token is not None,
    )


@router.get("/workers")
def list_workers(request: Request) -> Response:
    """Who measures what, who is idle, and what waits."""
    context, now = context_of(request), datetime.now(UTC)
    attendance = context.roll_call.attendance()
    return render(
        "workers.html",
        lines=worker_lines(
            workers.list_leases(context.sessions),
            attendance,
            lease_seconds=context.settings.lease_seconds,
            now=now,
        ),
        problem=attendance.problem,
        queues=[(queue, moment(queue.since, now=now)) for queue in workers.list_queues(context.sessions)],
    )


@router.get("/memory")
def calculate_memory(request: Request) -> Response:
    """What a KV cache takes under every scheme."""
    known = models.list_models(context_of(request).sessions)
    page = calculator(dict(request.query_params), known)
    return render("memory.html", status=HTTPStatus.BAD_REQUEST if page.problem else HTTPStatus.OK, page=page)
