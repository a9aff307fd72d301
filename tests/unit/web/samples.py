"""Runs for the pages: arms made up from seeded random numbers, judged by the real judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import numpy as np

from gatekeeper import catalog
from gatekeeper.domain.answer import Answer
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.change import Change
from gatekeeper.domain.documents import parse_change
from gatekeeper.domain.judge import judge
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.measurement import EffectiveConfig, Exercise, Measurement, Mode, Role, TokenTrace
from gatekeeper.domain.plan import ArmPlan, Model, Plan, make_plan
from gatekeeper.domain.run import ArmFailure, RunState
from gatekeeper.domain.speed import FAILED
from gatekeeper.domain.speed_probe import PerformanceProbe
from gatekeeper.domain.verdict import EngineInfo, Report
from gatekeeper.services.items import ItemView
from gatekeeper.services.views import ArmView, ArtifactView, EventView, Progress, RunDetail

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RUN_ID = UUID("3f2a91c0-1111-4222-8333-444455556666")
EARLIER_RUN = UUID("aaaaaaaa-1111-4222-8333-444455556666")
MODEL = Model(
    name="smollm2-135m",
    source="models/smollm2-135m",
    shape=ModelShape(layers=30, attention_heads=9, kv_heads=3, head_dim=64, max_context=8192),
)
ENGINE = EngineInfo(
    name="vllm", version="0.32.0+cpu", device="cpu", hardware="AMD EPYC 9654, 2 cores, AVX-512"
)
POOL_BYTES = 2**30
DOCUMENTS, TOKENS, TASKS, ITEMS = 16, 64, ("gk_recall", "gk_agreement", "gk_plausible", "gk_facts"), 30

GENTLE, HARSH, EXACT = 0.3, 0.58, 0.0
"""How far the candidate's logits stray: about what fp8_e4m3, fp8_e5m2 and an exact change do."""


def change(scheme: str = "fp8_e4m3", **more: Any) -> Change:
    document: dict[str, Any] = {
        "model": MODEL.name,
        "candidate": {"quantization": {"scheme": scheme}},
        "suite": "smoke",
        "policy": "default",
        "ref": {"repo": "serving-config", "commit": "3f2a91c07d", "author": "ci"},
    }
    return parse_change(document | more)


SMOKE = catalog.get_suite("smoke")
LOAD = PerformanceProbe(probe="performance", prompts=16, input_tokens=128, output_tokens=64, rounds=3)
SUITE = SMOKE.model_copy(update={"probes": (*SMOKE.probes, LOAD)})


def plan(proposed: Change | None = None) -> Plan:
    return make_plan(
        proposed or change(),
        model=MODEL,
        suite=SUITE,
        policy=catalog.get_policy("default"),
        device="cpu",
        allowed_arguments=frozenset(),
    )


def traces(strays: float, *, mode: Mode = "cold", seed: int = 1) -> tuple[TokenTrace, ...]:
    """Teacher-forced decodes of one model whose logits stray, more and more along the decode."""
    random, astray, found = np.random.default_rng(7), np.random.default_rng(seed), []
    growth = np.linspace(0.7, 1.3, TOKENS)[:, None]
    for number in range(DOCUMENTS):
        logits = random.normal(0, 2.2, (TOKENS, 12))
        logits = logits + strays * growth * astray.normal(0, 1, logits.shape)
        logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        order = np.argsort(-logprobs, axis=1)[:, :8]
        ids = [int(token) for token in np.random.default_rng(number).integers(0, 12, TOKENS)]
        found.append(
            TokenTrace(
                suite="fidelity",
                mode=mode,
                item_id=f"doc-{number:02}",
                cluster=f"doc-{number:02}",
                token_ids=ids,
                token_logprobs=[float(logprobs[i, token]) for i, token in enumerate(ids)],
                top_ids=[[int(token) for token in row] for row in order],
                top_logprobs=[[float(logprobs[i, token]) for token in row] for i, row in enumerate(order)],
            )
        )
    return tuple(found)


