"""What an application instance holds; routes find it at `request.app.state.context`."""

from __future__ import annotations

from dataclasses import dataclass

from gatekeeper.queue import Doorbell
from gatekeeper.roll_call import RollCall
from gatekeeper.settings import Settings
from gatekeeper.storage.database import Sessions


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Settings, the database, the doorbell, and who listens to it."""

    settings: Settings
    sessions: Sessions
    doorbell: Doorbell
    roll_call: RollCall
