"""All commands: their names, what `--help` says of them, and their modules.

A command is the function of its name in the module of its name here, which is imported when the
command is called. If it returns that an expectation failed, Railbed's exit code is 1.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A command of the table.

    `function` is its name in the module where Python has the command's own name. Options behind
    `takes_words` may be those of another program.
    """

    help: str
    example: str
    function: str = ""
    takes_words: bool = False


COMMANDS = {
    "demo": Row(
        "Run the quickstart: both fabrics, an AllReduce and an all-to-all, measured and modeled.",
        "sudo ./railbed demo",
    ),
    "run": Row(
        "Run one scenario.", "sudo ./railbed run quickstart --set fabric.domains=8 --set repeats=3"
    ),
    "sweep": Row(
        "Run a scenario at every combination of values; can be resumed.",
        "sudo ./railbed sweep quickstart --over fabric.domains=2,4,8",
    ),
    "failures": Row(
        "Run all failure experiments of the library, on both fabrics, and print one table.",
        "sudo ./railbed failures --proxies process",
    ),
    "exec": Row(
        "Run a command in a scenario's first fabric: once for each rank, or once with --launcher.",
        "sudo ./railbed exec quickstart -- python3 scenarios/library/programs/exchange.py",
        function="execute",
        takes_words=True,
    ),
    "check": Row(
        "Check a scenario without running it: all problems of a kind at once. Needs no root.",
        "./railbed check my-scenario.yaml",
    ),
    "plan": Row(
        "Estimate a scenario's load on this machine, and whether it fits. Needs no root.",
        "./railbed plan quickstart --set fabric.domain_size=8",
    ),
    "predict": Row(
        "Predict the real platform's completion times on paper. Needs no root.",
        "./railbed predict quickstart --set fabric.domains=128 --latency 0.5us",
    ),
    "verify": Row(
        "Check that packets take the intended paths on a scenario's fabrics, and stay on rails.",
        "sudo ./railbed verify quickstart --proxies process",
    ),
    "list": Row(
        "List the scenarios that come with Railbed, and the stored runs.",
        "./railbed list",
        function="list_all",
    ),
    "show": Row("Show a stored run.", "./railbed show latest"),
    "compare": Row(
        "Compare two stored runs, case by case, by the spread of their repeats.",
        "./railbed compare 2026-01-05 latest",
    ),
    "query": Row(
        "Answer a question in SQL about all stored runs; without SQL, list the tables.",
        "./railbed query 'SELECT run, verdict FROM runs'",
    ),
    "export": Row(
        "Export a stored run: tables, a simulator's traces, or results in the form of nccl-tests.",
        "./railbed export latest -o tables",
    ),
    "report": Row(
        "Write one self-contained HTML page about stored runs or a sweep, and its figures.",
        "./railbed report latest -o report.html --figures svg,pdf",
    ),
    "timeline": Row(
        "Write a stored run as a timeline that ui.perfetto.dev and chrome://tracing open.",
        "./railbed timeline latest -o trace.json",
    ),
    "up": Row(
        "Bring a scenario's first fabric up, and open a command line: Mininet's, with faults.",
        "sudo ./railbed up quickstart --proxies process",
    ),
    "live": Row(
        "Bring a scenario's first fabric up with its web page: the same as `up --live`.",
        "sudo ./railbed live quickstart --proxies process",
    ),
    "doctor": Row(
        "Check this machine's requirements and print its costs; measure them if none are stored.",
        "sudo ./railbed doctor --measure",
    ),
    "vm": Row(
        "Execute a command in a copy of Railbed's folder, on a virtual machine of Debian's kernel.",
        "sudo ./railbed vm -- ./railbed run quickstart --proxies process",
        takes_words=True,
    ),
    "traffic": Row(
        "Count the bytes of a training iteration by parallel dimension, and the idle pairs.",
        "./railbed traffic gpt-146b --figure traffic",
    ),
    "train": Row(
        "Model the time of a training iteration, with the strategy given or the best one found.",
        "./railbed train gpt-146b --gpus 1024 --search",
    ),
    "cost": Row(
        "Count switches and transceivers of both fabrics, with their price and power.",
        "./railbed cost --gpus 32768 --radix 64 --domain-size 256",
    ),
    "decide": Row(
        "Compare networks for a cluster: cost, power, iteration times, failures, and an answer.",
        "./railbed decide my-cluster.yaml --figure decision",
    ),
    "paper": Row(
        "Hold every claim of the rail-only paper against the model; draw its figures.",
        "./railbed paper fig8",
    ),
    "bench": Row(
        "Measure the figures that the documentation states; some need no root, such as `routing`.",
        "./railbed bench routing",
    ),
    "clean": Row("Remove leftovers of crashed runs, and nothing else.", "sudo ./railbed clean"),
    "test": Row(
        "Check style and types, and run all tests; with arguments, run pytest with them.",
        "sudo ./railbed test tests/unit/test_docs.py",
        function="all_tests",
        takes_words=True,
    ),
}
