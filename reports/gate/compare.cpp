#include "reports/gate/gate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "reports/run/files.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

std::vector<const SweepRow*> chosen_rows(const RunFiles& run, const std::string& variant, const RowPairing& options) {
  std::vector<const SweepRow*> rows;
  bool known = variant.empty();
  for (const SweepRow& row : run.rows) {
    if (!variant.empty() && row.variant != variant) continue;
    known = true;
    if (options.filter && !options.filter(row.name())) continue;
    rows.push_back(&row);
  }
  if (!known) throw failure("{}: no row of a variant '{}'", run.folder.string(), variant);
  return rows;
}

// The case, or with two named variants the problem.
CaseId pairing_id(const SweepRow& row, bool by_variant) {
  return {row.problem_id(), by_variant ? row.variant : ""};
}

std::vector<NetworkTotal> totals_of(const RunFiles& run, const std::string& choice) {
  auto totals = network_totals(run.rows, read_network_problems(run.folder, run.rows));
  std::erase_if(totals, [&](const NetworkTotal& total) { return total.choice != choice || total.op == kAllOps; });
  return totals;
}

// The GPUs of a run's rows; a merged folder has several.
std::string gpus_of(const RunFiles& run) {
  std::set<std::string> uuids;
  for (const SweepRow& row : run.rows)
    if (!row.gpu_uuid.empty()) uuids.insert(row.gpu_uuid);
  return fmt::format("{}", fmt::join(uuids, ", "));
}

PhaseSamples in_cycles(PhaseSamples samples, const std::vector<double>& batch_mhz, std::optional<double> row_mhz) {
  const bool by_batch =
      !batch_mhz.empty() && std::ranges::none_of(batch_mhz, [](double mhz) { return std::isnan(mhz); });
  if (!by_batch && !(row_mhz.value_or(0) > 0)) return samples;
  samples.cycles = samples.us;
  std::size_t next = 0;
  if (by_batch)
    for (std::size_t batch = 0; batch < samples.batches.size(); ++batch)
      for (std::size_t i = 0; i < samples.batches[batch]; ++i) samples.cycles[next++] *= batch_mhz[batch];
  else
    for (double& value : samples.cycles) value *= *row_mhz;
  return samples;
}

std::string watts_of(const RunFiles& run) {
  return run.environment.power_limit_w ? fmt::format("{:g} W", *run.environment.power_limit_w) : "";
}

}  // namespace

std::vector<RowPair> pair_rows(const RunFiles& a, const RunFiles& b, const RowPairing& options) {
  const bool by_variant = options.variant_a.empty();
  const auto rows_a = chosen_rows(a, options.variant_a, options);
  const auto rows_b = chosen_rows(b, by_variant ? options.variant_a : options.variant_b, options);
  if (options.filter && rows_a.empty() && rows_b.empty())
    throw failure("no row of {} or {} matches the filter", a.folder.string(), b.folder.string());
  std::unordered_map<CaseId, const SweepRow*> others;
  for (const SweepRow* row : rows_b) others.emplace(pairing_id(*row, by_variant), row);
  std::vector<RowPair> pairs;
  for (const SweepRow* row : rows_a) {
    auto node = others.extract(pairing_id(*row, by_variant));
    pairs.push_back({row, node.empty() ? nullptr : node.mapped()});
  }
  for (const SweepRow* row : rows_b)
    if (others.contains(pairing_id(*row, by_variant))) pairs.push_back({nullptr, row});
  return pairs;
}

const char* to_string(Phase phase) {
  return phase == Phase::warm ? "warm" : "cold";
}

std::optional<PhaseSamples> phase_samples(const RunFiles& run, const SweepRow& row, Phase phase) {
  const RowSamples& samples = run.samples_of(row);
  const auto slots = static_cast<std::size_t>(std::max(row.buffer_slots.value_or(1), 1L));
  if (phase == Phase::cold)
    return in_cycles({samples.cold_us, samples.cold_batches, {}, slots}, samples.cold_mhz, row.sm_clock_mhz);
  if (!row.time_warm_serial_us) return std::nullopt;
  if (!samples.warm_serial_us.empty())
    return in_cycles({samples.warm_serial_us, samples.warm_serial_batches, {}, slots}, samples.warm_serial_mhz,
                     row.warm_clock_mhz);
  if (samples.warm_us.empty()) return std::nullopt;
  return in_cycles({samples.warm_us, samples.warm_batches, {}, slots}, samples.warm_mhz, row.warm_clock_mhz);
}

