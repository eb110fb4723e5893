// What is said while a case takes long, and when. By scripted times.
#include "bench/measure/case_progress.h"

#include <gtest/gtest.h>

#include <list>

#include "bench/measure/case_result.h"
#include "bench/measure/case_runner.h"
#include "bench/sweep/suite.h"
#include "tests/support/scripted_library.h"

namespace noisefloor {
namespace {

using Lines = std::vector<std::string>;

TEST(Progress, IsSaidEveryTenSecondsAndLaterEveryMinute) {
  double now = 1000;
  Lines said;
  CaseProgress progress([&](const std::string& line) { said.push_back(line); }, [&] { return now; });
  const auto said_at = [&](double seconds) {
    said.clear();
    now = 1000 + seconds;
    progress.between();
    return said;
  };
  progress.begin("gemm/a", 9.9);
  progress.enter("verifying");
  EXPECT_EQ(said_at(9.9), Lines{});
  EXPECT_EQ(said_at(10), Lines{"gemm/a: 10s so far, now verifying"});
  EXPECT_EQ(said_at(19.9), Lines{});
  now = 1020;
  progress.enter("cold launches");
  EXPECT_EQ(said, Lines{"gemm/a: 20s so far, now cold launches"}) << "the phase that begins";
  EXPECT_EQ(said_at(75), Lines{"gemm/a: 1m15s so far, now cold launches"});
  EXPECT_EQ(said_at(134), Lines{});
  EXPECT_EQ(said_at(135), Lines{"gemm/a: 2m15s so far, now cold launches"});
  progress.begin("gemm/b", 0);
  EXPECT_EQ(said_at(144), Lines{}) << "each case has its own time";
  EXPECT_TRUE(CaseProgress({}).silent());
}

class ProgressOfACase : public testing::Test {
 protected:
  const char* const text = "m=4,n=4,k=4";
  const SuiteEntry& gemm = *suite().find("gemm");
  ScriptedPlatform platform;
  Ceilings ceilings = low_ceilings();
  Lines said;
  int launches = 0;
  std::list<AnyVariant> variants;

  Case case_of(const AnyVariant& variant) {
    variants.push_back(followed_by(variant, [this](auto) { ++launches; }));
    return gemm_case(implementation_of(variants.back()));
  }
  CaseResult run(double launch_us) {
    RunnerOptions options;
    options.cold = {0.005, 5, 10, 1};
    options.warm = {0.005, 5, 10, 1};
    options.progress_clock = [&] { return platform.clock_us * 1e-6; };
    options.say = [&](const std::string& line) {
      EXPECT_FALSE(platform.timing) << line;
      said.push_back(std::to_string(launches) + " launches: " + line);
    };
    return CaseRunner(platform, &ceilings, options).run(case_of(platform.taking(launch_us, host_gemm())));
  }
};

TEST_F(ProgressOfACase, IsSaidBetweenItsBatches) {
  const CaseResult result = run(6e6);
  EXPECT_EQ(result.row.status, Outcome::ok) << result.row.reason;
  const std::string name = "gemm/m=4,n=4,k=4/fp32/host: ";
  ASSERT_EQ(said.size(), 5u);
  EXPECT_EQ(said[0], "2 launches: " + name + "12s so far, now cold launches");
  EXPECT_EQ(said[1], "4 launches: " + name + "24s so far, now cold launches");
  EXPECT_EQ(said[4], "10 launches: " + name + "1m00s so far, now warm launches");
  EXPECT_EQ(launches, 12) << "the least, as it is announced";
}

TEST_F(ProgressOfACase, IsAnnouncedBeforeTheFirstLaunch) {
  const Cost cost = gemm.workload->cost(gemm.workload->parse(text), DType::fp32);
  ceilings.rows.back().value = 1e-9 * cost.flops / 90;
  EXPECT_EQ(run(5).row.status, Outcome::implausible);
  ASSERT_EQ(said.size(), 1u) << "and no more of a short one";
  EXPECT_EQ(said[0].rfind("0 launches: gemm/m=4,n=4,k=4/fp32/host: by the measured ceilings a launch takes at least "
                          "1m30s",
                          0),
            0u)
      << said[0];
}

TEST_F(ProgressOfACase, IsByTheSlowerOfArithmeticAndMemory) {
  const Case one = case_of(host_gemm());
  const Cost cost = gemm.workload->cost(one.problem, one.dtype);
  EXPECT_DOUBLE_EQ(seconds_by_roof(one, ceilings), std::max(cost.flops, cost.bytes) * 1e-11);
  ceilings.rows[0].value = 1e-9 * cost.bytes;
  EXPECT_DOUBLE_EQ(seconds_by_roof(one, ceilings), 1);
}

}  // namespace
}  // namespace noisefloor
