#include "reports/run/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace noisefloor {
namespace {

constexpr std::string_view kPartial = ".partial", kOld = ".old";

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw failure("{}: {}", file.string(), what);
}

// Empty: a regular file.
const char* why_not_regular(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) return "it is a folder";
  if (S_ISLNK(mode)) return "it is a symbolic link";
  if (S_ISFIFO(mode)) return "it is a pipe, not a regular file";
  return "it is a device or a socket, not a regular file";
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) (void)close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return value_; }
  int release() {
    const int value = value_;
    value_ = -1;
    return value;
  }

 private:
  int value_;
};

// By what the numbers of processes are told from those of another machine, or container: which start of which machine
// counts them (copies of one have names of their own), and in which name space.
constexpr std::size_t kMachineDigits = 16;
const std::string& this_machine() {
  static const std::string id = [] {
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    char name[HOST_NAME_MAX + 1] = {};
    (void)gethostname(name, HOST_NAME_MAX);
    std::error_code error;
    const std::string space = fs::read_symlink("/proc/self/ns/pid", error).string();
    return fmt::format("{:0{}x}", std::hash<std::string>()(boot + name + space), kMachineDigits);
  }();
  return id;
}
bool may_be_machine(std::string_view text) {
  return text.size() == kMachineDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// Of TARGET.<pid>-<machine>.partial, .old or .partial.old; without a machine as programs before this one named them.
struct Writer {
  pid_t pid = 0;
  std::string_view machine, text;
};
std::optional<Writer> writer_of(std::string_view name) {
  const std::size_t length = name.size();
  for (const std::string_view ending : {kOld, kPartial})
    if (name.ends_with(ending)) name.remove_suffix(ending.size());
  const std::size_t dot = name.rfind('.');
  if (name.size() == length || dot == std::string_view::npos) return std::nullopt;
  Writer writer{0, {}, name.substr(dot + 1)};
  const char* const end = writer.text.data() + writer.text.size();
  const auto [number_end, error] = std::from_chars(writer.text.data(), end, writer.pid);
  if (error != std::errc() || writer.pid <= 0) return std::nullopt;
  if (number_end == end) return writer;
  writer.machine = {number_end + 1, end};
  return *number_end == '-' && may_be_machine(writer.machine) ? std::optional(writer) : std::nullopt;
}

[[noreturn]] void fail(const fs::path& path, int why) {
  throw fs::filesystem_error("cannot be written", path, std::error_code(why, std::generic_category()));
}

}  // namespace

bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::symlink_status(file, error).type() != fs::file_type::not_found;
}

std::string head_of(const fs::path& file, std::size_t bytes) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return "";
  std::string head(bytes, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), static_cast<std::streamsize>(bytes));
  head.resize(static_cast<std::size_t>(stream.gcount()));
  return head;
}

