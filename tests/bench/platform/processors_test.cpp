// Who else wants the cores, on the machine that the tests run on.
#include "bench/platform/processors.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "bench/platform/platform.h"
#include "kernels/core/parallel.h"

namespace noisefloor {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{120};  // with a machine that has other things to do

void stay_on(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

// On one core with this thread.
void spin_on(int core, const std::atomic<bool>& stop) {
  stay_on(core);
  while (!stop) {
  }
}

TEST(RunQueueWatch, AThreadThatIsAlwaysReadyIsNotWaitedForLong) {
  EXPECT_TRUE(may_still_work(1, 0.01, 0));
  EXPECT_TRUE(may_still_work(1, 0.9, 0.05)) << "others had its core";
  EXPECT_FALSE(may_still_work(1, 0.11, 0.1));
  EXPECT_TRUE(may_still_work(2, 0.11, 0.1));
  EXPECT_FALSE(may_still_work(1, 1, 0.05));
  EXPECT_FALSE(may_still_work(0, 0.01, 0));
}

TEST(RunQueueWatch, WhatTheSystemSaysOfOthersIsNoNonsense) {
  const double stolen = stolen_us();
  EXPECT_GE(stolen, 0);
  EXPECT_GE(stolen_us(), stolen);
  const auto others = load_of_others();
  if (!others) GTEST_SKIP() << "no /proc/loadavg";
  EXPECT_GE(*others, 0);
  EXPECT_LT(*others, 1 << 22) << "a number of threads, not of anything else";
}

TEST(HostPlatform, SaysOfEachSampleWhatItsThreadsWaited) {
  const auto host = make_host_platform();
  EXPECT_TRUE(host->waits_us().empty());
  const auto busy = [](double us) {
    const auto end = Clock::now() + std::chrono::duration<double, std::micro>(us);
    while (Clock::now() < end) continue;
  };
  const Launch launch = [&] {
    parallel_for(2, 1, [&](std::int64_t, std::int64_t) { busy(200); });
    return success();
  };
  EXPECT_EQ(host->time_cold(launch, 7, {}).size(), 7u);
  EXPECT_EQ(host->waits_us().size(), 7u);
  EXPECT_EQ(host->time_warm(launch, 3, 2).size(), 3u);
  ASSERT_EQ(host->waits_us().size(), 3u);
  for (const double wait : host->waits_us()) EXPECT_GE(wait, 0);

  // A thread that is put behind a spinning one on its own core must wait for it.
  std::atomic<bool> stop = false;
  cpu_set_t all;
  pthread_getaffinity_np(pthread_self(), sizeof all, &all);
  const int core = sched_getcpu();
  stay_on(core);
  std::thread other([&] { spin_on(core, stop); });
  const Launch alone = [&] {
    busy(50e3);
    return success();
  };
  double waited = 0;
  for (const auto end = Clock::now() + kPatience; waited < 1e3 && Clock::now() < end;) {
    (void)host->time_warm(alone, 2, 1);
    for (const double wait : host->waits_us()) waited += wait;
  }
  stop = true;
  other.join();
  pthread_setaffinity_np(pthread_self(), sizeof all, &all);
  EXPECT_GE(waited, 1e3);
  EXPECT_EQ(host->time_warm(alone, 1, 1).size(), 1u) << "a thread that has ended is in nobody's account";
}

}  // namespace
}  // namespace noisefloor
