"""Inputs and results of a virtual machine; the machine itself is a system test."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from linux.files import user_files
from linux.files.program_files import ROOT, program_version
from linux.files.user_files import WORK_PREFIX, work_folder
from model.errors import EmulationError, NotReady
from testbed.host import cleanup
from testbed.virtual_machine import cache, guest, image
from testbed.virtual_machine.guest import Ended, Exchange, Guest, command_job, program_job
from testbed.virtual_machine.image import Image, Program, append


def handed_back(exchange: Exchange, exit_code: int, most_bytes: int = 2**20) -> None:
    """Write results as the guest does, whose memory for them ends after `most_bytes`."""
    folder = exchange.folder / "guest"
    (folder / "runs" / "one").mkdir(parents=True)
    (folder / "runs" / "one" / "result.json").write_text("{}")
    (folder / "exit-code").write_text(f"{exit_code}\n")
    words = ["tar", "--create", "--directory", str(folder), "exit-code", "runs", "exit-code"]
    archive = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
    with exchange.results.open("r+b") as results:
        results.write(archive[:most_bytes])
        if most_bytes < len(archive):
            results.truncate()


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    """An exchange whose results disk is as the guest finds it."""
    return Exchange(tmp_path, "true\n", {})


def test_runs_and_exit_code_come_back(exchange: Exchange, tmp_path: Path) -> None:
    back = tmp_path / "back"
    back.mkdir()
    handed_back(exchange, 3)
    assert exchange.take(back) == 3
    assert (back / "runs" / "one" / "result.json").read_text() == "{}"
    assert not (back / "exit-code").exists()


def test_a_machine_that_handed_nothing_back_has_no_exit_code(
    exchange: Exchange, tmp_path: Path
) -> None:
    assert exchange.take(tmp_path) is None


@pytest.mark.parametrize("most_bytes", [2048, 2049, 3072])
def test_runs_that_do_not_fit_are_an_error_in_words(
    exchange: Exchange, tmp_path: Path, most_bytes: int
) -> None:
    """Also those of which the last file is whole."""
    handed_back(exchange, 1, most_bytes)
    with pytest.raises(EmulationError) as caught:
        exchange.take(tmp_path)
    assert str(caught.value) == (
        "virtual machine: its runs are lost: they have more than 1024 MiB;"
        " its job ended with exit code 1"
    )


def test_runs_that_cannot_be_written_are_an_error_in_words(
    exchange: Exchange, tmp_path: Path
) -> None:
    handed_back(exchange, 0)
    (tmp_path / "file").touch()
    with pytest.raises(EmulationError, match=r"its runs are lost: .*file"):
        exchange.take(tmp_path / "file")


def test_a_machine_that_ends_as_a_disk_is_full_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guest, "_qemu", lambda *_: ["true"])
    monkeypatch.setattr(guest, "full", lambda folders: f"no space left in {folders[0]}")
    machine = Guest(Path("kernel"), Path("initrd"), Path("tree"))
    with pytest.raises(EmulationError, match="ended before its job: no space left in /tmp"):
        machine.execute("true", {}, tmp_path)


def executed(script: str, monkeypatch: pytest.MonkeyPatch, back: Path, **options: Any) -> Ended:
    """How a job ends in a machine that is a shell script, whose words are streams and results."""

    def words(_: Guest, exchange: Exchange) -> list[str]:
        handed_back(exchange, 3)
        places = (exchange.stdout, exchange.stderr, exchange.results)
        return ["sh", "-c", script, "machine", *map(str, places)]

    monkeypatch.setattr(Guest, "_qemu", words)
    return Guest(Path("kernel"), Path("initrd"), Path("tree")).execute("true", {}, back, **options)


def test_a_job_has_an_exit_code_an_output_and_a_last_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output may be no text."""
    script = "printf '\\377\\n' >$1; printf 'begins\nrailbed: no switch\n' >$2"
    ended = executed(script, monkeypatch, tmp_path, shows_output=False, silent=(3,))
    assert ended == Ended(3, b"\xff\n", "no switch")


@pytest.mark.parametrize("change", ["truncate --size 0", "truncate --size 2048", "true"])
def test_a_machine_that_a_signal_ends_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Its results may be written in part."""
    with pytest.raises(EmulationError, match=r"machine: was killed by signal 9 \(Killed\)"):
        executed(f"{change} $3; kill -9 $$", monkeypatch, tmp_path)


UNREAD = """
import signal, sys
from pathlib import Path
from testbed.virtual_machine import guest
words = ["sh", "-c", "echo a line >$0; exec sleep 60"]
guest.Guest._qemu = lambda _, exchange: [*words, str(exchange.stdout)]
machine = guest.Guest(Path("kernel"), Path("initrd"), Path("tree"))
try:
    machine.execute("true", {}, Path(sys.argv[1]))
