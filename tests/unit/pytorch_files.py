"""Files as PyTorch records them: Kineto's traces and execution traces, of our own making."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

EVERYONE = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}
Event = dict[str, Any]


def kernel(begin: float, lasts: float, name: str = "gemm", **args: object) -> Event:
    """A kernel of the GPU, in microseconds."""
    return {"ph": "X", "cat": "kernel", "name": name, "ts": begin, "dur": lasts, "args": args}


def attributes(name: str, elements: int, ranks: str = "[0, 1]", **others: object) -> Event:
    """What Kineto writes of a call, on the GPU and on the CPU."""
    return {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": ranks.count(",") + 1,
        "dtype": "Float",
        "In split size": "[]",
        "Process Group Name": "0",
        "Process Group Ranks": ranks,
        **others,
    }


def communication(begin: float, lasts: float, name: str, elements: int, **others: Any) -> Event:
    """A kernel of NCCL."""
    return kernel(begin, lasts, f"ncclDevKernel_{name}", **attributes(name, elements, **others))


def kineto(rank: int, *events: Event, ranks: int = 2, **info: object) -> bytes:
    """A file of Kineto; its times begin anywhere, also between two microseconds."""
    distributed = {"backend": "nccl", "rank": rank, "world_size": ranks, **info}
    head = {"schemaVersion": 1, "distributedInfo": distributed}
    return json.dumps({**head, "traceEvents": list(events)}).encode()


def call(
    name: str, elements: int, *, request: object = 0, rank: int = 0, **others: object
) -> tuple[str, list[object], Event]:
    """A communication of an execution trace: the name of its node, its inputs and attributes."""
    without = name in ("wait", "barrier", "init")
    group = str(others.get("pg_name", "0"))
    named: Event = {
        "collective_name": name,
        "dtype": "Float",
        "in_msg_nelems": elements,
        "in_split_size": "[]",
        "global_rank_start": 0,
        "global_rank_stride": 1,
        "pg_name": group,
        "pg_size": 2,
        **others,
    }
    tensors: list[object] = [] if without else [[[1, 2, 0, elements, 4, "cuda:0"]]]
    return "record_param_comms", [*tensors, request, [group, ""], rank, name, [], []], named


def operators(
    *nodes: tuple[str, Sequence[object], Mapping[str, object]],
    groups: Sequence[Mapping[str, object]] = (EVERYONE,),
    schema: str = "1.1.1-chakra.0.0.4",
) -> bytes:
    """An execution trace: groups, an operator, and these nodes."""
    first: tuple[str, list[object], Event] = ("## process_group:init ##", [json.dumps(groups)], {})
    listed = [
        {
            "id": number + 2,
            "name": name,
            "ctrl_deps": 1,
            "inputs": {"values": list(inputs), "shapes": [], "types": []},
            "attrs": [{"name": key, "type": "", "value": value} for key, value in named.items()],
        }
        for number, (name, inputs, named) in enumerate([first, ("aten::mm", [], {}), *nodes])
    ]
    # The observer writes a node when it ends: callers come after what they call.
    return json.dumps({"schema": schema, "pid": 1, "nodes": listed[::-1]}).encode()
