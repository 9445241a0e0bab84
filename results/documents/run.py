"""The JSON object of a run: the schema `railbed.run/2`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from results.documents.fault_impact import failure_object
from results.store.runs import SCHEMA
from results.verdicts.case_ratios import agreements, interferences, slowdowns
from results.verdicts.fault_impact import FaultImpact
from results.verdicts.model_comparison import CaseResult
from results.verdicts.verdict import Verdict, worst


def run_object(
    run_id: str,
    scenario: str,
    folder: Path,
    cases: Sequence[CaseResult],
    *,
    failures: Sequence[FaultImpact] = (),
    machine: Mapping[str, Any] | None = None,
    paths: Mapping[str, Any] | None = None,
    calibration: Sequence[Mapping[str, Any]] = (),
    scales: Sequence[Mapping[str, Any]] = (),
    scenario_digest: str | None = None,
) -> dict[str, Any]:
    """Return the object that `run --json` prints and the run folder stores.

    `machine` is the run's environment. `paths`, if they were checked, and `calibration` are the
    objects of `path_check.py` and `link_calibration.py` in this folder. `scales` lists the values
    chosen for `auto`: key, value, and reason. `scenario_digest` is that of the scenario's file.
    """
    verdicts = [case.verdict for case in cases] + [failure.verdict for failure in failures]
    verdicts += [] if paths is None else [Verdict(paths["verdict"])]
    agreeing = [asdict(agreement) for agreement in agreements(cases)]
    interference = [found.plain() for found in interferences(cases)]
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "scenario": scenario,
        **({} if scenario_digest is None else {"scenario_digest": scenario_digest}),
        "verdict": worst(verdicts).value,
        "folder": str(folder),
        "cases": [_case_object(case) for case in cases],
        "failures": [failure_object(scenario, failure) for failure in failures],
        "slowdowns": [asdict(slowdown) for slowdown in slowdowns(cases)],
        **({"generators": agreeing} if agreeing else {}),
        **({"interference": interference} if interference else {}),
        **({"scales": [dict(chosen) for chosen in scales]} if scales else {}),
        **({} if machine is None else {"machine": dict(machine)}),
        **({} if paths is None else {"paths": dict(paths)}),
        **({"calibration": list(calibration)} if calibration else {}),
    }


def _case_object(case: CaseResult) -> dict[str, Any]:
    work, fabric = case.work, case.work.fabric
    times, modeled, breakdown = case.times, case.modeled, case.breakdown
    return {
        "case": case.name,
        "fabric": {
            "kind": fabric.kind.value,
            "domains": fabric.domains,
            "domain_size": fabric.domain_size,
            "platform": fabric.platform,
        },
        "collective": work.task,
        "algorithm": work.algorithm,
        "generator": work.generator.value,
        "variant": work.variant,
        "gpus": work.gpus,
        "bytes": work.size_bytes,
        "chunks": work.chunks,
        "bandwidth_scale": fabric.bandwidth_scale,
        "size_scale": work.size_scale,
        "time_dilation": case.time_dilation,
        "measured_s": asdict(times.measured),
        "modeled_s": modeled.completion_s,
        "lower_bound_s": modeled.lower_bound_s,
        "overlap": modeled.overlap,
        "real_s": case.real_s,
        "ratio": case.ratio,
        "algbw_gbyte_per_s": case.algbw_gbyte_per_s,
        "busbw_gbyte_per_s": case.busbw_gbyte_per_s,
        "warmup_s": list(times.warmup_s),
        "disturbed_s": list(times.disturbed_s),
        "disturbed_counted": times.disturbed_counted,
        "retransmits": case.retransmits,
        "data_is_right": case.data_is_right,
        "verdict": case.verdict.value,
        "reasons": list(case.reasons),
        "fidelity": case.fidelity.plain(),
        **({} if breakdown.iteration is None else {"iteration": breakdown.iteration.plain()}),
        **({} if breakdown.inference is None else {"inference": breakdown.inference.plain()}),
        **({"jobs": [job.plain() for job in breakdown.jobs]} if breakdown.jobs else {}),
        **({"rail_crossings": list(case.rail_crossings)} if case.rail_crossings else {}),
    }
