"""Fuzz the command line with scenarios, options, traces, networks, and folders of runs and sweeps.

`python -m tests.fuzz --inputs 100000` tries as many inputs, with `--files` traces and networks
alone, and prints those that end with an exit code that the documentation does not name, with a
traceback, or take more than a GB, 20 seconds of processor time, or two (`--most-s`) if they are
refused: what is accepted takes as long as its work. Another `--seed` tries others; `--at-once` is
the number of processes, in which the commands run. None brings a fabric up.
"""

import argparse
import ctypes
import gzip
import json
import os
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from model.workload.transfers.collective import Collective
from scenarios.format.keys import Expect, Fabric, FaultEntry, Job, ScenarioFile
from scenarios.format.workloads.kinds import KINDS
from scenarios.library_files import LIBRARY, library
from studies.benchmarks.render import recording
from studies.benchmarks.rows import Row
from tests.playground import (
    DOCUMENTED,
    GOOD,
    MOST_BYTES,
    OTHER,
    PLACES,
    RUN,
    SWEEP,
    Content,
    Input,
    end_of,
    playground,
)
from tests.unit.chakra_bytes import fed, jsonized, symbolic_json
from tests.unit.pytorch_files import call, communication, kernel, kineto, operators
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS

PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Seconds of processor time in which an input must be refused.
MOST_S = 2.0
COMMAND = ".venv/bin/python -m tests.fuzz"
# Inputs that hypothesis draws, shrinks and reports together.
CHUNK = 1000
# Hypothesis keeps what it drew, some 60 MB a chunk.
CHUNKS_PER_PROCESS = 2
# Values that are wrong in most places, as YAML.
ODD = (
    *("0", "-1", "1e308", "1e-308", "5e-324", ".inf", "-.inf", ".nan", "0.4", "1e15", "1e12"),
    *("true", "null", "''", "[]", "{}", "auto", "2001-01-01", "2001-99-99", "!!bool x"),
    *("[" * 50, "{" * 50, "[" * 30 + "]" * 30, "&a [*a]", "*a", "!!binary YQ==", "!!set {a}"),
    *("0x" + "f" * 90, "0x" + "f" * 5000, "0b" + "1" * 5000, "9" * 90, "9" * 5000, "1e" + "9" * 50),
    "&a [1, 1]" + "".join(f", &a{n} [*a, *a]" for n in range(9)),
    *("1e302 bit/s", "0.4 bit/s", "400 Gbit/s", "1 kbit/s", "1000 Tbit/s", "1 Mbit/s"),
    *("8 MB", "1 B", "1e400 MB", "1000000 GB", "0 B", "-1 B", f"'{'1' * 5000} x'", "'1 MB '"),
    *(
        "'[/red]'",
        "'[bold]'",
        '"\\ud800"',
        '"\\e[31m"',
        '"\\0"',
        "\0",
        "a" * 300,
        "é",
        "😀",
        "%",
        "@",
    ),
    *("rail-only", "rail-optimized", "dgx-h100", "ring", "direct", "hierarchical", "kernel"),
    *("d0g0--rail0", "[d0g0--rail0, d1g1--rail1]", "d0", "rail0", "spine0", "d0g0", "hb0"),
    *(
        "all-reduce",
        "all-gather",
        "flap",
        "degrade",
        "kill",
        "down",
        "blackhole",
        "nic-link",
        "gpu",
    ),
    *("domain", "gpu", "controller", "uplink", "spare-gpu", "swap-group", "abort-and-restart"),
    *("2048", "510", "64", "8", "4", "3", "2", "1", "100000", "65536", "4294967296"),
)
VALUE = st.one_of(
    st.sampled_from(ODD),
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=12),
    st.integers(1, 40).map(str),
)
SECTIONS: dict[str, type[BaseModel]] = {
    "": ScenarioFile,
    "fabric.": Fabric,
    "workloads.0.": KINDS[0],
    "faults.0.": FaultEntry,
    "job.": Job,
    "expect.": Expect,
}


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


KEYS = [f"{section}{key}" for section, model in SECTIONS.items() for key in _keys(model)]
KEYS += [f"workloads.0.{key}" for kind in KINDS[1:] for key in _keys(kind)]
ODD_KEYS = ("", ".", "..", "a", "fabric.domain", "workloads.9.size", "workloads.-1", "a." * 50)
KEY = st.one_of(st.sampled_from(KEYS), st.sampled_from(ODD_KEYS), st.text(max_size=5))
TEXTS = (GOOD, *(path.read_text() for path in library()))


