"""An example for each command, which its `--help` ends with."""

from collections.abc import Mapping

from typer.models import CommandInfo

EXAMPLES: Mapping[str, str] = {
    "demo": "sudo ./railbed demo",
    "run": "sudo ./railbed run quickstart --set fabric.domains=8 --set repeats=3",
    "sweep": "sudo ./railbed sweep quickstart --over fabric.domains=2,4,8",
    "failures": "sudo ./railbed failures --proxies process",
    "exec": "sudo ./railbed exec quickstart -- python3 scenarios/library/programs/exchange.py",
    "check": "./railbed check my-scenario.yaml",
    "plan": "./railbed plan quickstart --set fabric.domain_size=8",
    "verify": "sudo ./railbed verify quickstart --proxies process",
    "list": "./railbed list",
    "show": "./railbed show latest",
    "query": "./railbed query 'SELECT run, verdict FROM runs'",
    "report": "./railbed report latest -o report.html --figures svg,pdf",
    "timeline": "./railbed timeline latest -o trace.json",
    "export": "./railbed export latest -o tables",
    "compare": "./railbed compare 2026-01-05 latest",
    "up": "sudo ./railbed up quickstart --proxies process",
    "live": "sudo ./railbed live quickstart --proxies process",
    "doctor": "sudo ./railbed doctor --measure",
    "vm": "sudo ./railbed vm -- ./railbed run quickstart --proxies process",
    "traffic": "./railbed traffic gpt-146b --figure traffic",
    "train": "./railbed train gpt-146b --gpus 1024 --search",
    "cost": "./railbed cost --gpus 32768 --radix 64 --domain-size 256",
    "decide": "./railbed decide my-cluster.yaml --figure decision",
    "paper": "./railbed paper fig8",
    "bench": "./railbed bench routing",
    "clean": "sudo ./railbed clean",
    "test": "sudo ./railbed test tests/unit/test_docs.py",
}


def add_examples(commands: list[CommandInfo]) -> None:
    """End the help of each command with its example."""
    for command in commands:
        command.epilog = f"Example: {EXAMPLES[command_name(command)]}"


def command_name(command: CommandInfo) -> str:
    """The word that calls a command."""
    if command.name is not None or command.callback is None:
        return str(command.name)
    return str(command.callback.__name__).replace("_", "-")