RowChange row_change(const RunFiles& a, const RunFiles& b, const RowPair& pair) {
  const auto of = [&](Phase phase) -> std::optional<PhaseChange> {
    const auto of_a = phase_samples(a, *pair.a, phase), of_b = phase_samples(b, *pair.b, phase);
    if (!of_a || !of_b) return std::nullopt;
    PhaseChange change{median(of_a->us), median(of_b->us), 0, {}};
    change.change = change.b_us / change.a_us - 1;
    if (!of_a->cycles.empty() && !of_b->cycles.empty())
      change.cycle_change = median(of_b->cycles) / median(of_a->cycles) - 1;
    return change;
  };
  return {pair, *of(Phase::cold), of(Phase::warm)};
}

bool same_samples(const RunFiles& a, const RunFiles& b) {
  std::size_t both = 0, alike = 0;
  for (const auto& [id, of_b] : b.samples)
    if (const auto of_a = a.samples.find(id); of_a != a.samples.end() && of_b.cold_us.size() > 1) {
      ++both;
      alike += of_a->second.cold_us == of_b.cold_us;
    }
  return 2 * alike > both;
}

std::vector<TotalChange> total_changes(const RunFiles& a, const RunFiles& b, const RowPairing& options) {
  const bool namesakes = options.variant_a.empty();
  const auto totals_a = totals_of(a, namesakes ? kOwnBest : options.variant_a);
  const auto totals_b = totals_of(b, namesakes ? kOwnBest : options.variant_b);
  std::vector<TotalChange> changes;
  const auto add = [&](const NetworkTotal& total) -> TotalChange& {
    for (TotalChange& change : changes)
      if (std::tie(change.network, change.op, change.dtype) == std::tie(total.network, total.op, total.dtype))
        return change;
    const std::string choice =
        namesakes ? total.choice : fmt::format("{} and {}", options.variant_a, options.variant_b);
    return changes.emplace_back(TotalChange{total.network, total.op, total.dtype, choice, {}, {}});
  };
  for (const NetworkTotal& total : totals_a) add(total).a = total;
  for (const NetworkTotal& total : totals_b) add(total).b = total;
  return changes;
}

std::vector<std::string> environment_differences(const RunFiles& a, const RunFiles& b) {
  const RunEnvironment &x = a.environment, &y = b.environment;
  constexpr std::pair<const char*, const char*> kTexts[] = {{"ecc", "ECC"},
                                                            {"mig", "MIG"},
                                                            {"commit", "commit"},
                                                            {"driver", "driver"},
                                                            {"cublaslt", "cuBLASLt"},
                                                            {"cudnn", "cuDNN"},
                                                            {"pytorch", "PyTorch"},
                                                            {"cupti", "CUPTI"},
                                                            {"cpu_governor", "CPU governor"},
                                                            {"cuda_toolkit", "CUDA toolkit"},
                                                            {"compiler", "compiler"},
                                                            {"host_arch", "host architecture"},
                                                            {"build_type", "build type"}};
  std::vector<std::string> differences;
  const auto add = [&](const std::string& what, const std::string& in_a, const std::string& in_b) {
    if (what == "commit" ? !same_code(in_a, in_b) : in_a != in_b)
      differences.push_back(
          fmt::format("{}: {} and {}", what, in_a.empty() ? "unknown" : in_a, in_b.empty() ? "unknown" : in_b));
  };
  add("device", x.device, y.device);
  add("GPU", gpus_of(a), gpus_of(b));
  add("power limit", watts_of(a), watts_of(b));
  for (const auto& [name, what] : kTexts) add(what, x.text(name), y.text(name));
  return differences;
}

}  // namespace noisefloor
