"""What the provisioning script does to a machine with systemd, and what it trusts."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.unit.programs import AS_USER

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "testbed" / "provision.sh"
# Every command but these says its words and does nothing.
SOURCE = f"""
. {SCRIPT}
log=/dev/null
say() {{ :; }}
has_systemd() {{ true; }}
apt-get() {{ echo "apt-get $*"; }}
apt-cache() {{ false; }}
systemctl() {{ echo "systemctl $*"; }}
systemd-run() {{ echo "systemd-run $*"; }}
pidof() {{ false; }}
logged() {{ "$@"; }}
"""
# The last words are said, too.
DIES = 'die() { echo "$*"; exit 3; }\n'


def said_by(words: str, *user: str, **environment: str) -> list[str]:
    """The commands that the script executes on a machine with systemd."""
    done = subprocess.run(
        [*user, "bash", "-c", f"{SOURCE}{words}"],
        capture_output=True,
        text=True,
        env={**os.environ, "DOCKER_HOST": "", **environment},
        timeout=60,
    )
    return done.stdout.splitlines()


@pytest.fixture
def clone() -> Iterator[Path]:
    """A folder that every user may read, as pytest's own are not; with an environment in it."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
        python = Path("/usr/bin/python3").resolve().name
        (folder / ".venv" / "lib" / python).mkdir(parents=True)
        yield folder


def in_clone(clone: Path) -> str:
    """Words that let the script work in a clone, with a uv that does nothing."""
    return f"""
root={clone}; stamp={clone}/.venv/railbed-lock
uv() {{ echo "uv $1 $2"; }}
install_uv() {{ :; }}
use_index_of_pip() {{ :; }}
require_python() {{ :; }}
environment_hash() {{ echo hash; }}
{DIES}"""


def test_with_systemd_the_engine_gets_no_bridge_and_no_firewall_rules() -> None:
    *_, started = said_by("start_engine || true")
    assert started.startswith("systemd-run --unit=railbed-docker")
    assert started.endswith("dockerd --bridge=none --iptables=false --ip-forward=false")


def test_a_socket_of_systemd_is_not_asked_for_an_engine() -> None:
    """An answer would start docker.service."""
    assert said_by('docker() { echo asked; }; engine_answers || echo "no engine"') == ["no engine"]


def test_a_stopped_engine_is_neither_asked_nor_started() -> None:
    """The program names it if it needs one; the answer would be awaited for a minute."""
    asleep = "sleep 60 & pidof() { echo $!; }; docker() { echo asked; }"
    ready = "docker_ready && echo ready; kill -CONT $!"
    stopped = "until grep -q '^State:.T' /proc/$!/status; do :; done"
    ends = "kill $!; wait"
    assert said_by(f"{asleep}; kill -STOP $!; {stopped}; {ready}; {ends}") == ["ready"]


def test_commands_ask_no_socket_of_systemd() -> None:
    """Root's commands look whether all is ready, each time."""
    ready = "image_exists() { echo asked; }; docker_ready"
    assert said_by(ready) == []
    assert said_by(f"dockerd_process() {{ true; }}; {ready}") == ["asked"]


def test_a_dockerd_inside_of_a_container_is_not_the_machines() -> None:
    seen = "pidof() { echo 2 3; }"
    namespaces = 'readlink() { [[ $1 == /proc/2/* ]] && echo "pid:[2]" || echo "pid:[1]"; }'
    assert said_by(f"{seen}; {namespaces}; dockerd_process") == ["3"]
    assert said_by(f"pidof() {{ echo 2; }}; {namespaces}; dockerd_process || echo none") == ["none"]


def test_an_engine_that_has_not_answered_for_long_is_not_waited_for() -> None:
    silent = "engine_answers() { false; }; sleep() { echo waits; }; wait_for_engine || echo gave up"
    assert said_by(f"engine_timeout_s=0; engine_pid=$$; {silent}") == ["waits", "gave up"]
    young = "sleep 0.1; engine_pid=$$; engine_is_young && echo young"
    assert said_by(f"{young}; engine_pid=0; engine_is_young || echo dead") == ["young", "dead"]


