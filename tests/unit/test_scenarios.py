"""Scenario files: accepted values, and the exact messages for refused ones."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from commands.app import app
from commands.check import described
from model.errors import InputError, Problem
from model.fabric.shaping import MIN_RATE_BPS
from model.fabric.spec import PLATFORMS, FabricKind, HbNetwork, NicNetwork
from model.workload.transfers.collective import Collective
from scenarios.format.keys import ScenarioFile
from scenarios.format.networks.files import NetworkFile
from scenarios.format.prices import Quote
from scenarios.format.training import Configuration, GivenExperts, GivenLatent, GivenStrategy
from scenarios.format.units import PUBLISHED_SIZES, RATES, SIZES, parse_quantity
from scenarios.format.workloads.work import JobPlace
from scenarios.library_files import LIBRARY, library
from scenarios.load import load
from scenarios.planning.auto import (
    MAX_HB_BPS,
    TOTAL_HB_BPS,
    TOTAL_NIC_BPS,
    auto_bandwidth_scale,
)
from scenarios.planning.plan import real_task
from studies.decision import ClusterFile, TrainedModel
from tests.scenario_reference import SECTIONS, reference
from tests.unit.fabrics import accepts
from tests.unit.fabrics import spec as fabric_spec
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS, names_of
from traffic_gen.workloads.sized_collective import SizedCollective

*FIRST, LAST = (repr(collective.value) for collective in Collective)
COLLECTIVES = f"{', '.join(FIRST)} or {LAST}"
GOOD = """\
fabric:
  domains: 4
  domain_size: 2
  platform: dgx-h100
  bandwidth_scale: 20000
workloads:
  - collective: all-reduce
    algorithm: ring
    size: 12 MB
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path x.yaml in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "x.yaml"