except BrokenPipeError as error:
    sys.exit(str(error))
"""


def test_a_machine_whose_output_nobody_reads_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", UNREAD, str(tmp_path)]
    environment, pipe = {**os.environ, "PYTHONPATH": str(ROOT)}, subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a line\n"
        process.stdout.close()
        assert process.stderr.read() == b"nobody reads the output of the virtual machine\n"
    assert process.returncode == 1


def test_words_of_a_command_stay_words() -> None:
    command = command_job(["printf", "%s;", "a b", "$HOME", "it's"]).splitlines()[-1]
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "a b;$HOME;it's;"


@pytest.mark.parametrize("job", [command_job(["railbed"]), program_job(["run"], seed=0)])
def test_nothing_starts_before_the_machine_is_up_for_ten_seconds(job: str) -> None:
    """Open vSwitch 3.1 would find no processor."""
    waits = job.splitlines().index("sleep 10")
    assert "railbed" not in "".join(job.splitlines()[: waits + 1])


def test_an_image_is_named_by_what_it_is_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "init"
    monkeypatch.setattr(image, "SOURCES", (source,))
    source.write_text("one")
    first = image.digest()
    source.write_text("two")
    assert image.digest() != first
    source.write_text("one")
    assert image.digest() == first


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    """The system of an image that has no packages, and is the only one; nothing is compiled."""
    found = Image(tmp_path / "system-1")
    for part in ("lib", "bin"):
        (found.environment / part).mkdir(parents=True)
    for file in (found.environment / "pyvenv.cfg", found.kernel, found.archive):
        file.touch()
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(image, "image", lambda: found)
    monkeypatch.setattr(Image, "compile", lambda *_: None)
    return found


def test_a_program_is_named_by_what_it_is_made_from(system: Image) -> None:
    made = image.program()
    assert made.folder.name == f"program-{system.folder.name}-{program_version()}"
    assert made.initrd.stat().st_size > 0


@pytest.mark.usefixtures("system")
def test_a_program_that_changes_before_it_is_copied_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Railbed may hold the cache for minutes."""
    versions = iter(["before", "copied"])
    monkeypatch.setattr(image, "program_version", lambda *_: next(versions))
    with pytest.raises(NotReady) as caught:
        image.program()
    assert str(caught.value) == (
        "virtual machine: the program has changed meanwhile; run the command again"
    )
    assert list((tmp_path / "cache").glob("program-*")) == []


def test_a_program_is_compiled_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[dict[str, str]]()
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    monkeypatch.setattr("subprocess.run", lambda *_, env, **__: given.append(env))
    Image(tmp_path).compile(tmp_path)
    assert given == [{"PYTHONHOME": str(tmp_path / "python" / "usr")}]


def test_a_cache_is_the_same_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of an image's build executes in another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cache.VARIABLE, "cache")
    assert cache.cache_folder() == tmp_path / "cache"


def test_an_image_that_cannot_be_built_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(image, "BUILDER", "/bin/false")
    with pytest.raises(NotReady, match="build of its system failed"):
        image.image()
    assert [place.name for place in tmp_path.iterdir()] == ["lock"]
    assert "building the virtual machine's system from Debian packages" in capfd.readouterr().err


def test_without_a_home_the_cache_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    with pytest.raises(NotReady, match=cache.VARIABLE):
        cache.cache_folder()
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    assert cache.cache_folder() == tmp_path


def test_a_relative_folder_of_the_xdg_specification_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1)
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = []
    for folder in ("relative", "", str(tmp_path / "own")):
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        found.append(cache.cache_folder())
    assert found == [tmp_path / place / "railbed" for place in (".cache", ".cache", "own")]


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    with pytest.raises(NotReady, match="file: cannot be written: Not a directory; name another"):
        cache.cached_part("program", "new", lambda folder: None)


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(image, "BUILDER", "/bin/true")
    monkeypatch.setattr(image, "TOOLS", ("qemu-system-nowhere",))
    with pytest.raises(NotReady, match=r"qemu-system-nowhere not found; install"):
        image.image()


def test_instructions_are_the_clock_and_the_host_is_not_seen(tmp_path: Path) -> None:
    exchange = Exchange(tmp_path, "true\n", {"scenario.yaml": "x"})
    words = Guest(tmp_path / "kernel", tmp_path / "initrd", Path("/railbed"))._qemu(exchange)
    assert words[words.index("-icount") + 1].startswith("shift=0,sleep=off,rr=record")
    assert words[words.index("-nic") + 1] == "none"
    assert f"name=opt/railbed/scenario.yaml,file={tmp_path}/handed/scenario.yaml" in words


