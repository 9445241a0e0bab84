"""Congestion control against the published equations: steps, fixed points, two flows on a link."""

from math import inf, sqrt

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traffic_gen.agents.roce.congestion import Dcqcn, Swift, Window

GBIT = 1e9
LINK_BPS = 40 * GBIT
MOST = 1e6
PACKET_BITS = 8 * 1024
TIMER_NS = 55_000


def dcqcn(slowdown: float = 1.0) -> Dcqcn:
    return Dcqcn(MOST, LINK_BPS / slowdown, slowdown)


def test_without_congestion_control_a_window_stays() -> None:
    control = Window(7)
    for change in (control.notified, control.lost, control.timed_out, control.tick):
        change(1)
    control.acknowledged(3, 10, 2)
    control.sent(1000, 3)
    assert (control.window, control.rate_bps, control.next_ns) == (7, float("inf"), float("inf"))


@given(st.integers(1, 100), st.integers(1, 300), st.sampled_from([1.0, 20_000.0]))
def test_alpha_follows_equations_1_and_2(notified: int, decays: int, slowdown: float) -> None:
    control = dcqcn(slowdown)
    for _ in range(decays):
        control.alpha_ns = 0
        control.tick(0)
    assert control.alpha == pytest.approx((1 - 1 / 256) ** decays)
    before = control.alpha
    for _ in range(notified):
        control.notified(0)
    assert control.alpha == pytest.approx(1 - (1 - before) * (1 - 1 / 256) ** notified)


def ticked(control: Dcqcn, steps: int, slowdown: float) -> None:
    """Let so many rate timers end, and no byte counter."""
    for step in range(1, steps + 1):
        control.tick(round(step * TIMER_NS * slowdown))


@pytest.mark.parametrize("slowdown", [1.0, 20_000.0])
def test_a_cut_is_recovered_by_halves_and_then_by_additive_steps(slowdown: float) -> None:
    control = dcqcn(slowdown)
    control.rate_bps = LINK_BPS / 2 / slowdown
    control.notified(0)
    assert control.rate_bps == pytest.approx(LINK_BPS / 4 / slowdown)
    ticked(control, 5, slowdown)
    recovered = LINK_BPS / 2 - LINK_BPS / 4 / 2**5
    assert control.rate_bps * slowdown == pytest.approx(recovered)
    control.tick(round(6 * TIMER_NS * slowdown))
    assert control.target_bps * slowdown == pytest.approx(LINK_BPS / 2 + 40e6)
    expected = (recovered + LINK_BPS / 2 + 40e6) / 2
    assert control.rate_bps * slowdown == pytest.approx(expected)


def test_both_counters_together_increase_faster_and_longer_each_time() -> None:
    control = dcqcn()
    control.rate_bps = LINK_BPS / 4
    control.notified(0)
    ticked(control, 7, 1.0)
    for _ in range(5):
        control.sent(10_000_000, 0)
    before = control.target_bps
    control.sent(10_000_000, 0)
    assert control.target_bps == pytest.approx(before + 400e6)
    control.tick(8 * TIMER_NS)
    control.sent(10_000_000, 0)
    assert control.target_bps == pytest.approx(before + 4 * 400e6)


def test_no_rate_exceeds_the_links() -> None:
    control = dcqcn()
    control.notified(0)
    ticked(control, 1000, 1.0)
    assert control.rate_bps == control.target_bps == LINK_BPS


@given(st.integers(1, 2000), st.sampled_from([1e-3, 1.0, 20_000.0]))
def test_a_late_tick_does_what_all_before_it_would_have_done(steps: int, slowdown: float) -> None:
    each, late = dcqcn(slowdown), dcqcn(slowdown)
    for control in (each, late):
        control.notified(0)
        control.notified(0)
    ticked(each, steps, slowdown)
    late.tick(round(steps * TIMER_NS * slowdown))
    assert (late.rate_bps, late.target_bps) == (each.rate_bps, each.target_bps)
    assert late.alpha == pytest.approx(each.alpha)
    assert late.next_ns == each.next_ns


@pytest.mark.parametrize("slowdown", [1.0, 20_000.0])
def test_the_timer_stops_at_the_links_rate_until_the_next_notification(slowdown: float) -> None:
    control = dcqcn(slowdown)
    control.notified(0)
    assert control.next_ns == TIMER_NS * slowdown
    ticked(control, 30, slowdown)  # thirty halves of the distance are less than `SAME_PART`
    assert (control.rate_bps, control.next_ns) == (control.link_bps, inf)
    later_ns = round(2000 * TIMER_NS * slowdown)
    control.notified(later_ns)
    assert control.alpha == pytest.approx((1 - 1 / 256) ** 2000 * 255 / 256 + 1 / 256)
    assert control.next_ns == pytest.approx(later_ns + TIMER_NS * slowdown)


