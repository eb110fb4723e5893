// The kernels whose constants can be fitted, and their timings beside all that the model could have chosen.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "kernels/conv2d/conv2d.h"
#include "kernels/convolution/halo.h"
#include "kernels/convolution/schedule.h"
#include "kernels/gemm/schedule.h"
#include "kernels/product/sm90a_choices.h"
#include "reports/run/csv.h"
#include "tools/fit/fit.h"

namespace noisefloor::fit {
namespace {

using Use = std::function<void(const product::Sm90aModel&)>;

void with_gemm(const AnyProblem& problem, const Use& use) {
  use(gemm::model_of(problem.as<gemm::Problem>()));
}

template <product::Sm90aModel (*model_of)(const convolution::Convolution&)>
void with_convolution(const AnyProblem& problem, const Use& use) {
  const auto convolution = conv2d::describe(problem.as<conv2d::Problem>(), conv2d::Form::phased);
  use(model_of(convolution));
}

// The schedules of a problem while its lines come.
struct Reading {
  std::string commit = {};
  TimedProblem problem = {};
  std::map<std::string, std::size_t> places = {};  // of its schedules, by their text
  std::set<std::size_t> timed = {};
  std::optional<std::size_t> estimated = {};  // of them
};

Reading begin(const FittedKernel& kernel, const std::string& text, const std::string& commit, int sm_count) {
  const AnyProblem problem = kernel.op.parse(text);
  const auto variant =
      std::ranges::find(kernel.op.variants, kernel.variant, [](const AnyVariant& one) { return one.name; });
  if (const Support support = variant->can_run(problem, DType::bf16); !support)
    throw InvalidInput(fmt::format("{} cannot run '{}': it {}", kernel.variant, text, support.reason));
  Reading reading{.commit = commit};
  kernel.with_model(problem, [&](const product::Sm90aModel& model) {
    reading.problem.unseen = is_unseen(model);
    const auto add = [&](const product::Sm90aProduct& product, const product::Sm90aSchedule& schedule) {
      reading.places.emplace(product::schedule_text(model.kernel, schedule), reading.problem.schedules.size());
      reading.problem.schedules.push_back({product, schedule});
    };
    product::visit_schedules(model.kernel, model.product_for, sm_count, add);
  });
  return reading;
}

// From times to what a choice costs. The estimate's choice is timed to the end however slow it is, so that it says
// nothing of those that were dropped.
void finish(Reading& reading) {
  std::vector<TimedSchedule>& all = reading.problem.schedules;
  double best = INFINITY, slowest = 0;
  for (const std::size_t place : reading.timed) {
    best = std::min(best, all[place].cost);
    if (place != reading.estimated) slowest = std::max(slowest, all[place].cost);
  }
  const double not_timed = std::max(kNotTimed * slowest, kLeastNotTimed * best);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i].cost = (reading.timed.contains(i) ? all[i].cost : not_timed) / best;
}

class Reader {
 public:
  Reader(const FittedKernel& kernel, const CsvFile& csv) : kernel_(&kernel), csv_(&csv) {}
  void take(const CsvLine& line);
  Timings timings() {
    for (auto& [text, reading] : readings_) {
      finish(reading);
      timings_.problems.push_back(std::move(reading.problem));
    }
    return std::move(timings_);
  }

 private:
  static const std::string& require(bool good, const char* column, const std::string& text, const std::string& valid) {
    if (!good) throw InvalidInput(fmt::format("{} is '{}'; it must be {}", column, text, valid));
    return text;
  }
  const std::string& field(const CsvLine& line, const char* column) const { return line.fields[csv_->column(column)]; }
  double number(const CsvLine& line, const char* column) const {
    const std::string& text = field(line, column);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    require(end != text.c_str() && *end == '\0' && value > 0 && std::isfinite(value), column, text, "a number above 0");
    return value;
  }

