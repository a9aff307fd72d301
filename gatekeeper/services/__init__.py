"""Use cases: one verb per module, one transaction per verb."""
