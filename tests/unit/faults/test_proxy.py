"""Every kind of fault through the proxy, before an engine in memory."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import kinds, served
from tests.faults.kinds import Fault
from tests.faults.prefixes import PrefixCache
from tests.faults.program import Log
from tests.faults.served import CACHE_CONFIG, PREFIX_HITS
from tests.faults.table import FAULTS
from tests.unit.faults.samples import METRICS, Client, Engine, choice, events
from workers.engines.base import parse_metrics
from workers.engines.vllm import Vllm

FORCED = {"logprobs": 2, "vllm_xargs": {"forced_token_ids": [1, 2, 3, 4]}}


def test_without_a_fault_everything_passes_as_it_is() -> None:
    client = Client(FAULTS["none"])
    assert client.post(prompt=[1, 2], **FORCED).json() == {"choices": [choice([" a", " b", " c", " d"])]}
    assert client.metrics() == METRICS
    assert client.engine.asked == [{"model": "m", "max_tokens": 4, "prompt": [1, 2], **FORCED}]


@pytest.mark.parametrize(
    ("where", "damaged"),
    [
        (kinds.past_context(5), [False, False, True, True]),
        (kinds.after_decoded(1), [False, True, True, True]),
        (kinds.prompt_of(lambda tokens: tokens == 3), [True] * 4),
        (kinds.prompt_of(lambda tokens: tokens == 4), [False] * 4),
        (kinds.first_requests(1), [True] * 4),
        (kinds.when_concurrent(1), [False] * 4),
        (kinds.when_preempted, [False] * 4),
        (kinds.on_prefix_hit, [False] * 4),
    ],
)
def test_damage_is_where_it_was_planted(where: kinds.Where, damaged: list[bool]) -> None:
    client = Client(Fault(about="", choice=kinds.damaged(where)))
    answer = client.post(prompt=[1, 2, 3], **FORCED).json()["choices"][0]["logprobs"]["top_logprobs"]
    clean = choice([" a", " b", " c", " d"])["logprobs"]["top_logprobs"]
    assert [after != before for after, before in zip(answer, clean, strict=True)] == damaged


def test_the_second_request_is_no_longer_one_of_the_first() -> None:
    client = Client(Fault(about="", choice=kinds.damaged(kinds.first_requests(1))))
    first, second = (client.post(prompt=[1, 2, 3], **FORCED).json() for _ in range(2))
    assert first != second == {"choices": [choice([" a", " b", " c", " d"])]}


def test_a_prefix_is_hit_once_its_salt_and_a_whole_block_have_been_seen() -> None:
    client = Client(Fault(about="", choice=kinds.damaged(kinds.on_prefix_hit)))
    clean = {"choices": [choice([" a", " b", " c", " d"])]}
    assert client.post(prompt=[1, 2, 3], cache_salt="s", **FORCED).json() == clean
    assert client.post(prompt=[1, 2, 3], cache_salt="t", **FORCED).json() == clean
    assert client.post(prompt=[1, 9, 3], cache_salt="s", **FORCED).json() == clean
    assert client.post(prompt=[1, 2, 4], cache_salt="s", **FORCED).json() != clean


def test_the_last_prompt_token_and_scored_prompts_are_never_reused() -> None:
    cache = PrefixCache.of(METRICS)
    cache.add({}, [(1, 2, 3, 4)])
    assert cache.reused_tokens({}, [(1, 2, 3, 4)]) == 2
    assert cache.reused_tokens({}, [(1, 2, 3, 4, 5)]) == 4
    assert cache.reused_tokens({"echo": True, "logprobs": 1}, [(1, 2, 3, 4)]) == 0
    assert cache.reused_tokens({"prompt_logprobs": 0}, [(1, 2, 3, 4)]) == 0
    assert PrefixCache.of(METRICS.replace('caching="True"', 'caching="False"')).block_tokens is None


def test_damaged_free_text_shows_no_probabilities_that_were_not_asked_for() -> None:
    client = Client(Fault(about="", choice=kinds.damaged(kinds.past_context(0), strength=9.0)))
    answer = client.post(prompt="abc").json()["choices"][0]
    assert answer["logprobs"] is None
    assert " other" in answer["text"]
    assert client.engine.asked[0]["logprobs"] > 1


def test_every_second_token_is_doubled_streamed_or_not() -> None:
    client = Client(FAULTS["doubled_tokens"])
    assert client.post(prompt="abc").json()["choices"][0]["text"] == " a b b c d d"
    chunks = events(client.post(prompt="abc", stream=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == " a b b c d d"
    assert client.post(prompt="abc", **FORCED).json()["choices"][0]["text"] == " a b c d"


def test_streamed_damage_is_that_of_the_whole_answer() -> None:
    client = Client(Fault(about="", choice=kinds.damaged(kinds.after_decoded(1), strength=9.0)))
    whole = client.post(prompt=[1, 2]).json()["choices"][0]["text"]
    chunks = events(client.post(prompt=[1, 2], stream=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole != " a b c d"


def test_one_request_in_twenty_fails() -> None:
    client = Client(FAULTS["failing_requests"])
    assert [client.post(prompt=[1]).status_code for _ in range(40)].count(500) == 2


def test_a_long_scored_request_fails_as_vllm_fails_on_nan() -> None:
    client = Client(Fault(about="", instead=kinds.nan_past(6)))
    assert client.post(prompt=[1, 2], **FORCED).status_code == 200
    broken = client.post(prompt=[1, 2, 3], **FORCED)
    assert broken.status_code == 500
    assert "not JSON compliant" in broken.json()["error"]["message"]
    assert client.post(prompt=[1, 2, 3]).status_code == 200


def test_empty_answers_have_the_shape_of_answers() -> None:
    client = Client(FAULTS["empty_answers"])
    scored = client.post(prompt=[1, 2], **FORCED).json()
    assert scored["choices"][0]["logprobs"]["tokens"] == []
    assert scored["usage"]["completion_tokens"] == 0
    assert events(client.post(prompt="abc", stream=True))[0]["choices"][0]["text"] == ""
    assert client.engine.asked == []


@pytest.mark.parametrize(
    ("body", "text"), [({}, ""), ({"logprobs": 1}, ""), (FORCED, " a b c d"), ({"echo": True}, " a b c d")]
)
def test_free_text_may_be_empty_while_scoring_works(body: dict[str, object], text: str) -> None:
    answer = Client(FAULTS["empty_free_text"]).post(prompt=[1], **body).json()
    assert answer["choices"][0]["text"] == text


def test_a_silent_engine_answers_what_it_still_answers() -> None:
    assert Client(FAULTS["stalled"]).post(prompt=[1]).status_code == 200
    assert kinds.silent_after(2)(replace(REQUEST, number=2)) == kinds.Silence()


REQUEST = kinds.Request(body={}, prompts=((1,),))


def test_metrics_claim_what_the_fault_says() -> None:
    effective = Vllm().effective(Client(FAULTS["unit_scales"]).metrics(), {}, "")
    assert (effective.cache_dtype, effective.kv_cache_tokens, effective.block_size) == ("fp8_e4m3", 1024, 2)
    assert effective.kv_cache_slots == 1024
    assert Vllm().effective(Client(FAULTS["metrics_missing"]).metrics(), {}, "").cache_dtype is None
    assert PREFIX_HITS not in parse_metrics(Client(FAULTS["hits_missing"]).metrics())
    ignored = kinds.relabelled(CACHE_CONFIG, cache_dtype="auto")(METRICS.replace('"auto"', '"fp8"'), "")
    assert 'cache_dtype="auto"' in ignored


def test_frozen_counters_stay_what_they_were_at_boot() -> None:
    engine = Engine()
    client = Client(FAULTS["frozen_counters"], engine)
    engine.hits = 3
    assert parse_metrics(client.metrics())[PREFIX_HITS] == 3
    engine.hits = 8
    assert parse_metrics(client.metrics())[PREFIX_HITS] == 3


def test_the_workers_account_says_what_the_fault_makes_of_its_layers() -> None:
    account = {"layers": [{"count": 30, "stored_as": "bfloat16"}], "cache_bytes": 8}
    line = f"(EngineCore pid=7) gatekeeper self-report {json.dumps(account)}"
    log = kinds.accounting(stored_as="float8_e4m3fn", unit_scale_layers=True)(f"INFO a\n{line}\nINFO b\n")
    before, said, after = log.splitlines()
    assert (before, after) == ("INFO a", "INFO b")
    layer = {"count": 30, "stored_as": "float8_e4m3fn", "unit_scale_layers": 30}
    assert json.loads(said.partition("self-report ")[2]) == {"layers": [layer], "cache_bytes": 8}


def test_a_running_engines_log_is_said_again_line_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(path=tmp_path / "engine.log")
    log.path.write_text("one\ntw", encoding="utf-8")
    log.say_so_far(Fault(about="", log=str.upper))
    assert capsys.readouterr().out == "ONE\n"
    with log.path.open("a", encoding="utf-8") as file:
        file.write("o\n")
    log.say_new()
    log.say_new()
    assert capsys.readouterr().out == "two\n"


def test_an_engine_that_ran_before_counts_from_the_proxys_start() -> None:
    ran = METRICS.replace("} 0.0", "} 7.0")
    later = ran.replace('hits_total{engine="0"} 7.0', 'hits_total{engine="0"} 9.0')
    assert served.value(served.since(later, ran), PREFIX_HITS) == 2
    assert served.labels(served.since(later, ran), CACHE_CONFIG)["block_size"] == "2"
    assert served.value(served.since(later, ""), PREFIX_HITS) == 9


def test_an_engine_that_is_not_there_yet_is_a_bad_gateway() -> None:
    engine = Engine()
    engine.up = False
    assert Client(FAULTS["none"], engine).post(prompt=[1]).status_code == 502
