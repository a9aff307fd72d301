"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NOW = sa.text("clock_timestamp()")


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "models",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=True),
        sa.Column("shape", JSONB(), nullable=True),
        sa.Column("created_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_models"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("plan", JSONB(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("scheme", sa.Text(), nullable=False),
        sa.Column("eviction", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("repo", sa.Text(), nullable=True),
        sa.Column("commit", sa.Text(), nullable=True),
        sa.Column("author", sa.Text(), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("created_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("queued_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("rung_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("started_at", TIMESTAMP(timezone=True), nullable=True),
        sa.Column("finished_at", TIMESTAMP(timezone=True), nullable=True),
        sa.Column("attempt", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("takeovers", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", TIMESTAMP(timezone=True), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("progress", JSONB(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("sentence", sa.Text(), nullable=True),
        sa.Column("report", JSONB(), nullable=True),
        sa.CheckConstraint(
            "(state = 'finished') = (verdict is not null)", name="ck_runs_verdict_when_finished"
        ),
        sa.CheckConstraint(
            "(state = 'running') = (lease_owner is not null)", name="ck_runs_lease_while_running"
        ),
        sa.CheckConstraint("state in ('queued', 'running', 'finished', 'cancelled')", name="ck_runs_state"),
        sa.CheckConstraint(
            "verdict in ('PASS', 'FAIL', 'INCONCLUSIVE', 'INVALID', 'ERROR')", name="ck_runs_verdict"
        ),
        sa.CheckConstraint(
            "(lease_owner is null) = (lease_expires_at is null)", name="ck_runs_lease_expires"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("idempotency_key", name="uq_runs_idempotency_key"),
    )
    op.create_index("ix_runs_created_at_id", "runs", ["created_at", "id"])
    op.create_index("ix_runs_model_created_at_id", "runs", ["model", "created_at", "id"])
    op.create_index(
        "ix_runs_open",
        "runs",
        ["state", "queued_at"],
        postgresql_where=sa.text("state in ('queued', 'running')"),
    )
    op.create_index("ix_runs_scheme_created_at_id", "runs", ["scheme", "created_at", "id"])
    op.create_index("ix_runs_verdict_created_at_id", "runs", ["verdict", "created_at", "id"])
    op.create_table(
        "arms",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=True),
        sa.Column("plan", JSONB(), nullable=False),
        sa.Column("argv", JSONB(), nullable=False),
        sa.Column("engine", JSONB(), nullable=True),
        sa.Column("effective", JSONB(), nullable=True),
        sa.Column("exercises", JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("skipped", JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("failure", JSONB(), nullable=True),
        sa.Column("complete", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("started_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("finished_at", TIMESTAMP(timezone=True), nullable=True),
        sa.CheckConstraint("role in ('baseline', 'control', 'candidate')", name="ck_arms_role"),
        sa.CheckConstraint("not complete or failure is null", name="ck_arms_complete_without_failure"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_arms_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_arms"),
    )
    op.create_index("ix_arms_run_id_attempt", "arms", ["run_id", "attempt"])
    op.create_table(
        "artifacts",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_artifacts_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "role", "name", name="pk_artifacts"),
    )
    op.create_table(
        "deltas",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("created_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("scheme", sa.Text(), nullable=False),
        sa.Column("eviction", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("group", sa.Text(), nullable=False),
        sa.Column("estimate", sa.Float(precision=53), nullable=False),
        sa.Column("lower", sa.Float(precision=53), nullable=True),
        sa.Column("upper", sa.Float(precision=53), nullable=True),
        sa.Column("document", JSONB(), nullable=False),
        sa.Column("finding", sa.Text(), nullable=True),
        sa.Column("severity", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.CheckConstraint("estimate > '-infinity' and estimate < 'infinity'", name="ck_deltas_finite"),
        sa.CheckConstraint(
            "finding in ('Passed', 'Regressed', "
            " 'Inconclusive', 'NotExercised', 'Missing', 'Errored', 'Waived')",
            name="ck_deltas_finding",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_deltas_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_deltas"),
    )
    op.create_index("ix_deltas_created_at", "deltas", ["created_at"])
    op.create_index("ix_deltas_finding_id", "deltas", ["finding", "id"])
    op.create_index("ix_deltas_metric_model_id", "deltas", ["metric", "model", "id"])
    op.create_index("ix_deltas_model_id", "deltas", ["model", "id"])
    op.create_index("ix_deltas_run_id", "deltas", ["run_id"])
    op.create_index("ix_deltas_scheme_id", "deltas", ["scheme", "id"])
    op.create_table(
        "events",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("payload", JSONB(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_events_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_events"),
    )
    op.create_table(
        "baselines",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("baseline_arm_id", sa.BigInteger(), nullable=False),
        sa.Column("control_arm_id", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIMESTAMP(timezone=True), server_default=NOW, nullable=False),
        sa.Column("pinned", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("retired_at", TIMESTAMP(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["baseline_arm_id"], ["arms.id"], name="fk_baselines_baseline_arm_id_arms"),
        sa.ForeignKeyConstraint(["control_arm_id"], ["arms.id"], name="fk_baselines_control_arm_id_arms"),
        sa.PrimaryKeyConstraint("id", name="pk_baselines"),
    )
    op.create_index("ix_baselines_created_at", "baselines", ["created_at"])
    op.create_index(
        "uq_baselines_active",
        "baselines",
        ["fingerprint"],
        unique=True,
        postgresql_where=sa.text("retired_at is null"),
    )
    op.create_table(
        "measurements",
        sa.Column("arm_id", sa.BigInteger(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(precision=53), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.CheckConstraint("value > '-infinity' and value < 'infinity'", name="ck_measurements_finite"),
        sa.CheckConstraint("value is not null or reason is not null", name="ck_measurements_reason_for_null"),
        sa.ForeignKeyConstraint(
            ["arm_id"], ["arms.id"], name="fk_measurements_arm_id_arms", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("arm_id", "suite", "mode", "item_id", "metric", name="pk_measurements"),
    )
    op.create_table(
        "run_arms",
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("arm_id", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("role in ('baseline', 'control', 'candidate')", name="ck_run_arms_role"),
        sa.ForeignKeyConstraint(["arm_id"], ["arms.id"], name="fk_run_arms_arm_id_arms"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_arms_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", "role", name="pk_run_arms"),
    )
    op.create_index("ix_run_arms_arm_id", "run_arms", ["arm_id"])
    op.create_table(
        "traces",
        sa.Column("arm_id", sa.BigInteger(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=False),
        sa.Column("payload", JSONB(), nullable=False),
        sa.ForeignKeyConstraint(["arm_id"], ["arms.id"], name="fk_traces_arm_id_arms", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("arm_id", "suite", "mode", "item_id", name="pk_traces"),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("traces")
    op.drop_table("run_arms")
    op.drop_table("measurements")
    op.drop_table("baselines")
    op.drop_table("events")
    op.drop_table("deltas")
    op.drop_table("artifacts")
    op.drop_table("arms")
    op.drop_table("runs")
    op.drop_table("models")
