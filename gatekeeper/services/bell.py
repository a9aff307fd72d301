"""Ringing after commit: a broker that is down delays a run, and never loses one."""

from __future__ import annotations

import logging
from typing import cast
from uuid import UUID

from gatekeeper.domain.errors import ServiceUnavailable
from gatekeeper.domain.vllm_flags import Device
from gatekeeper.queue import Ring

log = logging.getLogger(__name__)


def ring_after_commit(ring: Ring, run_id: UUID, device: str) -> bool:
    """Ring for a queued run; False if the broker does not answer (the sweep rings again)."""
    try:
        ring(run_id, cast("Device", device))
    except ServiceUnavailable as error:
        log.warning("run %s stays queued until the next sweep: %s", run_id, error)
        return False
    return True
