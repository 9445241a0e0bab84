"""Workloads of AICB and SimAI, as text: one iteration of a model, layer by layer.

The first line names the parallel strategy and its sizes, the second one the number of layers. A
layer has 12 columns: its name; a dependency; for each of its three passes (forward, input gradient,
weight gradient) the compute in nanoseconds, the collective operation and the operation's bytes; the
time of an update. `aicb_iteration` says in which order the passes are executed.
"""

import re
from collections.abc import Iterator

from model.sentences import counted
from model.workload.trace import Trace
from model.workload.transfers.collective import Collective
from traffic_gen.traces.formats.aicb_iteration import Iteration, Layer, LayerPass, Strategy
from traffic_gen.traces.formats.nodes import (
    Defaults,
    Malformed,
    Nodes,
    require_bytes,
    require_nodes,
    require_ranks,
)

MICRO, ITERATION = "MICRO", "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
STRATEGY, KEY = re.compile(r"[A-Z][A-Z_]*"), re.compile(r"[A-Za-z_]\w*")
# AICB writes whole numbers, and floats where it has divided.
NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")
COLUMNS = 12
OPERATIONS = {
    "ALLREDUCE": Collective.ALL_REDUCE,
    "ALLGATHER": Collective.ALL_GATHER,
    "REDUCESCATTER": Collective.REDUCE_SCATTER,
    "ALLTOALL": Collective.ALL_TO_ALL,
    "BROADCAST": Collective.BROADCAST,
}
# AICB's micro-benchmarks of several operations have the long name of `ep`.
SIZES = ("model_parallel_NPU_group", "ep", "expert_parallel_npu_group", "pp", "vpp", "ga")
# What AICB runs on GPUs itself, which names the calls of one rank.
CALLS = re.compile(r"(?:\[rank[^\n]*\n)?comm_type,comm_group,")
LISTS = ("checkpoints", "checkpoint_initiates")
# Of inference, whose last passes are empty, AICB writes `mode: 1`.
SINGLE = (*SIZES, "all_gpus", "pp_comm", "mode")
KEYS = (*SINGLE, *LISTS)


def is_aicb(text: str) -> bool:
    """Whether a text begins with the name of a strategy, and has keys or a number of layers.

    A list of calls is AICB's, too.
    """
    first, _, rest = text[:65536].lstrip("\r\n\t ").partition("\n")
    name, *words = first.split(maxsplit=2) or [""]
    has_keys = bool(words) and words[0].endswith(":")
    is_workload = STRATEGY.fullmatch(name) and (has_keys or rest.lstrip()[:1].isdigit())
    return bool(is_workload or CALLS.match(text))


def read_aicb(text: str, defaults: Defaults) -> Trace:
    """Read a workload, which may leave the ranks out; raise `Malformed` for any other text."""
    if CALLS.match(text):
        what, hint = "lists calls for GPUs (CSV)", "let AICB generate the workload of SimAI (text)"
        raise Malformed(1, what, hint)
    lines = text.split("\n")
    name, given = _header(lines[0])
    left_out = [f"header key {key!r}, which is unknown" for key in given if key not in KEYS]
    strategy = _strategy(given, defaults, is_micro=name == MICRO)
    layers = list(_layers(lines, strategy))
    left_out += _unused(given, strategy)
    if unnamed := sum(p.size_bytes for one in layers for p in one.passes if p.collective is None):
        left_out.append(f"{unnamed} bytes of passes without an operation (NONE)")
    rows = [row.split() for row in lines[2:] if row.strip()]
    if updates := sum(float(row[-1]) > 0 for row in rows):
        left_out.append(f"update times of {counted(updates, 'layer')} (column {COLUMNS})")
    if depend := sum(row[1] != "-1" for row in rows):
        left_out.append(f"dependencies of {counted(depend, 'layer')} (column 2)")
    iteration = Iteration(Nodes(strategy.ranks, left_out=left_out), strategy)
    iteration.emit_all(layers)
    return iteration.nodes.trace("AICB")


def _header(written: str) -> tuple[str, dict[str, list[float]]]:
    """Return the name of the strategy, and the numbers behind each key."""
    name, *words = written.replace(":", " ").split() or [""]
    if name not in (MICRO, ITERATION):
        raise Malformed(1, f"unknown strategy {name[:60]!r}", f"known: {MICRO}, {ITERATION}")
    given, key = dict[str, list[float]](), ""
    for word in words:
        if key and NUMBER.fullmatch(word):
            given[key].append(float(word))
        elif not KEY.fullmatch(word):
            raise Malformed(1, f"must be a key and its numbers, got {word[:40]!r}")
        elif word in given:
            raise Malformed(1, f"duplicate key {word[:40]!r}")
        else:
            given[key := word] = []
    return name, given


