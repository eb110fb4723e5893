#include "bench/fit/constants.h"

#include <fmt/format.h>

#include <cmath>

namespace noisefloor::fit {
namespace {

using product::Sm90aCosts;

constexpr Constant kConstants[] = {
    {"fma_per_cycle", &Sm90aCosts::fma_per_cycle, 1000, 2048},  // four tensor cores have no more
    {"bytes_per_cycle", &Sm90aCosts::bytes_per_cycle, 16, 128},
    {"load_latency", &Sm90aCosts::load_latency, 300, 10000},
    {"least_step", &Sm90aCosts::least_step, 50, 1000},
    {"byte", &Sm90aCosts::byte, 0.00005, 0.01},
    {"fill", &Sm90aCosts::fill, 100, 10000},
    {"store", &Sm90aCosts::store, 0.002, 0.5},
    {"exchange", &Sm90aCosts::exchange, 0.02, 2},
    {"meet", &Sm90aCosts::meet, 50, 5000},
    {"meet_per_block", &Sm90aCosts::meet_per_block, 1, 500},
    {"multicast", &Sm90aCosts::multicast, 20, 2000},
    {"turn", &Sm90aCosts::turn, 20, 10000},
};
static_assert(sizeof(Sm90aCosts) == std::size(kConstants) * sizeof(double), "a new constant needs its range");

}  // namespace

std::span<const Constant> constants() {
  return kConstants;
}

double rounded(double value) {
  const int digit = static_cast<int>(std::floor(std::log10(value))) - 2;  // the last that stays
  const double unit = std::pow(10, std::abs(digit));                      // a whole number, so exact
  return digit > 0 ? std::round(value / unit) * unit : std::round(value * unit) / unit;
}

std::string source_text(const Sm90aCosts& costs) {
  constexpr std::string_view kBegin = ".costs = {";
  std::string text;
  for (const Constant& constant : kConstants)
    if (costs.*constant.place != 0)
      text += fmt::format("{}.{} = {}", text.empty() ? kBegin : ",\n" + std::string(kBegin.size(), ' '), constant.name,
                          costs.*constant.place);
  return text + "},\n";
}

}  // namespace noisefloor::fit
