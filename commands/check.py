"""The command `check`: a scenario's mistakes, or what it describes."""

import json
import os
from collections import defaultdict
from collections.abc import Iterator

from commands.options import AsJson, Overrides, ScenarioPath, load_scenario, require_possible
from model.errors import visible
from model.fabric.spec import PLATFORMS
from model.sentences import counted
from scenarios.planning.plan import notes
from scenarios.scenario import Case, Scenario


def check(
    scenario: ScenarioPath,
    overrides: Overrides = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Load a scenario, ask whether this kernel can execute it, and describe it."""
    checked = load_scenario(scenario, overrides)
    require_possible(checked)
    lines = [*described(checked)]
    # Without Rich, whose import takes a tenth of this command.
    if as_json:
        print(json.dumps({"schema": "railbed.check/1", "scenario": checked.name, "lines": lines}))
    else:
        print(visible("\n  ".join((f"{scenario}: ok", *lines))))


def described(scenario: Scenario) -> Iterator[str]:
    """Yield the fabrics, cases and faults of a scenario, and the values chosen for `auto`."""
    for spec in scenario.fabrics:
        rates = (
            f"HB {spec.emulated_hb_bps / 1e6:g} Mbit/s, NIC {spec.emulated_nic_bps / 1e6:g} Mbit/s"
        )
        gpus = counted(spec.domain_size, "GPU")
        shape = f"{counted(spec.domains, 'domain')} x {gpus}{spec.remarks}"
        platform = spec.platform if spec.platform in PLATFORMS else "own rates"
        yield f"{spec.kind}: {shape}, {platform}, {rates}"
    alike = defaultdict[tuple[str, ...], list[Case]](list)
    for case in scenario.cases:
        size = f"{case.emulated_bytes} bytes {case.task.origin}".rstrip()
        alike[case.work, size, *case.task.details].append(case)
    for (_, size, *details), cases in alike.items():
        yield f"{scenario.named(cases)}: {size}"
        yield from (f"  {line}" for line in details)
    yield from notes(scenario)
    for kind, faults in scenario.faults.items():
        for fault in faults:
            begin = f"at {fault.at_s:g} s" if fault.at_step is None else f"at step {fault.at_step}"
            until = "" if fault.for_s is None else f", for {fault.for_s:g} s"
            yield f"{kind}: {fault.in_words}, {begin}{until}"
    if scenario.has_faults and os.geteuid() != 0:
        yield "Only root can check whether this kernel supports these faults."