def problems(text: str, *overrides: str) -> list[str]:
    """Return the error messages for a file x.yaml with this text."""
    Path("x.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        load(Path("x.yaml"), overrides)
    assert caught.value.exit_code == 2
    return str(caught.value).splitlines()


def test_a_minimal_scenario_gets_its_defaults(write: Path) -> None:
    write.write_text(GOOD)
    scenario = load(write)
    assert scenario.name == "x"
    assert [case.name for case in scenario.cases] == [
        "rail-only/all-reduce/ring",
        "rail-optimized/all-reduce/ring",
    ]
    assert scenario.fabrics[1].nic.spines == 4
    assert scenario.cases[0].emulated_bytes == 12_000_000


@pytest.mark.parametrize(
    ("others", "names"),
    [
        (["12 MB"], [""]),
        (["12 MB, slices: 8", "12 MB"], ["/slices-8", "/slices-4"]),
        (["12 MB", "6 MB"], ["/12MB", "/6MB"]),
        (["12 MB", "6 MB, slices: 8", "6 MB"], ["/12MB", "/6MB/slices-8", "/6MB/slices-4"]),
    ],
)
def test_cases_are_named_by_what_they_differ_in(
    write: Path, others: list[str], names: list[str]
) -> None:
    entry = "  - {collective: all-to-all, algorithm: two-step-pipelined, size: "
    lines = "".join(f"{entry}{other}}}\n" for other in others)
    write.write_text(GOOD.split("  - ")[0] + lines)
    found = [case.name for case in load(write, ["fabric.kinds=rail-only"]).cases]
    assert found == [f"rail-only/all-to-all/two-step-pipelined{name}" for name in names]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("domains: 4", "domains: 0"), "x.yaml:2 fabric.domains: must be at least 1, got 0"),
        (
            ("domains: 4", "domains: 4\n  spine: 4"),
            "x.yaml:3 fabric.spine: unknown key 'spine' (did you mean 'spines'?)",
        ),
        (
            ("domains: 4", "domains: four"),
            "x.yaml:2 fabric.domains: must be a whole number, got 'four'",
        ),
        (
            ("domains: 4", "domains: 4\n  domains: 5"),
            'x.yaml:3: duplicate key "domains" (each key once)',
        ),
        (
            ("12 MB", "12 furlongs"),
            "x.yaml:9 workloads.0.size: unknown unit 'furlongs' in '12 furlongs'; known: B, kB, "
            f"MB, GB, KiB, MiB, GiB; or a published size: {', '.join(PUBLISHED_SIZES)}",
        ),
        (
            ("domains: 4", "domains: 99999999999"),
            "x.yaml:2 fabric.domains: must be at most 2048 (address space), got 99999999999",
        ),
        (
            ("domain_size: 2", "domain_size: 600"),
            "x.yaml:3 fabric.domain_size: must be at most 510 (address space), got 600 (`./railbed "
            "predict` has up to 65536 GPUs)",
        ),
        (
            ("bandwidth_scale: 20000", "bandwidth_scale: 5e6"),
            "x.yaml:5 fabric.bandwidth_scale: leaves a NIC link 0.08 Mbit/s, below the 0.1 Mbit/s "
            "that can be shaped (bandwidth_scale 5e+06) (use at most 4e+06)",
        ),
        (
            ("bandwidth_scale: 20000", "bandwidth_scale: fast"),
            "x.yaml:5 fabric.bandwidth_scale: must be a number or 'auto', got 'fast'",
        ),
        (
            ("domains: 4", "domains: 4\n  grain: 2.5"),
            "x.yaml:3 fabric.grain: must be a whole number or 'auto', got 2.5",
        ),
        (
            ("dgx-h100", "dgx-h10"),
            "x.yaml:4 fabric.platform: unknown platform 'dgx-h10'; did you mean 'dgx-h100'? known: "
            + ", ".join(PLATFORMS),
        ),
        (
            ("algorithm: ring", "algorithm: rign"),
            "x.yaml:8 workloads.0.algorithm: unknown algorithm 'rign' of all-reduce; did you "
            f"mean 'ring'? known: {', '.join(names_of(Collective.ALL_REDUCE))}",
        ),
        (
            ("    algorithm: ring\n", ""),
            "x.yaml:7 workloads.0.algorithm: is required; known: "
            + ", ".join(names_of(Collective.ALL_REDUCE)),
        ),
        (
            ("all-reduce", "all-reduse"),
            f"x.yaml:7 workloads.0.collective: must be {COLLECTIVES}, got 'all-reduse'; did you "
            "mean 'all-reduce'?",
        ),
        (
            ("12 MB", "12 MB\n    generator: exec"),
            "x.yaml:10 workloads.0.generator: must be 'agent', 'iperf3' or 'scapy', got 'exec' "
            "(programs of your own: `./railbed exec SCENARIO -- COMMAND`)",
        ),
        (
            ("12 MB", "12 MB\n    generator: exe"),
            "x.yaml:10 workloads.0.generator: must be 'agent', 'iperf3' or 'scapy', got 'exe'",
        ),
        (
            (GOOD[GOOD.index("workloads") :], "workloads: []"),
            "x.yaml:6 workloads: must have at least one entry",
        ),
        (
            ("workloads", "faults: [3]\nworkloads"),
            "x.yaml:6 faults.0: must be a mapping, got 3 (such as `{what: ...}`)",
        ),
        (
            ("platform: dgx-h100", "hb_rate: 12 parsecs"),
            "x.yaml:4 fabric.hb_rate: unknown unit 'parsecs' in '12 parsecs'; known: bit/s, "
            "kbit/s, Mbit/s, Gbit/s, Tbit/s",
        ),
        (
            ("  platform: dgx-h100\n", ""),
            "x.yaml:1 fabric: needs a platform, or both hb_rate and nic_rate (known: "
            f"{', '.join(PLATFORMS)})",
        ),
        (
            ("dgx-h100", "dgx-h100\n  nic_rate: 200 Gbit/s"),
            "x.yaml:4 fabric.platform: cannot be combined with hb_rate or nic_rate (set it to "
            "null, and give both rates)",
        ),
    ],
)
def test_what_is_wrong_is_said_exactly(write: Path, change: tuple[str, str], message: str) -> None:
    assert problems(GOOD.replace(*change)) == [message]