def _entry(keys: list[str], **known: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A mapping in YAML with some of these keys."""
    chosen = st.dictionaries(st.sampled_from(keys), VALUE, max_size=3)
    both = st.tuples(st.fixed_dictionaries(known), chosen)
    return both.map(lambda parts: _flow({**parts[0], **parts[1]}))


def _flow(entries: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}"


FAULT = _entry(
    _keys(FaultEntry),
    what=st.sampled_from(("nic-link", "hb-link", "uplink", "rail-switch", "gpu", "controller")),
    how=st.sampled_from(("down", "flap", "degrade", "blackhole", "kill")),
)
# Whole workloads, which nothing is wrong with but what they ask for.
SIZES = ("1 B", "8 kB", "8 MB", "4 GB", "8000 GB", "1000000 GB", "gpt-1t-gradients")
SCALES = ("1e-6", "0.5", "1", "1.5", "400", "20000", "1e12", "auto")
MATRICES, SLICES = ("hot-expert", "rotating-hotspot", "ragged-sources"), ("1", "3", "64")


@st.composite
def workload(draw: st.DrawFn) -> str:
    """A setting of one workload, whose keys go together."""
    (collective, name), algorithm = draw(st.sampled_from(list(ALGORITHMS.items())))
    entry = {"collective": str(collective), "algorithm": name, "size": draw(st.sampled_from(SIZES))}
    others = {
        draw(st.sampled_from(("size_scale", "time_dilation"))): SCALES,
        "generator": ("agent", "iperf3", "scapy"),
        "communicator": ("rails", "domains", "strided-2", "rail0", "[d0g0]"),
        "matrix": MATRICES if collective is Collective.ALL_TO_ALL else (),
        "slices": SLICES if algorithm.slices > 1 else (),
    }
    for key, values in others.items():
        entry[key] = draw(st.sampled_from(("", *values)))
    return f"workloads=[{_flow({key: value for key, value in entry.items() if value})}]"


SHAPE = st.builds(
    lambda shape, scale: (
        f"fabric={{domains: {shape[0]}, domain_size: {shape[1]}, platform: gh200, "
        f"bandwidth_scale: {scale}}}"
    ),
    st.sampled_from(((1, 2), (2, 2), (3, 2), (4, 4), (8, 4))),
    st.sampled_from(SCALES),
)
SETTING = st.one_of(
    workload(),
    SHAPE,
    st.tuples(KEY, VALUE).map("=".join),
    st.lists(FAULT, max_size=3).map(lambda entries: f"faults=[{', '.join(entries)}]"),
    _entry(_keys(Job), strategy=st.just("abort-and-restart")).map("job={}".format),
    st.text(max_size=20),
)


@st.composite
def scenario_text(draw: st.DrawFn) -> bytes:
    """A scenario of the library, mutated line by line; or anything."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(_encoded)))
    lines = draw(st.sampled_from(TEXTS)).splitlines()
    for _ in range(draw(st.integers(1, 3))):
        where = draw(st.integers(0, len(lines) - 1)) if lines else 0
        lines[where : where + 1] = draw(_changed_line(lines[where] if lines else ""))
    return _encoded("\n".join(lines) + "\n")


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _changed_line(line: str) -> st.SearchStrategy[list[str]]:
    key, _, _ = line.partition(":")
    return st.one_of(
        VALUE.map(lambda value: [f"{key}: {value}"]),
        st.just([]),
        st.integers(0, len(line)).map(lambda end: [line[:end]]),
        st.integers(0, 6).map(lambda indent: [" " * indent + line.lstrip()]),
        st.tuples(KEY, VALUE).map(lambda pair: [line, f"{pair[0]}: {pair[1]}"]),
        st.sampled_from((1, 2, 5, 20, 100, 5000)).map(lambda many: [line] * many),
    )


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just({}),
    st.just([]), st.sampled_from((10**400, -1, 0, "[/red]", "\ud800", "railbed.run/1", "complete")),
)  # fmt: skip


