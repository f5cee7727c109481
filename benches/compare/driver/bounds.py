"""What a few rounds say of a median, without a guess at how they are distributed.

A round lies above the true median with probability 1/2. So the k-th smallest of n rounds is at least
the median unless k or more of them lie below it, which is the sign test turned round.
"""

from math import comb
from statistics import median

SURE = 0.95
# Fewer rounds than this say nothing with that certainty: the largest of four is passed in one of 16.
LEAST_ROUNDS = 5


def rank(rounds):
    """The least k for which the k-th smallest is an upper bound, and how sure that is."""
    sure = 0.0
    for k in range(1, rounds + 1):
        sure += comb(rounds, k - 1) / 2**rounds
        if sure >= SURE:
            return k, sure
    return rounds, sure


def upper(values):
    """At most this is the median; of fewer than LEAST_ROUNDS values it is the largest."""
    return sorted(values)[rank(len(values))[0] - 1]


def lower(values):
    """At least this is the median."""
    return sorted(values)[-rank(len(values))[0]]


def judge(values, limit):
    """Whether the median is at most the limit, in words."""
    if len(values) < LEAST_ROUNDS:
        return "not resolved by this run"
    if upper(values) <= limit:
        return "holds"
    if lower(values) > limit:
        return "does not hold"
    return "not resolved by this run"


def ratios(ours, theirs):
    """Round by round; a round in which one is unknown, or too small to be divided by, is left out."""
    return [a / b for a, b in zip(ours, theirs) if a is not None and b is not None and b > 0]


def known(values):
    return [value for value in values if value is not None]


def middle(values):
    """The median of what is known; None of nothing."""
    return median(known(values)) if known(values) else None
