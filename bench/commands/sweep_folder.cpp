#include "bench/commands/sweep_folder.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/commands/commands.h"
#include "bench/platform/build_info.h"

namespace noisefloor {
namespace {

[[noreturn]] void refuse(const RunFolder& folder, const std::string& name, const std::string& before,
                         const std::string& now) {
  throw InvalidInput(fmt::format("{}: holds rows of {} {}, this is {}; give another --out, or --fresh",
                                 folder.path().string(), name, before, now));
}

}  // namespace

void require_same_software(const RunFolder& folder, const nlohmann::ordered_json& facts) {
  for (const char* name : {"driver", "cublaslt", "cudnn"})
    if (const std::string before = folder.fact(name), now = facts.value(name, "");
        !folder.rows().empty() && !before.empty() && !now.empty() && before != now)
      refuse(folder, name, before, now);
}

void warn_of_another_gpu(const RunFolder& folder, const PlatformDescription& description) {
  const auto& rows = folder.rows();
  if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
        return !row.second.gpu_uuid.empty() && row.second.gpu_uuid != description.uuid;
      }))
    fmt::print(stderr, "warning: {} holds rows of another {}; column gpu_uuid tells them apart\n",
               folder.path().string(), description.name);
}

void require_same_pytorch(const RunFolder& folder, Worker& worker) {
  const auto& rows = folder.rows();
  if (std::none_of(rows.begin(), rows.end(), [](const auto& row) { return of_pytorch(row.second); })) return;
  for (const auto& [name, value] : worker.facts())
    if (const std::string before = folder.fact(name); !before.empty() && before != value)
      refuse(folder, name, before, value);
}

bool raise_beaten_roof(const RunFolder& folder, std::vector<CaseResult>& results, Ceilings& ceilings,
                       const CeilingsLog& log) {
  constexpr double kBeaten = 102;
  if (std::none_of(results.begin(), results.end(),
                   [](const CaseResult& one) { return one.row.pct_of_roof.value_or(0) > kBeaten; }))
    return false;
  log("a row is above the roof: the host's ceilings are measured once more");
  ceilings = raise_host_ceilings(ceilings, build_info().commit, log);
  for (CaseResult& one : results) (void)place_under_roof(one.row, ceilings);
  write_ceilings(folder.path() / "ceilings.csv", ceilings);
  return true;
}

}  // namespace noisefloor
