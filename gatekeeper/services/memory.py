"""Answer a question about the memory of a cache, of a registered model or of one described by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.kv_account import MemoryAccount, MemoryRequest, memory_account
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model
from gatekeeper.services.intake import get_named_model
from gatekeeper.storage.database import Sessions, transaction


def read_request(document: Mapping[str, Any]) -> MemoryRequest:
    """Validate a document. Raises InvalidInput with one problem per wrong field."""
    try:
        return MemoryRequest.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(field_problems(error, MemoryRequest)) from error


def answer(sessions: Sessions, document: Mapping[str, Any]) -> MemoryAccount:
    """The account of what a document asks for. Raises InvalidInput."""
    request = read_request(document)
    with transaction(sessions) as session:
        return memory_account(_shape(session, request), request)


def _shape(session: Session, request: MemoryRequest) -> ModelShape:
    if request.shape is not None:
        return request.shape
    if request.hf_config is not None:
        return ModelShape.from_hf_config(request.hf_config)
    return known_shape(get_named_model(session, request.model or ""))


def known_shape(model: Model) -> ModelShape:
    """The shape of a registered model. Raises InvalidInput if it was registered without one."""
    if model.shape is None:
        allowed = "a model registered with its config.json, shape, or hf_config"
        problem = f"the shape of {model.name!r} is not known"
        raise InvalidInput([FieldProblem(field="model", problem=problem, allowed=allowed)])
    return model.shape
