#include "tools/fit/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "kernels/conv2d/conv2d.h"
#include "kernels/convolution/halo.h"
#include "kernels/convolution/schedule.h"
#include "kernels/gemm/schedule.h"
#include "reports/run/csv.h"

namespace noisefloor::fit {
namespace {

using product::Sm90aCosts;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A fit stays within these: a constant that the timings say little of runs off otherwise.
struct Constant {
  const char* name;
  double Sm90aCosts::*place;
  double least, most;
};
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

product::Sm90aModel model_of_gemm(const AnyProblem& problem) {
  return gemm::model_of(problem.as<gemm::Problem>());
}
template <product::Sm90aModel (*model_of)(const convolution::Convolution&)>
product::Sm90aModel model_of_convolution(const AnyProblem& problem) {
  return model_of(conv2d::describe(problem.as<conv2d::Problem>(), conv2d::Form::phased));
}

// The schedules of a problem while its lines come.
struct Reading {
  TimedProblem problem = {};
  std::map<std::string, std::size_t> places = {};  // of its schedules, by their text
  std::set<std::size_t> timed = {};
  double slowest = 0;  // of the timed ones, but for the estimate's: it is timed to the end however slow it is
};

Reading begin(const FittedKernel& kernel, const std::string& text, int sm_count) {
  const product::Sm90aModel model = kernel.model_of(kernel.op.parse(text));
  Reading reading;
  reading.problem.unseen = is_unseen(model);
  const auto add = [&](const product::Sm90aProduct& product, const product::Sm90aSchedule& schedule) {
    reading.places.emplace(product::schedule_text(model.kernel, schedule), reading.problem.schedules.size());
    reading.problem.schedules.push_back({product, schedule});
  };
  model.visit_schedules(sm_count, add);
  return reading;
}

// From times to what a choice costs.
TimedProblem finished(Reading& reading) {
  std::vector<TimedSchedule>& all = reading.problem.schedules;
  double best = kInfinity;
  for (const std::size_t place : reading.timed) best = std::min(best, all[place].cost);
  const double not_timed = std::max(kNotTimed * reading.slowest, kLeastNotTimed * best);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i].cost = (reading.timed.contains(i) ? all[i].cost : not_timed) / best;
  return std::move(reading.problem);
}

// What the model's choice costs: that of least modelled time, the earlier of equals, as Sm90aModel::choose() takes it.
double cost_of_choice(const product::Sm90aKernel& kernel, const TimedProblem& problem, int sm_count) {
  const auto cycles = [&](const TimedSchedule& timed) {
    return product::modelled_cycles(kernel, timed.product, timed.schedule, sm_count);
  };
  return std::ranges::min_element(problem.schedules, {}, cycles)->cost;
}

// Sum of logarithms, none below 0; `enough` or a little more where the sum is above it.
double log_sum(const product::Sm90aKernel& kernel, const Timings& timings, bool unseen, double enough) {
  double sum = 0;
  for (const TimedProblem& problem : timings.problems) {
    if (problem.unseen != unseen) continue;
    sum += std::log(cost_of_choice(kernel, problem, timings.sm_count));
    if (sum > enough) break;
  }
  return sum;
}

// Small steps and large ones, of few constants: from a hundredth up to a factor of e, to three significant digits.
Sm90aCosts changed(Sm90aCosts costs, std::mt19937_64& bits) {
  constexpr double kChanged = 0.2;                       // of the constants
  const auto between = [&](double least, double most) {  // std's distributions differ between libraries
    return least + (most - least) * static_cast<double>(bits() >> 11) * 0x1p-53;
  };
  const double size = std::exp(between(std::log(0.01), 0));
  const Constant& sure = kConstants[static_cast<std::size_t>(between(0, std::size(kConstants)))];
  for (const Constant& constant : kConstants) {
    double& value = costs.*constant.place;
    if (value == 0 || (&constant != &sure && between(0, 1) > kChanged)) continue;
    value = std::stod(fmt::format("{:.3g}", value * std::exp(between(-size, size))));
    value = std::clamp(value, constant.least, constant.most);
  }
  return costs;
}

double distance(const Sm90aCosts& a, const Sm90aCosts& b) {
  double sum = 0;
  for (const Constant& constant : kConstants)
    if (a.*constant.place != 0) sum += std::pow(std::log(a.*constant.place / b.*constant.place), 2);
  return sum;
}

}  // namespace

product::Sm90aKernel FittedKernel::present() const {
  return model_of(name == "gemm" ? AnyProblem(gemm::Problem{}) : AnyProblem(conv2d::Problem{})).kernel;
}

