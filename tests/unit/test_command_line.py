"""The command line: its name and commands, what it prints of a scenario, and its exit codes."""

import errno
import gc
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest
from typer.core import TyperGroup, TyperOption
from typer.main import get_command

from commands.app import COMMANDS, app, main
from commands.demo import demo
from commands.doctor import doctor
from commands.options import configuration_names, run_names
from model.errors import NotReady
from scenarios.library_files import LIBRARY
from testbed.host import preflight
from testbed.host.preflight import Check
from tests.unit.machines import TWO_CORES
from tests.unit.programs import executed

ROOT = Path(__file__).parents[2]
OWN_RATES = """\
fabric: {domains: 2, domain_size: 2, hb_rate: 1 Tbit/s, nic_rate: 100 Gbit/s}
workloads:
  - {collective: all-gather, algorithm: ring, size: 12 MB}
"""


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep pytest's signal handlers, in an empty working directory."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr("sys.argv", ["__main__.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.usefixtures("quiet")
def test_help_has_the_programs_name_and_all_commands(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, option) == 0
    said = capsys.readouterr().out
    assert "Usage: railbed [OPTIONS] COMMAND" in said
    assert "test" in {line.split()[1] for line in said.splitlines() if len(line.split()) > 1}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_defaults_and_repeatable_options_in_one_form(name: str) -> None:
    listed = cast(TyperGroup, get_command(app)).commands[name]
    called = listed.make_context(name, [], resilient_parsing=True).command
    for option in (one for one in called.params if isinstance(one, TyperOption)):
        said = option.help or ""
        assert "by default" not in said, option.opts
        assert said.endswith("; repeatable") == option.multiple, option.opts


@pytest.mark.usefixtures("quiet")
def test_without_a_command_the_help_is_printed_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch) == 0
    said = capsys.readouterr()
    assert "Usage: railbed [OPTIONS] COMMAND" in said.out
    assert said.err == ""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The `railbed` script, with a Python that prints its arguments and its `PYTHONHOME`."""
    says = 'echo "$@${PYTHONHOME-}"\n'
    for name, text in ("testbed/provision.sh", ""), (".venv/bin/python", says):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    return Path(shutil.copy(ROOT / "railbed", tmp_path))


def test_the_script_starts_its_own_python_where_another_has_a_home(script: Path) -> None:
    environment = {**os.environ, "PYTHONHOME": "/opt/python2"}
    said = subprocess.check_output([script, "list"], text=True, env=environment)
    assert said == "-P -m commands list\n"


def test_the_script_needs_no_path_but_one_with_programs(script: Path) -> None:
    assert subprocess.check_output([script, "list"], env={"PATH": ""}, text=True)
    ended = subprocess.run([script], env={"PATH": "/nowhere"}, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.startswith("railbed: no folder of the PATH has Debian's coreutils")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_script_leaves_the_help_of_the_tests_to_the_program(script: Path, option: str) -> None:
    assert (
        subprocess.check_output([script, "test", option], text=True)
        == f"-P -m commands test {option}\n"
    )


@pytest.mark.parametrize("arguments", ["list", "check quickstart", "--help", "--version"])
def test_without_a_reader_it_dies_of_sigpipe(arguments: str) -> None:
    """Not with 1, which says that an expectation failed."""
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-P", "-m", "commands", *arguments.split()]
    done = subprocess.run(
        program,
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_error_that_nobody_reads_keeps_its_exit_code(unbuffered: str) -> None:
    """Rich ends with 1 then, and Python with 120, as it writes what is left in a buffer."""
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-P", "-m", "commands", "check", "not-there"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(program, stderr=writer, cwd=ROOT, env=environment)
    os.close(writer)
    assert done.returncode == 2


def test_output_that_fills_a_device_keeps_the_exit_code_of_its_error() -> None:
    """Python ends with 120, as it writes what is left in a buffer."""
    end = "import sys; sys.stdout.write('left'); from commands.app import _end; _end('full', 4)"
    with Path("/dev/full").open("w") as full:
        program = [sys.executable, "-P", "-c", end]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
        assert subprocess.run(program, stdout=full, cwd=ROOT, env=environment).returncode == 4


@pytest.mark.parametrize("words", [["list"], ["--help"]])
def test_an_output_that_is_full_is_named(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        program = [sys.executable, "-P", "-m", "commands", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, env=environment)
    said = b"railbed: standard output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (4, said)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_no_file_gets_the_number_of_a_closed_standard_stream(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    """A child would have it as its own input or output."""
    plugin = tmp_path / "plugin.py"
    plugin.write_text(f"""
