"""Every family by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gatekeeper.domain.probes import Family
from workers.suites.context.chat import chat
from workers.suites.context.copy import copy
from workers.suites.context.draft import Write
from workers.suites.context.frequent import frequent
from workers.suites.context.lookup import lookup
from workers.suites.context.multi_hop import multi_hop
from workers.suites.context.multi_needle import multi_needle
from workers.suites.context.needle import needle
from workers.suites.context.two_questions import two_questions

FAMILIES: Final[Mapping[Family, Write]] = {
    "needle": needle,
    "multi_needle": multi_needle,
    "lookup": lookup,
    "multi_hop": multi_hop,
    "frequent": frequent,
    "two_questions": two_questions,
    "chat": chat,
    "copy": copy,
}
