"""The sections of modeled results: training iterations, networks, decisions, the paper's claims."""

from collections.abc import Sequence
from itertools import chain

from model.sentences import counted
from results.sections.section import (
    Cell,
    Columns,
    Marked,
    Result,
    Row,
    Section,
    case_section,
    number_or_dash,
    requests_section,
    spread,
    verdict,
)

GIGA = 1e9
# Degrees that a sentence names only where they are above 1.
RARE = ("expert", "context")
# What the commands of a decision measure.
MEASURED = {"all_to_all_slowdown": "the slowdown of all-to-all", "losses": "what failures cost"}
# What a search chooses.
CHOSEN = ("strategy", "way")


def train_sections(result: Result) -> list[Section]:
    """The terms of an iteration's time, then its configuration, strategy and utilization."""
    seconds_s = result["iteration_s"]
    terms = {term: seconds for term, seconds in result["terms_s"].items() if seconds}
    rows = [
        *((term, f"{s:.4f}", f"{100 * s / seconds_s:.1f}%") for term, s in terms.items()),
        ("iteration", f"{seconds_s:.4f}", ""),
    ]
    memory = memory_in_words(result["memory_bytes"], result["host_memory_bytes"])
    memory += "" if result["fits"] else ": too much"
    utilization = f"MFU {result['mfu']:.1f}%, HFU {result['hfu']:.1f}%, memory {memory}"
    remarks = [_configuration(result), _strategy(result), utilization, *result["left_out"]]
    return [Section("Time of an iteration", ("term", "seconds", "share"), rows, remarks=remarks)]


def memory_in_words(memory_bytes: float, host_bytes: float) -> str:
    """The memory of a GPU, and of the host where it has a part in it."""
    host = f" and {three_digits(host_bytes / GIGA)} GB of its host" if host_bytes else ""
    return f"{three_digits(memory_bytes / GIGA)} GB a GPU{host}"


def prediction_sections(result: Result) -> list[Section]:
    """The platform's time of each case, its lower bound, and the part of the latencies in it."""
    columns: Columns = (
        ("time", lambda case: _milliseconds(case["completion_s"])),
        ("busiest link", lambda case: _milliseconds(case["lower_bound_s"])),
        ("", lambda case: case["busiest_link"] or "-"),
        ("latency", lambda case: f"{100 * case['latency_s'] / case['completion_s']:.1f}%"),
        ("busbw", lambda case: number_or_dash(case["busbw"], ".2f")),
    )
    framing, fabric = result["framing"], result["cases"][0]["fabric"]
    most = "up to " if fabric["missing"] else ""
    text = (
        f"Times of the platform at its own rates, in ms, on {fabric['gpus']} GPUs in HB domains of "
        f"{most}{fabric['domain_size']}; headers ({framing['name']}) leave "
        f"{framing['efficiency']:.1%} of a NIC link to payload in full packets. "
        "Busiest link: what it needs for its bytes. Latency: its part of the time. "
        "busbw: GB/s, as of nccl-tests."
    )
    reasons = [f"{case['case']}: {case['reason']}" for case in result["cases"] if case["reason"]]
    left_out = [f"left out: {what}" for what in result["left_out"]]
    loads = [case for case in result["cases"] if case["inference"]]
    times = case_section(
        "On paper", columns, result["cases"], text, [*reasons, *result["notes"], *left_out]
    )
    until = "The time of a load is until the last byte of its last request, with all arrivals."
    requests = requests_section(
        loads, ("time",), lambda _, seconds: (_milliseconds(seconds),), f"In ms. {until}"
    )
    return [times, *([requests] if loads else [])]


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.4g}"


def _configuration(result: Result) -> str:
    size = f"{result['parameters'] / GIGA:.1f} billion parameters"
    if result["active_parameters"] < result["parameters"]:
        size += f" ({result['active_parameters'] / GIGA:.1f} of a token)"
    where = f"{result['fabric']}, {_gpus(result)}"
    return f"{result['configuration']}: {size}, {where}, {_batch(result)}"


def _batch(result: Result) -> str:
    return f"batch {result['batch']} of {result['sequence']} tokens"


