"""Failure experiments through the command line, on small fabrics."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linux.files.program_files import ROOMS
from results.store.tables import COUNTERS, EXECUTIONS, LINK_SAMPLES, read_table
from results.verdicts.fault_impact import lost_experiment
from tests.results import printed
from tests.system.test_commands import folder, railbed

__all__ = ["folder"]
pytestmark = [
    pytest.mark.system,
    pytest.mark.integration,
    pytest.mark.usefixtures("untouched_machine"),
]

SMALL = (
    *("--set", "fabric.domains=2", "--set", "fabric.domain_size=3"),
    *("--set", "workloads.0.size_scale=4000", "--set", "repeats=1", "--set", "warmup=0"),
    # Executions this short say little about time, as the machine may be busy.
    *("--set", "expect.ratio_within=1", "--set", "expect.ratio_limit=2"),
    *("--set", "expect.blackout_ms=2000", "--set", "faults.0.at=0.05"),
)
# Sums of seconds are rounded.
ROUNDING_S = 1e-9


def experiment(name: str, *more: str, proxies: str = "process") -> list[dict[str, Any]]:
    done = railbed("run", name, "--json", "--proxies", proxies, *SMALL, *more)
    failures: list[dict[str, Any]] = printed(done)["failures"]
    return failures


def test_a_lost_nic_link_on_both_fabrics(folder: Path) -> None:
    rows = experiment("nic-link-down", proxies="container")
    assert [row["fabric"] for row in rows] == ["rail-only", "rail-optimized"]
    for row in rows:
        optional = "notes", "doubts"  # of a machine that is too slow, or busy
        assert [key for key in row if key not in optional] == list(lost_experiment("", ""))
        assert (row["fault"], row["where"]) == ("nic-link down", "d0g0--rail0")
        assert row["lost_probes_unaffected"] == 0
        assert row["probed_pairs"] > 0
        assert row["blackout_ms"] >= 0
        assert row["modeled_degraded_s"] > row["modeled_baseline_s"]
        (times,) = row["times"]
        assert times["ended_s"] is None
        assert times["detected_ms"] < times["confirmed_ms"]
    (run,) = (folder / "runs").iterdir()
    case = "rail-only_all-reduce_hierarchical_"
    phases = {place.name.removeprefix(case) for place in run.glob("rail-only_*")}
    assert phases == {"baseline", "during_fault", "degraded", "recovered"}
    assert (run / f"{case}during_fault" / "records.json").exists()
    assert_links_sampled(run)


def assert_links_sampled(run: Path) -> None:
    """Samples of links span the execution that was hit, and lie between their counters."""
    samples, counters = read_table(run, LINK_SAMPLES), read_table(run, COUNTERS)
    executions = read_table(run, EXECUTIONS)
    for case in np.unique(samples["case_name"]):
        of_case, hit = counters["case_name"] == case, executions["case_name"] == case
        (start_ns,), (seconds,) = executions["start_ns"][hit], executions["completion_s"][hit]
        for link in np.unique(counters["link"][of_case]):
            chosen = (samples["case_name"] == case) & (samples["link"] == link)
            first_ns, *_, last_ns = samples["ns"][chosen]
            assert first_ns < start_ns < start_ns + seconds * 1e9 < last_ns
            counted = of_case & (counters["link"] == link)
            for column in ("sent_bytes", "received_bytes"):
                sampled = samples[column][chosen]
                before, after = sorted(counters[column][counted].tolist())
                assert before <= sampled[0] <= sampled[-1] <= after
                assert (np.diff(sampled) >= 0).all()


def test_a_spare_gpu_comes_by_the_optical_switch(folder: Path) -> None:
    (row,) = experiment("gpu-lost-spare", "--set", "fabric.kinds=rail-only")
    assert row["strategy"] == "spare-gpu"
    assert row["recovered_s"] is None
    assert row["degraded_s"] > 0
    assert row["lost_probes_unaffected"] == 0
    assert row["modeled_degraded_s"] == pytest.approx(row["modeled_baseline_s"], rel=0.01)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("spare-rail-switch", "fabric.kinds=rail-only"),
        ("domain-lost", "fabric.kinds=rail-only"),
        ("gpu-lost-remote", "workloads.0.size_scale=80"),
    ],
)
def test_a_job_goes_on_elsewhere(folder: Path, name: str, change: str) -> None:
    for row in experiment(name, "--set", change, "--set", "job.restart_time=0.7"):
        assert row["during_fault_s"] > row["baseline_s"]
        assert row["degraded_s"] > 0
        assert row["lost_probes_unaffected"] == 0
        assert_restarted(row, next((folder / "runs").glob(f"*-{name}-*")))


def assert_restarted(row: dict[str, Any], run: Path) -> None:
    """Both executions are recorded; the clock runs from the first start to the second's end."""
    executions = read_table(run, EXECUTIONS)
    of_phase = executions["case_name"] == f"{row['case']}/during_fault"
    assert executions["complete"][of_phase].tolist() == [False, True]
    first_ns, again_ns = executions["start_ns"][of_phase].tolist()
    back_s = (again_ns - first_ns) / 1e9
    assert row["back_s"] == pytest.approx(back_s)
    assert row["back_s"] >= row["aborted_s"] + 0.7 - ROUNDING_S
    assert row["during_fault_s"] == pytest.approx(back_s + executions["completion_s"][of_phase][1])
    assert row["modeled_during_fault_s"] == pytest.approx(
        row["aborted_s"] + 0.7 + row["modeled_degraded_s"]
    )


def test_a_flapping_link_and_a_killed_controller(folder: Path) -> None:
    twice = ("--set", "fabric.kinds=[rail-only]", "--set", "faults.0.count=2")
    (flapping,) = experiment("nic-link-flaps", *twice)
    assert len(flapping["times"]) == 2
    assert (flapping["ratio"], flapping["degraded_s"]) == (None, None)
    assert flapping["replay_ratio"] == pytest.approx(
        flapping["during_fault_s"] / flapping["modeled_replay_s"]
    )
    assert all(times["ended_s"] > times["begun_s"] for times in flapping["times"])
    killed = ("--set", "fabric.kinds=[rail-only]", "--set", "workloads.0.size_scale=80")
    (controller,) = experiment("controller-killed", *killed)
    assert (controller["blackout_ms"], controller["lost_probes_unaffected"]) == (None, 0)


def test_the_table_names_the_fault_and_modules_of_the_users_folder_are_not_executed(
    folder: Path,
) -> None:
    for room in ROOMS:
        (folder / room).mkdir()
        (folder / room / "__init__.py").write_text("raise SystemExit('not the program')\n")
    done = railbed("run", "uplink-down", "--proxies", "process", *SMALL)
    assert done.returncode in (0, 1), done.stderr
    assert "uplink down · rail0--spine0 · reroute" in done.stdout
    assert "blackout" in done.stdout
