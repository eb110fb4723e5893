#include "bench/commands/sweep_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/commands/commands.h"
#include "bench/platform/build_info.h"
#include "reports/totals/roofline.h"

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

void drop_half_done(RunFolder& folder, const std::vector<CaseId>& cases, const PlatformDescription& description) {
  const std::set<CaseId> chosen(cases.begin(), cases.end());
  std::set<ProblemId> half_done;
  for (const CaseId& one : cases)
    if (!folder.rows().contains(one)) half_done.insert(one);
  std::set<CaseId> dropped;
  std::size_t foreign = 0;
  for (const auto& [id, row] : folder.rows()) {
    if (row.gpu_uuid.empty() || row.gpu_uuid == description.uuid) continue;
    ++foreign;
    if (half_done.contains(id) && chosen.contains(id)) dropped.insert(id);
  }
  folder.drop(dropped);
  if (!dropped.empty())
    fmt::print(stderr, "{} rows of another {} are measured anew: it left their problems half done\n", dropped.size(),
               description.name);
  if (foreign > dropped.size())
    fmt::print(stderr, "warning: {} holds rows of another {}; column gpu_uuid tells them apart\n",
               folder.path().string(), description.name);
}

void drop_uncounted(RunFolder& folder, const std::vector<CaseId>& cases) {
  std::set<CaseId> dropped;
  for (const CaseId& one : cases)
    if (const auto found = folder.rows().find(one);
        found != folder.rows().end() && found->second.counter_status == kCutOff)
      dropped.insert(one);
  folder.drop(dropped);
  if (!dropped.empty())
    fmt::print(stderr, "{} rows are measured anew: their process ended before their counters were taken\n",
               dropped.size());
}

void require_same_pytorch(const RunFolder& folder, Worker& worker) {
  const auto& rows = folder.rows();
  if (std::none_of(rows.begin(), rows.end(), [](const auto& row) { return of_pytorch(row.second); })) return;
  for (const auto& [name, value] : worker.facts())
    if (const std::string before = folder.fact(name); !before.empty() && before != value)
      refuse(folder, name, before, value);
}

void raise_beaten_roof(RunFolder& folder, Ceilings ceilings, const CeilingsLog& log) {
  constexpr double kBeaten = 102;
  std::vector<SweepRow> placed;
  for (const auto& [id, row] : folder.rows())
    if (row.pct_of_roof && row.ai) placed.push_back(row);
  if (std::none_of(placed.begin(), placed.end(), [](const SweepRow& row) { return *row.pct_of_roof > kBeaten; }))
    return;
  log("rows are above the roof: the host's ceilings are measured once more");
  ceilings = raise_host_ceilings(ceilings, build_info().commit, log);
  std::erase_if(placed, [&](SweepRow& row) { return !place_under_roof(row, ceilings); });
  folder.amend(placed);
  write_ceilings(folder.path() / "ceilings.csv", ceilings);
}

}  // namespace noisefloor