def answers(lost: int = 0, gained: int = 0) -> tuple[Measurement, ...]:
    """Right and wrong answers: two of three right, `lost` of them turned wrong, `gained` the other way."""
    found = []
    for task in TASKS:
        for number in range(ITEMS):
            right = number % 3 != 0
            right = (right and number not in range(1, 1 + 3 * lost, 3)) or number in range(0, 3 * gained, 3)
            item_id = f"{task}/{number}"
            found.append(_measured("accuracy", item_id, task, "correct", float(right)))
            probability = 0.55 if right else 0.45
            found.append(_measured("accuracy", item_id, task, "right_choice_probability", probability))
    return (*found, *recalled())


RIVERS: Final = ("Amazon", "Nile", "Danube", "Mississippi")


def said(measurements: Sequence[Measurement]) -> tuple[Answer, ...]:
    """What an arm that came to these figures said."""
    found = []
    for row in measurements:
        if row.metric == "correct":
            found.append(_chosen(row.item_id, is_right=bool(row.value)))
        elif row.metric == "retrieved":
            found.append(_recalled(row.item_id, is_right=bool(row.value)))
    return tuple(found)


def measured_as(item: ItemView, value: float) -> Measurement:
    return _measured(item.suite, item.item_id, item.task, item.metric, value)


def _chosen(item_id: str, *, is_right: bool) -> Answer:
    shares = (0.55, 0.3, 0.1, 0.05) if is_right else (0.3, 0.45, 0.15, 0.1)
    ranked = tuple(sorted(zip(RIVERS, shares, strict=True), key=lambda option: -option[1]))
    return Answer(
        suite="accuracy", mode="cold", item_id=item_id, prompt="The longest river in South America is the",
        expected=RIVERS[0], text=ranked[0][0], options=ranked,
    )  # fmt: skip


def _recalled(item_id: str, *, is_right: bool) -> Answer:
    """The number 417, its last digit lost where the answer is wrong."""
    unsure = (
        (("9", 0.41), ("7", 0.33), ("1", 0.08)) if not is_right else (("7", 0.93), ("9", 0.03), ("1", 0.01))
    )
    places = ((" ", 0.99),), (("4", 0.97), ("6", 0.01)), (("1", 0.95), ("7", 0.02)), unsure
    return Answer(
        suite="retrieval", mode="cold", item_id=item_id, expected=" 417", text="".join(p[0][0] for p in places),
        prompt="The ferry to Quernholt leaves at noon. The number of the blue locker is 417. The baker whistles.\n"
        "Question: what is the number of the blue locker?\nAnswer: The number is", places=places,
    )  # fmt: skip


def recalled() -> tuple[Measurement, ...]:
    """What was asked of long contexts, answered alike by every arm."""
    return tuple(
        _measured("retrieval", f"needle/256/0.{number}/0", "needle", "answer_probability", 0.8)
        for number in range(8)
    )


def rounds(factor: float) -> tuple[Measurement, ...]:
    figures = {
        "output_throughput_tok_s": 107.0 * factor,
        "ttft_p50_ms": 410 / factor,
        "itl_p50_ms": 61 / factor,
    }
    return tuple(
        _measured("performance", f"round-{number}", "rounds", metric, value * (1 + 0.02 * (number - 1)))
        for metric, value in figures.items()
        for number in range(3)
    )


def past_context() -> tuple[Plan, dict[Role, ArmRecord]]:
    """Documents after contexts of two lengths, damaged after the longer alone."""
    chosen = plan(change(name="damage past some context"))
    found = arms(chosen, strays=EXACT)
    exact, damaged = traces(EXACT)[:8], traces(HARSH)[:8]
    scored = {role: (*_after(128, exact), *_after(1536, exact)) for role in found}
    scored["candidate"] = (*_after(128, exact), *_after(1536, damaged))
    return chosen, {role: replace(arm, traces=scored[role]) for role, arm in found.items()}


def _after(context_tokens: int, scored: Sequence[TokenTrace]) -> tuple[TokenTrace, ...]:
    return tuple(
        replace(trace, item_id=f"{trace.item_id}/{context_tokens}", context_tokens=context_tokens)
        for trace in scored
    )


def latencies(factor: float) -> tuple[Measurement, ...]:
    """Every latency of three rounds, `factor` times as long as the baseline's."""
    base = {"ttft": 410.0, "itl": 61.0, "e2e": 4300.0}
    stretch = {50: 1.0, 90: 1.3, 99: 1.7}
    return tuple(
        _measured(
            "performance", f"round-{number}", "rounds", f"{name}_p{percentile}_ms",
            value * more * factor * (1 + 0.03 * (number - 1)),
        )
        for name, value in base.items()
        for percentile, more in stretch.items()
        for number in range(3)
        if (name, percentile) not in (("ttft", 50), ("itl", 50))  # `rounds` has them
    )  # fmt: skip