def test_all_problems_are_reported_at_once(write: Path) -> None:
    text = (
        GOOD.replace("domains: 4", "domains: 0").replace("12 MB", "12 m").replace("dgx-h100", "dgx")
    )
    assert len(problems(text + "repeats: 0\ncolour: red\n")) == 5


def test_all_duplicate_keys_are_reported_at_once(write: Path) -> None:
    keys = "domains: 4\n  domains: 5\n  <<: {}\n  <<: {}\n  'domains': 6"
    text = GOOD.replace("domains: 4", keys) + "workloads: []\n"
    last = text.count("\n")
    assert problems(text) == [
        'x.yaml:3: duplicate key "domains" (each key once)',
        'x.yaml:5: duplicate key "<<" (each key once)',
        'x.yaml:6: duplicate key "domains" (each key once)',
        f'x.yaml:{last}: duplicate key "workloads" (each key once)',
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml:1: must be a mapping with the keys of a scenario, got nothing"),
        ("- 1", "x.yaml:1: must be a mapping with the keys of a scenario, got a list"),
        ("1", "x.yaml:1: must be a mapping with the keys of a scenario, got a single value"),
        ("fabric:\n\tdomains: 2\n", "x.yaml:2: is not YAML: a tab cannot be here; use spaces"),
        ("seed: 1\n repeats: 2\n", "x.yaml:2: is not YAML: a key cannot be here; check spaces"),
        (GOOD + "1: 2\n", "x.yaml:10 1: a key must be text, got 1"),
        (GOOD + "{[a]: 1, [a]: 2, [a]: 3}: 2\n", "x.yaml:10 "),
        (GOOD + "null: 2\n", "x.yaml:10 None: a key must be text, got null"),
        ("fabric: [", "x.yaml:1: is not YAML"),
        ("{layers: 8, hidden: 8}", "x.yaml: is a training configuration, must be a scenario"),
        ("{radix: 8, models: []}", "x.yaml: is a cluster, must be a scenario"),
        ("0 1\n1 0\n", "x.yaml:1: must be a mapping with the keys of a scenario, got a single val"),
    ],
)
def test_what_is_no_scenario_at_all(write: Path, text: str, message: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(message)


NS3 = "5 1 4\n4\n0 4 400Gbps 0.0005ms 0\n1 4 400Gbps 0.0005ms 0\n"
SIMAI = "5 1 1 1 4 H100\n4 5\n0 4 2880Gbps 0.000025ms 0\n"
TRAIN = "is a training configuration", "give it to `./railbed train`"
NAMED = "is a network", "name it in a scenario: `fabric: {topology: x.any}`"
INSTEAD = "it cannot be replayed; give a workload the sizes in it, or record an execution trace"
LOGGED = "is a log of NCCL's profiler", INSTEAD
UNREAD = "Railbed does not read it; describe the network by the keys of a scenario's fabric"


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ('{"num_hidden_layers": 8, "hidden_size": 8}', *TRAIN),
        ('{"hidden": 8, "attn_heads": 8, "num_blocks": 8}', *TRAIN),
        ('{"model_type": "x", "text_config": {}}', *TRAIN),
        ('{"model_type": "x", "llm_config": {}}', *TRAIN),
        ("topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n", *NAMED),
        ("domains: 2\ndomain_size: 2\nlinks: []\n", *NAMED),
        (NS3, *NAMED),
        (NS3.replace("400Gbps", "50GB/s"), *NAMED),
        (SIMAI, *NAMED),
        ("# of htsim\nNodes 32\nTiers 2\nPodsize 32\n", "is a topology of htsim", UNREAD),
        ('{"logical-dims": ["8"]}', "is a logical topology of ASTRA-sim", UNREAD),
        ('{"topologies-per-dim": ["Ring"]}', "is a network of ASTRA-sim 1.0", UNREAD),
        ('<system version="1">\n  <cpu numaid="0"/>\n</system>\n', "is a topology of NCCL", UNREAD),
        ('<graphs version="1">\n</graphs>\n', "is a topology of NCCL", UNREAD),
        (
            "#  size  count   type  redop\n   8  2  float  sum\n",
            "is a result of nccl-tests",
            INSTEAD,
        ),
        ('{"results": [], "average_bus_bandwidth": {}}', "is a result of nccl-tests", INSTEAD),
        ('{"header": {}, "coll_perf": {"coll": "AllReduce"}}\n', *LOGGED),
        ('{"header": {}, "coll_perf": {}}\n{"header": {}, "coll_perf": {}}\n', *LOGGED),
        ('[{"name": "AllReduce", "cat": "COLL", "ph": "b"}]', *LOGGED),
        ('[{"comms": "all_reduce", "in_msg_size": 8}]', "is a list of calls of PARAM", INSTEAD),
    ],
    ids=[
        *("hugging-face", "calculon", "several-models", "llm", "astra-sim", "own", "ns-3"),
        *("ns-3 in bytes", "simai", "htsim", "logical", "astra-sim 1.0", "nccl", "nccl graphs"),
        *("nccl-tests", "nccl-tests in json", "inspector", "lines", "profiler", "param"),
    ],
)
def test_a_file_of_another_kind_is_told_by_every_command(
    tmp_path: Path, text: str, what: str, hint: str
) -> None:
    """Whether its name is that of a scenario, of JSON, or of anything."""
    for name in ("x.yaml", "x.any"):
        file = tmp_path / name
        file.write_text(text)
        hint_here = hint.replace("x.any", name)
        for command in ("check", "predict"):
            with pytest.raises(InputError) as error:
                app([command, str(file)], standalone_mode=False)
            wanted = "scenario"
            if command == "predict" and name == "x.any":
                wanted += " or a trace"
            assert str(error.value) == f"{file}: {what}, must be a {wanted} ({hint_here})"
    (scenario := tmp_path / "scenario.yaml").write_text(
        "fabric: {domains: 2, domain_size: 2, hb_rate: 18 Mbit/s, nic_rate: 9 Mbit/s}\n"
        "workloads:\n  - {trace: x.any}\n"
    )
    with pytest.raises(InputError) as error:
        load(scenario)
    assert f"{tmp_path / 'x.any'}: {what}, must be a trace ({hint})" in str(error.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Nodes 32\nTiers 2\nPodsize 32\n", f"is a topology of htsim, must be a trace ({UNREAD})"),
        ("", "is empty (write the trace again)"),
        ("PK\3\4", "is a zip archive (unpack it)"),
        (SIMAI, f"is a network, must be a trace ({NAMED[1]})"),
        ("domains: 2\ndomain_size: 2\nlinks: []\n", f"is a network, must be a trace ({NAMED[1]})"),
    ],
    ids=["htsim", "empty", "zip", "simai", "own"],
)
def test_a_trace_of_another_kind_is_told_as_what_it_is(
    tmp_path: Path, text: str, what: str
) -> None:
    trace, file = tmp_path / "x.any", tmp_path / "own.yaml"
    trace.write_text(text)
    file.write_text(
        "fabric: {platform: dgx-h100, domains: 2, domain_size: 2}\nworkloads:\n  - {trace: x.any}\n"
    )
    with pytest.raises(InputError) as error:
        load(file)
    assert str(error.value) == f"{file}:3 workloads.0.trace: {trace}: {what}"


