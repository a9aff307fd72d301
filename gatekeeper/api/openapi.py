"""What the OpenAPI document says beyond what FastAPI finds out by itself: bodies, examples, problems."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gatekeeper.api.guard import SAFE_METHODS
from gatekeeper.api.problems import MEDIA_TYPE, Problem
from gatekeeper.domain.base import Closed
from gatekeeper.domain.change import Change, Deployment, Name, Ref
from gatekeeper.domain.kv_account import MemoryRequest
from gatekeeper.domain.policy import Policy
from gatekeeper.services.waivers import WaiverDocument
from gatekeeper.services.webhooks import WebhookDocument

REFERENCE: Final = "#/components/schemas/{model}"


class CommandDocument(Closed):
    """A serving command line, as text or words, in place of a typed configuration."""

    command: str | tuple[str, ...]
    name: Name | None = None
    deployment: Deployment = Deployment()
    suite: Name = "standard"
    policy: Name = "default"
    ref: Ref = Ref()


class RejudgeDocument(Closed):
    """The policy to judge by: its name, or a whole one."""

    policy: Name | Policy


SMALL: Final = {"model": "smollm2-135m", "candidate": {"quantization": {"scheme": "fp8_e4m3"}}}
FULL: Final = {
    "name": "chat-fp8",
    "model": "smollm2-135m",
    "candidate": {
        "quantization": {"scheme": "fp8_e5m2", "scales": "unit"},
        "reuse": {"prefix_caching": True},
        "scheduling": {"max_num_batched_tokens": 512, "max_num_seqs": 16},
    },
    "deployment": {"max_context": 512, "decode_tokens": 64, "concurrency": 8, "scenario": "chat"},
    "suite": "smoke",
    "policy": "fast",
    "ref": {"repo": "serving-config", "commit": "3f2a91c", "author": "ci"},
}
COMMAND: Final = {
    "command": "vllm serve smollm2-135m --kv-cache-dtype fp8",
    "suite": "smoke",
    "policy": "fast",
}
YAML: Final = (
    "model: smollm2-135m\ncandidate:\n  quantization: {scheme: fp8_e4m3}\nsuite: smoke\npolicy: fast\n"
)

SCHEMA: Final = {
    "oneOf": [{"$ref": REFERENCE.format(model=name)} for name in ("Change", "CommandDocument")],
}
CHANGE_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": SCHEMA,
                "examples": {
                    "smallest": {"summary": "The smallest change", "value": SMALL},
                    "full": {"summary": "A fuller one", "value": FULL},
                    "command": {"summary": "A serving command line", "value": COMMAND},
                },
            },
            "application/yaml": {"schema": SCHEMA, "examples": {"smallest": {"value": YAML}}},
        },
    }
}

RULE: Final = {"metric": "decode_kl", "at_most": 0.01, "reason": "Stricter than the operator's."}
REJUDGE_SCHEMA: Final = {"$ref": REFERENCE.format(model=RejudgeDocument.__name__)}
REJUDGE_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": REJUDGE_SCHEMA,
                "examples": {
                    "name": {"summary": "A policy of the catalogue", "value": {"policy": "fast"}},
                    "inline": {
                        "summary": "A policy of your own",
                        "value": {"policy": {"name": "trial", "rules": [RULE]}},
                    },
                },
            },
            "application/yaml": {"schema": REJUDGE_SCHEMA},
        },
    }
}

MEMORY_SCHEMA: Final = {"$ref": REFERENCE.format(model=MemoryRequest.__name__)}
MEMORY: Final = {
    "model": "smollm2-135m",
    "quantization": {"scheme": "kivi", "bits": 2},
    "context": 8192,
    "concurrency": 64,
    "device": "l4-24gb",
}
LLAMA_70B: Final = {
    "layers": 80,
    "attention_heads": 64,
    "kv_heads": 8,
    "head_dim": 128,
    "max_context": 131_072,
}
MEMORY_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": MEMORY_SCHEMA,
                "examples": {
                    "model": {"summary": "A registered model on a device", "value": MEMORY},
                    "shape": {"summary": "A shape by hand", "value": {"shape": LLAMA_70B, "context": 32_768}},
                },
            },
            "application/yaml": {"schema": MEMORY_SCHEMA},
        },
    }
}


WAIVER: Final = {
    "metric": "throughput_ratio",
    "owner": "Ada Example",
    "reason": "The launch needs the room; speed is looked at again in January.",
    "expires_at": "2027-01-15",
}
WEBHOOK: Final = {"url": "https://hooks.slack.com/services/T0/B0/X0", "format": "slack"}


def _body(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """The `openapi_extra` of an endpoint that reads a `Document` of one form."""
    schema = {"$ref": REFERENCE.format(model=model.__name__)}
    content = {
        media_type: {"schema": schema, "examples": {"example": {"value": example}}}
        for media_type in ("application/json", "application/yaml")
    }
    return {"requestBody": {"required": True, "content": content}}


WAIVER_BODY: Final = _body(WaiverDocument, WAIVER)
WEBHOOK_BODY: Final = _body(WebhookDocument, WEBHOOK)


def problems(**reasons: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of an endpoint: `problems(_404="…")`."""
    content = {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(model=Problem.__name__)}}}
    return {
        int(status[1:]): {"description": reason, "content": content} for status, reason in reasons.items()
    }


def _say_who_may(document: dict[str, Any]) -> None:
    """Declare the token: what changes something needs it where the operator has set one."""
    token = {
        "type": "http",
        "scheme": "bearer",
        "description": "GATEKEEPER_API_TOKEN, if the operator set it.",
    }
    document["components"]["securitySchemes"] = {"token": token}
    for operations in document["paths"].values():
        for method, operation in operations.items():
            if method.upper() not in SAFE_METHODS:
                operation["security"] = [{"token": []}, {}]


def install(app: FastAPI) -> None:
    """Let `app` describe itself with the bodies and problems above."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )

            bodies: list[type[BaseModel]] = [
                Change, CommandDocument, RejudgeDocument, MemoryRequest, WaiverDocument, WebhookDocument, Problem,
            ]  # fmt: skip
            _, found = models_json_schema([(body, "validation") for body in bodies], ref_template=REFERENCE)
            components = document.setdefault("components", {}).setdefault("schemas", {})
            document["components"]["schemas"] = found["$defs"] | components
            _say_who_may(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the way FastAPI documents it
