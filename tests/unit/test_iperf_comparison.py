"""Rounds in which iperf3 carries a schedule's bytes, and the parsing of its report."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import EmulationError
from model.workload.transfers.collective import Collective
from tests.unit.fabrics import assume_accepted
from traffic_gen.iperf3 import Flow, bytes_by_pair, parse, rounds
from traffic_gen.workloads.algorithms.collectives import ALGORITHMS
from traffic_gen.workloads.sized_collective import SizedCollective

SIZES = st.integers(2, 5)


@given(st.sampled_from(sorted(ALGORITHMS)), SIZES, SIZES)
def test_in_a_round_each_rank_sends_to_one_and_receives_from_one(
    algorithm: tuple[Collective, str], domains: int, domain_size: int
) -> None:
    assume_accepted(algorithm, domains, domain_size)
    schedule = SizedCollective(*algorithm, (domains, domain_size), 100_000).steps()
    sizes = bytes_by_pair(schedule)
    for pairs in rounds(sizes, domains, domain_size):
        sources, destinations = zip(*pairs, strict=True)
        assert len(set(sources)) == len(sources)
        assert len(set(destinations)) == len(destinations)


@given(st.sampled_from(sorted(ALGORITHMS)), SIZES, SIZES)
def test_rounds_carry_every_byte_of_the_schedule_once(
    algorithm: tuple[Collective, str], domains: int, domain_size: int
) -> None:
    assume_accepted(algorithm, domains, domain_size)
    schedule = SizedCollective(*algorithm, (domains, domain_size), 100_000).steps()
    sizes = bytes_by_pair(schedule)
    carried = [pair for pairs in rounds(sizes, domains, domain_size) for pair in pairs]
    assert sorted(carried) == sorted(sizes)
    total = sum(transfer.size_bytes for transfer in schedule.transfers)
    assert sum(sizes[pair] for pair in carried) == total


def test_a_pairwise_exchange_is_one_round_for_each_of_its_steps() -> None:
    two_steps = SizedCollective(Collective.ALL_TO_ALL, "two-step", (4, 4), 100_000)
    sizes = bytes_by_pair(two_steps.steps())
    assert [len(pairs) for pairs in rounds(sizes, 4, 4)] == [16] * 6


def test_a_report_says_what_was_sent_and_what_had_come_when() -> None:
    end = {
        "sum_sent": {"bytes": 5_242_880, "seconds": 1.815},
        "sum_received": {"bytes": 4_351_590, "seconds": 1.822},
    }
    flow = parse((0, 4), json.dumps({"start": {}, "intervals": [], "end": end}), "")
    assert flow == Flow((0, 4), sent_bytes=5_242_880, received_bytes=4_351_590, duration_s=1.822)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps({"end": {}, "error": "unable to connect to server"}), "unable to connect"),
        ("iperf3: option -n needs a number", "option -n"),
        ("", r"report is not JSON: '' \(killed by SIGKILL\)"),
    ],
)
def test_a_failure_is_told_in_the_words_of_iperf3(text: str, said: str) -> None:
    with pytest.raises(EmulationError, match=said):
        parse((0, 4), text, "killed by SIGKILL")