def test_a_file_of_empty_lines_is_refused_at_once(write: Path) -> None:
    """A search that begins anew at each line takes minutes."""
    write.write_text("\n" * 2**17)
    with pytest.raises(InputError, match="got nothing"):
        load(write)


def test_a_cluster_s_key_has_another_name_in_a_fabric(write: Path) -> None:
    assert problems(GOOD, "fabric.gpus_per_nic=2") == [
        "--set fabric.gpus_per_nic: unknown key 'gpus_per_nic' (use nics_per_domain: the GPUs of a "
        "domain over gpus_per_nic)"
    ]


def test_a_fabric_that_is_too_large_is_one_for_paper(write: Path) -> None:
    (problem,) = problems(GOOD, "fabric.domains=2048", "fabric.domain_size=8")
    assert problem == (
        "--set fabric.domains: must have at most 4096 GPUs, spares included, got 16384 ("
        "`./railbed predict` has up to 65536 GPUs)"
    )


def test_files_that_cannot_be_read(write: Path) -> None:
    write.write_bytes(b"seed: 1\n\xff\xfe\x00")
    trace = write.with_name("t.0.et")
    trace.write_bytes(b"\xff\xfe\x00")
    (matrix := write.with_name("m.matrix")).write_text("0 1\n1 0\n")
    (loop := write.with_name("loop")).symlink_to("loop")
    for place, message in (
        (write, "is not UTF-8 text: invalid start byte in line 2"),
        (write.parent, "is a folder, not a file"),
        (Path("/dev/null"), r"is not a regular file \(name a regular file, or a link to one"),
        (loop, r"cannot be read: .* \(name a regular file, or a link to one"),
        (Path("nowhere.yaml"), "nowhere.yaml: not found"),
        (trace, r"t\.0\.et: is not UTF-8 text: .*\(a trace is named by a workload's `trace`"),
        (matrix, r"m\.matrix:1: must be a mapping .*\(a trace is named by a workload's `trace`"),
    ):
        with pytest.raises(InputError, match=message):
            load(place)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("fabric.domains=0", "--set fabric.domains: must be at least 1, got 0"),
        ("fabric.domain=4", "--set fabric.domain: unknown key 'domain' (did you mean 'domains'?)"),
        ("nonsense", "--set nonsense: must be key=value, such as fabric.domains=8"),
        (
            "workloads.3.size=1 B",
            "--set workloads.3.size=1 B: the list has 1 entry, number 0, got 3",
        ),
        (
            "workloads.\u0660.size=1 B",
            "--set workloads.\u0660.size=1 B: the list has 1 entry, number 0, got \u0660",
        ),
        ("repeats=[", "--set repeats=[: the value is not YAML"),
        ("repeats.x=1", "--set repeats.x=1: repeats is a scalar; it has no keys"),
        ("workloads.0.algorithm=rign", "--set workloads.0.algorithm: unknown algorithm 'rign' of"),
        (
            "workloads.0.slices=3",
            "--set workloads.0.slices: needs a pipelined algorithm",
        ),
        ("workloads.0.size=null", "--set workloads.0.size: is required"),
        (
            "fabric.domain_sizes=[2, 1]",
            "--set fabric.domain_sizes: cannot be combined with",
        ),
        ("fabric.topology=no.yml", "--set fabric.topology: "),
        ("seed=2001-01-01", "--set seed: must be a whole number, got 2001-01-01"),
        ("fabric.0=1", "--set fabric.0: a key must be text, got 0"),
        ("faults.0.what=gpu", "--set faults.0.what=gpu: there is no list faults; give it whole: "),
        ("workloads=[{trace: ''}]", "--set workloads.0.trace: must not be empty"),
        (
            "fabric.nic_rate=true",
            "--set fabric.nic_rate: must be a number with a unit (bit/s, kbit/s, Mbit/s, Gbit/s, "
            "Tbit/s), got true",
        ),
        (
            "workloads.0.communicator=null",
            "--set workloads.0.communicator: must be a word or a list of GPUs, got null",
        ),
        ("description=run #2", "--set description=run #2: a space and # begin a comment (quote"),
    ],
)
def test_overrides_are_named_in_the_message(write: Path, override: str, message: str) -> None:
    assert problems(GOOD + "repeats: 1\n", override)[0].startswith(message)


