// What a process has once: values that are made at the first request, and owners of what CUPTI has one of.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "bench/counters/counter_status.h"

namespace noisefloor {

// Values that are dear to make and do not change: each is made at the first request for its key, and kept.
template <class Key, class Value>
class MadeOnce {
 public:
  // `make` returns a std::unique_ptr<Value>. One that throws leaves nothing behind: the next request tries again, so
  // that what was lacking once (a permission, hardware that another program held) is not held to be lacking for ever.
  template <class Make>
  Value& get(const Key& key, const Make& make) {
    const std::lock_guard lock(mutex_);
    auto found = values_.find(key);
    if (found == values_.end()) found = values_.emplace(key, make()).first;
    return *found->second;
  }

 private:
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Value>> values_;
};

// CUPTI has one range profiler and one set of activity callbacks a process, and answers a second user with "invalid
// parameter".
// The one `Owner` of this process that is alive; another one throws CountersUnavailable (busy) in `message`.
template <class Owner>
class OnlyOne {
 public:
  explicit OnlyOne(const char* message) {
    if (taken_.exchange(true)) throw CountersUnavailable(CounterStatus::busy, message);
  }
  ~OnlyOne() { taken_ = false; }
  OnlyOne(const OnlyOne&) = delete;
  OnlyOne& operator=(const OnlyOne&) = delete;

 private:
  static inline std::atomic<bool> taken_ = false;
};

}  // namespace noisefloor