def _gpus(result: Result) -> str:
    """The GPUs, their domains, the part of these that the degrees fill, and shared NICs."""
    gpus, size, filled = (result[key] for key in ("gpus", "domain_size", "used_of_domain"))
    partly = f", of which the degrees fill {filled}" if filled < min(size, gpus) else ""
    nics = f", {shared} a NIC" if (shared := result["gpus_per_nic"]) > 1 else ""
    return f"{counted(gpus, 'GPU')} in HB domains of {size}{partly}{nics}"


def _strategy(result: Result) -> str:
    """The degrees that the model has, and what the search chose besides them."""
    inside = {key: f" ({count} in a domain)" for key, count in result["in_domain"].items()}
    named = {k: value for k, value in result["strategy"].items() if value > 1 or k not in RARE}
    degrees = [f"{key} {value}{inside.get(key, '')}" for key, value in named.items()]
    way = result["way"]
    again = "no" if way["recomputation"] == "none" else way["recomputation"]
    words = [f"{again} recomputation", f"ZeRO {way['sharding']}"]
    words += [key for key, chosen in way.items() if chosen is True]
    return f"strategy: {', '.join([*degrees, *words])}"


def traffic_sections(result: Result) -> list[Section]:
    """Bytes by parallel dimension and by links, the domains, and the shares of pairs."""
    gpus, total = result["gpus"], sum(result["bytes"].values())
    links = {
        "in HB domains": result["hb_bytes"],
        "by NICs": result["nic_bytes"],
        "by NICs, across rails": result["cross_rail_nic_bytes"],
    }
    rows = []
    for name, size in (*result["bytes"].items(), *links.items()):
        share = f"{100 * size / (total or 1):.1f}%"
        rows.append((name, f"{size / GIGA:.1f} GB", f"{size / gpus / GIGA:.2f} GB", share))
    pairs = (
        f"{result['pairs']} ordered pairs: {100 * result['idle_pairs']:.2f}% idle, "
        f"{100 * result['tensor_pairs']:.3f}% with tensor-parallel traffic"
    )
    columns = (result["configuration"], "all GPUs", "each GPU", "share")
    modeled = (_batch(result), _strategy(result)) if "strategy" in result else ()
    remarks = (_gpus(result), *modeled, pairs, *result["left_out"])
    return [Section("Bytes of an iteration", columns, rows, remarks=remarks)]


NETWORK = ("switches", "transceivers", "million USD", "MW", "GPUs cut off", "GPUs slowed")
AT_RISK_TEXT = "If a lowest switch fails: GPUs that lose their NIC, and GPUs that lose a port."


def cost_sections(result: Result) -> list[Section]:
    """A row for each fabric, and one for what rail-only saves."""
    saved = result["saved"]
    keys = ("switches", "transceivers", "usd", "watts")
    rows = [
        *((name, *_network(result[name])) for name in ("rail-optimized", "rail-only")),
        ("saved", *_counts_and_costs(saved), "", ""),
        ("in percent", *(f"{saved[f'{key}_percent']:.1f}%" for key in keys), "", ""),
    ]
    return [Section("Networks", ("network", *NETWORK), rows, AT_RISK_TEXT)]


def _network(row: Result) -> tuple[str, ...]:
    return *_counts_and_costs(row), f"{row['gpus_cut_off']}", f"{row['gpus_slowed']}"


def _counts_and_costs(row: Result) -> tuple[str, ...]:
    """Format switches, transceivers, million USD and MW."""
    usd, megawatts = three_digits(row["usd"] / 1e6), three_digits(row["watts"] / 1e6)
    return f"{row['switches']}", f"{row['transceivers']}", usd, megawatts


def three_digits(number: float) -> str:
    """Format a number with its first three digits, and at most one behind the point if more."""
    return f"{number:.1f}" if abs(number) >= 100 else f"{number:.3g}"


def decision_sections(result: Result) -> list[Section]:
    """Each design's cost and power, each model on it, the answer and its sensitivities."""
    designs = result["designs"]
    rows = [
        (one["design"], *_network(one), Marked("efficient" if one["efficient"] else ""))
        for one in designs
    ]
    pricing = [result["pricing"]] if result["pricing"] else []
    return [
        Section("Networks", ("design", *NETWORK, ""), rows, AT_RISK_TEXT, pricing),
        *(_model(designs, index) for index in range(len(designs[0]["models"]))),
        _strategies(designs),
        _spine_layer(designs),
        _spares(result),
        _decision(result),
    ]


