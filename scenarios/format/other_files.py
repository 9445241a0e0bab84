"""Files that a command does not take: what they are by their content, and what to do with them."""

import re
from collections.abc import Collection
from itertools import chain
from pathlib import Path

from model.errors import Problem

UNREAD = "Railbed does not read it; describe the network by the keys of a scenario's fabric"
UNREPLAYED = "it cannot be replayed; give a workload the sizes in it, or record an execution trace"
MEASURED, LOGGED = ("result of nccl-tests", UNREPLAYED), ("log of NCCL's profiler", UNREPLAYED)
# A kind of file, and what to do with it; `{name}` is that of the file.
SCENARIO = "scenario", "give it to `./railbed run`"
TRAINED = "training configuration", "give it to `./railbed train`"
CLUSTER = "cluster", "give it to `./railbed decide`"
NETWORK = "network", "name it in a scenario: `fabric: {{topology: {name}}}`"
# Keys that only files of a kind have: Railbed's own; models' own, of HuggingFace, of Megatron and
# AICB, of GPT-2, of several models in one, and of Calculon; networks of Railbed and of ASTRA-sim.
BY_KEYS = (
    ({"fabric", "workloads"}, SCENARIO),
    ({"layers", "hidden"}, TRAINED),
    ({"num_hidden_layers", "hidden_size"}, TRAINED),
    ({"num_layers", "hidden_size"}, TRAINED),
    ({"n_layer", "n_embd"}, TRAINED),
    *(({"model_type", text}, TRAINED) for text in ("text_config", "llm_config", "language_config")),
    ({"hidden", "attn_heads"}, TRAINED),
    ({"radix", "models"}, CLUSTER),
    ({"domains", "domain_size", "links"}, NETWORK),
    ({"topology", "npus_count"}, NETWORK),
    ({"logical-dims"}, ("logical topology of ASTRA-sim", UNREAD)),
    ({"topologies-per-dim"}, ("network of ASTRA-sim 1.0", UNREAD)),
    ({"average_bus_bandwidth"}, MEASURED),
    ({"coll_perf"}, LOGGED),
)
# Lines that only these have: links, tiers and elements of topologies; columns of tables; calls.
BY_LINES = (
    (re.compile(r"^[ \t]*[0-9]+\s+[0-9]+\s+[0-9.]+\s*[kKMGT]?i?[bB](ps|/s)\b", re.M), NETWORK),
    (re.compile(r"^Tiers\s+[0-9]+\s*$", re.M), ("topology of htsim", UNREAD)),
    (re.compile(r"^[ \t]*<(system|graphs) version=", re.M), ("topology of NCCL", UNREAD)),
    (re.compile(r"^#[ \t]+size[ \t]+count[ \t]+type\b", re.M), MEASURED),
    (re.compile(r'"coll_perf"\s*:|"cat"\s*:\s*"COLL"'), LOGGED),
    (re.compile(r'\{\s*"comms"\s*:\s*"'), ("list of calls of PARAM", UNREPLAYED)),
)


def other_kind(path: Path, text: str, keys: Collection[object], *wanted: str) -> Problem | None:
    """Return the problem of a file of another known kind, by its keys, or its text if it has none.

    `None` if its kind is a wanted one, or not known.
    """
    by_keys = (known for marks, known in BY_KEYS if marks <= set(keys))
    by_lines = (known for line, known in BY_LINES if not keys and line.search(text))
    kind, hint = next(chain(by_keys, by_lines), ("", ""))
    if not kind or kind in wanted:
        return None
    what = f"is a {kind}, must be a {' or a '.join(wanted)}"
    return Problem(str(path), what, hint.format(name=path.name))
