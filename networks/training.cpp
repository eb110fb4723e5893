#include "networks/training.h"

#include <fmt/format.h>

#include "kernels/core/fields.h"

namespace noisefloor::networks {

Training build_training(const NetworkInfo& info, const TrainingOptions&) {
  throw InvalidInput(fmt::format("{} cannot be trained yet", info.name));
}

}  // namespace noisefloor::networks