def retrieved(*, lost_from: int | None = None) -> tuple[Measurement, ...]:
    """Answers found in contexts of three lengths; from `lost_from` tokens on those in the first half are lost."""
    found = []
    for family in ("needle", "lookup"):
        for length in (256, 512, 1024):
            for number in range(6):
                depth = (number + 0.5) / 6
                right = not (lost_from is not None and length >= lost_from and depth < 0.5)
                item_id = f"{family}/{length}/{depth:.2f}/{number}"
                found.append(_measured("retrieval", item_id, family, "retrieved", float(right)))
    return tuple(found)


def items() -> tuple[ItemView, ...]:
    """What `window()` measured, item by item, as the services give it."""
    _, measured = window()
    sides = [
        {(m.suite, m.mode, m.item_id, m.metric): m for m in measured[role].measurements}
        for role in ("baseline", "candidate")
    ]
    before, after = sides
    return tuple(
        ItemView(
            suite=suite, mode=mode, item_id=item_id, metric=metric, task=after[key].cluster,
            context_tokens=None, baseline=before[key].value, candidate=after[key].value, reason=None,
        )
        for key in sorted(before)
        for suite, mode, item_id, metric in [key]
    )  # fmt: skip


def arm(role: Role, plan: ArmPlan, *, strays: float = EXACT, factor: float = 1.0, **more: Any) -> ArmRecord:
    dtype = plan.config.quantization.scheme
    per_token = plan.predicted_kv_bytes_per_token or 23_040
    default = ArmRecord(
        role=role,
        plan=plan,
        argv=(
            "python",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            plan.model.source,
            *plan.serve_flags,
        ),
        engine=ENGINE,
        effective=EffectiveConfig(
            cache_dtype="auto" if dtype == "none" else dtype,
            kv_cache_tokens=int(POOL_BYTES / per_token) // 128 * 128,
            kv_cache_slots=int(POOL_BYTES / per_token) // 128 * 128,
            kv_cache_bytes=POOL_BYTES,
            block_size=128,
            prefix_caching=bool(plan.config.reuse.prefix_caching),
            max_model_len=plan.max_model_len,
        ),
        measurements=(*answers(), *rounds(factor)),
        traces=traces(strays),
        exercises=(
            Exercise(
                suite="fidelity", mode="cold", counter="vllm:prefix_cache_hits", moved=0, expected="still"
            ),
        ),
        complete=True,
    )
    return dataclasses.replace(default, **more)


def arms(
    plan: Plan, *, strays: float = GENTLE, candidate: Mapping[str, Any] | None = None
) -> dict[Role, ArmRecord]:
    measured = (*answers(lost=1, gained=1), *rounds(0.97))
    return {
        "baseline": arm("baseline", plan.baseline),
        "control": arm("control", plan.baseline, factor=1.06),
        "candidate": arm(
            "candidate", plan.candidate, strays=strays, **{"measurements": measured, **(candidate or {})}
        ),
    }


def passing() -> tuple[Plan, dict[Role, ArmRecord]]:
    chosen = plan()
    return chosen, arms(chosen)


def failing() -> tuple[Plan, dict[Role, ArmRecord]]:
    chosen = plan(change("fp8_e5m2", name="chat-fp8-e5m2"))
    return chosen, arms(chosen, strays=HARSH)


def inconclusive() -> tuple[Plan, dict[Role, ArmRecord]]:
    """One task's items only, in every arm."""
    chosen = plan(change(name="fp8 with few items"))
    measured = arms(chosen, candidate={"measurements": (*answers(lost=2, gained=1), *rounds(0.97))})
    return chosen, {role: replace(arm, measurements=_of_one_task(arm)) for role, arm in measured.items()}


def _of_one_task(arm: ArmRecord) -> tuple[Measurement, ...]:
    return tuple(m for m in arm.measurements if m.suite != "accuracy" or m.cluster == TASKS[0])