import os, sys
assert sys.stdin.fileno() == 0  # `up` reads its commands there
found = [os.readlink(f"/proc/self/fd/{{one}}") for one in {closed} if os.get_inheritable(one)]
open("found", "w").write(" ".join(found))
ALGORITHMS = {{}}
""")
    redirected = " ".join(f"{number}>&-" for number in closed)
    program = [sys.executable, "-P", "-m", "commands", "--plugin", str(plugin), "list"]
    subprocess.run(
        ["sh", "-c", f"exec {shlex.join(program)} {redirected}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert (tmp_path / "found").read_text().split() == ["/dev/null"] * len(closed)


def test_help_imports_no_command() -> None:
    modules = [f"commands.{name}" for name in COMMANDS]
    ask = f"""
import sys
from commands.app import app
app(["--help"], standalone_mode=False)
print([name for name in {modules} if name in sys.modules])
"""
    assert executed(ask).stdout.endswith("\n[]\n")


def test_garbage_is_searched_for_everywhere_in_processes_of_others() -> None:
    before = gc.get_freeze_count()
    app(["list", "--help"], standalone_mode=False)
    assert gc.get_freeze_count() == before


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert [name for name in COMMANDS if f"`{name}" not in text] == []


@pytest.mark.usefixtures("quiet")
def test_the_program_leaves_the_tests_to_its_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, "test", "-x") == 2
    assert "sudo ./railbed test" in capsys.readouterr().err


def test_the_demo_stores_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Path]()
    monkeypatch.setattr("commands.demo.run", lambda *words, **_: asked.append(words[4]))
    demo(store=tmp_path)
    assert asked == [tmp_path]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("scenario", "changes", "said"),
    [
        ("domain-lost", [], "rail-only: 5 domains x 4 GPUs, 1 spare domain, dgx-h100"),
        ("gpu-lost-spare", [], "rail-only: 4 domains x 5 GPUs, 1 spare GPU in each, dgx-h100"),
        ("spare-rail-switch", [], "rail-only: 4 domains x 4 GPUs, 1 spare rail switch, dgx-h100"),
        ("shared-nics", [], "rail-only: 2 domains x 8 GPUs, 4 NICs a domain, dgx-h100"),
        ("nic-link-degraded", [], "rail-only: nic-link d0g0--rail0: degrade to 2.5 Mbit/s, at "),
        ("nic-link-flaps", [], "rail-only: nic-link d0g0--rail0: flap, at 0.3 s, for 1.6 s"),
        (
            "quickstart",
            ["fabric.nic_ports=2", "fabric.planes=separate", "fabric.transport=roce"],
            "rail-optimized: 4 domains x 4 GPUs, 2 ports a NIC, separate planes, RoCE, dgx-h100",
        ),
    ],
)
def test_check_says_what_a_fabric_has_besides_a_usual_one(
    scenario: str, changes: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for change in changes for word in ("--set", change)]
    app(["check", scenario, *options], standalone_mode=False)
    assert said in capsys.readouterr().out


@pytest.mark.usefixtures("quiet")
def test_check_says_whose_rates_a_fabric_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.yaml").write_text(OWN_RATES)
    assert exit_code(monkeypatch, "check", "own.yaml") == 0
    assert "rail-only: 2 domains x 2 GPUs, own rates, HB" in capsys.readouterr().out
    assert exit_code(monkeypatch, "check", str(LIBRARY / "quickstart.yaml")) == 0
    assert "4 domains x 4 GPUs, dgx-h100, HB" in capsys.readouterr().out


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("needed", "sign", "code"), [(True, "missing", 3), (False, "note", 0)])
def test_doctor_fails_for_what_a_run_needs_and_shows_the_rest(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    needed: bool,
    sign: str,
    code: int,
) -> None:
    tun = Check("tun", False, "not there", "load it")
    monkeypatch.setattr(preflight, "checks", lambda _: [tun] if needed else [])
    monkeypatch.setattr(preflight, "unneeded_checks", lambda: [] if needed else [tun])
    monkeypatch.setattr("commands.doctor._measured", lambda *, again: TWO_CORES)
    assert exit_code(monkeypatch, "doctor") == code
    assert f"{sign:7} tun: not there; load it" in capsys.readouterr().out


@pytest.mark.parametrize("is_ready", [True, False])
def test_doctor_prints_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_ready: bool
) -> None:
    """Without root too, as a failed check is one of its values; the exit code tells it apart."""
    monkeypatch.setattr(preflight, "checks", lambda _: [Check("tun", is_ready, "there", "load it")])
    monkeypatch.setattr(preflight, "unneeded_checks", lambda: [Check("host", True, "Debian")])
    monkeypatch.setattr("commands.doctor._measured", lambda *, again: TWO_CORES)
    with nullcontext() if is_ready else pytest.raises(NotReady):
        doctor(as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "railbed.doctor/1"
    assert [(one["name"], one["ready"], one["needed"]) for one in said["checks"]] == [
        ("host", True, False),
        ("tun", is_ready, True),
    ]
    assert (said["machine"] is not None) == is_ready
    assert not is_ready or said["machine"]["transfer_s"] == TWO_CORES.transfer_s


@pytest.mark.usefixtures("quiet")
def test_objects_have_the_lines_that_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of `check`, and of `list` in an empty folder."""
    for command in ("check quickstart", "list"):
        app(command.split(), standalone_mode=False)
        text = capsys.readouterr().out
        app([*command.split(), "--json"], standalone_mode=False)
        said = json.loads(capsys.readouterr().out)
        assert said["schema"] == f"railbed.{command.split()[0]}/1"
        lines = said.get("lines") or [*said["scenarios"].values(), *said["runs"], said["store"]]
        assert len(lines) > 5
        assert all(line in text for line in lines)


