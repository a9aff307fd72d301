"""The parts of a run's page, one module each: from the service's views to what a template shows."""
