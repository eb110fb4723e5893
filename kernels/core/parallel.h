// All cores of the host, through OpenMP.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>

namespace noisefloor {

// The stack, in bytes, of a thread that runs host variants. The largest frame is that of attention with 512 channels,
// whose tiles are 395 KiB; a convolution's are 251 KiB. Twice that, and room for what calls them.
inline constexpr std::size_t kHostStack = std::size_t{1} << 20;

// How many threads a parallel region is to ask for: those of OMP_NUM_THREADS or omp_set_num_threads(), but not more
// than this process has processors, nor than it can make, since libgomp ends the program where it gets fewer than it
// asks for. The threads are tried out once. 1 within a region, and where OMP_STACKSIZE is below kHostStack.
int host_threads();

// What a body throws in a region, for the thread that began it: an exception may not leave a thread of OpenMP.
class ThrownInRegion {
 public:
  template <class Call>
  void guard(const Call& call) noexcept {
    try {
      call();
    } catch (...) {
#pragma omp critical(noisefloor_thrown_in_region)
      if (first_ == nullptr) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

// parallel_for() by at most so many threads.
template <class Body>
void parallel_for_by(int most_threads, std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t chunks = (count + grain - 1) / grain;
  [[maybe_unused]] const int threads = chunks > 1 ? std::min(most_threads, host_threads()) : 1;
  ThrownInRegion thrown;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (chunks > 1)
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int64_t begin = chunk * grain;
    thrown.guard([&] { body(begin, std::min(begin + grain, count)); });
  }
  thrown.rethrow();
}

// Calls body(begin, end) on disjoint ranges that cover [0, count), each a multiple of `grain` long but the last. Ranges
// are handed out dynamically. When all are done, throws what the first body threw that did.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  parallel_for_by(std::numeric_limits<int>::max(), count, grain, body);
}

inline constexpr int kMemoryThreads = 8;
// The same for what memory bounds, by a few threads: a region ends when all of its threads have run, and on a host of
// many cores that others use some run late.
template <class Body>
void parallel_for_memory(std::int64_t count, std::int64_t grain, const Body& body) {
  parallel_for_by(kMemoryThreads, count, grain, body);
}

}  // namespace noisefloor
