"""Looks: the batch of every measurement and trace, and where a probe was ended on purpose.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("arms", sa.Column("stops", JSONB(), nullable=False, server_default=sa.text("'[]'")))
    for table in ("measurements", "traces"):
        op.add_column(table, sa.Column("batch", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Take back."""
    for table in ("traces", "measurements"):
        op.drop_column(table, "batch")
    op.drop_column("arms", "stops")
