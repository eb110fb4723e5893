"""When a median is known well enough: the rule of bench/measure."""

import math
import statistics

MIN_SAMPLES = 20
PRECISION = 0.005
Z95 = 0.98  # half of 1.96: ranks of the median's 95 % confidence interval are n/2 -+ 0.98 sqrt(n)


def median_absolute_deviation(samples):
    center = statistics.median(samples)
    return statistics.median(abs(sample - center) for sample in samples)


def median_interval(samples):
    """Distribution-free 95 % confidence interval of the median; the whole range below ten samples."""
    ordered = sorted(samples)
    count = len(ordered)
    if count < 10:
        return ordered[0], ordered[-1]
    low = max(0, math.floor(count / 2 - Z95 * math.sqrt(count)))
    high = min(count - 1, math.ceil(count / 2 + Z95 * math.sqrt(count)))
    return ordered[low], ordered[high]


def precise(samples):
    if len(samples) < MIN_SAMPLES:
        return False
    low, high = median_interval(samples)
    return (high - low) / 2 <= PRECISION * statistics.median(samples)