def _spine_layer(designs: Sequence[Result]) -> Section:
    """What each model loses without the spine layer, and what its tokens then cost."""
    whole = designs[0]
    alike = (one for one in designs if one["domain_size"] == whole["domain_size"])
    rails = next(one for one in alike if one["kind"] == "rail-only")
    rows = []
    for both in zip(whole["models"], rails["models"], strict=True):
        degrees = dict.fromkeys(f"{one['strategy']['expert']}" for one in both)
        with_s, without_s = (one["iteration_s"] for one in both)
        loss = f"{100 * (without_s / with_s - 1):+.1f}%"
        prices = (three_digits(one["network_usd_per_million_tokens"]) for one in both)
        times = f"{with_s:.3f} s", f"{without_s:.3f} s"
        rows.append((both[0]["configuration"], " to ".join(degrees), *times, loss, *prices))
    headings = ("expert degree", "with spines", "without", "loss", "USD/10⁶ tokens", "without")
    return Section("What the spine layer is worth", ("model", *headings), rows)


def _spares(result: Result) -> Section:
    """What a lost GPU costs the answer without a spare and with one, and what the spare costs."""
    rows = []
    for row in result["spares"]:
        lost_gpu = number_or_dash(row["lost_gpu_percent"], "+.2f", "%")
        price = three_digits(row["network_usd"] / 1e6)
        rows.append((row["spare"], f"{row['idle_gpus']}", price, lost_gpu))
    headings = ("spare", "idle GPUs", "network, 10⁶ USD", "lost GPU")
    told = f"Of {result['answer']}; the GPUs themselves are not priced."
    if len(result["designs"][0]["models"]) > 1:
        worst = (
            f"{row['spare']}: {row['of_model']}" for row in result["spares"] if row["of_model"]
        )
        told += f" Lost GPU: of the model that loses the most ({'; '.join(worst)})."
    return Section("What a spare is worth", headings, rows, remarks=(told,))


def _decision(result: Result) -> Section:
    changing = (row for row in result["sensitivities"] if row["changes"])
    changes = [f"With {row['input']}: {row['answer']}." for row in changing]
    none = "No price, power, lifetime or tariff a quarter or four times as large changes it."
    measured = "All figures are modeled. On an emulated twin, these commands measure:"
    slowdowns = (one["all_to_all_slowdown_percent"] for one in result["designs"][0]["models"])
    unused = "" if any(one is not None for one in slowdowns) else "all_to_all_slowdown"
    measured_by = ((key, how) for key, how in result["measured_by"].items() if key != unused)
    commands = (f"  {MEASURED[key]}: {command}" for key, command in measured_by)
    remarks = (result["sentence"], *(changes or [none]), measured, *commands)
    return Section("The decision", remarks=remarks)


def _model(designs: Sequence[Result], index: int) -> Section:
    text = (
        "Lost NIC link: from all other ports of the domain sharing its traffic equally, to one of "
        "them taking a ring's, as routed."
    )
    headings = ("iteration", "HFU", "all-to-all", "lost NIC link", "lost GPU", "USD/10⁶ tokens")
    rows = [(design["design"], *_modeled(design["models"][index])) for design in designs]
    partly = [
        f"{one['design']}: degrees that divide the job fill {count} of a domain's "
        f"{one['domain_size']} GPUs; computed with domains of {count}."
        for one in designs
        if (count := one["models"][index]["used_of_domain"]) < one["domain_size"]
    ]
    model = designs[0]["models"][index]
    size = f"An iteration has {model['batch']} sequences of {model['sequence']} tokens."
    left_out = chain.from_iterable(one["models"][index]["left_out"] for one in designs)
    remarks = (size, *partly, *dict.fromkeys(left_out))
    return Section(model["configuration"], ("design", *headings), rows, text, remarks)


def _strategies(designs: Sequence[Result]) -> Section:
    """The strategy of each model on each design."""
    rows = list[Row]()
    for one in designs:
        rows.append((one["design"],))
        rows += ((model["configuration"], Marked(_degrees(model))) for model in one["models"])
    text = (
        "Degrees above 1: tensor, pipeline, data, expert, context; after / the part in an HB "
        "domain; then the recomputation, if any."
    )
    first = designs[0]["models"]
    differ = [
        f"{model['configuration']}: each network has its own best strategy, so rows differ in more "
        "than the network."
        for index, model in enumerate(first)
        if any(one["models"][index][key] != model[key] for one in designs for key in CHOSEN)
    ]
    return Section("Strategies", ("model", "degrees"), rows, text, differ)