@pytest.mark.usefixtures("quiet")
def test_plan_says_once_that_the_machine_was_not_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("commands.plan.machine_profile.known_machine", lambda: None)
    monkeypatch.setattr("scenarios.planning.machine_profile.machine_by", lambda _: None)
    app(["plan", "quickstart"], standalone_mode=False)
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("this machine was not measured") == 1
    assert "bucket_depth: auto is 0.01: the default rail-only" in said


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_mistake_is_said_with_its_line_and_is_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    Path("own.yaml").write_text(OWN_RATES.replace("ring", "rign"))
    assert exit_code(monkeypatch, command, "own.yaml") == 2
    said = capsys.readouterr().err
    assert "own.yaml:3 workloads.0.algorithm: unknown algorithm" in said
    assert "a bug in Railbed" not in said


OFFER = "`--clock virtual` needs no root"
SWEEP = ("sweep", "quickstart", "--over", "seed=1,2")
SMALL = ("own.yaml", "--proxies", "process")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("command", "offered"),
    [
        (("demo", "--proxies", "process"), True),
        (("run", *SMALL), True),
        (("verify", *SMALL), True),
        (("sweep", *SMALL, "--over", "seed=1,2"), True),
        (("failures", "--proxies", "process"), True),
        (("bench", "agents"), True),
        (("bench", "noise"), False),
        (("bench", "live"), False),
        (("paper", "--measure", "--proxies", "process"), False),
        (("up", *SMALL), False),
        (("doctor", "--proxies", "process"), False),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else str(value),
)
def test_without_root_the_virtual_clock_is_offered_where_it_is_an_option(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    offered: bool,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    Path("own.yaml").write_text(OWN_RATES)
    assert exit_code(monkeypatch, *command) == 3
    said = capsys.readouterr()
    assert "sudo" in said.out + said.err
    assert (OFFER in said.err) == offered


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("bench", "noise", "--clock", "virtual"), "--clock: must be real for bench noise"),
        (("bench", "agents", "--clock", "x"), "'--clock': 'x' is not one of 'real', 'virtual'."),
        (("run", "quickstart", "--datapath", "x"), "'x' is not one of 'kernel', 'user-space'."),
        (("doctor", "--proxies", "x"), "'x' is not one of 'container', 'process'."),
        (
            (*SWEEP, "--clock", "virtual", "--proxies", "container"),
            "--proxies: must be process with the virtual clock",
        ),
        (
            (*SWEEP, "--at-once", "2"),
            "--at-once: must be 1 with the real clock, got 2",
        ),
        (
            (*SWEEP, "--executor", "slurm"),
            "'--executor': 'slurm' is not one of 'local', 'ray'.",
        ),
        (
            ("sweep", "--resume", "latest", "--clock", "real"),
            "--resume: cannot be combined with --clock",
        ),
        (("bench", "soak", "--minutes", "nan"), "'--minutes': Input should be"),
        (
            ("bench", "soak", "--minutes", "1e400"),
            "'--minutes': Input should be less than or equal",
        ),
        (("paper", "fig6"), "'fig6' is not one of 'fig2a', 'fig2b', 'fig3',"),
        (("export", "latest", "--format", "x"), "'x' is not one of 'csv', 'parquet', 'json',"),
        (("vm", "--memory", "-1", "--", "true"), "--memory: must be 2048 to "),
        (("exec", "quickstart", "--jsno", "--", "true"), "--jsno: is an unknown option"),
        (("vm", "--memory", "99999999999", "--", "true"), "--memory: must be 2048 to "),
        (("run", *SMALL, "--live-at", "0.0.0.0"), "--live-at: needs --live"),
        (
            ("run", *SMALL, "--live-at", "0.0.0.0", "--clock", "virtual"),
            "--live-at: cannot be combined with --clock virtual",
        ),
        (("run", *SMALL, "--live-at", "127.0.0.1"), "--live-at: needs --live"),
        (("traffic", "moe-1.3b", "--case", "x"), "--case: needs --run"),
        (("traffic", "moe-1.3b", "--store", "runs"), "--store: needs --run"),
        (("query", "--store", "runs"), "--store: needs a statement in SQL"),
        (("paper", "--store", "runs"), "--store: needs --measure"),
        (("paper", "fig2b", "--proxies", "process"), "--proxies: needs --measure"),
        (("paper", "table2", "--to", "figures"), "--to: needs a figure, or --measure"),
        (("bench", "routing", "--seed", "0"), "--seed: has no effect on bench routing"),
        (("bench", "startup", "--minutes", "3"), "--minutes: has no effect on bench startup"),
        (("bench", "soak", "--store", "runs"), "--store: has no effect on bench soak"),
        (("predict", "quickstart", "--begin="), "--begin: needs --like nccl-tests"),
        (("predict", "quickstart", "--gpus", "8"), "--gpus: needs a trace"),
        (
            ("predict", "quickstart", "--framing", "none", "--mtu", "256"),
            "--mtu: has no effect with --framing none",
        ),
        (
            ("predict", "x.goal", "--fabric", "custom"),
            "'custom' is not one of 'rail-only', 'rail-optimized'.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    message: str,
) -> None:
    assert exit_code(monkeypatch, *command) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("run", "--set"), "`./railbed run --help` lists its options"),
        (("run", "--json=1"), "`./railbed run --help` lists its options"),
        (("run", "x", "--unknown"), "`./railbed run --help` lists its options"),
        (("--unknown",), "`./railbed --help` lists the commands"),
    ],
)
def test_wrong_usage_names_the_help_of_its_command(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    hint: str,
) -> None:
    assert exit_code(monkeypatch, *words) == 2
    assert capsys.readouterr().err.endswith(f"({hint})\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_it_accepts(name: str) -> None:
    *_, words = COMMANDS[name]["example"].partition("./railbed ")
    called, *arguments = shlex.split(words)
    program = get_command(app)
    assert called == name
    assert isinstance(program, TyperGroup)
    program.commands[name].make_context(name, arguments)


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.usefixtures("quiet")
def test_help_ends_with_the_example(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, "cost", option) == 0
    assert f"Example: {COMMANDS['cost']['example']}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", [[], ["run", "-h"]])