const std::vector<FittedKernel>& fitted_kernels() {
  static const std::vector<FittedKernel> all = {
      {"gemm", make_op(gemm::definition), "ptx_sm90a", "kernels/gemm/schedule.cpp", false, model_of_gemm},
      {"im2col", make_op(conv2d::definition), "ptx_sm90a", "kernels/convolution/schedule.cpp", true,
       model_of_convolution<convolution::im2col_model_of>},
      {"halo", make_op(conv2d::definition), "ptx_sm90a_halo", "kernels/convolution/halo.cpp", false,
       model_of_convolution<convolution::halo_model_of>},
  };
  return all;
}

bool is_unseen(const product::Sm90aModel& model) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: the same on every machine
  for (const product::Sm90aTile& tile : model.kernel.tiles) {
    const product::Sm90aProduct product = model.product_for(tile);
    if (product.columns == 0) continue;  // a fusion that excludes some tiles makes no other shape
    for (const std::int64_t value : {product.units * product.unit_rows, product.columns, product.k_steps})
      for (int byte = 0; byte < 8; ++byte)
        hash = (hash ^ (static_cast<std::uint64_t>(value) >> (8 * byte) & 0xff)) * 0x100000001b3;
    break;
  }
  return (hash ^ hash >> 32) & 1;
}

Timings read_timings(const FittedKernel& kernel, const fs::path& file) {
  const CsvFile csv = read_csv(file);
  Timings timings;
  std::map<std::string, Reading> readings;  // by the problem's text
  for (const CsvLine& line : csv.lines) try {
      const auto field = [&](const char* column) -> const std::string& { return line.fields[csv.column(column)]; };
      if (timings.device.empty()) timings.device = field("device"), timings.sm_count = std::stoi(field("sm_count"));
      if (field("device") != timings.device) throw InvalidInput(fmt::format("device '{}'", field("device")));
      if (field("variant") != kernel.variant) continue;  // the op's other kernels have lines of their own
      if (field("problem").find("layout=") != std::string::npos) continue;  // a gradient, cut by parts of its k
      auto found = readings.find(field("problem"));
      if (found == readings.end())
        found = readings.emplace(field("problem"), begin(kernel, field("problem"), timings.sm_count)).first;
      Reading& reading = found->second;
      const auto place = reading.places.find(field("choice"));
      const double cost = std::stod(field("warm_us")) + std::stod(field("cold_us"));
      if (place == reading.places.end() || !reading.timed.insert(place->second).second || !(cost > 0))
        throw InvalidInput(fmt::format("choice '{}' of {} us", field("choice"), cost));
      reading.problem.schedules[place->second].cost = cost;
      if (field("estimated") != "1") reading.slowest = std::max(reading.slowest, cost);
    } catch (const std::exception& error) {  // ours, or of std::stod
      throw failure(
          "{}:{}: {}: each line is of one GPU, a problem, one of its schedules, once, and "
          "times above 0",
          file.string(), line.number, error.what());
    }
  for (auto& [text, reading] : readings) timings.problems.push_back(finished(reading));
  return timings;
}

double loss(const product::Sm90aKernel& kernel, const Timings& timings, bool unseen) {
  const auto count = std::ranges::count(timings.problems, unseen, &TimedProblem::unseen);
  return std::exp(log_sum(kernel, timings, unseen, kInfinity) / static_cast<double>(count));
}

Sm90aCosts search(const FittedKernel& kernel, const Timings& timings, std::uint64_t seed, int rounds) {
  std::mt19937_64 bits(seed);
  const product::Sm90aKernel present = kernel.present();
  product::Sm90aKernel best = present;
  double least = log_sum(best, timings, false, kInfinity);
  for (int round = 0; round < rounds; ++round) {
    product::Sm90aKernel tried = best;
    tried.costs = changed(best.costs, bits);
    if (kernel.turn_is_fill) tried.costs.turn = tried.costs.fill;
    const double sum = log_sum(tried, timings, false, least);
    if (sum < least || (sum == least && distance(tried.costs, present.costs) < distance(best.costs, present.costs)))
      least = sum, best = tried;
  }
  return best.costs;
}

std::string source_text(const Sm90aCosts& costs) {
  std::vector<std::string> parts;
  for (const Constant& constant : kConstants)
    if (costs.*constant.place != 0) parts.push_back(fmt::format(".{} = {}", constant.name, costs.*constant.place));
  return fmt::format(".costs = {{{}}},\n", fmt::join(parts, ",\n          "));
}

}  // namespace noisefloor::fit
