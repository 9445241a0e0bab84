"""The points of the paper's figures that are measured, each a scenario with changes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from model.fabric.spec import PLATFORMS
from studies.paper import study

GPUS = 16
# The rate of an emulated NIC: with the fastest HB domain, 16 GPUs are no load for two cores.
NIC_BPS = 10e6
FIG8, FIG9, FIG10 = "fig8", "fig9", "fig10"
ALL_TO_ALL, TABLE2, FAULTS = "section-iv-b", "table2", "section-iv-c"

# Equivalents of a twin's domain in the paper: half a tensor-parallel group, one group (8 GPUs),
# groups of a few copies, of many, of all (the ideal network).
STANDS_FOR: dict[int, int | None] = {1: 4, 2: 8, 4: 32, 8: 256, 16: None}
IDEAL = GPUS
SMALL, LARGE = (size for size, full in STANDS_FOR.items() if full in study.DOMAIN_SIZES)
# Keys of figure 9's places, and its slowest bandwidths.
HB, NIC = "HB Tbit/s", "NIC Gbit/s"
SLOWEST = {HB: min(study.HB_RATES) / study.TBIT, NIC: min(study.NIC_RATES) / study.GBIT}
# Models of figure 8, and the dilations with which an iteration takes a few seconds.
DILATIONS = {"gpt-146b": 100, "gpt-1t": 20}
# Numbers of HB domains of section IV-B, with the platform that has the paper's larger slowdown.
DOMAINS, VARIED_PLATFORM = (2, 3, 4, 8), "dgx-h100"
USUAL_DOMAINS = 4
# The scenarios of table II, by the model of their iterations.
NETWORKS = {"gpt-1t": "paper-networks", "moe-1.3b": "paper-networks-moe"}
# Failure experiments of the library, by the part that fails and the job's recovery.
EXPERIMENTS = {
    "nic-link-down": "a NIC link; its traffic goes on by the other rails",
    "rail-switch-down": "a rail switch; its traffic goes on by the other rails",
    "gpu-lost-spare": "a GPU; a spare of its domain takes its place",
    "domain-lost": "an HB domain; a spare domain takes its place",
}

Place = Mapping[str, str | float]


@dataclass(frozen=True)
class Twin:
    """A scenario of the library with changes (`KEY=VALUE`), and its place in a figure."""

    figure: str
    place: Place
    scenario: str
    changes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The figure and the place in words."""
        values = self.place.items()
        where = (
            f"{key} {one}" if isinstance(one, str) else f"{key} {one:g}" for key, one in values
        )
        return ", ".join((self.figure, *where))


def _iteration(figure: str, place: Place, *changes: str) -> Twin:
    """An iteration with HB domains of the place's size K."""
    size = int(place["K"])
    shape = (f"fabric.domains={GPUS // size}", f"fabric.domain_size={size}")
    return Twin(figure, place, "paper-iteration", (*shape, *changes))


def _figure_8() -> Iterator[Twin]:
    for model, dilation in DILATIONS.items():
        changes = f"workloads.0.iteration=paper-{model}", f"workloads.0.time_dilation={dilation}"
        for size in STANDS_FOR:
            yield _iteration(FIG8, {"model": model, "K": size}, *changes)


def _figure_9() -> Iterator[Twin]:
    for size, nic, hb in product((SMALL, LARGE), study.NIC_RATES, study.HB_RATES):
        rates = f"{hb / study.TBIT:g} Tbit/s", f"{nic / study.GBIT:g} Gbit/s"
        changes = (f"fabric.hb_rate={rates[0]}", f"fabric.nic_rate={rates[1]}")
        yield _iteration(FIG9, {"K": size, HB: hb / study.TBIT, NIC: nic / study.GBIT}, *changes)


def _figure_10() -> Iterator[Twin]:
    for size, batch in product((SMALL, LARGE, IDEAL), study.BATCHES):
        yield _iteration(FIG10, {"K": size, "batch": batch}, f"workloads.0.batch={batch}")


def _all_to_alls() -> Iterator[Twin]:
    for name in study.PLATFORM_NAMES:
        scale = PLATFORMS[name].nic_rate_bps / NIC_BPS
        changes = (f"fabric.platform={name}", f"fabric.bandwidth_scale={scale:g}")
        for domains in DOMAINS if name == VARIED_PLATFORM else (USUAL_DOMAINS,):
            place: Place = {"platform": name, "y": domains}
            shape = f"fabric.domains={domains}"
            yield Twin(ALL_TO_ALL, place, "paper-all-to-all", (*changes, shape))


TWINS = (
    *_all_to_alls(),
    *(Twin(TABLE2, {"model": model}, name) for model, name in NETWORKS.items()),
    *_figure_8(),
    *_figure_9(),
    *_figure_10(),
    *(Twin(FAULTS, {"experiment": name}, name) for name in EXPERIMENTS),
)