def test_help_on_a_narrow_terminal_has_whole_names(words: list[str]) -> None:
    """As wide as tables."""
    program = [sys.executable, "-P", "-m", "commands", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "40"}
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert "…" not in done.stdout
    assert {len(line) for line in done.stdout.splitlines() if line.startswith("╭")} == {80}


@pytest.mark.usefixtures("quiet")
def test_the_version_is_the_projects(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, "--version") == 0
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert capsys.readouterr().out.startswith(f"railbed {version}, modules ")
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--version", "--version: takes no further arguments"),
        ("--show-completion", "bash, zsh, fish, powershell or pwsh"),
        ("--install-completion", "bash, zsh, fish, powershell or pwsh"),
    ],
)
def test_a_word_behind_an_option_that_takes_none_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    said: str,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert exit_code(monkeypatch, option, "tcsh") == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("railbed ve", {"verify"}),
        ("railbed run nic-link-f", {"nic-link-flaps"}),
        ("railbed report la", {"latest"}),
        ("railbed traffic --run la", {"latest"}),
        ("railbed bench thr", {"throughput"}),
    ],
)
def test_a_shell_completes_commands_and_names(words: str, expected: set[str]) -> None:
    typed = words.split()
    environment = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(typed) - 1),
        "_RAILBED_COMPLETE": "complete_bash",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-P", "-m", "commands"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert set(done.stdout.split()) == expected


