#include "bench/measure/timed_launches.h"

#include <algorithm>

#ifdef NOISEFLOOR_TEST_SLOWDOWN_PERCENT
#include "bench/measure/test_slowdown.h"
#endif

namespace noisefloor {

TimedLaunches::TimedLaunches(Platform& platform, BoundCase& bound)
    : resident(bound.resident()),
      launches{bound.launch(), bound.launch(/*overlapping=*/true), bound.launch()},
      places(bound.many_kernels() || bound.of_plugin() ? 1 : bound.fixture().places()),
      bound_(&bound) {
  // The launches of a whole network would fill the driver's queue, which then waits for the device, before the gate
  // opens.
  if (bound.many_kernels()) {
    recording_ = platform.record(launches.pipeline);
    launches.cold = [recording = recording_.get()] {
      recording->replay();
      return success();
    };
  }
#ifdef NOISEFLOOR_TEST_SLOWDOWN_PERCENT
  slow_down(platform, resident, slowdown_percent(NOISEFLOOR_TEST_SLOWDOWN_PERCENT), launches);
#endif
}

void TimedLaunches::move_to(std::size_t place) {
  if (places == 1) return;
  bound_->fixture().move_to(place);
  std::ranges::copy(bound_->resident(), resident.begin());  // in place: others look at it
}

}  // namespace noisefloor
