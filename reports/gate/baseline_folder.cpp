#include "reports/gate/baseline_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "reports/run/files.h"
#include "reports/run/folder_lock.h"
#include "reports/run/run_files.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

std::runtime_error failure(const fs::path& path, const std::string& what) {
  return std::runtime_error(fmt::format("{}: {}; the baseline is as it was", path.string(), what));
}

bool within(const fs::path& inner, const fs::path& outer) {
  const auto [end, at] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  (void)at;
  return end == outer.end();
}

// Gone with all in it, unless it was put in the place of something.
class Staging {
 public:
  explicit Staging(fs::path path) : path_(std::move(path)) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void sync(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw failure(path, std::strerror(errno));
  const bool failed = fsync(descriptor) != 0 && errno != EINVAL;  // EINVAL: not on a disk
  close(descriptor);
  if (failed) throw failure(path, std::string("writing through failed: ") + std::strerror(errno));
}

void fill(const fs::path& staging, const fs::path& baseline, const fs::path& candidate) {
  const auto bring = [&](const char* name) {
    if (fs::is_regular_file(candidate / name)) fs::copy_file(candidate / name, staging / name);
  };
  std::ranges::for_each(kRunFiles, bring);
  std::ranges::for_each(kMadeFiles, bring);
  if (fs::exists(baseline))
    for (const auto& entry : fs::directory_iterator(baseline)) {
      const std::string name = entry.path().filename().string();
      if (!is_run_file(name))
        fs::copy(entry.path(), staging / name, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    }
  for (const auto& entry : fs::directory_iterator(staging))
    if (entry.is_regular_file() && !entry.is_symlink()) sync(entry.path());
  sync(staging);
}

// `staging` takes the place of `baseline`, which ends up in `staging`.
void exchange(const fs::path& staging, const fs::path& baseline) {
  if (renameat2(AT_FDCWD, staging.c_str(), AT_FDCWD, baseline.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) throw failure(baseline, std::strerror(errno));
  // A file system that cannot exchange (NFS): there is a moment without a baseline, and the old one is put back where
  // the new one does not get its place.
  const fs::path aside = staging.string() + ".old";
  fs::rename(baseline, aside);
  std::error_code error;
  fs::rename(staging, baseline, error);
  if (error) {
    fs::rename(aside, baseline);
    throw failure(baseline, error.message());
  }
  fs::rename(aside, staging);
}

}  // namespace

void replace_baseline(const fs::path& baseline, const fs::path& candidate) {
  try {
    const fs::path target = fs::weakly_canonical(follow_links(baseline)), source = fs::canonical(candidate);
    if (target == source) throw failure(baseline, "is the candidate itself");
    if (within(target, source) || within(source, target))
      throw failure(baseline, "lies within the candidate, or around it");
    const bool replaces = fs::exists(target);
    if (replaces && !fs::is_directory(target)) throw failure(baseline, "is not a folder");
    if (replaces && !fs::is_empty(target) && !fs::exists(target / "sweep.csv"))
      throw failure(baseline, "is not a run's folder, and not empty");
    if (!replaces && target.has_parent_path()) fs::create_directories(target.parent_path());
    const FolderLock reading(source, FolderLock::Mode::reading);
    std::optional<FolderLock> writing;
    if (replaces) writing.emplace(target, FolderLock::Mode::writing);
    remove_left_partials(target);
    const Staging staging(partial_of(target));
    fill(staging.path(), target, source);
    if (replaces)
      exchange(staging.path(), target);
    else
      fs::rename(staging.path(), target);
    if (target.has_parent_path()) sync(target.parent_path());
  } catch (const fs::filesystem_error& error) {
    const fs::path& where = error.path2().empty() ? error.path1() : error.path2();
    throw failure(baseline, fmt::format("{}: {}", where.string(), error.code().message()));
  }
}

}  // namespace noisefloor