def test_in_a_deleted_folder_nothing_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$0" -P -m commands list', sys.executable],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = "railbed: the current folder: was deleted (change to another)\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_a_narrow_terminal_loses_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    ask = "from commands.cost import cost; cost(1024, 64, 8)"
    lines = executed(ask).stdout.splitlines()
    columns = "network switches transceivers million USD MW GPUs cut off GPUs slowed"
    assert lines[0].split() == columns.split()
    assert lines[1].split() == ["rail-optimized", "48", "4096", "2.95", "0.0913", "32", "0"]


def test_an_unknown_number_of_columns_hides_no_message() -> None:
    """Rich takes 0 columns at its word."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "0"}
    for arguments, said in (["check", "not-there"], "not-there: not found"), (["-h"], "Usage:"):
        program = [sys.executable, "-P", "-m", "commands", *arguments]
        done = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=60)
        assert said in done.stdout + done.stderr


def test_figures_need_no_backend_of_a_notebook(tmp_path: Path) -> None:
    backend = "module://matplotlib_inline.backend_inline"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": backend}
    program = [sys.executable, "-P", "-m", "commands", "paper", "fig8", "--to", str(tmp_path)]
    subprocess.run(program, check=True, capture_output=True, env=environment, timeout=60)
    assert sorted(place.name for place in tmp_path.iterdir()) == ["fig8.png", "fig8.svg"]


@pytest.mark.parametrize("module", ["figures.kit", "report.charts"])
def test_figures_say_nothing_of_a_home_that_cannot_be_written(module: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": "/proc/none"}
    environment = {key: environment[key] for key in environment if "CONFIG" not in key}
    program = [sys.executable, "-P", "-c", f"import results.{module}"]
    done = subprocess.run(program, check=True, capture_output=True, env=environment, timeout=60)
    assert done.stderr == b""


@pytest.mark.usefixtures("quiet")
def test_a_file_of_the_shell_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".bashrc").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    assert exit_code(monkeypatch, "--install-completion") == 2
    assert capsys.readouterr().err == (
        f"railbed: --install-completion: {tmp_path}/.bashrc cannot be written: Is a directory "
        "(add what --show-completion prints to a file that your shell reads)\n"
    )


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
@pytest.mark.usefixtures("quiet")
def test_a_shell_without_completion_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("dash", "/bin/dash"))
    assert exit_code(monkeypatch, option) == 2
    assert capsys.readouterr().err.endswith(
        f"railbed: {option}: does not know this shell (it is for the shell that calls it: bash, "
        "zsh, fish, powershell or pwsh)\n"
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("Unable to allocate 8 MiB"), "out of memory: Unable to allocate 8 MiB"),
        (MemoryError(), "out of memory"),
        (
            ImportError("a.so: failed to map segment from shared object"),
            "out of memory: a.so: failed to map segment from shared object",
        ),
        (OSError(errno.EFBIG, "File too large", "runs/a"), "runs/a: File too large"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Cannot allocate memory"),
    ],
)
@pytest.mark.usefixtures("quiet")
def test_what_the_machine_lacks_is_no_bug(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    said: str,
) -> None:
    def lacking(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("commands.app.app", lacking)
    assert (exit_code(monkeypatch, "list"), capsys.readouterr().err) == (4, f"railbed: {said}\n")


def test_names_of_configurations_and_runs_are_completed() -> None:
    assert "gpt-1t" in configuration_names()
    assert "latest" in run_names()


def test_commands_check_their_input_before_they_import_what_a_fabric_needs() -> None:
    modules = ", ".join(f"commands.{name}" for name in COMMANDS)
    heavy = ["mininet", "scapy", "ray", "testbed.testbed"]
    ask = f"import {modules}, sys; print([m for m in {heavy} if m in sys.modules])"
    assert executed(ask).stdout == "[]\n"


def test_commands_about_stored_runs_do_not_import_what_runs_need() -> None:
    heavy = ["numpy", "pydantic", "duckdb", "matplotlib", "model.prediction", "testbed"]
    light = "commands.app, commands.list, commands.show, commands.query, commands.export"
    ask = f"import {light}, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", ask],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