def test_an_interrupted_build_leaves_nothing_in_the_temporary_folder(tmp_path: Path) -> None:
    """Until then, only its user may read apt's settings, which may hold a proxy's password."""
    tools = """
apt-config() { :; }
docker() { :; }
unshare() { mmdebstrap; }
mmdebstrap() { stat -c %a "$settings"; sh -c 'kill -TERM $PPID; sleep 0.1'; }
"""
    said = said_by(f"{tools} build_image", TMPDIR=str(tmp_path))
    assert said == ["600" if os.geteuid() == 0 else "644"]
    assert list(tmp_path.iterdir()) == []


def test_a_build_without_a_temporary_folder_writes_nowhere(tmp_path: Path) -> None:
    """`set -e` does not hold where a failure is asked for, and the folder's name would be empty."""
    missing = str(tmp_path / "missing")
    tools = 'mmdebstrap() { echo "$*"; }; import_image() { :; }; unshare() { mmdebstrap; }\n'
    assert said_by(f"{tools} build_image || echo failed", TMPDIR=missing) == ["failed"]
    assert said_by(f"{tools} debian_root root || echo failed", TMPDIR=missing) == ["failed"]


def test_a_moved_clone_keeps_the_index_of_pip(tmp_path: Path) -> None:
    """A script of the environment names the folder that it was installed in."""
    python = tmp_path / ".tools" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        '#!/bin/sh\n[ "$*" != "-I -m pip --disable-pip-version-check config get '
        'global.index-url" ] || echo https://index\n'
    )
    python.chmod(0o755)
    words = f"root={tmp_path}; unset UV_DEFAULT_INDEX PIP_INDEX_URL; use_index_of_pip"
    assert said_by(f"{words}; echo $UV_DEFAULT_INDEX") == ["https://index"]


def test_uv_is_installed_again_where_pip_has_lost_its_python(tmp_path: Path) -> None:
    uv = tmp_path / ".tools" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text('#!/bin/sh\necho "uv $version"\n')
    uv.chmod(0o755)
    words = f"root={tmp_path}; python=echo; export version=$uv_version; install_uv"
    assert said_by(f"pip() {{ true; }}; {words}") == []
    made, *_ = said_by(f"pip() {{ [[ $1 != --version ]]; }}; {words}")
    assert made == f"-I -m venv --clear {tmp_path}/.tools"


def test_an_unfit_python_is_refused_before_packages_are_installed() -> None:
    refused = (
        f"{DIES} require_python() {{ die unfit; }}; provision_packages() {{ echo installed; }}"
    )
    assert said_by(f"{refused}; warn_of_unproved_host() {{ :; }}; provision") == ["unfit"]


