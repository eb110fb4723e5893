// Regions of all cores: what they cover, what they throw, and how many threads they ask for.
#include "kernels/core/parallel.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <new>
#include <vector>

namespace noisefloor {
namespace {

TEST(ParallelFor, CoversEachNumberOnce) {
  for (const std::int64_t count : {0, 1, 7, 8, 1000})
    for (const std::int64_t grain : {1, 3, 8, 2000}) {
      std::vector<std::atomic<int>> times(static_cast<std::size_t>(count));
      const auto body = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++times[static_cast<std::size_t>(i)];
      };
      parallel_for(count, grain, body);
      parallel_for_memory(count, grain, body);
      for (const auto& one : times) ASSERT_EQ(one, 2) << count << " by " << grain;
    }
}

// Memory may run out in any of them: an exception that left a thread would end the program.
TEST(ParallelFor, ThrowsWhatABodyThrew) {
  std::atomic<int> done = 0;
  const auto body = [&](std::int64_t begin, std::int64_t) {
    ++done;
    if (begin % 3 == 0) throw std::bad_alloc();
  };
  EXPECT_THROW(parallel_for(100, 1, body), std::bad_alloc);
  EXPECT_EQ(done, 100) << "the others end as ever";
  EXPECT_THROW(parallel_for(1, 1, body), std::bad_alloc);
  EXPECT_THROW(parallel_for_memory(100, 1, body), std::bad_alloc);
  EXPECT_NO_THROW(parallel_for(0, 1, body));
}

TEST(HostThreads, AreThoseThatCanRunAtOnce) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1 << 20);
  EXPECT_LE(host_threads(), omp_get_num_procs());
  EXPECT_GE(host_threads(), 1);
  omp_set_num_threads(1);
  EXPECT_EQ(host_threads(), 1) << "who asks for fewer gets fewer";
  omp_set_num_threads(before);
  EXPECT_EQ(host_threads(), std::min(before, host_threads()));
}

TEST(HostThreads, AreOneInARegion) {
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(4);
  std::atomic<int> most = 0;
  parallel_for(16, 1, [&](std::int64_t, std::int64_t) {
    parallel_for(16, 1, [&](std::int64_t, std::int64_t) {
      for (int now = omp_get_num_threads(), seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
      }
    });
  });
  omp_set_max_active_levels(levels);
  EXPECT_EQ(most, 1) << "threads of threads would be more than the processors";
}

}  // namespace
}  // namespace noisefloor