@settings(max_examples=15)
@given(domains=st.integers(2, 2048), size_scale=st.integers(1, 1000))
def test_overrides_take_effect(
    tmp_path_factory: pytest.TempPathFactory, domains: int, size_scale: int
) -> None:
    place = tmp_path_factory.mktemp("scenario") / "x.yaml"
    place.write_text(GOOD)
    changes = [f"fabric.domains={domains}", f"workloads.0.size_scale={size_scale}"]
    scenario = load(place, [*changes, "allow_overload=true"])
    assert {spec.domains for spec in scenario.fabrics} == {domains}
    (case, *_) = scenario.cases
    assert case.task.scaled_bytes(case.size_scale) == round(12_000_000 / size_scale)


def test_check_says_how_many_bytes_are_sent() -> None:
    """Each of 16 GPUs has a slice of at least one element."""
    ring = "workloads=[{collective: all-reduce, algorithm: ring, size: 1 B}]"
    changes = ["fabric.kinds=rail-only", ring, "allow_overload=true"]
    scenario = load(LIBRARY / "quickstart.yaml", changes)
    assert "rail-only/all-reduce/ring: 128 bytes" in described(scenario)
    both = load(LIBRARY / "quickstart.yaml", [ring, "allow_overload=true"])
    names = "all-reduce/ring"
    assert f"{names}: 128 bytes" in described(both)


