"""Inputs without sense or end: each is refused with a sentence before it costs time or memory."""

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from commands.app import main
from execution.sweep import points
from execution.sweep.points import REFUSED_POINTS, planned
from linux.files.user_files import Unreadable, read_bytes
from model.errors import MOST_CHARACTERS, MOST_PROBLEMS, InputError, Problem
from scenarios.format.document import MOST_BYTES
from scenarios.format.workloads import collective
from scenarios.load import load
from tests.unit.test_scenario_issues import GOOD, problems
from traffic_gen.workloads.sized_collective import SizedCollective

FAULT = GOOD + "faults:\n  - what: nic-link\n"
MATRIX = """\
fabric: {domains: 1, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000}
workloads:
  - {collective: all-to-all, algorithm: direct, matrix: [[0, 6000000000], [1, 0]], size_scale: 1}
"""
OWN = GOOD.replace("platform: dgx-h100", "hb_rate: 100 Gbit/s\n  nic_rate: 10 Gbit/s")
BOMB = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 31))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "is not a regular file"),
        (Path.mkdir, "is a folder, not a file"),
        (lambda place: place.symlink_to("/dev/zero"), "is not a regular file"),
        (lambda place: place.symlink_to(place.name), "cannot be read: Too many levels"),
        (lambda place: place.write_text(GOOD + "#" * MOST_BYTES), "is larger than 0.25 MiB"),
    ],
)
def test_only_a_file_of_bounded_size_is_read(
    file: Path, make: Callable[[Path], object], message: str
) -> None:
    make(file)
    with pytest.raises(InputError, match=message):
        load(file)


def test_what_is_too_large_by_its_size_is_not_read(tmp_path: Path) -> None:
    """Of a trace, half a gigabyte would be."""
    large = tmp_path / "large"
    large.touch()
    os.truncate(large, 2**26)
    before = read_so_far()
    with pytest.raises(Unreadable, match="is larger than 32 MiB"):
        read_bytes(large, 2**25)
    assert read_so_far() - before < 2**20


