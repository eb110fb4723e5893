#include "bench/fit/timings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "kernels/product/sm90a_choices.h"
#include "reports/run/csv.h"

namespace noisefloor::fit {
namespace {

// Column names, in the order of Row's members.
constexpr std::string_view kColumns[] = {"device",  "sm_count", "commit",    "problem", "dtype",
                                         "variant", "choice",   "estimated", "warm_us", "cold_us"};
struct Row {
  std::string device, sm_count, commit, problem, dtype, variant, choice, estimated, warm_us, cold_us;
};

// The schedules of a problem while its lines come.
struct Reading {
  std::string commit;
  TimedProblem problem;
  std::map<std::string, std::size_t> places;  // of its schedules, by their text
  std::set<std::size_t> timed;
  std::optional<std::size_t> estimated;  // of them
};

class Reader {
 public:
  Reader(const FittedKernel& kernel, const std::filesystem::path& file) : kernel_(&kernel), csv_(read_csv(file)) {
    for (std::size_t i = 0; i < std::size(kColumns); ++i) {
      const auto found = std::find(csv_.header.begin(), csv_.header.end(), kColumns[i]);
      if (found == csv_.header.end())
        throw std::runtime_error(fmt::format("{}:1: no column '{}'; `noisefloor tune {} --out FILE` writes {}",
                                             csv_.file.string(), kColumns[i], kernel.op.name,
                                             fmt::join(kColumns, ",")));
      columns_[i] = static_cast<std::size_t>(found - csv_.header.begin());
    }
  }
  Timings read();

 private:
  [[noreturn]] void refuse(const CsvLine& line, const std::string& why) const {
    throw std::runtime_error(fmt::format("{}:{}: {}", csv_.file.string(), line.number, why));
  }
  Row row(const CsvLine& line) const {
    const auto field = [&](std::size_t i) { return line.fields[columns_[i]]; };
    return {field(0), field(1), field(2), field(3), field(4), field(5), field(6), field(7), field(8), field(9)};
  }
  void take_gpu(const CsvLine& line, const Row& row);
  bool is_of_kernel(const CsvLine& line, const Row& row) const;
  double microseconds(const CsvLine& line, std::string_view column, const std::string& text) const;
  Reading& reading_of(const CsvLine& line, const Row& row);

  const FittedKernel* kernel_;
  CsvFile csv_;
  std::size_t columns_[std::size(kColumns)];
  Timings timings_;
  std::map<std::string, Reading> readings_;  // by the problem's text
};

void Reader::take_gpu(const CsvLine& line, const Row& row) {
  int sms = 0;
  const char* const end = row.sm_count.data() + row.sm_count.size();
  const auto [stop, error] = std::from_chars(row.sm_count.data(), end, sms);
  constexpr int kMostSms = 1024;
  if (error != std::errc() || stop != end || sms < 1 || sms > kMostSms)
    refuse(line, fmt::format("sm_count is '{}'; it must be a whole number from 1 to {}", row.sm_count, kMostSms));
  if (timings_.sm_count == 0) timings_.sm_count = sms, timings_.device = row.device;
  if (timings_.sm_count != sms || timings_.device != row.device)
    refuse(line, fmt::format("timed on {} with {} SMs, lines before on {} with {}; a fit is of one GPU", row.device,
                             sms, timings_.device, timings_.sm_count));
}

// The op's other kernels have lines of their own in the file.
bool Reader::is_of_kernel(const CsvLine& line, const Row& row) const {
  std::set<std::string> tuned;
  for (const FittedKernel& other : fitted_kernels())
    if (other.op.name == kernel_->op.name) tuned.insert(other.variant);
  if (!tuned.contains(row.variant))
    refuse(line, fmt::format("times of '{}'; {} has a model for {}", row.variant, kernel_->op.name,
                             fmt::join(tuned, " and ")));
  if (row.dtype != "bf16") refuse(line, fmt::format("times in '{}'; the model is fitted in bf16", row.dtype));
  return row.variant == kernel_->variant;
}

double Reader::microseconds(const CsvLine& line, std::string_view column, const std::string& text) const {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !(value > 0) || !std::isfinite(value))
    refuse(line, fmt::format("{} is '{}'; it must be a number above 0", column, text));
  return value;
}

Reading& Reader::reading_of(const CsvLine& line, const Row& row) {
  const auto known = readings_.find(row.problem);
  if (known != readings_.end()) return known->second;
  AnyProblem problem;
  try {
    problem = kernel_->op.parse(row.problem);
  } catch (const InvalidInput& error) {
    refuse(line, fmt::format("'{}' is no problem of {}: {}", row.problem, kernel_->op.name, error.what()));
  }
  const auto variant =
      std::ranges::find(kernel_->op.variants, kernel_->variant, [](const AnyVariant& one) { return one.name; });
  if (const Support support = variant->can_run(problem, DType::bf16); !support)
    refuse(line, fmt::format("{} cannot run '{}': it {}", kernel_->variant, row.problem, support.reason));
  Reading& reading = readings_[row.problem];
  reading.commit = row.commit;
  reading.problem.text = row.problem;
  kernel_->with_model(problem, [&](const product::Sm90aModel& model) {
    reading.problem.unseen = is_unseen(model);
    const auto add = [&](const product::Sm90aProduct& product, const product::Sm90aSchedule& schedule) {
      reading.places.emplace(product::schedule_text(model.kernel, schedule), reading.problem.schedules.size());
      reading.problem.schedules.push_back({product, schedule});
    };
    product::visit_schedules(model.kernel, model.product_for, timings_.sm_count, add);
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

Timings Reader::read() {
  for (const CsvLine& line : csv_.lines) {
    const Row row = this->row(line);
    take_gpu(line, row);
    if (!is_of_kernel(line, row)) continue;
    Reading& reading = reading_of(line, row);
    if (reading.commit != row.commit)
      refuse(line, fmt::format("timed at {}, other lines of that problem at {}; what is compared is of one commit",
                               row.commit, reading.commit));
    const auto place = reading.places.find(row.choice);
    if (place == reading.places.end())
      refuse(line,
             fmt::format("choice is '{}'; it must be one of the {} schedules of that problem here, as '{}'", row.choice,
                         reading.places.size(), reading.places.empty() ? "" : reading.places.begin()->first));
    if (!reading.timed.insert(place->second).second) refuse(line, "that choice of that problem is there twice");
    if (row.estimated != "0" && row.estimated != "1")
      refuse(line, fmt::format("estimated is '{}'; it must be 0 or 1", row.estimated));
    if (row.estimated == "1") reading.estimated = place->second;
    reading.problem.schedules[place->second].cost =
        microseconds(line, "warm_us", row.warm_us) + microseconds(line, "cold_us", row.cold_us);
  }
  for (auto& [text, reading] : readings_) {
    finish(reading);
    timings_.problems.push_back(std::move(reading.problem));
  }
  if (timings_.problems.empty())
    throw std::runtime_error(fmt::format("{}: no row of {} {}; `noisefloor tune {} --out FILE` writes them",
                                         csv_.file.string(), kernel_->op.name, kernel_->variant, kernel_->op.name));
  return std::move(timings_);
}

}  // namespace

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
  return Reader(kernel, file).read();
}

}  // namespace noisefloor::fit
