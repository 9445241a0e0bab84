"""Kineto's traces of PyTorch (`libkineto/src/output_json.cpp`), a file for each rank.

Chrome's trace format: events that begin at `ts` and last `dur` microseconds. A kernel with a
`Collective name` communicates; the call on the CPU with the same `External id` has what it lacks.
All other kernels and copies compute. Dependencies are not recorded: computing waits for the
communications that ended before it, a communication for all that ended before it. Time in which a
GPU does nothing counts as computing, unless a communication runs.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from traffic_gen.traces.formats.json_items import Item
from traffic_gen.traces.formats.nodes import MOST_RANKS
from traffic_gen.traces.formats.pytorch import COMPUTE, RankNodes

FORMAT, KEYS = "Kineto", (b"schemaVersion|traceEvents",)
# Attributes that have other words in execution traces; `In msg nelems` is `in_msg_nelems`.
NAMES = {"process_group_name": "pg_name", "group_size": "pg_size", "process_group_ranks": "ranks"}
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALL, LINK = "record_param_comms", "external_id"
# Kernels of NCCL and of RCCL, which executes algorithms of MSCCL, too.
OF_NCCL = re.compile("[nr]ccl|msccl(?!pp)", re.IGNORECASE)
MOST_MICROS = 2**52
ORDER = "dependencies of kernels, which Kineto lacks: each waits for what ended before it began"
# Processors communicate in groups of these, which name what they do in ranges of a program.
ON_CPU = re.compile(r"(gloo|mpi|ucc):")
BY_CPU = "{{}} communications of {}, of which Kineto has no size"
# What moves data between GPUs without a call of a process group: copies, and kernels of PyTorch's
# symmetric memory, vLLM, TensorRT-LLM, DeepEP, Transformer Engine and MSCCL++.
BESIDE_NCCL = re.compile(
    r"(?i)Memcpy PtoP|nvshmem|multimem|cross_device_reduce|deep_ep\b|userbuffers|mscclpp"
    r"|all_?(?:reduce|gather|to_?all)|reduce_?scatter"
)
BY_GPU = "bytes of {} kernels and copies between GPUs without NCCL, which compute"
WITHOUT_KERNEL = "{} communications on the CPU that no kernel of their file executes"


def read_rank(whole: Item, _file: int, files: int) -> RankNodes:
    """Return the nodes of a file."""
    if not whole.has("distributedInfo"):
        whole.refuse("has no distributedInfo", "record within torch.distributed")
    info = whole.of("distributedInfo")
    world = info.number("world_size", 1, MOST_RANKS)
    if world != files:
        hint = "put all into a folder, as NAME.RANK.json or NAME.pt.trace.json"
        whole.refuse(f"needs the files of {world} ranks, got {files}", hint)
    nodes = RankNodes(info.number("rank", 0, world - 1), world)
    nodes.define(info.value.get("pg_config"))
    events = whole.each("traceEvents")
    for event in events:
        if not isinstance(event.value, dict):
            event.refuse("must be an object")
    calls = [_attributes(event) for event in events if event.value.get("name") == CALL]
    on_cpu = {str(call.value[LINK]): call for call in calls if call.has(LINK)}
    executed, computes = set[str](), list[tuple[int, int]]()
    communications = defaultdict[int, list[tuple[int, Item]]](list)
    for event in (event for event in events if event.value.get("cat") in ON_GPU):
        begin, end = _span(event)
        call = _attributes(event)
        if call.has("collective_name") or OF_NCCL.search(str(event.value.get("name"))):
            link = str(call.value.get(LINK))
            executed.add(link)
            call = Item({**on_cpu.get(link, call).value, **call.value}, event.place)
            if not call.has("collective_name"):
                hint = "record with PyTorch 2.4 or later; batched and coalesced calls have none"
                event.refuse("kernel of NCCL without 'Collective name'", hint)
            communications[begin].append((max(end, begin + 1), call))
        else:
            computes.append((begin, end))
            nodes.left_out[BY_GPU] += bool(BESIDE_NCCL.search(str(event.value.get("name"))))
    missing = sum(
        call.value.get("in_msg_nelems", 0) != 0 and str(call.value.get(LINK)) not in executed
        for call in calls
    )
    nodes.left_out.update({ORDER: 1, WITHOUT_KERNEL: missing})
    named = (ON_CPU.match(str(event.value.get("name"))) for event in events)
    nodes.left_out.update(BY_CPU.format(found[1]) for found in named if found)
    _emit(nodes, communications, sorted(computes))
    return nodes


def _emit(
    nodes: RankNodes,
    communications: Mapping[int, Sequence[tuple[int, Item]]],
    computes: Sequence[tuple[int, int]],
) -> None:
    """Add what a rank does between all times at which communications begin or end.

    The first and the last time are those at which everything does. `communications` has the end of
    each, by their begin in nanoseconds; `computes` the spans of all other kernels.
    """
    begins = [begin for begin, _ in computes]
    all_ended = list(accumulate((end for _, end in computes), max))
    ends, running, after = defaultdict[int, list[int]](list), 0, list[int]()
    times = {end for calls in communications.values() for end, _ in calls} | communications.keys()
    in_order = sorted(times.union(begins[:1], all_ended[-1:]))
    for now, later in pairwise([*in_order, *in_order[-1:]]):
        running -= len(ends[now])
        after += ends.pop(now)
        for end, call in communications.get(now, ()):
            after = nodes.joined(call, after)
            ends[end].append(nodes.call(call, after))
            running += 1
        # A GPU that does nothing counts as computing, unless a communication runs.
        if running:
            last = bisect_left(begins, later) - 1
            later = min(later, all_ended[last]) if last >= 0 else now
        micros = round(later / 1000) - round(now / 1000)
        if micros > 0:
            place = Item(None, f"computing from {now // 1000} us")
            after = [nodes.add(place, after, COMPUTE, durationmicros=micros)]


def _attributes(event: Item) -> Item:
    """Return the arguments of an event by their names in execution traces."""
    given = event.value.get("args")
    named = given.items() if isinstance(given, dict) else ()
    plain = {key.lower().replace(" ", "_"): value for key, value in named}
    return Item({NAMES.get(key, key): value for key, value in plain.items()}, event.place)


def _span(event: Item) -> tuple[int, int]:
    """Return when an event begins and ends, in nanoseconds."""
    begin, lasts = event.of("ts").value, event.of("dur").value
    for one in (begin, lasts):
        if type(one) not in (int, float) or not 0 <= one <= MOST_MICROS:
            event.refuse(f"ts and dur must be 0 to {MOST_MICROS} us, got {str(one)[:40]!r}")
    return round(1000 * begin), round(1000 * (begin + lasts))