def read_so_far() -> int:
    """Bytes that this process has read (`rchar` of proc(5))."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB + GOOD, "more than 10000 values"),
        ("x: [" + "[], " * 10_000 + "]\n" + GOOD, "more than 10000 values"),
        ("x: &a [*a]\n" + GOOD, "an alias repeats the value that it is in"),
        ("x: " + "[" * 4000, "it is nested more than 20 deep"),
        ("[\n" * 4000, "it is nested more than 20 deep"),
        (
            "seed: " + "9" * 4000 + "\n" + GOOD,
            "a number must have at most 100 characters, got 4000",
        ),
        ("seed: 0x" + "f" * 90_000 + "\n" + GOOD, "characters, got 90002"),
        ("seed: 0o" + "7" * 9000 + "\n" + GOOD, "characters, got 9002"),
        ("seed: 0b" + "1" * 9000 + "\n" + GOOD, "characters, got 9002"),
    ],
)
def test_a_text_that_expands_without_end_is_refused(file: Path, text: str, message: str) -> None:
    (found,) = problems(file, text)
    assert "is out of bounds: " in found
    assert message in found


@pytest.mark.parametrize(
    "size", ["1" * 200_000 + "x y", " " * 200_000 + "x", "1" * 200_000 + " B x"]
)
def test_a_long_size_is_refused_in_linear_time(file: Path, size: str) -> None:
    (found,) = problems(file, GOOD.replace("12 MB", f"'{size}'"))
    assert "must be a number with a unit" in found
    assert len(found) < 4 * MOST_CHARACTERS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FAULT + "    how: flap\n    count: 1000000000000\n", "must be at most 10000"),
        (FAULT + "    how: flap\n    period: 1e300\n", "must be at most 86400"),
        (FAULT + "    how: flap\n    period: 1e-300\n", "must be at least 0.01"),
        (
            FAULT + "    how: flap\n    period: 86400\n",
            "4 periods of 86400 s must last at most 86400 s, got 345600 s",
        ),
        (FAULT + "    for: 1e300\n", "must be at most 86400"),
        (FAULT + "    at: 1e300\n", "must be at most 86400"),
        (FAULT + "    how: degrade\n    rate: 1 kbit/s\n", "leaves 0.05 bit/s, below the 10000"),
        (
            FAULT + f"    where: {[f'x{n}' for n in range(3000)]}\n",
            "no nic-link 'x0' and 2999 others",
        ),
        (FAULT + "job: {restart_time: 1e300}\n", "must be at most 86400"),
        (FAULT + "job: {reconfiguration_time: 1e300}\n", "must be at most 86400"),
        (GOOD + "repeats: 1000000000\n", "must be at most 1000"),
        (GOOD + "warmup: 1000000000\n", "must be at most 1000"),
        (GOOD + "seed: 1000000000000\n", "must be at most 4294967295"),
        (OWN.replace("10 Gbit/s", "1e302 bit/s"), "must be 1 kbit/s to 1000 Tbit/s"),
        (OWN.replace("10 Gbit/s", "0.4 bit/s"), "must be 1 kbit/s to 1000 Tbit/s"),
        (GOOD.replace("12 MB", "0.4 B"), "must be 1 B to 1000000 GB, got '0.4 B'"),
        (GOOD.replace("20000", "1e-308"), "must be at least 1e-06, got 1e-308"),
        (GOOD.replace("20000", "1e308"), "must be at most 1e+12, got 1e+308"),
        (GOOD.replace("20000", "1e-3"), "above the 10000 Gbit/s that can be shaped"),
        (GOOD.replace("size_scale: 2", "size_scale: 1e308"), "must be at most 1e+12"),
        (GOOD.replace("size_scale: 2", "time_dilation: 1e-308"), "must be at least 1e-06"),
        (GOOD.replace("bandwidth", "oversubscription: 1e308\n  bandwidth"), "at most 1000000,"),
        (GOOD + "expect: {ratio_limit: 1e308}\n", "must be at most 1000000, got 1e+308"),
        (GOOD + f"name: {'a' * 300}\n", "must be lower-case letters, digits and hyphens"),
        (GOOD + f"description: {'a' * 20_000}\n", "must have at most 10000 characters"),
        (GOOD + 'description: "\\ud800"\n', "a lone surrogate"),
        (GOOD.replace("platform", 'topology: "\\ud800"\n  platform'), "a lone surrogate"),
        (
            GOOD.replace(": 4", ": 2048").replace("size: 2", "size: 510"),
            "must have at most 4096 GPUs",
        ),
        (GOOD.replace("platform", "spines: 9000\n  platform"), "uplinks, got 18000"),
        (
            GOOD.replace("platform", "rail_leaves: 5\n  platform"),
            "fabric.rail_leaves: must be at most the number of domains, 4, got 5",
        ),
        (
            GOOD.replace(": 4", ": 200").replace("platform", "spine_selection: hash\n  platform"),
            "hash supports at most 256 GPUs times queue pairs, got 400",
        ),
        (
            GOOD.replace("platform", "spine_selection: spray\n  platform"),
            "spray needs transport: roce",
        ),
        (
            GOOD.replace(
                "platform",
                "spine_selection: spray\n  transport: roce\n  roce: {queue_pairs: 2}\n  platform",
            ),
            "spray uses all paths for each queue pair",
        ),
        (
            GOOD.replace("platform", "transport: roce\n  roce: {timeout_seconds: 0}\n  platform"),
            "timeout_seconds: must be more than 0, got 0",
        ),
    ],
)
def test_a_value_without_sense_is_refused(file: Path, text: str, message: str) -> None:
    found = problems(file, text)
    assert any(message in one for one in found), found


SHAPE = "fabric: {{platform: dgx-h100, bandwidth_scale: 20000, {}}}\nworkloads:\n"
RING = "collective: all-reduce, algorithm: ring, size: 1 MB"
JOBS = f"  - jobs: [{{name: a, domains: 0, {RING}}}, {{name: b, domains: 9, {RING}}}]\n"
ADDRESSES = "x.yaml:1 fabric.{}: must be at most {} (address space), got {}"


@pytest.mark.parametrize(
    ("shape", "work", "messages"),
    [
        ("domain_sizes: [1, 9999]", "", ["x.yaml:1 fabric.domain_sizes.1: must be at most 510, "]),
        ("domain_sizes: [-9999, 1]", "", ["x.yaml:1 fabric.domain_sizes.0: must be at least 1, "]),
        (
            "domains: 9999, domain_size: 999, missing: x",
            "",
            [ADDRESSES.format("domains", 2048, 9999), ADDRESSES.format("domain_size", 510, 999)],
        ),
        ("domains: 2, domain_size: 9999", JOBS, [ADDRESSES.format("domain_size", 510, 9999)]),
    ],
)
def test_gpus_of_a_fabric_that_is_too_large_are_not_numbered(
    file: Path, shape: str, work: str, messages: list[str]
) -> None:
    """Issues that need their names or numbers are not sought."""
    found = problems(file, SHAPE.format(shape) + (work or f"  - {{{RING}}}\n"))
    assert len(found) == len(messages)
    assert all(map(str.startswith, found, messages))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("12 MB", "9 GB"), "4500000000 bytes, counted as one transfer, exceed"),
        (GOOD.replace("size_scale: 2", "time_dilation: 1e12"), "sends 5e+07 times the real"),
        (MATRIX, "6000000000 bytes, counted as one transfer, exceed"),
        (GOOD.replace("20000", "1e-3"), "above the 10000 Gbit/s that can be shaped"),
    ],
)
def test_what_needs_no_schedule_is_refused_before_one_is_built(
    file: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SizedCollective, "steps", lambda *_: pytest.fail("a schedule is built"))
    collective._issue.cache_clear()
    assert message in problems(file, text)[0]


@pytest.mark.parametrize("nic_rate", ["266.66666 Gbit/s", "777.777 Gbit/s", "12.3456789 Gbit/s"])
@pytest.mark.parametrize(("scale", "bound"), [(1e9, "use at most "), (1e-5, "use at least ")])
def test_the_scale_that_a_refusal_names_is_accepted(
    file: Path, nic_rate: str, scale: float, bound: str
) -> None:
    text = OWN.replace("10 Gbit/s", nic_rate).replace("20000", f"{scale:g}")
    (said,) = {problem.partition(bound)[2].rstrip(")") for problem in problems(file, text)}
    named = text.replace(f"bandwidth_scale: {scale:g}", f"bandwidth_scale: {said}")
    file.write_text(f"{named}allow_overload: true\n")
    assert load(file).fabrics[0].bandwidth_scale == float(said)


@pytest.mark.parametrize(
    ("dilation", "message"),
    [
        (1, "bytes, counted as one transfer, exceed its limit, 4294967295"),
        (1e12, "times the real size"),
    ],
)
def test_packets_are_not_counted_of_sizes_that_are_refused(
    file: Path, dilation: float, message: str
) -> None:
    text = GOOD.replace("20000", "auto").replace("12 MB", "900000 GB")
    crafted = f"generator: scapy\n    time_dilation: {dilation:g}"
    found = problems(file, text.replace("size_scale: 2", crafted))
    assert all(message in one for one in found), found


def test_an_override_that_leads_too_deep_is_refused(file: Path) -> None:
    (found,) = problems(file, GOOD, ".".join("a" * 3000) + "=1")
    assert "must have at most 20 nested keys, got 3000" in found


def test_a_message_is_bounded() -> None:
    error = InputError(*(Problem("x" * 5000, "y" * 5000, str(n)) for n in range(5000)))
    assert len(str(error)) < MOST_PROBLEMS * 3 * MOST_CHARACTERS
    assert str(error).endswith(f"and {5000 - MOST_PROBLEMS} more problems")
    one_more = InputError(*error.problems[: MOST_PROBLEMS + 1])
    assert str(one_more).endswith("and 1 more problem")


def test_after_many_wrong_points_the_others_are_not_checked(file: Path) -> None:
    file.write_text(GOOD)
    values = ",".join(map(str, range(3000, 3900)))
    with pytest.raises(InputError) as caught:
        planned(file, [f"fabric.domains={values}"], [], "process", lambda _: None)
    assert len(caught.value.problems) == REFUSED_POINTS


def numbers(count: int) -> str:
    return ",".join(map(str, range(1, count + 1)))


@pytest.mark.parametrize(
    ("over", "where", "loaded"),
    [
        ((f"seed={numbers(999)},x",), "point 1000 (seed=x): --over seed: must", 0),
        ((f"seed={numbers(40)}", f"repeats={numbers(24)},0"), "point 25 (seed=1, repeats=0)", 0),
        (
            ("faults=[],[{what: nic-link, where: [x]}]", f"seed={numbers(500)}"),
            "point 501 (faults",
            REFUSED_POINTS,
        ),
    ],
)
def test_one_wrong_value_of_a_thousand_points_is_found_soon(
    file: Path, monkeypatch: pytest.MonkeyPatch, over: tuple[str, ...], where: str, loaded: int
) -> None:
    """To load all points takes seconds; a link that the fabric lacks is found by loading alone."""
    file.write_text(GOOD)
    loads = Mock(wraps=load)
    monkeypatch.setattr(points, "load", loads)
    with pytest.raises(InputError) as caught:
        planned(file, over, [], "process", lambda _: None)
    assert where in str(caught.value)
    assert loads.call_count == loaded


@pytest.mark.parametrize("name", ["[red].yaml", "[/red].yaml", ":smile:.yaml"])
def test_a_name_that_looks_like_markup_is_printed_as_it_is(
    file: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = file.with_name("[bold]") / name
    place.parent.mkdir(parents=True)
    place.write_text(GOOD)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["", "check", str(place)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert f"{place}: ok" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [("check", "a" * 300), ("show", "a" * 5000), ("list", "--store", "a" * 300)]
)
def test_a_long_name_is_no_bug(
    file: Path,
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "bug" not in capsys.readouterr().err
