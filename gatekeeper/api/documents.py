"""Answers that exist only in HTTP: views with links."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from gatekeeper.domain.foresight import Foresight
from gatekeeper.domain.plan import Model, Plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.suite import Suite
from gatekeeper.services.baselines import BaselineView
from gatekeeper.services.promote import PromotionView
from gatekeeper.services.submit import Preview, Submitted
from gatekeeper.services.views import ArtifactView, RunDetail, RunSummary
from gatekeeper.services.waivers import WaiverView
from gatekeeper.services.webhooks import DeliveryView, WebhookView

ROOT: Final = "/api/v1"


class RunDocument(RunDetail):
    """A run, with where to go on from it."""

    links: dict[str, str]


class SubmittedDocument(RunDocument):
    """A run as it was accepted, with what can be said beforehand of each rule of its policy and of its coverage."""

    coverage_gaps: list[str]
    foresight: list[Foresight]


class RunListItem(RunSummary):
    """A run in a list, with where to find the whole of it."""

    links: dict[str, str]


class ArtifactDocument(ArtifactView):
    """An artifact, with where to read it."""

    href: str


class BaselineList(BaseModel):
    """Baselines, newest first."""

    items: list[BaselineView]


class ArtifactList(BaseModel):
    """The artifacts of all attempts of a run."""

    items: list[ArtifactDocument]


class WaiverList(BaseModel):
    """Waivers."""

    items: list[WaiverView]


class WebhookList(BaseModel):
    """Webhooks."""

    items: list[WebhookView]


class DeliveryList(BaseModel):
    """Messages to a webhook, newest first."""

    items: list[DeliveryView]


class ReferenceList(BaseModel):
    """Promoted configurations, one a model."""

    items: list[PromotionView]


class ModelList(BaseModel):
    """What a change's `model` may be."""

    items: list[Model]


class CatalogEntry(BaseModel):
    """A suite or a policy by name; `error` says what is wrong with an operator's file."""

    name: str
    content: Suite | Policy | None = None
    error: str | None = None


class CatalogList(BaseModel):
    """What a change's `suite` or `policy` may be."""

    items: list[CatalogEntry]


class PlanDocument(BaseModel):
    """What a run would do. `flags` of the engine, and KV bytes, by arm; bytes are null without the model's shape.

    `coverage_gaps`: what the change declares and the suite does not reach, which keeps the verdict from being PASS.
    `undeclared`: what the verdict will speak of where the deployment leaves its lengths open.
    """

    plan: dict[str, Any]
    flags: dict[str, list[str]]
    kv_bytes_per_token: dict[str, float | None]
    kv_pool_bytes: dict[str, float | None]
    coverage_gaps: list[str]
    undeclared: str | None
    foresight: list[Foresight]


def run_document(run: RunDetail) -> RunDocument:
    """Add the links of a run."""
    return RunDocument(**dict(run), links=_links(run))


def submitted_document(run: RunDetail, submitted: Submitted) -> SubmittedDocument:
    """The document of a run that was just accepted."""
    return SubmittedDocument(
        **dict(run),
        links=_links(run),
        coverage_gaps=list(submitted.coverage_gaps),
        foresight=list(submitted.foresight),
    )


def run_item(run: RunSummary) -> RunListItem:
    """Add the links of a run in a list."""
    return RunListItem(**dict(run), links=_links(run))


def artifact_document(artifact: ArtifactView) -> ArtifactDocument:
    """Add where an artifact can be read."""
    key = f"{artifact.attempt}/{artifact.role}/{artifact.name}"
    return ArtifactDocument(**dict(artifact), href=f"{ROOT}/runs/{artifact.run_id}/artifacts/{key}")


def plan_document(preview: Preview) -> PlanDocument:
    """The document of a preview."""
    plan: Plan = preview.plan
    return PlanDocument(
        plan=plan.model_dump(mode="json"),
        flags={role: list(arm.flags) for role, arm in preview.arms.items()},
        kv_bytes_per_token={role: arm.kv_bytes_per_token for role, arm in preview.arms.items()},
        kv_pool_bytes={role: arm.kv_pool_bytes for role, arm in preview.arms.items()},
        coverage_gaps=list(preview.coverage_gaps),
        undeclared=plan.undeclared,
        foresight=list(preview.foresight),
    )


def _links(run: RunSummary) -> dict[str, str]:
    own = f"{ROOT}/runs/{run.run_id}"
    parts = {
        name: f"{own}/{name}"
        for name in ("deltas", "events", "artifacts", "cancel", "retry", "rejudge", "waivers", "promote")
    }
    return {"self": own, **parts, "page": f"/runs/{run.run_id}"}