def marked(queue_bytes: float) -> float:
    """The probability of a mark by RED, with the paper's thresholds (section 5): 5 and 200 kB."""
    return min(1.0, max(0.0, (queue_bytes - 5e3) / 195e3 * 0.01)) if queue_bytes < 200e3 else 1.0


STEPS, STEP_NS = 80_000, 4000


def shared(flows: list[Dcqcn], slowdown: float = 1.0) -> tuple[list[float], float]:
    """Share a link; return what each flow sent in the second half, and its mean queue, in bytes.

    A flow gets as many marks as are expected: chance alone would move shares for seconds.
    """
    count = len(flows)
    queue, queued, sent = 0.0, 0.0, [0.0] * count
    marks, notified_ns = [number / count for number in range(count)], [0.0] * count
    for step in range(STEPS):
        now_ns, probability = round(step * STEP_NS * slowdown), marked(queue)
        for number, flow in enumerate(flows):
            size = flow.rate_bps * STEP_NS * slowdown / 8e9
            unmarked = (1 - probability) ** (size * 8 / PACKET_BITS)
            marks[number] += 1 - unmarked
            if marks[number] >= 1 and now_ns - notified_ns[number] >= 50_000 * slowdown:
                marks[number], notified_ns[number] = 0.0, now_ns
                flow.notified(now_ns)
            flow.sent(round(size), now_ns)
            if now_ns >= flow.next_ns:
                flow.tick(now_ns)
            queue += size
            sent[number] += size * (step >= STEPS // 2)
        queue = max(0.0, queue - LINK_BPS * STEP_NS / 8e9)
        queued += queue * (step >= STEPS // 2)
    return sent, queued / (STEPS // 2)


@pytest.mark.parametrize("slowdown", [1.0, 20_000.0])
def test_two_flows_by_dcqcn_become_fair_with_a_queue_at_the_thresholds(slowdown: float) -> None:
    flows = [dcqcn(slowdown), dcqcn(slowdown)]
    flows[0].notified(0)
    flows[0].rate_bps /= 5
    sent, queue = shared(flows, slowdown)
    capacity = LINK_BPS * STEPS // 2 * STEP_NS / 8e9
    assert sent[0] / sent[1] == pytest.approx(1, abs=0.05)
    assert sum(sent) == pytest.approx(capacity, rel=0.05)
    assert 5e3 < queue < 200e3


@pytest.mark.parametrize("count", [2, 4, 10])
def test_the_queue_is_at_the_fixed_point_of_dcqcn(count: int) -> None:
    """Marks of the fluid model's fixed point (Zhu et al., CoNEXT 2016), and the queue for them."""
    capacity, increase = LINK_BPS / PACKET_BITS, Dcqcn.ADDITIVE_BPS / PACKET_BITS
    timer_s, counter = TIMER_NS / 1e9, Dcqcn.BYTE_COUNTER * 8 / PACKET_BITS
    steps = 1 / counter + count / (timer_s * capacity)
    marks = (increase * count**2 / (timer_s * capacity**2) * steps**2) ** (1 / 3)
    _, queue = shared([dcqcn() for _ in range(count)])
    assert queue == pytest.approx(5e3 + marks / 0.01 * 195e3, rel=0.25)


def swift(window: float = MOST, slowdown: float = 1.0) -> Swift:
    return Swift(window, PACKET_BITS, slowdown)


def test_the_target_delay_scales_with_the_window_within_its_range() -> None:
    control = swift()
    control.resize(MOST)
    assert control.target_ns == control.BASE_NS
    control.resize(control.LEAST_SCALED)
    assert control.target_ns == pytest.approx(control.BASE_NS + control.RANGE_NS)
    control.resize(4)
    slope_ns = control.RANGE_NS / (1 / sqrt(0.1) - 1 / sqrt(100))
    assert control.target_ns == pytest.approx(control.BASE_NS + slope_ns * (1 / 2 - 1 / 10))


def test_swift_adds_one_packet_a_round_trip_and_halves_at_most() -> None:
    control = swift()
    control.resize(10)
    for _ in range(10):
        control.acknowledged(1, 1000, 0)
    assert control.window == pytest.approx(11, rel=0.01)
    control.acknowledged(1, 10**9, 10**9)
    assert control.size == pytest.approx(11 / 2, rel=0.01)
    control.lost(10**9 + 1)  # within the same round trip
    assert control.size == pytest.approx(11 / 2, rel=0.01)
    control.lost(3 * 10**9)
    assert control.size == pytest.approx(11 / 4, rel=0.01)


def test_after_five_timeouts_in_a_row_swift_has_the_least_window() -> None:
    control = swift()
    control.resize(100)
    now_ns = 10**9
    for _ in range(4):
        control.timed_out(now_ns := now_ns + 10**9)
    assert control.size == pytest.approx(100 / 2**4)
    control.acknowledged(1, None, now_ns)
    for _ in range(4):
        control.timed_out(now_ns := now_ns + 10**9)
    assert control.size == pytest.approx(100 / 2**8)
    control.timed_out(now_ns)  # within the same round trip
    assert control.size == control.LEAST_WINDOW


class Published:
    """Algorithm 1 of the paper, line by line, with the parameters that are checked here.

    It notes the time where it decreases. By the letter, for a window that has not grown
    (cwnd <= cwnd_prev), each acknowledgement of a long queue would put the next decrease off.
    """

    def __init__(self, cwnd: float) -> None:
        self.cwnd, self.rtt, self.retransmit_cnt, self.t_last_decrease = cwnd, 0.0, 0, -inf

    def on_ack(self, delay: float, num_acked: int, target_delay: float, now: float) -> None:
        self.retransmit_cnt, self.rtt = 0, delay
        if delay < target_delay:
            if self.cwnd >= 1:
                self.cwnd = self.cwnd + 1.0 / self.cwnd * num_acked
            else:
                self.cwnd = self.cwnd + 1.0 * num_acked
        elif now - self.t_last_decrease >= self.rtt:
            self.decrease(max(1 - 0.8 * (delay - target_delay) / delay, 1 - 0.5), now)
        self.clamp()

    def on_retransmit_timeout(self, now: float) -> None:
        self.retransmit_cnt += 1
        if self.retransmit_cnt >= 5:
            self.cwnd, self.t_last_decrease = 0.001, now
        elif now - self.t_last_decrease >= self.rtt:
            self.decrease(1 - 0.5, now)
        self.clamp()

    def on_fast_recovery(self, now: float) -> None:
        self.retransmit_cnt = 0
        if now - self.t_last_decrease >= self.rtt:
            self.decrease(1 - 0.5, now)
        self.clamp()

    def decrease(self, factor: float, now: float) -> None:
        self.cwnd, self.t_last_decrease = factor * self.cwnd, now

    def clamp(self) -> None:
        self.cwnd = min(50.0, max(0.001, self.cwnd))
        self.pacing_delay = self.rtt / self.cwnd if self.cwnd < 1 else 0.0


EVENTS = st.tuples(
    st.sampled_from(["ack", "timeout", "timeout", "fast recovery"]),
    st.integers(1, 200_000),
    st.integers(1, 8),
    st.integers(0, 400_000),
)


@given(st.lists(EVENTS, max_size=60))
@example([("timeout", 1, 1, 0)] * 5 + [("ack", 125_000, 1, 0)])  # the first known round trip
def test_swift_follows_the_published_algorithm(events: list[tuple[str, int, int, int]]) -> None:
    control, published, now_ns = swift(50.0), Published(50.0), 10**9
    for what, delay_ns, packets, after_ns in events:
        now_ns += after_ns
        if what == "ack":
            published.on_ack(delay_ns, packets, control.target_ns, now_ns)
            control.acknowledged(packets, delay_ns, now_ns)
        elif what == "timeout":
            published.on_retransmit_timeout(now_ns)
            control.timed_out(now_ns)
        else:
            published.on_fast_recovery(now_ns)
            control.lost(now_ns)
        assert control.size == pytest.approx(published.cwnd)
        apart_ns = PACKET_BITS * 1e9 / control.rate_bps
        assert apart_ns == pytest.approx(published.pacing_delay)


def test_below_one_packet_swift_paces() -> None:
    control = swift()
    control.round_trip_ns = 1e6
    control.resize(0.5)
    assert control.window == 1
    assert control.rate_bps == pytest.approx(0.5 * PACKET_BITS / 1e-3)


@pytest.mark.parametrize("slowdown", [1.0, 1000.0])
def test_two_flows_by_swift_become_fair_at_the_target_delay(slowdown: float) -> None:
    flows = [swift(slowdown=slowdown), swift(slowdown=slowdown)]
    flows[0].resize(100)
    flows[1].resize(10)
    now_ns, delays, packet_ns = 0.0, [], PACKET_BITS / LINK_BPS * 1e9 * slowdown
    for _ in range(4000):
        delay_ns = max(5_000 * slowdown, sum(flow.size for flow in flows) * packet_ns)
        now_ns += delay_ns
        for flow in flows:
            flow.acknowledged(max(1, round(flow.size)), round(delay_ns), round(now_ns))
        delays.append(delay_ns)
    assert flows[0].size / flows[1].size == pytest.approx(1, abs=0.05)
    assert sum(delays[3000:]) / 1000 == pytest.approx(flows[0].target_ns, rel=0.1)
