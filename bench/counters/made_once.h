// Values that are dear to make and do not change: each is made at the first request for its key, and kept.
#pragma once

#include <map>
#include <memory>
#include <mutex>

namespace noisefloor {

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

}  // namespace noisefloor
