#include "bench/platform/device_turn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace noisefloor {

std::filesystem::path DeviceTurn::file_of(const std::string& place) {
  return std::filesystem::temp_directory_path() / fmt::format("noisefloor-{}-{}.turn", getuid(), place);
}

DeviceTurn::DeviceTurn(std::filesystem::path file) : file_(std::move(file)) {
  descriptor_ = Descriptor(open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (descriptor_ < 0)
    throw std::system_error(errno, std::generic_category(), fmt::format("{}: cannot be opened", file_.string()));
  lock(LOCK_EX);
}

void DeviceTurn::give() {
  lock(LOCK_UN);
}

void DeviceTurn::take() {
  lock(LOCK_EX);
}

void DeviceTurn::lock(int operation) {
  while (flock(descriptor_, operation) != 0)
    if (errno != EINTR)
      throw std::system_error(errno, std::generic_category(), fmt::format("{}: cannot be locked", file_.string()));
}

}  // namespace noisefloor
