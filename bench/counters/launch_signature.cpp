#include "bench/counters/launch_signature.h"

#include "bench/counters/counter_status.h"

namespace noisefloor {

std::unique_ptr<CodeWatch> watch_code_if_possible(const std::function<void(const std::string&)>& say) {
  try {
    return watch_code();
  } catch (const CountersUnavailable& error) {
    if (say) say(error.what());
    return nullptr;
  }
}

}  // namespace noisefloor
