"""Everything the environment can set. Variables are `GATEKEEPER_<NAME>`; DATABASE_URL and BROKER_URL have no prefix."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The service's settings. Paths are absolute after loading."""

    model_config = SettingsConfigDict(env_prefix="GATEKEEPER_", extra="ignore", populate_by_name=True)

    home: Path = Path(".gatekeeper")
    """Data directory: embedded database, models, broker files, logs."""
    database_url: str | None = Field(
        default=None, validation_alias=AliasChoices("database_url", "DATABASE_URL")
    )
    """None: the embedded PostgreSQL under `home`."""
    broker_url: str | None = Field(default=None, validation_alias=AliasChoices("broker_url", "BROKER_URL"))
    """None: Celery's filesystem transport under `home`."""
    host: str = "127.0.0.1"
    port: int = Field(default=8800, ge=1, le=65535)
    log_format: Literal["text", "json"] = "text"
    """How the service and its workers log; `json`: one object a line, with the run's id."""
    public_url: str | None = None
    """Where people reach this service, such as https://gate.example.org; messages link to it."""
    webhook_networks: tuple[str, ...] = ()
    """Networks such as 10.0.0.0/8 that webhooks may reach although not public. JSON list in the environment."""
    api_token: SecretStr | None = None
    """If set, every request that changes something needs `Authorization: Bearer <token>`."""
    device: Literal["cpu", "cuda"] = "cpu"
    """The kind of device that runs go to."""
    allowed_engine_args: frozenset[str] = frozenset({"dtype", "enforce-eager", "seed", "attention-backend"})
    """Engine arguments that callers may pass through. JSON list in the environment."""
    catalog_dir: Path | None = None
    """A directory with `suites/` and `policies/` that add to, or replace, the bundled ones."""
    tasks_dir: Path | None = None
    """A directory with the operator's own lm-eval tasks (`--include_path`)."""
    max_body_bytes: int = Field(default=262_144, ge=1024)
    lease_seconds: float = Field(default=60.0, gt=0)
    sweep_seconds: float = Field(default=5.0, gt=0)
    engine_start_seconds: float = Field(default=300.0, gt=0)
    engine_stall_seconds: float = Field(default=600.0, gt=0)
    baseline_max_age_days: float = Field(default=30.0, gt=0)

    @field_validator("webhook_networks")
    @classmethod
    def _are_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            ipaddress.ip_network(network)
        return networks

    @property
    def root(self) -> Path:
        """The data directory, absolute."""
        return self.home.expanduser().absolute()
