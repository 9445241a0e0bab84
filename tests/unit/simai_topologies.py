"""Topology files as SimAI's generator writes them, by its options.

Nodes are numbered GPUs first, then NVSwitches, then ASWs (those of the first port before those of
the second), then PSWs. Rail-optimized, the GPUs of a place share an ASW within a segment of
`per_asw` servers; else the GPUs of `per_asw` NICs in order. All PSWs join all ASWs, or with `dp`
the first half those of the first port, the second half the others.
"""

from math import ceil
from typing import NamedTuple


class Options(NamedTuple):
    """Options of `gen_Topo_Template.py`, by its names."""

    gpu: int
    ro: bool = True
    dt: bool = False
    dp: bool = False
    gps: int = 8
    npa: int = 64
    psn: int = 4
    bw: str = "400Gbps"
    apbw: str = "400Gbps"
    nsps: int = 1
    no_asw: bool = False


# The eleven that its templates and options give, smaller.
ELEVEN = {
    "Spectrum-X": Options(16, psn=2, apbw="400Gbps"),
    "AlibabaHPN": Options(16, dt=True, bw="200Gbps", npa=128, psn=2, apbw="100Gbps"),
    "AlibabaHPN --dp": Options(16, dt=True, dp=True, bw="200Gbps", npa=128, psn=4, apbw="100Gbps"),
    "DCN+": Options(64, ro=False, npa=16, psn=4),
    "DCN+ --dt": Options(64, ro=False, dt=True, bw="200Gbps", npa=16, psn=4),
    "--ro": Options(32, npa=2, psn=4),
    "--ro --dt": Options(32, dt=True, bw="200Gbps", npa=2, psn=4),
    "--ro --dt --dp": Options(32, dt=True, dp=True, bw="200Gbps", npa=2, psn=4),
    "without options": Options(16, ro=False, npa=64, psn=1),
    "--dt": Options(16, ro=False, dt=True, bw="200Gbps", npa=64, psn=2),
    "--no-asw --no-psw": Options(8, no_asw=True, nsps=4),
}


def text_of(options: Options) -> str:
    """Return the text of a topology file."""
    servers = options.gpu // options.gps
    nvswitches = servers * options.nsps
    links = [
        f"{gpu} {options.gpu + gpu // options.gps * options.nsps + one} 2880Gbps 0.000025ms 0"
        for gpu in range(options.gpu)
        for one in range(options.nsps)
    ]
    if options.no_asw:
        return _file(options, nvswitches, 0, links)
    ports = 2 if options.dt else 1
    in_segment = options.npa * (options.gps if options.ro else 1)
    of_segment = options.gps if options.ro else 1
    of_port = ceil(options.gpu / in_segment) * of_segment
    first = options.gpu + nvswitches
    for gpu in range(options.gpu):
        asw = gpu // in_segment * of_segment + (gpu % options.gps if options.ro else 0)
        for port in range(ports):
            links.append(f"{gpu} {first + port * of_port + asw} {options.bw} 0.0005ms 0")
    for asw in range(ports * of_port):
        psws = range(options.psn)
        if options.dp:
            half, plane = options.psn // 2, asw // of_port
            psws = range(plane * half, (plane + 1) * half)
        for psw in psws:
            above = first + ports * of_port + psw
            links.append(f"{first + asw} {above} {options.apbw} 0.0005ms 0")
    return _file(options, nvswitches, ports * of_port + options.psn, links)


def _file(options: Options, nvswitches: int, others: int, links: list[str]) -> str:
    nodes = options.gpu + nvswitches + others
    head = f"{nodes} {options.gps} {nvswitches} {others} {len(links)} H100"
    switches = " ".join(map(str, range(options.gpu, nodes)))
    return "\n".join([head, f"{switches} ", *links, ""])
