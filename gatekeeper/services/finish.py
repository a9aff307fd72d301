"""The ends of a run other than a verdict on the change."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from sqlalchemy.orm import Session

from gatekeeper.domain.errors import Conflict
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Report, Verdict
from gatekeeper.services.webhooks import announce
from gatekeeper.storage import deltas, events, runs
from gatekeeper.storage.base import NOW, Json
from gatekeeper.storage.database import Sessions, transaction
from gatekeeper.storage.tables import RunRow


class NotJudged(Conflict):
    """The run has no verdict from a policy."""


def finish_cancelled(sessions: Sessions, run_id: UUID, *, owner: str) -> None:
    """End a run whose cancellation its worker has carried out. Raises LeaseLost."""
    with transaction(sessions) as session:
        end_cancelled(session, runs.get_held_run(session, run_id, owner))


def finish_error(sessions: Sessions, run_id: UUID, *, owner: str, cause: str) -> None:
    """End a run because what surrounds the engine failed. Raises LeaseLost."""
    with transaction(sessions) as session:
        end_error(session, runs.get_held_run(session, run_id, owner), cause)


def end_cancelled(session: Session, run: RunRow) -> None:
    """Mark a locked run as cancelled."""
    runs.set_columns(session, run.id, **runs.FREE, state=RunState.CANCELLED, finished_at=NOW)
    events.add_event(session, run.id, "state", {"state": RunState.CANCELLED, "attempt": run.attempt})


def end_error(session: Session, run: RunRow, cause: str) -> None:
    """Finish a locked run with ERROR."""
    end_report(session, run, Report(verdict=Verdict.ERROR, sentence=f"ERROR: {cause}"))


def was_judged(report: Json | None) -> bool:
    """True for the stored report of a run that the judge weighed: only then does it say what was requested."""
    return bool(report and report.get("requested"))


def end_report(session: Session, run: RunRow, report: Report) -> None:
    """Finish a locked run with a report."""
    answer = _answer(report)
    runs.set_columns(session, run.id, **runs.FREE, **answer, state=RunState.FINISHED, finished_at=NOW)
    deltas.add_deltas(session, run, report)
    announce(session, run, report, "run.finished")
    payload = {
        "state": RunState.FINISHED,
        "attempt": run.attempt,
        "verdict": report.verdict,
        "sentence": report.sentence,
    }
    events.add_event(session, run.id, "state", payload)


def replace_report(
    session: Session,
    run: RunRow,
    report: Report,
    kind: Literal["waived", "waiver_revoked"],
    payload: Json,
) -> None:
    """Give a locked, finished run another report. `kind` and `payload`: the event that says why."""
    deltas.delete_deltas(session, run.id)
    runs.set_columns(session, run.id, **_answer(report))
    deltas.add_deltas(session, run, report)
    announce(session, run, report, "run.waived" if kind == "waived" else "run.waiver_revoked")
    events.add_event(
        session, run.id, kind, payload | {"verdict": report.verdict, "sentence": report.sentence}
    )


def _answer(report: Report) -> Json:
    """The columns that a report fills."""
    return {
        "verdict": report.verdict,
        "sentence": report.sentence,
        "report": report.model_dump(mode="json"),
    }