@st.composite
def record(draw: st.DrawFn, content: bytes) -> Content:
    """A changed file of a run or a sweep: damaged, of another form, missing, or no file."""
    kind = draw(st.integers(0, 9))
    if kind < 2:
        return cast(Content, draw(st.sampled_from((None, b"", b"{", b"[1]", b"\xff", *SPECIAL))))
    if kind == 2:
        return content[: draw(st.integers(0, len(content)))]
    try:
        tree = json.loads(content)
    except ValueError:
        text: bytes = draw(scenario_text())
        return text
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(_places(tree) or [({}, "")]))
        if draw(st.booleans()) and isinstance(holder, dict):
            holder.pop(key, None)
        else:
            holder[key] = draw(PLAIN)
    return json.dumps(tree).encode()


SPECIAL = (
    Path.mkdir,
    os.mkfifo,
    lambda place: place.symlink_to("/dev/zero"),
    lambda place: place.symlink_to(place.name),
    lambda place: place.write_text("[" * 100_000),
    lambda place: place.write_text("9" * 100_000),
)


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON tree with each of its keys."""
    if isinstance(tree, dict):
        entries = list(tree.items())
    elif isinstance(tree, list):
        entries = list(enumerate(tree))
    else:
        return []
    below = [place for _, value in entries for place in _places(value)]
    return [(tree, key) for key, _ in entries] + below


def _argument(text: str) -> str:
    """A text as the shell could hand it over: bytes without zeros."""
    return os.fsdecode(text.replace("\0", "").encode(errors="replace"))


NAME = st.one_of(
    st.sampled_from(("latest", RUN, "2026", "", "a" * 300, "/" * 5000, "[/red]", "..")),
    st.text(max_size=9).map(_argument),
)
ASKED = st.one_of(
    st.just(("show", RUN)),
    st.just(("show", "latest", "--json")),
    st.just(("compare", RUN, OTHER)),
    st.just(("sweep", "--resume", SWEEP)),
    st.just(("sweep", "--resume", SWEEP, "--json")),
    NAME.map(lambda name: ("show", "--", name)),
    NAME.map(lambda name: ("compare", "--", name, RUN)),
    NAME.map(lambda name: ("sweep", f"--resume={name}")),
    NAME.map(lambda name: ("show", f"--store={name}", "latest")),
)
RARE = st.just(("list",))


TRACE, NETWORK = "x.0.et", "x.yml"
# Scenarios that read a trace or a matrix, as far as this machine goes and beyond.
REPLAYS = [
    f"""\
fabric: {{domains: 2, domain_size: 2, platform: dgx-h100, bandwidth_scale: 20000}}
workloads:
  - {work}
allow_overload: {overload}
""".encode()
    for overload in ("true", "false")
    for work in (
        f"{{trace: {TRACE}, placement: wrap}}",
        f"{{trace: {TRACE}, placement: rails, size: 64 MB, size_scale: 100}}",
        f"{{collective: all-to-all, algorithm: direct, matrix: {TRACE}, size: 64 MB}}",
    )
]
ON_NETWORK = f"""\
fabric: {{topology: {NETWORK}, bandwidth_scale: 20000}}
workloads:
  - {{collective: all-reduce, algorithm: ring, size: 1 GB, size_scale: 100}}
