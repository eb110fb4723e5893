// How far apart two runs come out because of what happened within them, as a fraction of the time.
#pragma once

#include "reports/run/statistics.h"

namespace noisefloor {

// The batches' medians scatter by s; the median of k batches then has the standard error 1.2533 s / sqrt(k) (sqrt(pi /
// 2): a median's over a mean's). The difference of two runs has the root of the sum of both squares, and noise is three
// times that; of few batches, whose scatter is known badly, more: Student's t that is left as seldom. Samples without
// recorded batches are cut into 8 equal ones. 0 where a run has one batch alone: nothing is known then.
//
// With `paired`, batch i of either run has its tensors in the same place, and places keep their times where two
// processes get the same pages. Of as many batches, eight and more, it is then the scatter of their ratios; with other
// pages that comes to the same.
double batch_noise(const Batches& a, const Batches& b, bool paired = false);

}  // namespace noisefloor