def prefix_caching() -> tuple[Plan, dict[Role, ArmRecord]]:
    chosen = plan(
        parse_change(
            {
                "name": "prefix caching on",
                "model": MODEL.name,
                "suite": "smoke",
                "candidate": {"reuse": {"prefix_caching": True}},
            }
        )
    )
    warm = Exercise(
        suite="fidelity", mode="warm", counter="vllm:prefix_cache_hits", moved=8192, expected="moved"
    )
    found = arms(chosen, strays=EXACT)
    candidate = dataclasses.replace(
        found["candidate"],
        traces=(*traces(EXACT), *traces(0.02, mode="warm", seed=5)),
        exercises=(*found["candidate"].exercises, warm),
        measurements=(*answers(), *rounds(1.31)),
    )
    return chosen, {**found, "candidate": candidate}


def window() -> tuple[Plan, dict[Role, ArmRecord]]:
    """A sliding window that loses what stood early in long contexts, with everything that such a run measures."""
    proposed = {
        "candidate": {"eviction": {"policy": "sliding_window", "window": 256}},
        "name": "sliding window",
    }
    chosen = plan(parse_change({"model": MODEL.name, "suite": "smoke"} | proposed))
    found = arms(chosen)
    plain = (*latencies(1.0), *retrieved())
    return chosen, {
        "baseline": replace(found["baseline"], measurements=(*found["baseline"].measurements, *plain)),
        "control": replace(found["control"], measurements=(*found["control"].measurements, *plain)),
        "candidate": replace(
            found["candidate"],
            measurements=(*found["candidate"].measurements, *latencies(0.9), *retrieved(lost_from=512)),
            effective=replace(_known(found["candidate"]), sliding_window=256, windows={"256": 30}),
        ),
    }


def _known(record: ArmRecord) -> EffectiveConfig:
    assert record.effective is not None
    return record.effective


def not_applied() -> tuple[Plan, dict[Role, ArmRecord]]:
    chosen = plan(change(name="fp8 that the backend ignores"))
    ignored = EffectiveConfig(
        cache_dtype="auto",
        kv_cache_tokens=46_592,
        kv_cache_slots=46_592,
        kv_cache_bytes=POOL_BYTES,
        max_model_len=1024,
    )
    nothing = {"effective": ignored, "measurements": (), "traces": (), "complete": False}
    return chosen, arms(chosen, candidate=nothing)


def refused() -> tuple[Plan, dict[Role, ArmRecord]]:
    chosen = plan(change(name="engine refuses"))
    cause = (
        "ValueError: the CPU backend does not support kv_cache_dtype fp8_e4m3 on this machine (needs AVX-512)"
    )
    failure = ArmFailure(role="candidate", kind="refused", cause=cause)
    nothing = {"effective": None, "engine": None, "measurements": (), "traces": (), "complete": False}
    return chosen, arms(chosen, candidate=nothing | {"failure": failure})


def broken() -> tuple[Plan, dict[Role, ArmRecord]]:
    chosen = plan(change(name="engine died"))
    failure = ArmFailure(
        role="baseline", kind="died", cause="torch.OutOfMemoryError: <b>not markup</b> & more"
    )
    found = arms(chosen)
    return chosen, {"baseline": dataclasses.replace(found["baseline"], failure=failure, complete=False)}


def died_twice() -> tuple[Plan, dict[Role, ArmRecord]]:
    """The candidate's engine, after a good start, on the second attempt too."""
    chosen = plan(change(name="engine dies"))
    failure = ArmFailure(role="candidate", kind="died", cause="SIGSEGV", repeated=True)
    nothing = {"measurements": (), "traces": (), "complete": False, "failure": failure}
    return chosen, arms(chosen, candidate=nothing)


def not_finite() -> tuple[Plan, dict[Role, ArmRecord]]:
    """One document's logprobs are not numbers."""
    chosen, measured = passing()
    first, *rest = measured["candidate"].traces
    broken = replace(first, token_logprobs=(None, *first.token_logprobs[1:]))
    return chosen, measured | {"candidate": replace(measured["candidate"], traces=(broken, *rest))}


def failed_requests() -> tuple[Plan, dict[Role, ArmRecord]]:
    """Every rule holds, but many of the candidate's requests came to nothing under load."""
    chosen, measured = passing()
    candidate = measured["candidate"]
    lost = replace(candidate.measurements[-1], metric=FAILED, value=20.0)
    return chosen, measured | {"candidate": replace(candidate, measurements=(*candidate.measurements, lost))}


