"""Waivers, webhooks with their outbox, promotions, an index for counting verdicts.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NOW = sa.text("clock_timestamp()")


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "waivers",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("change_key", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "granted_at",
            TIMESTAMP(timezone=True),
            server_default=NOW,
            nullable=False,
        ),
        sa.Column("expires_at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("revoked_at", TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint("expires_at > granted_at", name="ck_waivers_expires_later"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_waivers_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_waivers"),
    )
    op.create_index("ix_waivers_run_id", "waivers", ["run_id"])
    op.create_index("ix_waivers_change_key", "waivers", ["change_key"])
    op.create_table(
        "webhooks",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("form", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("created_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("removed_at", TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint("form in ('json', 'slack')", name="ck_webhooks_form"),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("webhook_id", sa.BigInteger(), nullable=False),
        sa.Column("facts", JSONB(), nullable=False),
        sa.Column("created_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("delivered_at", TIMESTAMP(timezone=True), nullable=True),
        sa.Column("given_up_at", TIMESTAMP(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name="fk_deliveries_webhook_id_webhooks", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_webhook_id", "deliveries", ["webhook_id"])
    op.create_index(
        "ix_deliveries_due",
        "deliveries",
        ["next_at"],
        postgresql_where=sa.text("delivered_at is null and given_up_at is null"),
    )
    op.create_table(
        "promotions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("config", JSONB(), nullable=False),
        sa.Column("flags", JSONB(), nullable=False),
        sa.Column("engine", JSONB(), nullable=True),
        sa.Column("promoted_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name="fk_promotions_run_id_runs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_promotions"),
    )
    op.create_index("ix_events_states", "events", ["kind"], postgresql_where=sa.text("kind = 'state'"))
    op.create_index("ix_promotions_run_id", "promotions", ["run_id"])
    op.create_index("ix_promotions_model_id", "promotions", ["model", "id"])


def downgrade() -> None:
    """Take back."""
    op.drop_index("ix_events_states", "events")
    for table in ("promotions", "deliveries", "webhooks", "waivers"):
        op.drop_table(table)