""".encode()


def _samples(name: str) -> list[bytes]:
    """The files of the library and of the tests in a folder."""
    folders = (LIBRARY / name, Path(__file__).parent / "samples" / name)
    paths = [path for folder in folders for path in sorted(folder.rglob("*"))]
    return [path.read_bytes() for path in paths if path.is_file()]


def _of_ranks(write: Callable[[int], bytes | str], ranks: int = 4) -> tuple[bytes, ...]:
    written = map(write, range(ranks))
    return tuple(text.encode() if isinstance(text, str) else text for text in written)


NETWORKS = _samples("networks")
# The files of each trace, one for each rank or one alone.
TRACES = [
    *((content,) for content in _samples("traces")),
    _of_ranks(lambda rank: (LIBRARY / f"traces/layer/layer.{rank}.et").read_bytes()),
    *map(_of_ranks, (jsonized, fed, symbolic_json)),
    (kineto(0, kernel(5, 10), communication(10, 5, "allreduce", 8, ranks="[0]"), ranks=1),),
    _of_ranks(lambda rank: kineto(rank, kernel(5, 10), communication(9, 9, "allreduce", 8)), 2),
    _of_ranks(lambda _: operators(call("all_to_allv", 8), call("wait", 0)), 2),
]
NUMBERS = ("0", "1", "-1", "2", "3", "99", "1e9", "0.5", "nan", "9" * 18, "9" * 400, "x", "")
NUMBER = re.compile(rb"[0-9]+")
# Bytes by which a changed line grows at most.
MOST_CHANGED = 2**20


@st.composite
def mutated(draw: st.DrawFn, content: bytes) -> bytes:
    """A sample in which some bytes, numbers or lines are others, missing, or there many times."""
    for _ in range(draw(st.integers(1, 3))):
        content = draw(draw(st.sampled_from((_spliced, _renumbered, _rearranged)))(content))
    return content


@st.composite
def _spliced(draw: st.DrawFn, content: bytes) -> bytes:
    place, length = draw(st.integers(0, len(content))), draw(st.integers(0, 20))
    others = st.one_of(st.binary(max_size=8), st.sampled_from(NUMBERS).map(str.encode))
    again = draw(st.sampled_from((0, 0, 1, 1, 2, 1000)))
    return content[:place] + draw(others) * again + content[place + length :]


@st.composite
def _renumbered(draw: st.DrawFn, content: bytes) -> bytes:
    if not (numbers := list(NUMBER.finditer(content))):
        return content
    begin, end = draw(st.sampled_from(numbers)).span()
    return content[:begin] + draw(st.sampled_from(NUMBERS)).encode() + content[end:]


@st.composite
def _rearranged(draw: st.DrawFn, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    line = lines.pop(draw(st.integers(0, len(lines) - 1)))
    place, again = draw(st.integers(0, len(lines))), draw(st.sampled_from((0, 1, 2, 1000)))
    again = min(again, MOST_CHANGED // max(1, len(line)))
    return b"".join([*lines[:place], *[line] * again, *lines[place:]])


@st.composite
def of_files(draw: st.DrawFn) -> Input:
    """A command that reads a changed trace or network, possibly gzipped."""
    command = draw(st.sampled_from(("check", "check", "plan")))
    if draw(st.integers(0, 2)) == 0:
        network = draw(mutated(draw(st.sampled_from(NETWORKS))))
        return Input((command, "x.yaml"), (("x.yaml", ON_NETWORK), (NETWORK, network)))
    files = list(draw(st.sampled_from(TRACES)))
    rank = draw(st.integers(0, len(files) - 1))
    files[rank] = draw(mutated(files[rank]))
    if draw(st.integers(0, 19)) == 0:
        files[rank] = draw(mutated(gzip.compress(files[rank], mtime=0)))
    named: list[tuple[str, Content]] = [(f"x.{n}.et", file) for n, file in enumerate(files)]
    if draw(st.integers(0, 3)) == 0:
        given = ("--set", "workloads.0.size=1 MB") if draw(st.booleans()) else ()
        return Input(("predict", TRACE, *given), tuple(named))
    scenario = draw(st.sampled_from(REPLAYS))
    return Input((command, "x.yaml"), (("x.yaml", scenario), *named))


@st.composite
def inputs(draw: st.DrawFn) -> Input:
    """A command and its files."""
    kind = draw(st.integers(0, 9))
    command = draw(st.sampled_from(("check", "check", "plan")))
    if kind < 3:
        return Input((command, "x.yaml"), (("x.yaml", draw(scenario_text())),))
    if kind < 6:
        chosen = draw(st.lists(SETTING, min_size=1, max_size=4))
        changes = (part for setting in chosen for part in ("--set", _argument(setting)))
        return Input((command, "x.yaml", *changes), (("x.yaml", GOOD.encode()),))
    if kind < 7 and draw(st.booleans()):
        return draw(of_files())
    if kind < 7:
        values = draw(st.lists(VALUE, max_size=4))
        over = _argument(f"{draw(KEY)}={','.join(values)}")
        options = ("--proxies", "process", "--store", "others", "--over", over)
        return Input(("sweep", "x.yaml", *options), (("x.yaml", GOOD.encode()),))
    place = draw(st.sampled_from(PLACES))
    asked = draw(RARE if draw(st.integers(0, 19)) == 0 else ASKED)
    return Input(asked, ((place, draw(record(_kept()[place]))),))


def _kept() -> dict[str, bytes]:
    """The content of each file of the playground that may be changed."""
    if not KEPT:
        with playground() as folder:
            KEPT.update({place: (folder / place).read_bytes() for place in PLACES})
    return KEPT


KEPT: dict[str, bytes] = {}


@dataclass
class Tried:
    """What became of a chunk of inputs: exit codes, what was slow, and what ended wrongly."""

    ends: Counter[int | None]
    slow: int = 0
    longest_s: float = 0.0
    wrong: str = ""


def main() -> None:
    """Try as many inputs as asked for; print each that ends wrongly, and the sum of them all."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--files", action="store_true", help="traces and networks alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=os.cpu_count())
    parser.add_argument("--most-s", type=float, default=MOST_S)
    parser.add_argument("--record", action="store_true", help="write docs/reference/figures")
    asked = parser.parse_args()
    chunks = range(asked.seed, asked.seed + -(-asked.inputs // CHUNK))
    ends: Counter[int | None] = Counter()
    rows: list[Row] = []
    wrong, slow, longest_s, begun_s = 0, 0, 0.0, time.monotonic()
    name, command = ("fuzz-files", f"{COMMAND} --files") if asked.files else ("fuzz", COMMAND)
    try_chunk = partial(_chunk, files=asked.files, most_s=asked.most_s)
    with recording(name, rows, record=asked.record, command=command):
        try:
            for tried in _tried(try_chunk, chunks, asked.at_once):
                ends += tried.ends
                wrong += bool(tried.wrong)
                slow, longest_s = slow + tried.slow, max(longest_s, tried.longest_s)
                print(tried.wrong, end="", flush=True)
                print(f"{ends.total()} inputs, {dict(ends)}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            os._exit(130)  # without waiting for the workers, which the kernel ends
        codes = {f"exit_{code}": ends[code] for code in DOCUMENTED}
        rows.append({"inputs": ends.total(), **codes, "wrong": wrong, "slow": slow})
    most_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"{ends.total()} inputs in {time.monotonic() - begun_s:.0f} s, exit codes {dict(ends)}")
    print(f"{slow} took more than {asked.most_s:g} s of processor time, one {longest_s:.1f} s")
    print(f"{wrong} of {len(chunks)} chunks had a wrong end; at most {most_bytes / 1e6:.0f} MB")
    sys.exit(exit_code(wrong, most_bytes))


def _tried(
    try_chunk: Callable[[int], Tried], chunks: Sequence[int], at_once: int
) -> Iterator[Tried]:
    """Yield what became of each chunk, in order; processes are replaced after some chunks."""
    step = at_once * CHUNKS_PER_PROCESS
    for first in range(0, len(chunks), step):
        with ProcessPoolExecutor(at_once, initializer=_begin_worker) as pool:
            yield from pool.map(try_chunk, chunks[first : first + step])


def exit_code(wrong: int, most_bytes: int) -> int:
    """Return 1 if an input ended wrongly, or a process took more memory than any may; else 0."""
    return 1 if wrong or most_bytes > MOST_BYTES else 0


def _begin_worker() -> None:
    """Bound the memory; end when the process does that started this one (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (3 * MOST_BYTES, 3 * MOST_BYTES))


def _chunk(number: int, files: bool, most_s: float) -> Tried:
    """Try a chunk of inputs, chosen by its number; one is slow if it takes more than `most_s`."""
    tried = Tried(Counter())

    @seed(number)
    @settings(
        max_examples=CHUNK,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(of_files() if files else inputs())
    def chunk(one: Input) -> None:
        end = end_of(folder, one)
        tried.ends[end.exit_code] += 1
        tried.slow += end.took_s > most_s
        tried.longest_s = max(tried.longest_s, end.took_s)
        assert end.is_right, f"{one}: {end}"[:4000]
        assert end.exit_code == 0 or end.took_s <= most_s, f"{one}: {end}"[:4000]

    with playground() as folder:
        try:
            chunk()
        except (AssertionError, ExceptionGroup) as error:
            tried.wrong = f"chunk {number}: {error}\n{getattr(error, 'exceptions', '')}\n"
    return tried


if __name__ == "__main__":
    main()
