"""A trace from a file, which may be gzipped: its content tells the format.

Traces of Chakra and PyTorch have a file for each rank, such as `NAME.RANK.et`, `NAME_rankRANK.et`
or `NAME_RANK.json`; the folder, any one of the files, or NAME, as in ASTRA-sim, names the trace.
"""

import gc
import gzip
import os
import re
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path

from linux.files.user_files import Unreadable, read_bytes
from model.errors import InputError, Problem, refusing
from model.workload.trace import Trace
from traffic_gen.traces.formats import (
    aicb,
    byte_matrix,
    chakra,
    chakra_json,
    chakra_trace,
    execution_trace,
    goal,
    htsim,
    kineto,
    msccl,
    mscclpp,
)
from traffic_gen.traces.formats.nodes import (
    MOST_RANKS,
    NO_DEFAULTS,
    Defaults,
    Malformed,
    of_file,
    require_ranks,
)
from traffic_gen.traces.formats.pytorch import is_object_with, trace_of

# Limit of lines: a trace may not have more nodes and dependencies.
MOST_LINES = 20_000_000
# Limit of all files of a trace, decompressed, too; one of a million nodes has 30 to 100 MB.
MOST_BYTES = 2**29
# Text takes up to four bytes a character, beside those of the file.
MOST_TEXT_BYTES = 2**27
GZIP = b"\x1f\x8b"
# What a trace may be packed or written in, by where which bytes are, and what to do with it.
UNPACK = "decompress it, or compress it with gzip"
PROFILED = "record with PyTorch's profiler, or its ExecutionTraceObserver"
CONTAINERS = {
    (0, b"BZh"): ("bzip2", UNPACK),
    (0, b"\xfd7zXZ\0"): ("xz", UNPACK),
    (0, b"\x28\xb5\x2f\xfd"): ("Zstandard", UNPACK),
    (0, b"PK\x03\x04"): ("a zip archive", "unpack it"),
    (0, b"7z\xbc\xaf\x27\x1c"): ("a 7z archive", "unpack it"),
    (0, b"\x80\x02}"): ("a pickle, as PyTorch's flight recorder writes it", PROFILED),
    (0, b"\x80\x04\x95"): ("a pickle", PROFILED),
    (0, b"\x93NUMPY"): ("an array of NumPy", "save it as text, by `numpy.savetxt`"),
    (0, b"SQLite format 3\0"): ("a database of SQLite, as of Nsight Systems", PROFILED),
    (0, BOM_UTF16_LE): ("UTF-16 text", "save it as UTF-8"),
    (0, BOM_UTF16_BE): ("UTF-16 text", "save it as UTF-8"),
    # The end of the first header.
    (257, b"ustar"): ("a tar archive", "unpack it"),
}
PIECE_BYTES = 2**20
Sets = dict[tuple[str, str], dict[int, Path]]
"""The files of each name and form, by rank."""
TEXT_FORMATS: dict[str, tuple[Callable[[str], bool], Callable[[str, Defaults], Trace]]] = {
    "GOAL": (goal.is_goal, goal.read_goal),
    msccl.FORMAT: (msccl.is_msccl, msccl.read_msccl),
    "AICB": (aicb.is_aicb, aicb.read_aicb),
    htsim.FORMAT: (htsim.is_htsim, htsim.read_htsim),
    mscclpp.FORMAT: (mscclpp.is_plan, mscclpp.read_plan),
    byte_matrix.FORMAT: (byte_matrix.is_byte_matrix, byte_matrix.read_byte_matrix),
}
FORMATS = (chakra_trace.FORMAT, kineto.FORMAT, execution_trace.FORMAT, *TEXT_FORMATS)
ReaderOfRanks = Callable[[Sequence[bytes], Defaults], Trace]
JSON_FORMATS: tuple[tuple[Callable[[bytes], bool], ReaderOfRanks], ...] = (
    *(
        (partial(is_object_with, form.KEYS), partial(trace_of, form.FORMAT, form.read_rank))
        for form in (kineto, execution_trace)
    ),
    (chakra_json.is_chakra_json, chakra_json.read_chakra_json),
)
ALL_RANKS = (
    "if there are more files, put them beside it; name the folder, or what all names begin with"
)
# Name of a profile, as PyTorch's `tensorboard_trace_handler` ends it; each has its rank inside.
PROFILE = re.compile(r".*\.pt\.trace\.json(?:\.gz)?", re.DOTALL)
OF_A_RANK = re.compile(
    r"(?P<name>.*?(?:^|[._-]|rank|[a-z](?=[0-9]+\.et)))(?P<rank>[0-9]{1,20})"
    r"(?P<form>\.et|(?:_trace)?\.json)(?:\.gz)?",
    re.DOTALL,
)
# What archives of macOS have beside each file: its attributes.
OF_MACOS = "._"
# What may stand between a trace's name and a rank.
SEPARATOR = r"[._-]?(?:rank)?"


