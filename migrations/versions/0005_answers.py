"""What each arm answered, as text; and an index for the figures of a list of runs.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "answers",
        sa.Column("arm_id", sa.BigInteger(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("payload", JSONB(), nullable=False),
        sa.ForeignKeyConstraint(["arm_id"], ["arms.id"], name="fk_answers_arm_id_arms", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("arm_id", "suite", "mode", "item_id", name="pk_answers"),
    )
    op.create_index("ix_deltas_run_id_metric", "deltas", ["run_id", "metric"])
    op.drop_index("ix_deltas_run_id", "deltas")


def downgrade() -> None:
    """Take back."""
    op.create_index("ix_deltas_run_id", "deltas", ["run_id"])
    op.drop_index("ix_deltas_run_id_metric", "deltas")
    op.drop_table("answers")
