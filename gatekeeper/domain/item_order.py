"""In which order items are measured, and in which batches.

The order is a hash of seed and item id: the same in every arm, unrelated to the order in which items were written, and
such that the first n items of a task set are a random sample of it.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise

from gatekeeper.stats.sequential import equal_looks


def item_order(item_id: str, seed: int) -> str:
    """The sort key of an item."""
    return hashlib.sha256(f"{seed}/{item_id}".encode()).hexdigest()


def batch_ends(items: int, batches: int) -> tuple[int, ...]:
    """Cumulative item counts after each batch, the last one all items."""
    return equal_looks(items, batches)


def largest_batch(items: int, batches: int) -> int:
    """The most items that one batch has, so the most that can be in flight together. Raises ValueError for none."""
    return max(end - start for start, end in pairwise((0, *batch_ends(items, batches))))