def detail(
    chosen: Plan, measured: Mapping[Role, ArmRecord], *, report: Report | None = None, **more: Any
) -> RunDetail:
    """A finished run as the services give it."""
    report = report or judge(chosen, measured)
    told = {name: getattr(report, name) for name in Report.model_fields}
    document: dict[str, Any] = {
        "run_id": RUN_ID,
        "state": RunState.FINISHED,
        "name": chosen.change.label,
        "model": chosen.change.model,
        "scheme": chosen.candidate.config.quantization.scheme,
        "eviction": chosen.candidate.config.eviction.policy,
        "candidate": chosen.candidate.config.label_against(chosen.baseline.config),
        "ahead": None,
        "device": "cpu",
        "suite": chosen.suite.name,
        "policy": chosen.policy.name,
        "repo": chosen.change.ref.repo,
        "commit": chosen.change.ref.commit,
        "author": chosen.change.ref.author,
        "created_at": NOW - timedelta(minutes=12),
        "started_at": NOW - timedelta(minutes=11),
        "finished_at": NOW - timedelta(minutes=6, seconds=55),
        "attempt": 1,
        "cancel_requested": False,
        "progress": None,
        "change": chosen.change.model_dump(mode="json"),
        "plan": chosen.model_dump(mode="json"),
        "arms": tuple(arm_view(number, record) for number, record in enumerate(measured.values())),
    }
    return RunDetail(**{**document, **told, **more})


def unfinished(state: RunState, *, progress: Progress | None = None, **more: Any) -> RunDetail:
    """A run that has no verdict."""
    nothing = {
        name: field.get_default() for name, field in Report.model_fields.items() if not field.is_required()
    }
    fixed: dict[str, Any] = {
        "state": state,
        "verdict": None,
        "sentence": None,
        "finished_at": None,
        "arms": (),
    }
    return detail(plan(), {}).model_copy(update=nothing | fixed | {"progress": progress} | more)


def arm_view(number: int, record: ArmRecord) -> ArmView:
    return ArmView(
        arm_id=number + 1,
        role=record.role,
        run_id=RUN_ID,
        attempt=1,
        reused=False,
        argv=record.argv,
        engine=record.engine,
        effective=dataclasses.asdict(record.effective) if record.effective else None,
        exercises=tuple(dataclasses.asdict(exercise) for exercise in record.exercises),
        skipped=record.skipped,
        failure=dataclasses.asdict(record.failure) if record.failure else None,
        complete=record.complete,
        fingerprint="f" * 64,
        started_at=NOW - timedelta(minutes=11 - 2 * number),
        finished_at=NOW - timedelta(minutes=9 - 2 * number),
    )


def events(*, finished: bool = True) -> tuple[EventView, ...]:
    """What the worker tells: queued, claimed, each arm's stages."""
    told: list[tuple[str, dict[str, Any], int]] = [
        ("state", {"state": "queued", "attempt": 1}, 0),
        ("state", {"state": "running", "attempt": 1}, 4),
    ]
    second = 5
    for role in ("baseline", "control", "candidate"):
        for stage, seconds in (
            ("launch", 36),
            ("capacity", 1),
            ("fidelity", 24),
            ("accuracy", 22),
            ("performance", 15),
        ):
            progress = {"stage": stage, "arm": role, "done": 0, "total": 1}
            told += [
                ("progress", progress, second),
                ("progress", progress | {"done": 1}, second + seconds // 2),
            ]
            second += seconds
    if finished:
        told.append(("state", {"state": "finished", "attempt": 1, "verdict": "PASS"}, second))
    start = NOW - timedelta(minutes=12)
    return tuple(
        EventView(seq=seq, at=start + timedelta(seconds=after), kind=kind, payload=payload)
        for seq, (kind, payload, after) in enumerate(told, start=1)
    )


def artifacts() -> tuple[ArtifactView, ...]:
    return tuple(
        ArtifactView(
            run_id=RUN_ID,
            attempt=1,
            role=role,
            name="engine.log",
            size_bytes=18_432,
            truncated=role == "control",
        )
        for role in ("baseline", "control", "candidate")
    )


def _measured(suite: str, item_id: str, cluster: str, metric: str, value: float) -> Measurement:
    return Measurement.of(
        suite=suite, mode="cold", item_id=item_id, cluster=cluster, metric=metric, value=value
    )