@pytest.mark.parametrize("cache", ["/proc/none", "relative", ""])
def test_a_log_that_cannot_be_written_is_named(cache: str) -> None:
    """A relative folder is ignored (XDG Base Directory Specification)."""
    log = f"{cache if cache.startswith('/') else '/proc/.cache'}/railbed/provision.log"
    done = subprocess.run(
        [*AS_USER, "bash", "-c", f". {SCRIPT}; logged true || die 'the network is wrong'"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": "/proc", "XDG_CACHE_HOME": cache},
    )
    assert (done.returncode, done.stderr) == (
        3,
        f"railbed: log: {log} cannot be written. Name another folder: "
        "'export XDG_CACHE_HOME=FOLDER'.\n",
    )


def test_a_clone_whose_path_has_a_colon_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    railbed = shutil.copy(ROOT / "railbed", tmp_path / "a:b")
    done = subprocess.run([railbed, "list"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        3,
        f"railbed: the clone's path {tmp_path}/a:b has a colon, which separates Python's paths; "
        "move the clone.\n",
    )


def test_installed_docker_does_not_start_by_itself() -> None:
    said = said_by("install_packages docker.io ethtool")
    units = "docker.service docker.socket"
    assert said[0] == f"systemctl mask --runtime {units}"
    assert said[2].endswith("install docker.io ethtool")
    assert said[3:] == [f"systemctl unmask --runtime {units}", f"systemctl disable {units}"]


def test_docker_that_could_not_be_installed_is_not_left_masked() -> None:
    fails = f"{DIES} update_lists() {{ false; }}"
    said = said_by(f"{fails}; install_packages docker.io; echo goes on")
    units = "docker.service docker.socket"
    assert said == [
        f"systemctl mask --runtime {units}",
        "Debian packages: 'apt-get update' failed, see /dev/null. "
        "Fix the network or /etc/apt, then run this again.",
        f"systemctl unmask --runtime {units}",
        f"systemctl disable {units}",
    ]


def test_apt_removes_no_package() -> None:
    """Debian's docker.io would take the place of podman-docker."""
    assert " --no-remove " in said_by("install_packages ethtool")[-1]


LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"


@pytest.mark.parametrize(
    ("timeout_s", "words", "said"),
    [
        (600, LOCKED, ["updated after 2 failures"]),
        (0, LOCKED, ["failed after 1 failures"]),
        (600, "E: Failed to fetch", ["failed after 1 failures"]),
    ],
)
def test_the_lock_of_apts_lists_is_waited_for(
    tmp_path: Path, timeout_s: int, words: str, said: list[str]
) -> None:
    stubs = f"""
log={tmp_path}/log; apt_timeout_s={timeout_s}; failures=0
apt-get() {{ ((failures == 2)) || {{ ((++failures)); echo '{words}' >>$log; false; }}; }}
sleep() {{ :; }}
"""
    called = "update_lists 2>/dev/null && echo -n updated || echo -n failed"
    assert said_by(f'{stubs}{called}; echo " after $failures failures"') == said


def test_the_engines_client_is_installed_where_it_is_a_package_of_its_own() -> None:
    known = "apt-cache() { true; }"
    assert said_by(f"{known}; install_packages docker.io")[2].endswith("docker.io docker-cli")
    assert said_by(f"{known}; install_packages ethtool")[-1].endswith("install ethtool")


def test_an_image_is_rebuilt_on_request() -> None:
    ready = "image_exists() { true; }; image_ready && echo ready"
    assert said_by(ready) == ["ready"]
    assert said_by(f"RAILBED_REBUILD_IMAGE=1; {ready}") == []


def test_everything_that_builds_source_packages_has_a_hash() -> None:
    text = (ROOT / "build-constraints.txt").read_text()
    pinned = re.findall(r"^([a-z]+)==[\w.]+ \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert pinned == ["packaging", "pbr", "setuptools", "wheel"]
    assert len(re.findall(r"^[a-z]", text, re.MULTILINE)) == len(pinned)


def test_no_python_imports_from_the_current_folder() -> None:
    """Root would execute what anybody has left there."""
    for script in sorted((ROOT / "testbed").rglob("*.sh")):
        assert re.findall(r"""python3?["']? -[mc] .*""", script.read_text()) == [], script


@pytest.mark.parametrize("way", ["provision_environment", "provision_environment_alone"])
def test_a_lock_that_another_holds_is_not_waited_for_without_end(clone: Path, way: str) -> None:
    """Root and users have one lock in a clone."""
    said = said_by(f"{in_clone(clone)} lock_timeout_s=0; exec 8<{clone}; flock 8; {way}")
    assert said == [
        f"another provisioning has held the lock of {clone} for 0 s. End it, then run this again."
    ]


def test_who_has_waited_for_another_provisioning_does_not_repeat_it(clone: Path) -> None:
    other = f"flock() {{ echo hash >{clone}/.venv/railbed-lock; }}"
    assert said_by(f"{in_clone(clone)} {other}; provision_environment") == []


def test_an_environment_whose_sync_has_ended_is_brought_in_line(clone: Path) -> None:
    (clone / ".venv" / "railbed-lock").write_text("of another lock file\n")
    assert said_by(f"{in_clone(clone)} provision_environment; cat $stamp") == [
        "uv pip sync",
        "hash",
    ]


def test_an_environment_whose_sync_has_not_ended_is_made_anew(clone: Path) -> None:
    """Its packages may lack files, and uv takes them for installed."""
    (clone / ".venv" / "railbed-lock").write_text("of another lock file\n")
    killed = 'uv() { kill -KILL "$BASHPID"; }'
    assert said_by(f"{in_clone(clone)} {killed}; provision_environment") == []
    assert not (clone / ".venv" / "railbed-lock").exists()
    again = said_by(f"{in_clone(clone)} provision_environment")
    assert again == ["uv venv --clear", "uv pip sync"]


def test_a_proposed_command_quotes_a_path_with_a_space() -> None:
    words = (
        f"{DIES} root='/my clone'; environment_is_own() {{ false; }}; provision_environment_alone"
    )
    assert r"'sudo /my\ clone/railbed doctor'" in said_by(words)[0]


def test_the_tests_are_proposed_with_a_quoted_path(clone: Path) -> None:
    (clone / "my clone" / "testbed").mkdir(parents=True)
    (clone / "my clone" / "testbed" / "provision.sh").symlink_to("/bin/true")
    railbed = shutil.copy(ROOT / "railbed", clone / "my clone")
    done = subprocess.run([*AS_USER, railbed, "test"], capture_output=True, text=True)
    told = rf"railbed: the tests need root: run 'sudo {clone}/my\ clone/railbed test'."
    assert (done.returncode, done.stderr) == (3, f"{told}\n")


def test_ctrl_c_ends_it_also_if_a_command_does_not_die_of_that() -> None:
    """`timeout` and its command are in a process group of their own; so with scripts beside it."""
    words = "sh -c 'trap : INT; kill -INT $1' sh $$; echo goes on"
    assert said_by(words) == []


@pytest.mark.parametrize("name", [".venv", ".venv/railbed-lock", ".tools"])
def test_what_root_has_installed_is_not_renewed_by_a_user(clone: Path, name: str) -> None:
    for folder in (clone, clone / ".venv"):
        folder.chmod(0o777)
    (clone / name).mkdir(exist_ok=True)
    (clone / name).chmod(0o555)
    said = said_by(f"{in_clone(clone)} provision_environment_alone", *AS_USER)
    assert said == [
        f"the Python environment {clone}/.venv is missing or out of date; who may write there "
        f"installs it: 'sudo {clone}/railbed doctor'."
    ]


def failing(tmp_path: Path, words: str) -> str:
    """A command `fails` that ends with these words, in a log that has had others before."""
    (tmp_path / "log").write_text("No space left on device\n")
    return (
        f"unset -f logged; . {SCRIPT}; log={tmp_path}/log; fails() {{ echo '{words}'; false; }}\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("failed to copy file: No space left on device (os error 28)", "Free disk space"),
        ("E: You do not have enough free space in /var/cache/apt/archives/.", "Free disk space"),
        ("E: Could not get lock /var/lib/apt/lists/lock.", "End the process that holds apt's lock"),
        ("E: Packages need to be removed but remove is disabled.", "It would remove"),
        ("error: Failed to fetch", "Fix the network"),
    ],
)
def test_the_remedy_is_that_of_the_cause(tmp_path: Path, words: str, said: str) -> None:
    (remedy,) = said_by(
        f"{failing(tmp_path, words)} logged fails 2>{os.devnull} || remedy 'Fix the network'"
    )
    assert remedy.startswith(said)


def test_what_root_installs_is_readable_by_all() -> None:
    """Ray's environment, which has a script of its own, too."""
    words = f"umask 077; . {SCRIPT}; umask"
    assert subprocess.check_output(["bash", "-c", words], text=True) == "0022\n"


def test_every_command_has_the_same_locale_on_every_machine() -> None:
    """Causes are in English, names are sorted by bytes, and the upper case of i is I in Turkish."""
    said = said_by("env() { echo $LC_ALL; }; env; apt-get() { env; }; apt update", LC_ALL="tr_TR")
    assert said == ["C.UTF-8", "C.UTF-8"]


def test_without_home_the_log_is_in_that_of_the_account() -> None:
    done = subprocess.run(
        [*AS_USER, "bash", "-c", f". {SCRIPT}; echo $log"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("/.cache/railbed/provision.log\n")