std::string read_whole_file(const fs::path& file, std::size_t most_bytes) {
  struct stat status {};
  const auto check = [&] {
    if (const char* why = why_not_regular(status.st_mode); *why != '\0')
      refuse(file, fmt::format("cannot be read: {}", why));
    if (status.st_size > 0 && static_cast<std::size_t>(status.st_size) > most_bytes)
      refuse(file, fmt::format("has {} bytes, and at most {} are read", status.st_size, most_bytes));
  };
  const auto failed = [&] { refuse(file, fmt::format("cannot be read: {}", std::strerror(errno))); };
  if (stat(file.c_str(), &status) != 0) failed();  // first: opening some devices does something
  check();
  const Descriptor descriptor(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (descriptor < 0 || fstat(descriptor, &status) != 0) failed();
  check();
  std::string text;
  std::size_t done = 0;
  text.resize(static_cast<std::size_t>(status.st_size) + 1);  // one more, to see its end
  while (true) {
    const ssize_t count = ::read(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) failed();
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
    if (done > most_bytes) refuse(file, fmt::format("grew beyond the {} bytes that are read", most_bytes));
    if (done == text.size()) text.resize(std::min(2 * done, most_bytes + 1));
  }
  text.resize(done);
  return text;
}

void write_atomically(const fs::path& file, std::string_view text) {
  static std::mutex turn;  // the partial file has the process's number: threads that write one file would share it
  const std::lock_guard<std::mutex> lock(turn);
  std::error_code ignored;
  if (!fs::is_symlink(file, ignored)) require_regular_or_absent(file);  // a rename would put a file in a device's place
  const fs::path partial = partial_of(file);
  const auto fail = [&](int why) {
    (void)unlink(partial.c_str());
    refuse(file, fmt::format("cannot be written: {}", std::strerror(why)));
  };
  if (unlink(partial.c_str()) != 0 && errno != ENOENT) fail(errno);  // of a process of the same number, long ago
  // Neither through a link nor into a file of somebody else that took the name.
  Descriptor descriptor(open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (descriptor < 0) refuse(file, fmt::format("cannot be written: {}", std::strerror(errno)));
  if (const int why = write_all(descriptor, text); why != 0) fail(why);
  if (close(descriptor.release()) != 0) fail(errno);  // where some disks say that they are full
  if (rename(partial.c_str(), file.c_str()) != 0) fail(errno);
}

void write_through(const fs::path& path) {
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor < 0 || (fsync(descriptor) != 0 && errno != EINVAL)) fail(path, errno);  // EINVAL: not on a disk
}

int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENOSPC;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

bool is_still(const fs::path& file, int descriptor) {
  struct stat there {
  }, held{};
  return lstat(file.c_str(), &there) == 0 && fstat(descriptor, &held) == 0 && there.st_ino == held.st_ino &&
         there.st_dev == held.st_dev;
}

fs::path follow_links(fs::path path) {
  constexpr int kMostLinks = 40;                        // as many as Linux follows
  if (!path.has_filename()) path = path.parent_path();  // "folder/"
  std::error_code error;
  for (int links = 0; links < kMostLinks; ++links) {
    if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
    const fs::path folder = fs::canonical(path.has_parent_path() ? path.parent_path() : ".", error);
    if (folder.string().starts_with("/proc/") && folder.filename() == "fd") return folder / path.filename();
    path = path.parent_path() / fs::read_symlink(path);  // an absolute target replaces all
  }
  refuse(path, "cannot be written: its links lead round in a circle");
}

void require_regular_or_absent(const fs::path& file) {
  struct stat status {};
  if (lstat(file.c_str(), &status) != 0) return;
  if (const char* why = why_not_regular(status.st_mode); *why != '\0')
    refuse(file, fmt::format("cannot be written: {}", why));
}

fs::path partial_of(const fs::path& target) {
  // Of a name that leaves no room for more, the beginning; a number tells it from another one's.
  constexpr std::size_t kMostBytes = 200;
  std::string name = target.filename().string();
  if (name.size() > kMostBytes)
    name = fmt::format("{}{:x}", name.substr(0, kMostBytes), std::hash<std::string>()(name));
  return target.parent_path() / fmt::format("{}.{}-{}{}", name, getpid(), this_machine(), kPartial);
}

int hold(const fs::path& partial) {
  const int descriptor = open(partial.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor >= 0) (void)flock(descriptor, LOCK_SH);
  return descriptor;
}

// Whether the process still makes it. Of one elsewhere a file's lock tells; a folder's is not seen from another
// machine.
static bool is_made(const fs::path& partial, const Writer& writer) {
  const bool runs_here = kill(writer.pid, 0) == 0 || errno != ESRCH;
  if (writer.machine == this_machine()) return runs_here;
  const bool of_before = writer.machine.empty();  // programs that locked folders, too
  if (of_before && runs_here) return true;
  constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  // To be written, as NFS has it of who locks for itself alone; what another user wrote cannot be.
  int opened = open(partial.c_str(), O_RDWR | kFlags);
  if (opened < 0 && (errno == EACCES || (errno == EISDIR && of_before)))
    opened = open(partial.c_str(), O_RDONLY | kFlags);
  const Descriptor descriptor(opened);
  return descriptor < 0 || flock(descriptor, LOCK_EX | LOCK_NB) != 0;
}

void remove_left_partials(const fs::path& target) {
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const std::string beginning = target.filename().string() + ".";
  std::error_code error;
  const bool stands = fs::exists(target, error);
  std::vector<fs::path> left;
  for (fs::directory_iterator entries(folder, error), end; !error && entries != end; entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    const auto writer = name.starts_with(beginning) ? writer_of(name) : std::nullopt;
    if (!writer || writer->text.data() != name.data() + beginning.size()) continue;  // of another
    if (name.find(kPartial) == std::string::npos) continue;  // TARGET.<pid>.old may hold files of others
    if (!stands && name.ends_with(kOld)) continue;           // killed between two renames: all that there is
    if (!is_made(entries->path(), *writer)) left.push_back(entries->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
}

bool is_partial(const fs::path& path) {
  return writer_of(path.filename().string()).has_value();
}

StagedFolder::StagedFolder(fs::path target) : target_(std::move(target)), path_(partial_of(target_)) {
  remove_left_partials(target_);
  fs::remove_all(path_);
  fs::create_directories(path_);
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void StagedFolder::write_through() const {
  for (const auto& entry : fs::directory_iterator(path_))
    if (entry.is_regular_file() && !entry.is_symlink()) noisefloor::write_through(entry.path());
  noisefloor::write_through(path_);
}

bool StagedFolder::take_place() {
  write_through();
  if (!fs::exists(target_)) {
    fs::rename(path_, target_);
  } else if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno == EBUSY || errno == EXDEV) return false;
    if (errno != EINVAL && errno != ENOSYS) fail(target_, errno);
    // A file system that cannot exchange (NFS): there is a moment without the folder, and the old one is put back where
    // the new one does not get its place.
    const fs::path aside = path_.string() + std::string(kOld);
    fs::rename(target_, aside);
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) {
      fs::rename(aside, target_);
      fail(target_, error.value());
    }
    fs::rename(aside, path_);
  }
  if (target_.has_parent_path()) noisefloor::write_through(target_.parent_path());
  return true;
}

}  // namespace noisefloor
