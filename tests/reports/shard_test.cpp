// How a sweep is cut into shards.
#include "reports/run/shard.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>

namespace noisefloor {
namespace {

CaseId case_of_few() {
  const auto pick = [](const char* letter, int most) { return letter + std::to_string(*rc::gen::inRange(0, most)); };
  return {{pick("op", 4), pick("p", 12), pick("dtype", 3)}, pick("v", 5)};
}

TEST(Shard, ShardsArePartitionsThatSplitNoProblem) {
  EXPECT_TRUE(rc::check("any cases, any number of shards", [] {
    std::vector<CaseId> all;
    std::set<CaseId> distinct;
    for (int i = *rc::gen::inRange(0, 120); i > 0; --i)
      if (const CaseId one = case_of_few(); distinct.insert(one).second) all.push_back(one);
    const int count = *rc::gen::inRange(1, 12);
    std::vector<CaseId> merged(all.size());
    std::map<ProblemId, int> owner;
    std::map<std::pair<std::string, std::string>, std::map<int, int>> problems;  // of op and dtype, in each shard
    for (int index = 1; index <= count; ++index) {
      const ShardRecord part = make_shard_record({index, count}, all);
      RC_ASSERT(part.places.size() == part.cases.size());
      RC_ASSERT(std::is_sorted(part.places.begin(), part.places.end()));
      for (std::size_t i = 0; i < part.cases.size(); ++i) {
        RC_ASSERT(merged.at(part.places[i]).op.empty());
        merged[part.places[i]] = part.cases[i];
        const auto [first, is_new] = owner.emplace(part.cases[i], index);
        RC_ASSERT(first->second == index);
        if (is_new) ++problems[{part.cases[i].op, part.cases[i].dtype}][index];
      }
    }
    RC_ASSERT(merged == all);
    for (const auto& [kind, of_parts] : problems) {
      int least = of_parts.size() < static_cast<std::size_t>(count) ? 0 : 120, most = 0;
      for (const auto& [index, number] : of_parts) least = std::min(least, number), most = std::max(most, number);
      RC_ASSERT(most - least <= 1);
    }
  }));
}

}  // namespace
}  // namespace noisefloor