def test_paths_may_have_commas_and_spaces(tmp_path: Path) -> None:
    """QEMU takes two commas for one; the kernel takes quotes away."""
    folder = tmp_path / "a,b c"
    folder.mkdir()
    exchange = Exchange(folder, "true\n", {"scenario.yaml": "x"})
    words = Guest(tmp_path / "kernel", tmp_path / "initrd", Path("/rail bed"))._qemu(exchange)
    doubled = f"{tmp_path}/a,,b c"
    assert f"name=opt/railbed/job,file={doubled}/handed/job" in words
    assert f"share=on,mem-path={doubled}/results,size=" in words[words.index("-object") + 1]
    assert f"file:{folder}/stdout" in words
    init = 'rdinit="/rail bed/testbed/virtual_machine/init"'
    assert words[words.index("-append") + 1].endswith(f" {init}")


def test_the_guest_hands_its_exit_code_back_before_its_runs_and_afterwards(tmp_path: Path) -> None:
    init = ROOT / "testbed" / "virtual_machine" / "init"
    _, tar, after = init.read_text().partition("tar --create")
    line = tar + after.partition("\nsync")[0]
    for place in ("tree/runs/one", "run"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "run" / "exit-code").write_text("3\n")
    script = line.replace("/dev/pmem0", "archive").replace("/run", f"{tmp_path}/run")
    environment = {**os.environ, "tree": str(tmp_path / "tree")}
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environment, check=True)
    listed = subprocess.run(
        ["tar", "--list", "--file", str(tmp_path / "archive")], capture_output=True, text=True
    )
    assert listed.stdout.split() == ["exit-code", "runs/", "runs/one/", "exit-code"]


