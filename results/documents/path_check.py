"""The JSON object of checked paths: the schema `railbed.verify/1`."""

from collections.abc import Sequence
from typing import Any

from model.fabric.topology import Hop
from results.verdicts.path_check import FabricCheck, IsolationCheck, PairCheck
from results.verdicts.verdict import worst

SCHEMA = "railbed.verify/1"
NOT_APPLICABLE = "not applicable"


def verify_object(scenario: str, fabrics: Sequence[FabricCheck]) -> dict[str, Any]:
    """Return the object that `verify --json` prints and a run with path checks stores."""
    return {
        "schema": SCHEMA,
        "scenario": scenario,
        "verdict": worst(fabric.verdict for fabric in fabrics).value,
        "fabrics": [_fabric_object(fabric) for fabric in fabrics],
    }


def _fabric_object(fabric: FabricCheck) -> dict[str, Any]:
    pairs, mismatches = fabric.paths.pairs, fabric.paths.mismatches
    return {
        "kind": fabric.kind.value,
        "verdict": fabric.verdict.value,
        "pairs": pairs,
        "as_intended": pairs - len(mismatches),
        "mismatches": [_mismatch_object(pair) for pair in mismatches],
        "rail_isolation": _isolation_object(fabric.isolation),
    }


def _mismatch_object(pair: PairCheck) -> dict[str, Any]:
    return {
        "source": pair.source.name,
        "destination": pair.destination.name,
        "intended": [_hop_name(hop) for hop in pair.intended],
        "found": [_hop_name(hop) for hop in pair.found],
        "probes": len(pair.traces),
        "stray": len(pair.stray),
        "arrived": sum(trace.arrived for trace in pair.traces),
    }


def _hop_name(hop: Hop) -> str:
    return f"{hop.sender}->{hop.receiver}"


def _isolation_object(isolation: IsolationCheck | None) -> dict[str, Any]:
    if isolation is None:
        return {"verdict": NOT_APPLICABLE, "foreign_bytes": None, "own_bytes": None}
    return {
        "verdict": isolation.verdict.value,
        "foreign_bytes": isolation.foreign_bytes,
        "own_bytes": isolation.own_bytes,
    }
