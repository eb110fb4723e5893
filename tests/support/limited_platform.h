// A platform with little memory: what does not fit is refused, as on a device; and recordings are counted.
#pragma once

#include <map>

#include "tests/support/wrapped_host.h"

namespace noisefloor {

template <class Base>
class Limited : public Base {
 public:
  explicit Limited(std::size_t bytes) : free_(bytes) {}

  void* allocate(std::size_t bytes) override {
    if (bytes > free_) throw OutOfMemory("the limit of the test");
    void* const data = Base::allocate(bytes);
    sizes_[data] = bytes;
    free_ -= bytes;
    return data;
  }
  void release(void* data) noexcept override {
    const auto size = sizes_.find(data);
    free_ += size->second;
    sizes_.erase(size);
    Base::release(data);
  }
  std::size_t free_bytes() override { return free_; }
  std::unique_ptr<Recording> record(const Launch& launch) override {
    ++recordings;
    return Base::record(launch);
  }

  int recordings = 0;

 private:
  std::size_t free_;
  std::map<void*, std::size_t> sizes_;
};

using LimitedPlatform = Limited<WrappedHost>;

}  // namespace noisefloor
