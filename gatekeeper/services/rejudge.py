"""Judge a stored run again: by another policy, or by its own to see that the same verdict comes out. Stores nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy.orm import Session

from gatekeeper import catalog
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.judge import judge
from gatekeeper.domain.measurement import Role
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.verdict import Report
from gatekeeper.services import assemble
from gatekeeper.services.finish import NotJudged, was_judged
from gatekeeper.services.views import RunDetail
from gatekeeper.services.waivers import plan_in_force
from gatekeeper.settings import Settings
from gatekeeper.storage import arms, runs
from gatekeeper.storage.codec import canonical_json, dump_plan, load_plan
from gatekeeper.storage.database import Sessions, transaction
from gatekeeper.storage.tables import RunRow

POLICY = "a policy's name, or a policy"


def rejudge(
    sessions: Sessions, run_id: UUID, document: Mapping[str, Any], *, settings: Settings
) -> RunDetail:
    """The run as it would be had another policy judged it.

    `document` has one key, `policy`: the name of one in the catalogue, or a whole one.
    Raises InvalidInput, NotFound and NotJudged.
    """
    policy = _read_policy(document, settings)
    with transaction(sessions) as session:
        run, measured = _load(session, run_id)
        stored = assemble.run_detail(run, arms.list_arms(session, run_id, run.attempt), ahead=None)
        # The run's own policy is not read: it may be of an earlier version's language.
        plan = plan_in_force(session, run.plan | {"policy": policy.model_dump(mode="json")})
    report = judge(plan, measured)
    own = (
        f"The run's own verdict, by {stored.policy}, is {stored.verdict}; here {policy.name} judged it again."
    )
    report = report.model_copy(update={"notes": (*report.notes, own)})
    return stored.model_copy(
        update=assemble.report_fields(report) | {"policy": policy.name, "plan": dump_plan(plan)}
    )


def reproduce(sessions: Sessions, run_id: UUID) -> bool:
    """True if what is stored of a run gives its stored report again, byte for byte. Raises like `differences`."""
    return not differences(sessions, run_id)


def differences(sessions: Sessions, run_id: UUID) -> tuple[str, ...]:
    """The places at which a run's report, judged again by its own policy, is not the stored one; none if all agree.

    Raises NotFound and NotJudged.
    """
    with transaction(sessions) as session:
        run, measured = _load(session, run_id)
    try:
        plan = load_plan(run.plan)
    except ValidationError as error:
        return (f"the plan is none of this version: {field_problems(error)[0]}",)
    waived = Report.model_validate(run.report, extra="ignore").waivers
    again = judge(plan.model_copy(update={"waivers": waived}), measured).model_dump(mode="json")
    before = {"waivers": [], **(run.report or {})}  # reports from before there were waivers have no such key
    if canonical_json(again) == canonical_json(before):
        return ()
    return tuple(_places(before, again))


def list_finished(sessions: Sessions) -> list[tuple[UUID, str]]:
    """Id and name of every run that came to a verdict, the oldest first; some of them were never judged."""
    with transaction(sessions) as session:
        return runs.list_finished(session)


def _load(session: Session, run_id: UUID) -> tuple[RunRow, Mapping[Role, ArmRecord]]:
    run = runs.get_run(session, run_id)
    if not was_judged(run.report):
        raise NotJudged(f"run {run_id} is {run.state}" + (f": {run.sentence}" if run.sentence else ""))
    return run, arms.load_records(session, run_id, run.attempt)


def _read_policy(document: Mapping[str, Any], settings: Settings) -> Policy:
    problems = [
        FieldProblem(field=key, problem="unknown key", allowed="policy")
        for key in document
        if key != "policy"
    ]
    if problems:
        raise InvalidInput(problems)
    match document.get("policy"):
        case str(name):
            return catalog.get_policy(name, extra=settings.catalog_dir)
        case dict(inline):
            return _inline_policy(inline)
        case None:
            raise InvalidInput([FieldProblem(field="policy", problem="is missing", allowed=POLICY)])
        case other:
            raise InvalidInput([FieldProblem(field="policy", problem=f"got {other!r:.80}", allowed=POLICY)])


def _inline_policy(document: dict[str, Any]) -> Policy:
    try:
        return Policy.model_validate(document)
    except ValidationError as error:
        found = field_problems(error, Policy)
        raise InvalidInput(
            [replace(problem, field=f"policy.{problem.field}".removesuffix(".document")) for problem in found]
        ) from error


def _places(stored: Any, again: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of the values that differ; a whole list or mapping where its keys or length do."""
    if isinstance(stored, dict) and isinstance(again, dict) and stored.keys() == again.keys():
        pairs = [(key, stored[key], again[key]) for key in stored]
    elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        pairs = [(str(index), *values) for index, values in enumerate(zip(stored, again, strict=True))]
    else:
        if canonical_json(stored) != canonical_json(again):
            yield path or "report"
        return
    for key, before, after in pairs:
        yield from _places(before, after, f"{path}.{key}" if path else str(key))