REPEATED = """\
fabric: {domains: 2, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000}
workloads:
  - &w {collective: all-to-all, algorithm: two-step, size: &s 4 MB, size_scale: 2}  # the first
"""


@settings(max_examples=20)
@given(
    st.sampled_from(["{<<: *w, algorithm: direct}", "{<<: [{algorithm: direct}, *w]}"])
    | st.just("{collective: all-to-all, algorithm: direct, size: *s, size_scale: 2}"),
    st.integers(0, 1),
    st.sampled_from(["size=8 MB", "size_scale=3", "generator=iperf3"]),
)
def test_an_override_changes_one_place_also_in_the_text(
    tmp_path_factory: pytest.TempPathFactory, second: str, changed: int, override: str
) -> None:
    """A merge or an alias is a copy: an override of one does not change the other."""
    path = tmp_path_factory.mktemp("repeated") / "x.yaml"
    path.write_text(f"{REPEATED}  - {second}\n")
    before, after = load(path), load(path, [f"workloads.{changed}.{override}"])
    same = [case in before.cases for case in after.cases]
    assert same == [number != changed for number in (0, 1)] * 2
    assert "# the first" in after.text
    path.write_text(after.text)
    assert load(path) == after


@given(st.floats(1e-3, 1e6), st.sampled_from(sorted({**SIZES, **RATES})))
def test_quantities_are_number_times_unit(number: float, unit: str) -> None:
    units = {**SIZES, **RATES}
    assert parse_quantity(f"{number} {unit}", units) == parse_quantity(f"{number}{unit}", units)
    assert parse_quantity(f"{number} {unit}", units) == pytest.approx(number * units[unit])


@given(st.integers(2, 5000), st.floats(1e9, 1e13), st.floats(1e9, 1e13))
def test_the_automatic_scale_keeps_the_budgets(gpus: int, hb: float, nic: float) -> None:
    spec = replace(
        fabric_spec(FabricKind.RAIL_ONLY, gpus, 1),
        hb=HbNetwork(round(hb)),
        nic=NicNetwork(round(nic), spines=1),
    )
    task = SizedCollective(Collective.ALL_REDUCE, "ring", spec.job_shape, 1e6)
    chosen = auto_bandwidth_scale([real_task(task, spec)], None)
    scale = chosen.value
    if "too fast" in chosen.why:
        assert 0.999 < min(hb, nic) / scale / MIN_RATE_BPS < 1.2
        return
    assert gpus * nic / scale <= TOTAL_NIC_BPS * (1 + 1e-6)
    assert gpus * hb / scale <= TOTAL_HB_BPS * (1 + 1e-6)
    assert hb / scale <= MAX_HB_BPS * (1 + 1e-6)


