#include "reports/run/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <mntent.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "reports/run/files.h"

namespace noisefloor {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  (void)gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string read_owner(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t count = pread(descriptor, text.data(), text.size(), 0);
  std::string owner(text.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  return owner.substr(0, owner.find('\n'));
}

bool lies_below(const std::string& path, const std::string& mount) {
  if (mount == "/") return true;
  return path.starts_with(mount) && (path.size() == mount.size() || path[mount.size()] == '/');
}

}  // namespace

bool locks_stay_on_this_machine(const fs::path& mounts, const fs::path& folder) {
  std::error_code error;
  const std::string path = fs::weakly_canonical(folder, error).string();
  std::size_t longest = 0;
  bool local = false;
  std::FILE* const file = setmntent(mounts.c_str(), "re");
  if (file == nullptr) return false;
  while (const mntent* const entry = getmntent(file)) {
    const std::string mount = entry->mnt_dir;
    // The latest of those with the longest mount point is the one on top.
    if (mount.size() < longest || !lies_below(path, mount)) continue;
    longest = mount.size();
    constexpr const char* kLocal[] = {"nolock", "local_lock=all", "local_lock=flock", "localflock"};
    local = std::ranges::any_of(kLocal, [&](const char* option) { return hasmntopt(entry, option) != nullptr; });
  }
  (void)endmntent(file);
  return local;
}

FolderLock::FolderLock(fs::path folder, Mode mode) {
  const auto file = folder / ".lock";
  const bool writing = mode == Mode::writing;
  while (true) {
    // Neither through a link, whose target would be overwritten, nor waiting at a pipe.
    constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    if (writing) require_regular_or_absent(file);
    descriptor_ = open(file.c_str(), (writing ? O_CREAT | O_RDWR : O_RDONLY) | kFlags, 0644);
    if (descriptor_ < 0 && !writing) return;
    if (descriptor_ < 0) throw failure("{}: cannot be written: {}", file.string(), std::strerror(errno));
    if (flock(descriptor_, (writing ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
      const int why = errno;
      const std::string owner = read_owner(descriptor_);
      close(descriptor_);
      if (why == EINTR) continue;
      if (why != EWOULDBLOCK)
        throw failure("{}: cannot be locked: {}; put the run folder on a file system with locks", file.string(),
                      std::strerror(why));
      throw failure("{}: another sweep is writing there{}", folder.string(), owner.empty() ? "" : " (" + owner + ")");
    }
    if (is_still(file, descriptor_)) break;
    close(descriptor_);  // removed between opening and locking: no longer the one that others see
  }
  const std::string us = "host " + host_name() + ",";
  const std::string owner = read_owner(descriptor_);
  if (!owner.empty() && !owner.starts_with(us) && locks_stay_on_this_machine("/proc/self/mounts", folder)) {
    close(descriptor_);
    throw failure(
        "{}: {} was writing there, and locks of this mount do not reach other machines; when that sweep has ended, "
        "remove {}",
        folder.string(), owner, file.string());
  }
  if (!writing) return;
  const std::string text = fmt::format("{} process {}\n", us, getpid());
  names_us_ = ftruncate(descriptor_, 0) == 0 &&
              pwrite(descriptor_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  // A full disk: the lock holds without the name, and writing rows says what is wrong.
}

FolderLock::~FolderLock() {
  if (names_us_) (void)!ftruncate(descriptor_, 0);
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace noisefloor
