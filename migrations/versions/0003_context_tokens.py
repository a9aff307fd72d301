"""The length of the sequence that an item was measured in.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("measurements", sa.Column("context_tokens", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("measurements", "context_tokens")