  const FittedKernel* kernel_;
  const CsvFile* csv_;
  Timings timings_;
  std::map<std::string, Reading> readings_;  // by the problem's text
};

void Reader::take(const CsvLine& line) {
  const int sms = static_cast<int>(number(line, "sm_count"));
  if (timings_.sm_count == 0) timings_.sm_count = sms, timings_.device = field(line, "device");
  require(sms == timings_.sm_count, "sm_count", std::to_string(sms), fmt::format("{} as before", timings_.sm_count));
  require(field(line, "device") == timings_.device, "device", field(line, "device"), timings_.device + " as before");
  if (field(line, "variant") != kernel_->variant) return;  // the op's other kernels have lines of their own
  require(field(line, "dtype") == "bf16", "dtype", field(line, "dtype"), "bf16");
  const std::string &text = field(line, "problem"), &commit = field(line, "commit");
  auto found = readings_.find(text);
  if (found == readings_.end()) found = readings_.emplace(text, begin(*kernel_, text, commit, timings_.sm_count)).first;
  Reading& reading = found->second;
  require(commit == reading.commit, "commit", commit, reading.commit + " as of that problem before");
  const double cost = number(line, "warm_us") + number(line, "cold_us");
  const auto place = reading.places.find(field(line, "choice"));
  require(place != reading.places.end() && reading.timed.insert(place->second).second, "choice", field(line, "choice"),
          fmt::format("one of the {} schedules of that problem, once", reading.places.size()));
  if (field(line, "estimated") == "1") reading.estimated = place->second;
  reading.problem.schedules[place->second].cost = cost;
}

}  // namespace

product::Sm90aKernel FittedKernel::present() const {
  product::Sm90aKernel kernel;
  with_model(name == "gemm" ? AnyProblem(gemm::Problem{}) : AnyProblem(conv2d::Problem{}),
             [&](const product::Sm90aModel& model) { kernel = model.kernel; });
  return kernel;
}

const std::vector<FittedKernel>& fitted_kernels() {
  static const std::vector<FittedKernel> all = {
      {"gemm", make_op(gemm::definition), "ptx_sm90a", "kernels/gemm/schedule.cpp", false, with_gemm},
      {"im2col", make_op(conv2d::definition), "ptx_sm90a", "kernels/convolution/schedule.cpp", true,
       with_convolution<convolution::im2col_model_of>},
      {"halo", make_op(conv2d::definition), "ptx_sm90a_halo", "kernels/convolution/halo.cpp", false,
       with_convolution<convolution::halo_model_of>},
  };
  return all;
}

const FittedKernel& require_kernel(std::string_view name) {
  for (const FittedKernel& kernel : fitted_kernels())
    if (kernel.name == name) return kernel;
  throw InvalidInput(fmt::format("there is no kernel '{}' to fit; these are: gemm, im2col, halo", name));
}

// FNV-1a: the same on every machine.
bool is_unseen(const product::Sm90aModel& model) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::int64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash ^= static_cast<std::uint64_t>(value) >> (8 * byte) & 0xff;
      hash *= 0x100000001b3;
    }
  };
  for (const product::Sm90aTile& tile : model.kernel.tiles) {
    const product::Sm90aProduct product = model.product_for(tile);
    if (product.columns == 0) continue;  // a fusion that excludes some tiles makes no other shape
    for (const std::int64_t value : {product.units * product.unit_rows, product.columns, product.k_steps}) add(value);
    break;
  }
  return (hash ^ hash >> 32) & 1;
}

Timings read_timings(const FittedKernel& kernel, const std::filesystem::path& file) {
  const CsvFile csv = read_csv(file);
  Reader reader(kernel, csv);
  for (const CsvLine& line : csv.lines) try {
      reader.take(line);
    } catch (const InvalidInput& error) {
      throw std::runtime_error(fmt::format("{}:{}: {}", file.string(), line.number, error.what()));
    }
  return reader.timings();
}

}  // namespace noisefloor::fit