def read_trace(path: Path, defaults: Defaults = NO_DEFAULTS) -> Trace:
    """Read a trace, with `defaults` for left-out values. Raises `InputError` with the place.

    The place of a mistake is a line or a byte.
    """
    files = files_of(path)
    contents, left = list[bytes](), MOST_BYTES
    for file in files:
        try:
            contents.append(read_bytes(file, left))
        except Unreadable as error:
            raise InputError(Problem(str(file), str(error))) from None
        left -= len(contents[-1])
    try:
        with garbage_collection_disabled():
            trace = trace_in(contents, defaults)
    except Malformed as error:
        where = f"{files[error.file]}{error.place}"
        raise InputError(Problem(where, error.what, error.hint)) from None
    if trace.ranks == 1:
        what, hint = "has one rank, which sends to no other one", ALL_RANKS
        raise InputError(Problem(str(path), what, hint))
    return trace


@contextmanager
def garbage_collection_disabled() -> Iterator[None]:
    """Disable the garbage collector, which takes a quarter of the time: all objects stay."""
    with ExitStack() as afterwards:
        if gc.isenabled():
            gc.disable()
            afterwards.callback(gc.enable)
        yield


def files_of(path: Path) -> list[Path]:
    """Return the files of a trace, in the order of their ranks.

    Other tools have files in JSON, too: one that is no member of a whole set is a trace alone.
    """
    if os.path.isdir(path):
        if not (sets := _sets(path)) and (profiles := _profiles(path)):
            return profiles
        return _only(path, path, sets)
    named, exists = OF_A_RANK.fullmatch(path.name), os.path.lexists(path)
    if path.name.startswith(OF_MACOS) or not os.path.isdir(path.parent):
        return [path]
    if exists and PROFILE.fullmatch(path.name):
        return _profiles(path.parent)
    if exists and named is None:
        return [path]
    sets = _sets(path.parent)
    if not exists:
        # What is no file may be what the names of all files begin with.
        begins = re.compile(re.escape(path.name) + SEPARATOR)
        called = {key: ranks for key, ranks in sets.items() if begins.fullmatch(key[0])}
        return _only(path, path.parent, called) if called else [path]
    assert named
    ranks = sets.get((named["name"], named["form"]), {})
    if named["form"] != ".et" and set(ranks) != set(range(len(ranks))):
        return [path]
    return _in_order(path.parent, ranks)


def _only(path: Path, folder: Path, sets: Sets) -> list[Path]:
    """Return the files of the only set, or the only one of binary files; raise `InputError`."""
    binary = {key: ranks for key, ranks in sets.items() if key[1] == ".et"}
    if len(chosen := binary or sets) != 1:
        what = f"must have the files NAME.RANK.et of one trace, got {len(chosen)} traces"
        hint = "name a file of one of them" if chosen else "give each file the number of its rank"
        raise InputError(Problem(str(path), what, hint))
    return _in_order(folder, *chosen.values())


def _sets(folder: Path) -> Sets:
    """Return the files of each name and form in a folder, by rank."""
    sets: Sets = {}
    for file in _files_in(folder):
        if named := OF_A_RANK.fullmatch(file.name):
            ranks = sets.setdefault((named["name"], named["form"]), {})
            if (rank := int(named["rank"])) in ranks:
                what = f"duplicate rank {rank}, also in {ranks[rank].name}"
                raise InputError(Problem(str(file), what, "leave one of them out"))
            ranks[rank] = file
    return sets


