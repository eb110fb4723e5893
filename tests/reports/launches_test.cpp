// What rows launch, before and after.
#include "reports/gate/gate.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/support/gate_runs.h"

namespace noisefloor {
namespace {

using Names = std::vector<std::string>;

GateResult launched(const RunFiles& a, const RunFiles& b, bool launches = false) {
  GateOptions options;
  options.launches = launches;
  return gate(a, b, options);
}

Rows launching(std::initializer_list<Names> kernels) {
  Rows rows;
  for (const Names& names : kernels) rows.emplace_back().kernels = names;
  return rows;
}

TEST(Launches, WhatAppearsVanishesOrChangesIsNamed) {
  const RunFiles a = synthetic_run(launching({{"tile<64>"}, {"tile<64>"}, {"reduce", "tile<8>"}, {"same"}}), 1);
  RunFiles b = synthetic_run(launching({{"tile<128>"}, {"tile<128>"}, {"reduce", "tile<8>"}, {"same"}}), 2);
  b.samples.at(b.rows[2]).kernel_counts = {2, 1};
  const GateResult result = launched(a, b);
  EXPECT_EQ(result.launches.compared, 4u);
  ASSERT_EQ(result.launches.changes.size(), 2u) << "two rows changed alike";
  const LaunchChange& most = result.launches.changes[0];
  EXPECT_EQ(most.rows.size(), 2u);
  ASSERT_EQ(most.kernels.size(), 2u);
  EXPECT_EQ(most.kernels[0].name + " " + what_changed(most.kernels[0]), "tile<128> appears");
  EXPECT_EQ(most.kernels[1].name + " " + what_changed(most.kernels[1]), "tile<64> vanishes");
  ASSERT_EQ(result.launches.changes[1].kernels.size(), 1u);
  EXPECT_EQ(what_changed(result.launches.changes[1].kernels[0]), "1 -> 2 launches");
  EXPECT_EQ(result.exit_code(), 0) << "most often it is what the change is about";
  EXPECT_EQ(launched(a, b, true).exit_code(), 1);
  EXPECT_EQ(launched(a, a, true).exit_code(), 0);
  const std::string text = terminal_text(result);
  expect_parts(text, {"\nLaunches\n", "launches changed in 2 ways, 2 of ours"});
  expect_parts(junit_xml(result), {"<skipped message=\"launches of 2 rows; appears tile&lt;128&gt;"});
  EXPECT_NE(junit_xml(launched(a, b, true)).find("<failure message=\"launches of 2 rows"), std::string::npos);
}

TEST(Launches, ALibrarysKernelIsItsOwnBusiness) {
  RunFiles a = synthetic_run(launching({{"sm90_xmma_a"}}), 1), b = synthetic_run(launching({{"sm90_xmma_b"}}), 2);
  for (RunFiles* run : {&a, &b}) run->rows[0].kind = "baseline";
  const GateResult result = launched(a, b, true);
  ASSERT_EQ(result.launches.changes.size(), 1u);
  EXPECT_TRUE(result.launches.changes[0].of_library);
  EXPECT_EQ(result.exit_code(), 0);
}

TEST(Launches, WhatARunDoesNotKnowIsNotCompared) {
  const RunFiles old = synthetic_run(launching({{}, {}}), 1), later = synthetic_run(launching({{"a"}, {"b"}}), 2);
  const GateResult result = launched(old, later);
  EXPECT_EQ(result.launches.compared, 0u);
  EXPECT_TRUE(result.launches.changes.empty());
  EXPECT_NE(terminal_text(result).find("launches not compared: 2 rows"), std::string::npos);
  EXPECT_EQ(terminal_text(launched(old, old)).find("launches"), std::string::npos) << "a host's";
  EXPECT_THROW(launched(old, later, true), std::runtime_error) << "asked for, and nothing to gate";
}

TEST(Launches, AreTheSameInAnyOrder) {
  EXPECT_TRUE(rc::check("counts of names are compared, not their order", [] {
    Names names{"a", "b", "c", "d", "e"};
    names.resize(*rc::gen::inRange<std::size_t>(1, 6));
    Names other = names;
    for (std::size_t i = other.size(); i > 1; --i) std::swap(other[i - 1], other[*rc::gen::inRange<std::size_t>(0, i)]);
    const RunFiles a = synthetic_run(launching({names}), 1), b = synthetic_run(launching({other}), 2);
    RC_ASSERT(launched(a, b, true).exit_code() == 0);
  }));
}

}  // namespace
}  // namespace noisefloor