def _strategy(given: dict[str, list[float]], defaults: Defaults, *, is_micro: bool) -> Strategy:
    """Return the sizes of a strategy; raise `Malformed` if they do not fit together."""
    for key in SINGLE:
        if key in given and len(given[key]) != 1:
            raise Malformed(1, f"{key} must have one number, got {len(given[key])} numbers")
    numbers = {key: given.get(key, [1.0])[0] for key in SIZES}
    numbers["all_gpus"] = given.get("all_gpus", [defaults.ranks])[0]
    for key, number in numbers.items():
        if number < 1 or number % 1:
            raise Malformed(1, f"{key} must be a whole number from 1 on, got {number:g}")
    size = {key: int(number) for key, number in numbers.items()}
    ranks = require_ranks(size["all_gpus"], 1)
    tensor, stages = size["model_parallel_NPU_group"], size["pp"]
    expert = size["ep"] * size["expert_parallel_npu_group"]
    if ranks % (tensor * expert * stages):
        what = f"{ranks} ranks must be a multiple of {tensor} (tensor) times {expert} (expert)"
        raise Malformed(1, f"{what} times {stages} (pipeline)" if stages > 1 else what)
    stage_bytes = require_bytes(round(given.get("pp_comm", [0])[0]), 1)
    if stages > 1 and not stage_bytes and not is_micro:
        raise Malformed(1, f"pp {stages} needs pp_comm, the bytes between stages")
    checkpoints, initiates = (_listed(given, key) for key in LISTS)
    if (checkpoints or initiates) and stages > 1:
        raise Malformed(1, "checkpoints cannot be combined with pp above 1", "leave one out")
    return Strategy(
        is_micro=is_micro,
        ranks=ranks,
        tensor=tensor,
        expert=expert,
        stages=1 if is_micro else stages,
        microbatches=size["ga"],
        chunks=size["vpp"],
        stage_bytes=stage_bytes,
        checkpoints=checkpoints,
        initiates=initiates,
        is_inference=given.get("mode") == [1],
    )


def _unused(given: dict[str, list[float]], strategy: Strategy) -> Iterator[str]:
    """Yield the keys of the header that change nothing here, though their values ask for more."""
    if given.get("mode", [0]) not in ([0], [1]):
        yield f"mode {given['mode'][0]:g}, which is unknown"
    if strategy.is_micro:
        plain = 0, 1, strategy.ranks
        keys = [key for key in SIZES if given.get(key, [0])[0] not in plain]
        keys += [key for key in ("pp_comm", *LISTS) if given.get(key, [0])[0]]
        yield from (f"{key} of a benchmark, whose operations are of all ranks" for key in keys)
    elif bool(strategy.checkpoints) != bool(strategy.initiates):
        yield "checkpoints, which need both checkpoints and checkpoint_initiates"
    elif strategy.stages == 1:
        keys = [key for key in ("vpp", "pp_comm") if given.get(key, [0])[0] > (key == "vpp")]
        yield from (f"{key} without pipeline stages (pp)" for key in keys)
    elif strategy.chunks > 1 and not strategy.is_interleaved:
        count, stages = strategy.microbatches, strategy.stages
        what = f"{count} microbatches (ga) are not a multiple of {stages} stages"
        yield f"interleaving (vpp): {what}; its {strategy.chunks} messages of a pass are one"


def _listed(given: dict[str, list[float]], key: str) -> frozenset[int]:
    """Return the layers of a list, which begins with their number."""
    count, *layers = given.get(key, []) or [0.0]
    if count != len(layers):
        what = f"{key} must have {count:g} layers after their number, got {len(layers)}"
        raise Malformed(1, what)
    return frozenset(map(int, layers))


def _layers(lines: list[str], strategy: Strategy) -> Iterator[Layer]:
    """Yield the layers; raise `Malformed` at the first one of too many."""
    count = lines[1].strip() if len(lines) > 1 else ""
    written = sum(1 for row in lines[2:] if row.strip())
    if not count.isdecimal() or len(count) > COLUMNS or int(count) != written:
        raise Malformed(2, f"must be the number of layers, {written}, got {count[:40]!r}")
    require_nodes(6 * written, 2)
    if wrong := [one for one in strategy.checkpoints | strategy.initiates if one >= written]:
        raise Malformed(1, f"checkpoints must be layers 0 to {written - 1}, got {wrong[0]}")
    nodes = 0
    for number, row in enumerate(lines[2:], start=3):
        words = row.split()
        if not words:
            continue
        if len(words) != COLUMNS:
            raise Malformed(number, f"must have {COLUMNS} columns, got {len(words)}")
        passes = tuple(_pass(words[at : at + 3], number) for at in (2, 5, 8))
        _number(words[11], number)
        layer = Layer(number, words[0], passes)
        nodes += layer.most_nodes * strategy.ranks
        require_nodes(nodes, number)
        yield layer


def _pass(words: list[str], number: int) -> LayerPass:
    compute_ns, size = _number(words[0], number), _number(words[2], number)
    name, *suffix = re.split(r"(?=_DP_EP$|_EP$)", words[1])
    if name != "NONE" and name not in OPERATIONS:
        hint = f"known: {', '.join(OPERATIONS)}"
        raise Malformed(number, f"unknown operation {words[1][:40]!r}", hint)
    size_bytes = require_bytes(round(size), number)
    return LayerPass(round(compute_ns), OPERATIONS.get(name), "".join(suffix), size_bytes)


def _number(word: str, number: int) -> float:
    if not NUMBER.fullmatch(word) or word.startswith("-"):
        raise Malformed(number, f"must be a number, got {word[:40]!r}")
    return float(word)