@pytest.mark.parametrize("path", library(), ids=lambda path: path.stem)
def test_the_library_is_valid(path: Path) -> None:
    assert "\ndescription: " in load(path).text


@pytest.mark.parametrize("name", ["check-data", "collectives"])
def test_every_algorithm_is_tried(name: str) -> None:
    """Also those of a stranger, unless they refuse the scenario's grid."""
    scenario = load(LIBRARY / f"{name}.yaml")
    shape = scenario.fabrics[0].domains, scenario.fabrics[0].domain_size
    checked = {named for case in scenario.cases for named in case.task.collectives}
    assert checked == {named for named in ALGORITHMS if accepts(named, *shape)}


def takes(model: type[BaseModel], key: str, one: object) -> bool:
    """Whether a key takes a value, alone or in a list."""
    value = TypeAdapter[object](model.model_fields[key].rebuild_annotation())
    for tried in (one, [one]):
        with suppress(ValidationError):
            value.validate_python(tried, context=LIBRARY)
            return True
    return False


OF_OTHER_FILES: tuple[type[BaseModel], ...] = (
    *(Configuration, GivenExperts, GivenLatent, GivenStrategy),
    *(ClusterFile, NetworkFile, Quote, TrainedModel),
)


def test_a_number_is_no_flag_and_neither_is_text() -> None:
    # Spans of numbers, as `0-3`, are text.
    models = [model for model in (*SECTIONS, *OF_OTHER_FILES) if model is not JobPlace]
    keys = [(model, key) for model in models for key in model.model_fields]
    numbers = (0, 1e-9, 0.001, 0.5, 1, 2, 8)
    confused = [
        (key, number)
        for model, key in keys
        for number in numbers
        if sum(takes(model, key, one) for one in (number, str(number), bool(number))) > 1
    ]
    assert confused == []


def test_bytes_are_no_text() -> None:
    texts = (b"hi", b"dgx-h100", b"1 GB", b"1 Gbit/s", b"0-3")
    keys = [(model, key) for model in SECTIONS for key in model.model_fields]
    assert [key for model, key in keys if any(takes(model, key, one) for one in texts)] == []
    with pytest.raises(InputError, match=r"workloads\.0\.size: must be text, got b'hi'"):
        load(LIBRARY / "quickstart.yaml", ["workloads.0.size=!!binary aGk="])


def test_the_reference_of_all_keys_is_true() -> None:
    """Its texts are read from the source only here: at each start, that would take time."""
    assert ScenarioFile.model_fields["seed"].description is None
    root = Path(__file__).parents[2]
    text = (root / "docs" / "reference" / "scenarios.md").read_text()
    for section in SECTIONS:
        assert reference(section) in text, f"{section.__name__}: {reference(section)}"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "communicator: [" + ", ".join(["rails"] * 301) + "]",
            "communicator: must make at most 2000000 parts for pairs of GPUs, got 9863168",
        ),
        (
            "slices: 64, matrix: rotating-hotspot",
            "slices: must make at most 2000000 parts for pairs of GPUs, got 16777216",
        ),
    ],
)
def test_schedules_that_would_take_minutes_are_refused(
    write: Path, entry: str, message: str
) -> None:
    text = GOOD.split("workloads")[0].replace("domains: 4", "domains: 32")
    text = text.replace("domain_size: 2", "domain_size: 8")
    text += (
        f"workloads:\n  - {{collective: all-to-all, algorithm: spreading, size: 8 MB, {entry}}}\n"
    )
    (found,) = problems(text)
    assert found.startswith("x.yaml:7 workloads.0")
    assert found.endswith(message)


def test_a_message_controls_no_terminal() -> None:
    said = str(Problem("a\x1b]0;title\x07.yaml", "has\ta tab and \x9b1m"))
    assert said == "a\\x1b]0;title\\x07.yaml: has\ta tab and \\x9b1m"