def _degrees(model: Result) -> str:
    """The degrees above 1, the parts of them in an HB domain, the recomputation: `T8/8 P4 full`."""
    strategy, recomputation = model["strategy"], model["way"]["recomputation"]
    above = {key: part for key, part in model["in_domain"].items() if strategy[key] > 1}
    words = [f"{k[0].upper()}{strategy[k]}" + f"/{p}" * (p > 1) for k, p in above.items()]
    return " ".join([*words, *[recomputation] * (recomputation != "none")]) or "-"


def _modeled(model: Result) -> tuple[str, ...]:
    losses = model["losses_percent"]
    least, routed = losses["nic_link"], losses["nic_link_to_one"]
    nic_link = dict.fromkeys(number_or_dash(loss, "+.2f") for loss in (least, routed))
    return (
        f"{model['iteration_s']:.3f} s",
        f"{model['hfu']:.1f}%",
        number_or_dash(model["all_to_all_slowdown_percent"], "+.1f", "%"),
        " to ".join(nic_link) + "%" * (least is not None),
        number_or_dash(losses["gpu"], "+.2f", "%"),
        three_digits(model["network_usd_per_million_tokens"]),
    )


MET = (
    "Met: figures 8 to 10 differ by at most 3 points; errors of HFU (figure 7) are at most 5 "
    "points; 'or more' and 'or less' hold; all else differs by at most 5%, or 10% where the "
    "paper says 'about'."
)


def paper_sections(result: Result) -> list[Section]:
    """Every claim with both values, the reasons of differences, and the sensitivities."""
    claims, rows = result["claims"], []
    for one in claims:
        judged = Marked(one["verdict"], "pass" if one["verdict"] == "met" else "warn")
        rows.append((one["id"], _shown(one["paper"]), _shown(one["ours"]), one["unit"], judged))
    unmet = (one for one in claims if one["verdict"] == "differs")
    differing = [f"  {one['id']}: {one['claim']}: {one['why']}" for one in unmet]
    met = f"{len(claims) - len(differing)} of {len(claims)} claims are met. What differs:"
    headings = ("claim", "paper", "ours", "unit", "verdict")
    others = result["sensitivities"]
    keys = [key for key in others[0] if key != "setting"]
    return [
        Section("Claims", headings, rows, MET, remarks=(met, *differing)),
        Section(
            "Figures 8 to 10 with other assumptions, one changed at a time",
            ("setting", *(key.removeprefix("fig") for key in keys)),
            [(row["setting"], *(_shown(row[key]) for key in keys)) for row in others],
            remarks=(result["assumptions"],),
        ),
    ]


def _shown(value: float | list[float]) -> str:
    if isinstance(value, list):
        return " ".join(map(_shown, value))
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def twins_sections(result: Result) -> list[Section]:
    """Every measured point of the paper's figures against the model at its size."""
    return [points_section(result["points"], remarks=(f"The page: {result['page']}",))]


def points_section(points: Sequence[Result], remarks: Sequence[Cell] = ()) -> Section:
    """A row for each point: measured, its spread, modeled."""
    columns = ("figure, place, case", "measured", "spread", "modeled", "ratio", "")
    rows = []
    for point in points:
        where = "".join(f", {key} {value}" for key, value in point["place"].items())
        name, median_s = f"{point['figure']}{where}: {point['case']}", point["measured_s"]["median"]
        times = f"{median_s:.3f} s", spread(point["measured_s"]), f"{point['modeled_s']:.3f} s"
        rows.append((name, *times, f"{point['ratio']:.4f}", verdict(point)))
    title = "Every point against the model at its size"
    return Section(title, columns, rows, "Medians, emulated seconds.", remarks)


def plain_sections(result: Result) -> list[Section]:
    """Rows of which each has its headings, as in the paper's tables."""
    rows = result["rows"]
    return [Section("", tuple(rows[0]), [tuple(map(str, row.values())) for row in rows])]
