"""What suites say of their tasks beforehand is what the workers' files hold."""

import pytest

from gatekeeper import catalog
from gatekeeper.domain.probes import AccuracyProbe
from workers.suites.items import batches, bundled_items, workload

PROBES = [
    pytest.param(probe, id=name)
    for name in catalog.list_names("suites", None)
    for probe in catalog.get_suite(name).probes
    if isinstance(probe, AccuracyProbe)
]


@pytest.mark.parametrize("probe", PROBES)
def test_expected_items_are_the_items_of_the_bundled_tasks(probe: AccuracyProbe) -> None:
    assert probe.expected_items == {task: len(bundled_items(task)) for task in probe.tasks}


@pytest.mark.parametrize("probe", PROBES)
def test_as_many_items_are_announced_as_are_chosen(probe: AccuracyProbe) -> None:
    items, _ = workload(batches(probe))
    assert sum(count or 0 for count in probe.items.values()) == items


@pytest.mark.parametrize("probe", PROBES)
def test_as_many_requests_of_a_batch_are_in_flight_as_are_announced(probe: AccuracyProbe) -> None:
    sent = [workload([batch])[1] for batch in batches(probe)]
    assert probe.in_flight is not None
    assert 2 * probe.in_flight > max(sent) >= probe.in_flight
