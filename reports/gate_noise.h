// How far apart two runs of one build come out, as a fraction of the time: what a change must exceed to be one.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "reports/run/run_files.h"

namespace noisefloor {

// Of a comparison of two runs, from their own batches. The batches' medians scatter by s; the median of k batches then
// has the standard error 1.2533 s / sqrt(k) (sqrt(pi / 2): a median's over a mean's). The difference of two runs has
// the root of the sum of both squares, and noise is three times that. Samples without recorded batches are cut into 8
// equal ones in the order taken. 0 where a run has one batch alone: nothing is known then. `cold_a` and `cold_b` are
// the runs' cold samples in any unit (microseconds, SM cycles), in the order taken.
double batch_noise(const RowSamples& a, std::span<const double> cold_a, const RowSamples& b,
                   std::span<const double> cold_b);

// Of runs of the same build (--noise), from their medians: the range over d2 estimates the standard deviation of a run
// (d2: the expected range of n normal numbers in standard deviations), the difference of two runs has sqrt(2) of it,
// and noise is three times that. With two runs that is 3.76 times their difference, with five 1.82 times their range. 0
// for fewer than two.
double run_noise(std::span<const double> medians);

// What one process differs from the next by, in microseconds, whatever a launch takes: where the driver put code and
// queues is drawn once a process, so batches do not see it. Of all rows together: three times sqrt(2) times the root
// mean square of their range over d2. `rows` holds the medians of each row in the runs of one build; nullopt
// where no row up to 100 us has two.
std::optional<double> process_noise(const std::vector<std::vector<double>>& rows);

// Where no more runs of the baseline's build are given: above what was seen on an H200 (docs/log/measuring).
inline constexpr double kAssumedProcessNoise = 1.6;

// On a host it is a fraction of the time: which pages of memory a process got decides what shares a cache's sets, and a
// neighbour takes his part of caches and memory where no scheduler sees it. Root mean square as above, of the rows'
// relative ranges.
std::optional<double> host_process_noise(const std::vector<std::vector<double>>& rows);

// Where it is not measured: above what was seen on a virtual machine of two cores, at rest and beside other programs
// (docs/log/measuring). A machine of its own is better; --noise says how much.
inline constexpr double kAssumedHostProcessNoise = 0.15;
// And of short launches what waking the other cores differs by.
inline constexpr double kAssumedHostProcessUs = 5;

}  // namespace noisefloor
