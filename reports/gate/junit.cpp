// JUnit XML of the gate, as Jenkins, GitLab and GitHub's report actions read it.
#include <fmt/format.h>

#include <map>
#include <string_view>

#include "reports/gate/gate.h"
#include "reports/page/html_page.h"

namespace noisefloor {
namespace {

// XML 1.0 has no way to write most control characters, and an invalid byte makes the whole file unreadable.
std::string escaped(const std::string& text) {
  std::string plain = text;
  for (char& c : plain) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = ' ';
    if (byte >= 0x80) c = '?';  // names of ops, problems and variants are ASCII
  }
  return escape_html(plain);
}

std::string opening(const CaseId& row, double seconds) {
  return fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.9f}\"", escaped(row.op + "." + row.dtype),
                     escaped(row.problem + " " + row.variant), seconds);
}

std::string message_of(const GateRow& row) {
  std::string text = fmt::format("{} by {}", to_string(row.verdict), phases_text(row.by));
  for (const Phase phase : {Phase::warm, Phase::cold}) {
    if (phase == Phase::warm && !row.warm) continue;
    const PhaseChange& change = row.change_of(phase);
    text += fmt::format("; {}: {:.2f} us before, {:.2f} us now ({:+.1f} %), noise {:.1f} %", to_string(phase),
                        change.a_us, change.b_us, 100 * change.change, 100 * row.of(phase).noise);
  }
  return text + (row.reason.empty() ? "" : "; " + row.reason);
}

std::string message_of(const LaunchChange& change) {
  std::string text = fmt::format("launches of {} rows", change.rows.size());
  for (const LaunchChange::Kernel& kernel : change.kernels)
    text += fmt::format("; {} {}", what_changed(kernel), kernel.name);
  return text;
}

}  // namespace

std::string junit_xml(const GateResult& result) {
  std::string cases;
  std::map<std::string_view, std::size_t> count;
  double total_seconds = 0;
  // `child`: what it is but passed, null where it passed.
  const auto add = [&](const std::string& start, const char* child, const std::string& message) {
    if (child == nullptr) {
      cases += start + "/>\n";
      return;
    }
    ++count[child];
    cases += fmt::format("{}>\n      <{} message=\"{}\"/>\n    </testcase>\n", start, child, escaped(message));
  };
  for (const GateRow& row : result.rows) {
    const double seconds = row.change.cold.b_us * 1e-6;
    total_seconds += seconds;
    const char* const child = row.verdict == GateVerdict::regressed   ? "failure"
                              : row.blocks()                          ? "error"
                              : row.verdict == GateVerdict::ambiguous ? "skipped"
                                                                      : nullptr;
    add(opening(row.change.rows.named(), seconds), child, message_of(row));
  }
  for (const GateRow& row : result.kept) add(opening(row.change.rows.named(), 0), nullptr, "");
  constexpr const char* kChildren[] = {"failure", "error", "skipped"};  // as GateGap::Weight has them
  for (const GateGap& gap : result.gaps)
    add(opening(gap.id, 0), kChildren[static_cast<std::size_t>(gap.weight)], gap.what);
  for (const LaunchChange& change : result.launches.changes) {
    const SweepRow& first = *change.rows.front();
    add(fmt::format("    <testcase classname=\"launches.{}\" name=\"{}\" time=\"0\"", escaped(first.op),
                    escaped(first.name())),
        result.gates_launches && !change.of_library ? "failure" : "skipped", message_of(change));
  }
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.9f}\"",
                  result.rows.size() + result.kept.size() + result.gaps.size() + result.launches.changes.size(),
                  count["failure"], count["error"], count["skipped"], total_seconds);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"noisefloor gate\" {}>\n"
      "  <testsuite name=\"{}\" {}>\n{}  </testsuite>\n</testsuites>\n",
      counts, escaped("noisefloor gate, " + result.device), counts, cases);
}

}  // namespace noisefloor
