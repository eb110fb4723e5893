#include "bench/platform/device_turn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace noisefloor {

std::filesystem::path DeviceTurn::file_of(const std::string& place) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) throw std::system_error(error, "the folder for temporary files (TMPDIR) cannot be used");
  return folder / fmt::format("noisefloor-{}-{}.turn", getuid(), place);
}

DeviceTurn::DeviceTurn(std::filesystem::path file, const std::function<void()>& before_waiting)
    : file_(std::move(file)) {
  const auto fail = [this](int error, const char* what) {
    throw std::system_error(error, std::generic_category(), fmt::format("{}: {}", file_.string(), what));
  };
  struct stat held = {}, named = {};
  do {  // what cleans up the folder may remove the file while its lock is waited for
    descriptor_ =
        Descriptor(open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR));
    if (descriptor_ < 0) fail(errno, "cannot be opened");
    if (fstat(descriptor_, &held) != 0) fail(errno, "cannot be looked at");
    if (!S_ISREG(held.st_mode) || held.st_uid != getuid()) fail(EPERM, "is not a file of this user's");
    if (!take_at_once()) {
      before_waiting();
      take();
    }
  } while (stat(file_.c_str(), &named) != 0 || named.st_ino != held.st_ino || named.st_dev != held.st_dev);
}

void DeviceTurn::give() {
  lock(LOCK_UN);
}

void DeviceTurn::take() {
  lock(LOCK_EX);
}

bool DeviceTurn::take_at_once() {
  return lock(LOCK_EX | LOCK_NB);
}

bool DeviceTurn::lock(int operation) {
  while (flock(descriptor_, operation) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR)
      throw std::system_error(errno, std::generic_category(), fmt::format("{}: cannot be locked", file_.string()));
  }
  return true;
}

}  // namespace noisefloor