def _profiles(folder: Path) -> list[Path]:
    """Return the profiles in a folder, which say themselves of which rank they are."""
    return [file for file in _files_in(folder) if PROFILE.fullmatch(file.name)]


def _files_in(folder: Path) -> list[Path]:
    with refusing(folder, "cannot be read"):
        names = sorted(os.listdir(folder))
    return [folder / name for name in names if not name.startswith(OF_MACOS)]


def _in_order(folder: Path, ranks: dict[int, Path]) -> list[Path]:
    """Return the files of all ranks; raise `InputError` if one is missing."""
    missing = set(range(len(ranks))) - ranks.keys()
    if missing or len(ranks) > MOST_RANKS:
        first = min(missing, default=MOST_RANKS)
        what = f"file of rank {first} not found; {len(ranks)} in the folder"
        hint = f"ranks are 0 to at most {MOST_RANKS - 1}"
        raise InputError(Problem(str(folder), what, hint))
    return [ranks[rank] for rank in range(len(ranks))]


def _unpacked(contents: Sequence[bytes]) -> list[bytes]:
    """Return what files contain, decompressed; each may have several members."""
    plain, left = list[bytes](), MOST_BYTES
    for file, content in enumerate(contents):
        with of_file(file):
            try:
                plain.append(_decompressed(content, left) if content.startswith(GZIP) else content)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise Malformed(": byte 0", f"cannot be decompressed: {error}") from None
            left -= len(plain[-1])
            if not plain[-1]:
                raise Malformed("", "is empty", "write the trace again")
            if left < 0:
                what = f"decompressed files must have at most {MOST_BYTES} bytes together"
                raise Malformed(": byte 0", what)
            _require_plain(plain[-1])
    return plain


def _require_plain(content: bytes) -> None:
    """Raise `Malformed` for an archive, another compression than gzip, or another text."""
    for (place, begin), (name, hint) in CONTAINERS.items():
        if content.startswith(begin, place):
            raise Malformed("", f"is {name}", hint)


def _decompressed(content: bytes, most_bytes: int) -> bytes:
    """Return all that a gzipped file contains, or a little more than `most_bytes` of it."""
    plain = BytesIO()
    with gzip.GzipFile(fileobj=BytesIO(content)) as packed:
        # One read of that many bytes would reserve them all.
        while plain.tell() <= most_bytes and (piece := packed.read(PIECE_BYTES)):
            plain.write(piece)
    return plain.getvalue()


def trace_in(contents: Sequence[bytes], defaults: Defaults = NO_DEFAULTS) -> Trace:
    """Read a trace from the content of its files; raise `Malformed` for any other content."""
    require_ranks(len(contents), "")
    contents = _unpacked(contents)
    if chakra.is_chakra(contents[0]):
        return chakra.read_chakra(contents, defaults)
    contents = [content.removeprefix(BOM_UTF8) for content in contents]
    for is_one_of, read_all in JSON_FORMATS:
        if is_one_of(contents[0]):
            return read_all(contents, defaults)
    if is_object_with((b"entries", b"pg_config|profiling_name"), contents[0]):
        what = "is a dump of PyTorch's flight recorder, which has the last calls alone"
        raise Malformed(1, what, PROFILED)
    if len(contents[0]) > MOST_TEXT_BYTES:
        raise Malformed("", f"text must have at most {MOST_TEXT_BYTES} bytes")
    try:
        text = contents[0].decode()
    except UnicodeDecodeError as error:
        what, hint = "must be a Chakra trace or UTF-8 text", "GOAL is read as text, not as binary"
        raise Malformed(f": byte {error.start}", what, hint) from None
    if (lines := text.count("\n")) > MOST_LINES:
        raise Malformed(1, f"must have at most {MOST_LINES} lines, got {lines}")
    for name, (is_one, read) in TEXT_FORMATS.items():
        if is_one(text):
            if len(contents) > 1:
                what = f"is one of {len(contents)} files, as of ranks; {name} has one file"
                raise Malformed(1, what, "rename it, without a number at its end")
            return read(text, defaults)
    raise Malformed(1, "unknown format of trace", f"known: {', '.join(FORMATS)}")