def test_arguments_may_name_handed_files() -> None:
    command = program_job(["$RAILBED_HANDED/x.yaml", "a b"], seed=7).splitlines()[-1]
    words = command.replace(".venv/bin/python -P -m commands", "printf '%s;'")
    environment = {"RAILBED_HANDED": "/run/handed", "PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, env=environment)
    assert done.stdout == "/run/handed/x.yaml;a b;"


def test_an_archive_depends_on_the_files_alone(tmp_path: Path) -> None:
    archives = []
    for number, names in enumerate((("a", "b"), ("b", "a"))):
        root = tmp_path / str(number)
        for name in names:
            (root / "tree" / name).mkdir(parents=True)
            (root / "tree" / name / "file").write_text(name)
        for place in sorted(root.rglob("*"), reverse=True):
            os.utime(place, (0, 0))
        with (tmp_path / f"{number}.cpio").open("w+b") as file:
            append(file, root, root / "tree")
            archives.append((tmp_path / f"{number}.cpio").read_bytes())
    assert archives[0] == archives[1] != b""


def test_an_archive_leaves_out_the_runs_of_a_tree_and_no_folder_of_its_program(
    tmp_path: Path,
) -> None:
    tree = tmp_path / "tree"
    for name in ("runs/one", "results/runs/run.py", ".git/config"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text(name)
    with (tmp_path / "archive").open("w+b") as file:
        append(file, tmp_path, tree)
    listed = subprocess.run(
        ["cpio", "--list", "--quiet", "--file", str(tmp_path / "archive")],
        capture_output=True,
        text=True,
        check=True,
    )
    files = [name for name in listed.stdout.split() if (tmp_path / name).is_file()]
    assert files == ["tree/results/runs/run.py"]


def test_files_go_into_an_initrd_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "initrd").write_bytes(b"of the program")
    (tmp_path / "trace").write_text("a trace")
    (tmp_path / "work").mkdir()
    files = {Path(f"/files/{number}/trace"): tmp_path / "trace" for number in range(2)}
    machine = Program(tmp_path)
    assert machine.initrd_with({}, tmp_path / "work") == machine.initrd
    made = machine.initrd_with(files, tmp_path / "work").read_bytes()
    assert made.startswith(b"of the program")
    archive = made.removeprefix(b"of the program")
    command = ["cpio", "--extract", "--make-directories", "--quiet"]
    subprocess.run(command, input=archive, cwd=tmp_path / "work", check=True)
    for inside in files:
        assert (tmp_path / "work" / inside.relative_to("/")).read_text() == "a trace"


def test_work_folders_of_dead_processes_go_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process id says nothing: the kernel gives it to another process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    dead = f"{WORK_PREFIX}{os.getpid()}-x"
    places = [above / dead for above in (tmp_path, tmp_path / "cache/results", tmp_path / "cache")]
    with work_folder() as live:
        for place in places:
            place.mkdir(parents=True)
            (place / "results").touch()
        assert cleanup._remove_work_folders() == 3
        assert not any(place.exists() for place in places)
        places[0].mkdir()
        with work_folder() as other:
            assert not places[0].exists()
            assert live.exists()
    assert not live.exists()
    assert not other.exists()


def test_a_work_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed_once(**options: Any) -> str:
        made: str = tempfile.mkdtemp(**options)
        monkeypatch.setattr(user_files, "mkdtemp", tempfile.mkdtemp)
        assert user_files.remove_unfinished(tmp_path) == 1
        return made

    monkeypatch.setattr(user_files, "mkdtemp", removed_once)
    with work_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
        assert user_files.remove_unfinished(tmp_path) == 0


def versions(folder: Path) -> list[str]:
    return sorted(place.name for place in folder.glob("program-*"))


def make_versions(folder: Path, *names: int) -> None:
    """Make versions of the program that no process uses, the last one used last."""
    for name in names:
        (folder / f"program-{name}").mkdir()
        os.utime(folder / f"program-{name}", (name, name))


def test_the_versions_used_last_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    make_versions(tmp_path, *range(cache.VERSIONS))
    kept = cache.cached_part("program", "0", lambda folder: pytest.fail("it is there"))
    assert kept == tmp_path / "program-0"
    cache.cached_part("program", "new", lambda folder: None)
    assert versions(tmp_path) == ["program-0", "program-2", "program-new"]


HOLDER = """
import sys
from testbed.virtual_machine import cache
print(cache.cached_part("program", "held", lambda folder: None).name, flush=True)
sys.stdin.read()
"""


def test_a_version_stays_while_a_process_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    command, pipe = [sys.executable, "-P", "-c", HOLDER], subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "program-held\n"
        os.utime(tmp_path / "program-held", (0, 0))
        make_versions(tmp_path, *range(1, cache.VERSIONS + 1))
        cache.cached_part("program", "new", lambda folder: None)
        assert cache.clear() == 0
        assert versions(tmp_path) == ["program-held", "program-new"]
        holder.kill()
    make_versions(tmp_path, 1)
    cache.clear()
    assert versions(tmp_path) == ["program-new"]


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two images and a result, of two files each, beside a folder of another kind."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    for name in ("system-1", "program-2", "results/abc", "vagrant-box"):
        (tmp_path / name).mkdir(parents=True)
        for file in ("one", "two"):
            (tmp_path / name / file).write_text("12345")
    return tmp_path


def test_a_cleared_cache_has_no_images_and_no_results(filled: Path) -> None:
    with work_folder(filled / "results") as in_work:
        (in_work / "one").write_text("12345")
        assert cache.clear() == 30
        left = sorted(filled.rglob("one"))
        assert left == [in_work / "one", filled / "vagrant-box/one"]


def test_a_cache_that_does_not_exist_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    assert cache.clear() == 0
    assert not (tmp_path / "cache").exists()


KILLED = """
import os
from testbed.virtual_machine import cache
unlink, removed = os.unlink, []
def killed(*place, **options):
    if len(removed) == int({}):
        os.kill(os.getpid(), 9)
    removed.append(place)
    unlink(*place, **options)
os.unlink = killed
cache.clear()
"""


@pytest.mark.parametrize("files", range(6))
def test_a_cache_whose_clearing_is_killed_has_whole_parts_alone(filled: Path, files: int) -> None:
    command = [sys.executable, "-P", "-c", KILLED.format(files)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL
    named = [*filled.glob("system-1"), *filled.glob("program-2"), *filled.glob("results/abc")]
    assert all({"one", "two"} <= {file.name for file in place.iterdir()} for place in named)


def test_a_part_that_is_taken_while_the_cache_is_cleared_is_made_anew(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes it while sizes are counted waits for the lock."""
    made, taken = list[Path](), list[Thread]()

    def counted(folder: Path) -> int:
        if not taken:
            taken.append(Thread(target=cache.cached_part, args=("program", "2", made.append)))
            taken[0].start()
            taken[0].join(0.5)
        return 1

    monkeypatch.setattr(cache, "size_of", counted)
    assert cache.clear() == 3
    taken[0].join()
    assert len(made) == 1
    assert (filled / "program-2").exists()


def failing(number: int) -> Callable[..., None]:
    """A function that fails with an error of the kernel, whatever it is given."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_cache_is_cleared_though_the_disk_is_full(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_files, "mkdtemp", failing(errno.ENOSPC))
    cache.clear()
    assert [file.parent.name for file in filled.rglob("one")] == ["vagrant-box"]


@pytest.mark.parametrize("call", ["rename", "exists"])
def test_a_cache_of_another_user_is_not_cleared(
    filled: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(Path, call, failing(errno.EACCES))
    message = f"cache {filled}: cannot be written: Permission denied; name another folder"
    with pytest.raises(NotReady, match=message):
        cache.clear()
    monkeypatch.undo()
    assert len(list(filled.rglob("one"))) == 4
