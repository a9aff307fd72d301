"""The pages in a real Chromium, on the real service and a real database."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from playwright.sync_api import expect
from sqlalchemy import select

from gatekeeper.catalog import get_policy
from gatekeeper.services import history
from gatekeeper.storage import baselines
from gatekeeper.storage.arm_tables import ArmRow
from gatekeeper.storage.database import transaction
from tests.e2e.conftest import Open, Site, every_page
from tests.e2e.stored_runs import advance, finish, finished_run, running_run
from tests.unit.web import samples

pytestmark = pytest.mark.browser
expect.set_options(timeout=15_000)  # a busy machine

WIDTHS = {"phone": (360, 780), "laptop": (1280, 800), "wall": (2560, 1300)}


def rows(site: Site) -> int:
    """The rows of the whole list, its header counted."""
    return 1 + len(history.list_runs(site.context.sessions, history.RunFilters()).items)


def test_the_list_shows_every_run_with_its_figures(open_page: Open, site: Site) -> None:
    page = open_page("/")
    expect(page).to_have_url(re.compile("/runs$"))
    expect(page.get_by_role("row")).to_have_count(rows(site))
    failed = page.get_by_role("row").filter(has_text="chat-fp8-e5m2")
    expect(failed).to_contain_text("FAIL")
    expect(failed).to_contain_text("2.00×")
    expect(failed).to_contain_text(re.compile(r"Regressed0\.1\d{3}"))
    waiting = page.get_by_role("row").filter(has_text="fp8 waiting")
    expect(waiting).to_contain_text("waiting for a worker")
    expect(waiting).to_contain_text("not yet")
    expect(page.get_by_role("row").filter(has_text="engine died")).to_contain_text("not measured")


def test_filters_live_in_the_address(open_page: Open, site: Site) -> None:
    page = open_page("/runs")
    page.get_by_label("Verdict").select_option("FAIL")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile("verdict=FAIL"))
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_label("Search").fill("no such thing")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No run meets these filters")).to_be_visible()
    page.get_by_role("link", name="Show all runs").click()
    expect(page.get_by_role("row")).to_have_count(rows(site))


def test_a_run_opens_with_its_verdict_and_every_finding(open_page: Open) -> None:
    page = open_page("/runs")
    page.get_by_role("link", name="chat-fp8-e5m2").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"FAIL\s+chat-fp8-e5m2"))
    expect(page.locator(".sentence")).to_contain_text("exceeds")
    expect(page.locator(".gate")).to_have_text("Gate closed")
    findings = page.locator("#findings tbody tr")
    expect(findings).to_have_count(len(get_policy("default").rules))
    expect(findings.first).to_contain_text("Regressed")
    expect(findings.first.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("Decode KL .* limit ≤")
    )
    expect(page.locator("#settings")).to_contain_text("11,520 bytes")
    expect(page.locator("#change")).to_contain_text("quantization.scheme")
    expect(page.locator("#arms")).to_contain_text("--kv-cache-dtype fp8_e5m2")
    expect(page.locator("#timeline")).to_contain_text("candidate fidelity")


def test_what_was_measured_item_by_item_is_drawn_and_in_tables(open_page: Open, site: Site) -> None:
    page = open_page(f"/runs/{site.runs.window}")
    row = page.locator("#retrieval table").first.get_by_role("row").filter(has_text="0 to 20%")
    expect(row).to_contain_text("2/2")
    expect(row).to_contain_text("0/2 \N{MINUS SIGN}2")
    latency = page.locator("#latency figure").first
    expect(latency.get_by_role("img")).to_have_attribute("aria-label", re.compile("Time to first token"))
    latency.get_by_text("As a table").click()
    expect(latency.get_by_role("row").filter(has_text="p99")).to_contain_text("3 rounds")
    expect(page.locator("#memory")).to_contain_text("1.00 GiB")
    expect(page.locator("#not-exercised")).to_contain_text("stored_type 16-bit")
    items = httpx.get(f"{site.url}/api/v1/runs/{site.runs.window}/items?metric=retrieved&flip=lost").json()
    assert {item["item_id"].split("/")[1] for item in items["items"]} == {"512", "1024"}


def test_items_that_flipped_lead_to_the_token_at_which_the_arms_part(open_page: Open, site: Site) -> None:
    page = open_page(f"/runs/{site.runs.failed}", java_script_enabled=False)
    page.get_by_role("link", name="See the items that changed").click()
    answers = page.locator("#flips article")
    expect(answers).to_have_count(8)
    page.get_by_label("Change").select_option("lost")
    page.get_by_role("button", name="Filter").click()
    expect(answers).to_have_count(4)
    expect(answers.first).to_contain_text("55.0% → 45.0%")
    expect(answers.first.locator("mark")).to_have_text([re.compile("Amazon$"), re.compile("Nile$")])
    expect(answers.first.get_by_role("row").nth(1)).to_contain_text(
        re.compile("Amazon expected.*55.0%.*30.0%")
    )
    page.locator("#documents").get_by_role("link", name="doc-03").click()
    expect(page.get_by_text("The greedy choices part at token 16 of 64")).to_be_visible()
    expect(page.get_by_role("heading", name="Token 16")).to_be_visible()
    page.locator("#tokens").get_by_role("link", name="21", exact=True).click()
    expect(page.get_by_role("heading", name="Token 21")).to_be_visible()


def test_other_margins_are_tried_on_a_stored_run_without_javascript(open_page: Open, site: Site) -> None:
    page = open_page(f"/runs/{site.runs.failed}", java_script_enabled=False)
    page.get_by_role("link", name="Try other margins").click()
    page.get_by_label("Decode KL").fill("0.2")
    page.get_by_role("button", name="Judge again").click()
    changed = page.locator("tr.changed")
    expect(changed).to_have_count(1)
    expect(changed).to_contain_text(re.compile("Regressed.*Passed"))
    page.get_by_label("Decode KL").fill("a lot")
    page.get_by_role("button", name="Judge again").click()
    expect(page.get_by_role("alert")).to_contain_text("at_most")
    assert history.get_run(site.context.sessions, site.runs.failed).verdict == "FAIL"


def test_ticked_runs_are_compared(open_page: Open) -> None:
    page = open_page("/runs?state=finished", java_script_enabled=False)
    page.get_by_label("Compare chat-fp8-e5m2").check()
    page.get_by_label("Compare sliding window").check()
    page.get_by_role("button", name="Compare the ticked runs").click()
    expect(page.get_by_role("heading", name="2 runs compared")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="KV capacity")).to_contain_text(re.compile("2.00×.*1.00×"))


def test_a_baseline_is_pinned_and_refreshed(open_page: Open, site: Site) -> None:
    with transaction(site.context.sessions) as session:
        arm = session.scalars(select(ArmRow).where(ArmRow.role == "baseline")).first()
        assert arm is not None
        baselines.add_baseline(session, "f" * 64, baseline_arm_id=arm.id, control_arm_id=arm.id)
    page = open_page("/baselines", java_script_enabled=False)
    row = page.get_by_role("row").filter(has_text="ffffffffffff")
    expect(row).to_contain_text("in use")
    row.get_by_role("button", name="Pin").click()
    expect(row).to_contain_text("pinned")
    row.get_by_role("button", name="Refresh").click()
    expect(page.get_by_text("No baseline is kept yet")).to_be_visible()


def test_a_change_is_planned_while_it_is_filled_in_and_then_submitted(open_page: Open, site: Site) -> None:
    page = open_page("/submit")
    page.locator("select[name=suite]").select_option("smoke")
    page.locator("[name='candidate.eviction.policy']").select_option("sliding_window")
    page.locator("[name='candidate.eviction.window']").fill("256")
    page.get_by_text("Name and origin").click()
    page.locator("[name=name]").fill("from the page")
    page.locator("[name=name]").blur()
    expect(page.locator("#plan")).to_contain_text("from the page")
    expect(page.locator("#plan")).to_contain_text("sliding_window")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"QUEUED\s+from the page"))
    assert history.list_runs(site.context.sessions, history.RunFilters(q="from the page")).items


def test_a_change_with_limits_and_a_baseline_is_planned_from_the_folds(open_page: Open) -> None:
    page = open_page("/submit")
    page.locator("[name='candidate.quantization.scheme']").select_option("fp8_e4m3")
    page.get_by_text("Arrivals and latency limits").click()
    page.locator("[name='deployment.slo.ttft_ms']").fill("200")
    page.get_by_text("Engine and scheduling").click()
    page.locator("[name='candidate.engine_args']").fill("seed=7")
    page.locator("summary", has_text="Baseline").click()
    page.locator("[name=baseline]").select_option("stated")
    page.locator("[name='baseline.scheduling.max_num_seqs']").fill("8")
    page.locator("[name='baseline.scheduling.max_num_seqs']").blur()
    plan = page.locator("#plan")
    expect(plan.locator("pre").first).to_contain_text("--max-num-seqs 8")
    expect(plan.locator("pre").last).to_contain_text("--seed=7")
    page.locator("[name='deployment.slo.ttft_ms']").fill("fast")
    page.locator("summary", has_text="Arrivals and latency limits").click()
    expect(page.get_by_role("alert")).to_contain_text("deployment.slo.ttft_ms")
    page.get_by_role("alert").get_by_role("link").click()
    expect(page.locator("[name='deployment.slo.ttft_ms']")).to_be_in_viewport()


def test_a_change_that_cannot_be_is_refused_with_the_field_named(open_page: Open) -> None:
    page = open_page(
        "/submit?suite=smoke&candidate.eviction.policy=sliding_window",
        java_script_enabled=False,
    )
    expect(page.get_by_role("alert")).to_contain_text("candidate.eviction")


def test_a_setting_that_was_not_applied_is_marked(open_page: Open, site: Site) -> None:
    page = open_page(f"/runs/{site.runs.invalid}")
    mismatch = page.locator(".mismatch").filter(has_text="cache_dtype")
    expect(mismatch).to_contain_text("fp8_e4m3")
    expect(mismatch).to_contain_text("auto")
    expect(mismatch).to_contain_text("differs")


def test_a_log_can_be_read(open_page: Open, site: Site) -> None:
    page = open_page(f"/runs/{site.runs.passed}")
    page.get_by_role("link", name="candidate/engine.log").click()
    expect(page.locator("body")).to_contain_text("engine of the candidate")


def test_progress_moves_by_itself_and_the_verdict_appears(open_page: Open, site: Site) -> None:
    run_id = running_run(site.context.sessions, site.context.settings, "watched")
    page = open_page(f"/runs/{run_id}")
    expect(page.locator("[data-progress-text]")).to_have_text("candidate: fidelity 4/16")
    advance(site.context.sessions, run_id, done=9)
    expect(page.locator("[data-progress-text]")).to_have_text("candidate: fidelity 9/16")
    expect(page.locator("progress")).to_have_attribute("value", "9")
    finish(site.context.sessions, run_id)
    expect(page.get_by_role("heading", level=1)).to_contain_text("PASS")


def test_the_list_keeps_up_with_running_runs(open_page: Open, site: Site) -> None:
    run_id = running_run(site.context.sessions, site.context.settings, "watched in the list")
    page = open_page("/runs")
    row = page.get_by_role("row").filter(has_text="watched in the list")
    expect(row).to_contain_text("fidelity 4/16")
    advance(site.context.sessions, run_id, done=11)
    expect(row).to_contain_text("fidelity 11/16")


def test_a_run_is_cancelled_and_run_again_without_javascript(open_page: Open, site: Site) -> None:
    run_id = running_run(site.context.sessions, site.context.settings, "to be cancelled")
    page = open_page(f"/runs/{run_id}", java_script_enabled=False)
    page.get_by_role("button", name="Cancel run").click()
    expect(page.locator("[data-progress-text]")).to_have_text("cancelling")
    failed = finished_run(site.context.sessions, site.context.settings, samples.broken())
    page = open_page(f"/runs/{failed}", java_script_enabled=False)
    page.get_by_role("button", name="Run again").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("QUEUED")
    assert history.get_run(site.context.sessions, failed).attempt == 2


def test_a_form_of_another_site_changes_nothing(site: Site) -> None:
    address = f"{site.url}/runs/{site.runs.queued}/cancel"
    foreign: list[dict[str, str]] = [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {}]
    for headers in foreign:
        assert httpx.post(address, headers=headers).status_code == 403
    assert history.get_run(site.context.sessions, site.runs.queued).state == "queued"


def test_unknown_addresses_get_a_page_for_browsers_and_a_problem_for_others(
    open_page: Open, site: Site
) -> None:
    for path in ("/nowhere", f"/runs/{UUID(int=0)}", "/runs/no-id"):
        page = open_page(path)
        expect(page.get_by_role("heading", name="There is nothing here")).to_be_visible()
        page.get_by_role("link", name="All runs").click()
        expect(page).to_have_url(re.compile("/runs$"))
    answer = httpx.get(f"{site.url}/api/v1/nowhere", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_a_filter_that_cannot_be_is_explained(site: Site) -> None:
    for words, named in (
        ("verdict=MAYBE", "PASS"),
        ("cursor=nonsense", "cursor"),
        ("since=yesterday", "since"),
    ):
        answer = httpx.get(f"{site.url}/runs?{words}")
        assert answer.status_code == 400
        assert named in answer.text.split('role="alert"')[1]


def test_the_keyboard_reaches_what_matters(open_page: Open, site: Site) -> None:
    page = open_page(f"/runs/{site.runs.passed}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(str(page.evaluate("document.activeElement.textContent")).strip())
    assert {"Runs", "Findings", "As a table", "as JSON", "Command line", "candidate/engine.log"} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", list(WIDTHS))
def test_nothing_sticks_out_on_any_screen(
    open_page: Open, site: Site, shots: Path, screen: str, scheme: str
) -> None:
    width, height = WIDTHS[screen]
    paths = every_page(site)
    page = open_page("/runs", viewport={"width": width, "height": height}, color_scheme=scheme)
    for name, path in paths.items():
        page.goto(path)
        page.screenshot(path=shots / f"{name}-{screen}-{scheme}.png", full_page=True)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} sticks out by {wide} px on a {screen}"
