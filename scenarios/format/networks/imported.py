"""Import a network file of another tool that a scenario's fabric names, as keys of the fabric.

Keys that the scenario itself gives take precedence over those of the file.
"""

from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from linux.files.user_files import Unreadable, read_text
from model.errors import InputError, Problem
from scenarios.format.networks.astra_sim import is_astra_sim, read_astra_sim
from scenarios.format.networks.refusal import Keys, Unmapped
from scenarios.format.networks.simai import is_simai, read_simai

# SimAI's file of 4096 GPUs has 3 MB.
MOST_BYTES = 2**24
RATES = ("hb_rate", "nic_rate")
FORMATS = {"SimAI": (is_simai, read_simai), "ASTRA-sim": (is_astra_sim, read_astra_sim)}


def import_network(document: Any, folder: Path) -> bool:
    """Put the keys of a named network into the fabric; return whether there is one.

    Raises `InputError` with the line of the file if the network cannot be a fabric.
    """
    fabric = document.get("fabric")
    name = fabric.get("topology") if isinstance(fabric, CommentedMap) else None
    if not isinstance(name, str):
        return False
    place, position = list(fabric).index("topology"), fabric.lc.data.get("topology")
    del fabric["topology"]
    given = {*fabric, *(RATES if "platform" in fabric else ())}
    for key, value in read_network(folder / name).items():
        if key not in given:
            fabric.insert(place, key, value)
            if position is not None:
                fabric.lc.data[key] = position
    return True


def read_network(path: Path) -> Keys:
    """Return the keys of a fabric from a file, by its content."""
    try:
        text = read_text(path, MOST_BYTES)
    except (Unreadable, ValueError) as error:
        raise InputError(Problem(str(path), str(error))) from None
    try:
        for is_one, read in FORMATS.values():
            if is_one(text):
                return read(text)
    except Unmapped as error:
        raise InputError(Problem(f"{path}:{error.line}", error.what)) from None
    known = f"known: {', '.join(FORMATS)}"
    raise InputError(Problem(f"{path}:1", "is in none of the formats of networks", known))
