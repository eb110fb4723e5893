#include "reports/shared_process.h"

#include <algorithm>

namespace noisefloor {
namespace {

constexpr std::ptrdiff_t kEnough = 40;  // samples, to know a row's again

// How many samples a process gave the row. Pooling may leave out the last ones of some.
std::ptrdiff_t of_one_process(const SweepRow& row, const std::vector<double>& us) {
  return std::ssize(us) / std::max(1L, row.processes.value_or(1));
}

// Pieces of `b` that follow each other without a gap: what is twice as long has a whole one.
bool have_a_piece_in_common(const std::vector<double>& a, const std::vector<double>& b, std::ptrdiff_t piece) {
  for (auto begin = b.begin(); b.end() - begin >= piece; begin += piece)
    if (std::search(a.begin(), a.end(), begin, begin + piece) != a.end()) return true;
  return false;
}

}  // namespace

bool share_a_process(const RunFiles& a, const RunFiles& b) {
  std::map<CaseId, const SweepRow*> rows_of_a;
  for (const SweepRow& row : a.rows) rows_of_a[row] = &row;
  std::size_t both = 0, alike = 0;
  for (const SweepRow& row : b.rows) {
    const auto other = rows_of_a.find(row);
    const auto of_a = a.samples.find(row), of_b = b.samples.find(row);
    if (other == rows_of_a.end() || of_a == a.samples.end() || of_b == b.samples.end()) continue;
    const auto &us_a = of_a->second.cold_us, &us_b = of_b->second.cold_us;
    const std::ptrdiff_t shortest = std::min(of_one_process(*other->second, us_a), of_one_process(row, us_b));
    const std::ptrdiff_t piece = std::min(kEnough, shortest / 2);
    if (piece < 1) continue;
    ++both;
    alike += have_a_piece_in_common(us_a, us_b, piece);
  }
  return 2 * alike > both;
}

}  // namespace noisefloor
