"""The numbers of the adaptive limit, each with its reason; found by discrete-event simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Constants of `AdaptiveLimit`. Times are seconds, limits are calls in flight, the rest are ratios."""

    # -- range and start
    start: float = 4.0  # 8 gains 1 % on eight slots and costs 4 refusals more on two
    floor: float = 0.05  # 64 processes in front of 32 slots need half a call each; a twentieth leaves room below
    slack: float = 0.5  # a fractional limit rounds to the nearest count of calls

    # -- ramp
    silence: float = 0.1  # without an answer, `start` more may go; doubles each time, so 40 after 26 s, not thousands
    growth_gap: float = 0.02  # seconds between two growing sends, at most; else one per round trip / limit
    growth_gap_min: float = 0.001  # a refusal on loopback takes 2-5 ms, so a ramp overshoots by 1-5 calls

    # -- room for the less urgent while more urgent calls are about
    proven_gain: float = 0.125  # calls per answer that the less urgent may have on the way during a ramp, and ...
    proven_double: float = 5.0  # ... twice as many every so many seconds, where answers take half a minute
    proven_calm: float = 0.1  # of the target: a shorter wait holds nobody back
    proven_smooth: float = 0.25  # EWMA weight of one window
    proven_spare: float = 0.5  # of what is above it stays free for the more urgent; all of it idles slots

    # -- refusals
    hold: float = 0.25  # no growth after a refusal that names no time
    hold_latencies: float = 2.0  # with Retry-After: no growth for at most this many latencies
    keep: float = 0.9  # of what the server holds, after a refusal; and at least one call is yielded to newcomers
    keep_drained: float = 0.5  # when replacements are refused too
    strikes: int = 2  # refused replacements in a row that mean "you", no longer "the surplus"
    lapse: float = 60.0  # a Retry-After that ended this long ago says nothing about the next one
    silence_jitter: float = 0.25  # of Retry-After, added to a full silence so that a fleet returns spread out
    silence_jitter_min: float = 0.1  # seconds; a Retry-After of a second needs spreading too
    blind_base: float = 0.5  # silence when nothing of ours is served and no time is named; grows ...
    blind_growth: float = 1.6  # ... by this: at 2 the first second after an outage of four is mostly missed
    outage: int = 2  # refusals in a row with nothing served: the server is away, not full
    blind_cap: float = 20.0  # the longest wait of a refused call, too

    # -- probes above the known ceiling
    probe_gap: float = 2.0  # seconds; doubles when refused
    probe_gap_max: float = 5.0  # a server that grew is noticed within seconds
    probe_answers: float = 40.0  # and no more than one probe per this many answers: 1.025 sends in the long run
    probe_rounds: float = 10.0  # ... or this many rounds of the limit, if fewer
    probe_poll: float = 0.02  # of the gap: how often a limit under the cap asks again
    worth: float = 2.0  # growth pays when the queue outlasts this many Retry-Afters; else the refused call ends last
    retry_after_assumed: float = 1.0  # seconds, where the server has not said: the shortest that servers send
    worth_below: float = 2.0  # seconds of Retry-After that count at most below a known ceiling: room was there

    # -- queueing delay
    target: float = 1.1  # divided by sqrt(limit): small shares bear more, so shares converge (Swift, SIGCOMM 2020)
    target_answers: float = 1.35  # the same where the wait is read from whole answers, which lag behind a fuller batch
    target_min: float = 0.25  # shorter waits drown in the scatter of first contents
    target_max: float = 1.2  # at 1.5 the median of 64 processes waited a tenth longer, at 1.1 16 shared less fairly
    target_floor: float = 0.05  # below it a timer tick of the server looks like a queue
    cut: float = 0.5  # smallest factor of one decrease: a window may be wrong, two seldom are
    fill: float = 0.5  # targets of queueing left after a decrease: some queue keeps the slots busy
    calm: float = 0.7  # of the target: below it growth, above it none
    add: float = 0.5  # growth per window: add + scale * limit, doubling while clean ...
    scale: float = 0.02  # growth in proportion keeps unequal shares unequal: at 0.1 plain fleets had Jain 0.7
    accelerate: float = 0.4  # ... up to this share of the limit
    clean_max: int = 8  # doublings; 2 ** 8 is beyond every cap

    # -- window
    full: int = 16  # answers
    few: int = 4  # answers that suffice after `least` seconds and a round trip
    least: float = 0.5  # seconds; four answers in less are one burst of the server's
    window_max: int = 64  # of a round trip with more answers the last ones decide
    ahead: float = 0.75  # of what the limit is above the calls of a window counts too; all of it outruns its own echo
    seen: float = 0.5  # share that must have been sent after the last growth, else growth outruns its own echo
    alarm: float = 2.0  # two answers are a window when both waited this long
    blind_limit: float = 16.0  # up to here even a bound of seconds per token is acted on; beyond, answers come soon

    # -- work and wait
    smooth: float = 0.1  # EWMA weight of one latency
    memory: float = 0.03  # EWMA weight in means and variances of histories: the last 32 calls
    history: int = 64  # calls; fewer are noise, more are another load
    recent: int = 32  # calls among which a neighbour in send time is sought
    learn_gap: float = 0.1  # seconds between two calls that the histories take, once they are full
    pairs: int = 128  # slopes in a median
    pairs_min: int = 12  # and no guess below
    pairs_new: int = 8  # since the last median, before it is taken again
    neighbours: int = 2  # on either side in send time; more would have met another queue
    apart: float = 0.3  # of the mean: tokens that differ less tell nothing
    prompt_pairs: int = 24  # the slope of prompts is fainter; a share of one call once took prefill for a queue ...
    prompt_matters: float = 0.3  # ... and noise unless a mean prompt takes this many seconds
    short: float = 0.25  # weight of an answer: 1 / (short + tokens / mean)
    floor_block: float = 10.0  # seconds; the quick quarter of each block is kept ...
    floor_blocks: int = 16  # ... for this many blocks
    floor_few: int = 8  # calls in a block
    near: float = 0.25  # latencies between calls that were sent together
    near_share: float = 0.3  # of the calls that must have had such a neighbour
    near_blind: float = 1.0  # the same in seconds while the latency is unknown
    steady: float = 1.7  # variance over minutes / variance among calls sent together; a queue in a fleet has 2.4-4
    steady_few: float = 8.0  # more tolerance while few calls were seen: this / calls
    steady_least: float = 1e-4  # variance (10 ms squared) that is nothing
    scatter: float = 1.5  # standard deviations of scattering work above the quick quarter
    base_share: float = 0.004  # times limit squared: the base allowed to a share that is not steady
    late_share: float = 0.75  # of every stream's life before its first content: they tell no more than plain answers
    late_leak: float = 0.005  # per second, by which the least such share is forgotten
    explained: float = 0.25  # of the best median latency that tokens must account for, to tell work from waiting
    alike_noise: float = 2.0  # standard errors of the median
    alike_brisk: float = 2.0  # times the best median: the ramp goes on when all answers are alike
    alike_even: float = 14.0  # calls whose wait may be as long as the work where answers are all alike; fewer ...
    alike_share: float = 0.85  # ... bear more by this power, as shares of a fleet that see the same wait must meet
    alike_least: float = 1.0  # times the service: the best median may have been lucky
    alike_most: float = 3.0  # times the service: one call in front of eight places never needs more
    alike_leak: float = 1.001  # per window, so that an idle hour is forgotten ...
    alike_doubt: float = 0.05  # standard errors per window: the best of many scattered medians was luck
    knee_gain: float = 1.1  # more answers per second by this factor: the load was not too much
    knee_slower: float = 1.4  # latencies by this factor, and not more answers: it was
    knee_leak: float = 0.99  # per window
    knee_relief: float = 0.75  # of the load at a verdict: so much less must be felt ...
    knee_unrelieved: float = 0.85  # ... in latency, or it was no waiting
    trial: float = 0.7  # of the load, tried for a window ...
    trial_wait: float = 0.5  # ... when answers take so many service times longer than the best, for whatever reason
    trial_loss: float = 0.9  # of the answers per second: fewer, and the load comes back
    trial_gap: float = 5.0  # seconds between two; doubles when one was in vain
    trial_gap_max: float = 80.0
    trial_least: float = 4.0  # calls; below it a lighter load is idleness

    # -- learned rate of a token bucket
    pace: float = 0.98  # of the rate seen between two refusals
    pace_gain: float = 0.01  # per second ...
    pace_double: float = 4.0  # ... doubling in this time without a refusal, else a wrong rate starves for minutes
    pace_gain_max: float = 0.5  # per second; faster growth outruns the refusals that end it
    pace_answers: int = 4  # fewer between two refusals are chance
    pace_span: float = 1.0  # seconds between two refusals; shorter spans measure one burst


TUNING: Final = Tuning()
