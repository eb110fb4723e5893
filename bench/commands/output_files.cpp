#include "bench/commands/output_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "bench/platform/console.h"
#include "kernels/core/fields.h"
#include "reports/run/files.h"
#include "reports/run/run_files.h"

namespace noisefloor {
namespace {

using FileStatus = struct stat;

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::is_character_file(a, error)) return false;  // two may go to /dev/null
  if (fs::equivalent(a, b, error)) return true;
  // Neither need be there yet; their folders are.
  const bool same_folder = fs::equivalent(folder_of(a), folder_of(b), error);
  return same_folder && a.filename() == b.filename();
}

bool same_file(const FileStatus& a, const FileStatus& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The number of an open file of this process, as follow_links() names it; of any other file -1.
int own_descriptor(const fs::path& target) {
  std::error_code error;
  const bool own = target.parent_path() == fs::canonical("/proc/self/fd", error);
  return own && !error ? std::atoi(target.filename().c_str()) : -1;
}

// Why an open file cannot be written; empty where it can. What this program opened itself is closed by exec.
std::string why_not_open(int descriptor) {
  const int state = fcntl(descriptor, F_GETFD), flags = fcntl(descriptor, F_GETFL);
  if (state < 0 || (state & FD_CLOEXEC) != 0) return "no file is open there";
  return (flags & O_ACCMODE) == O_RDONLY ? "is open to be read, not written" : "";
}

// Of what is there and is no regular file. A socket is written only where it is open already.
std::string why_no_stream(mode_t mode, bool open) {
  if (S_ISDIR(mode)) return "is a folder";
  if (S_ISFIFO(mode) || S_ISCHR(mode) || (S_ISSOCK(mode) && open)) return "";
  return S_ISBLK(mode) ? "is a disk" : "is a socket";
}

std::runtime_error cannot_write(const fs::path& file, int why) {
  return failure("{}: cannot be written: {}", file.string(), std::strerror(why));
}

// 0, or the errno of what went wrong.
int copy(int from, int to) {
  std::array<char, 1 << 16> buffer;
  if (lseek(from, 0, SEEK_SET) != 0) return errno;
  while (true) {
    const ssize_t count = read(from, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : 0;
    if (const int why = write_all(to, {buffer.data(), static_cast<std::size_t>(count)}); why != 0) return why;
  }
}

// Makes a file or folder that was not there. 0, or the errno of what went wrong.
int make_new(const fs::path& path, bool folder) {
  std::error_code error;
  fs::remove_all(path, error);  // of a process of the same number, long ago; a link there would be written through
  if (folder) return mkdir(path.c_str(), 0777) == 0 ? 0 : errno;
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor < 0) return errno;
  (void)close(descriptor);
  return 0;
}

// Why nothing can be put at `target`; empty where it can.
std::string why_no_room(const fs::path& target) {
  std::error_code error;
  if (!fs::is_directory(folder_of(target), error)) return "there is no folder " + folder_of(target).string();
  const fs::path trial = partial_of(target);
  const int why = make_new(trial, false);
  if (why == 0) fs::remove(trial, error);
  return why == 0 ? "" : fmt::format("cannot be written: {}", std::strerror(why));
}

// To a pipe, a device or an open file. 0, or the errno of what went wrong.
int send(int kept, const fs::path& target, int open_file) {
  constexpr int kFlags = O_WRONLY | O_NOCTTY | O_CLOEXEC;
  int to = open_file >= 0 ? fcntl(open_file, F_DUPFD_CLOEXEC, 0) : open(target.c_str(), kFlags | O_NONBLOCK);
  if (to < 0 && errno == ENXIO) {
    fmt::print(stderr, "{}: waiting for somebody to read it\n", target.string());
    to = open(target.c_str(), kFlags);
  }
  if (to < 0) return errno;
  if (open_file < 0) (void)fcntl(to, F_SETFL, O_WRONLY);
  const int why = copy(kept, to);
  return close(to) != 0 && why == 0 ? errno : why;
}

// A file that was there keeps its permissions, and its owner and group where this process may say so.
int put(const fs::path& partial, const fs::path& target) {
  FileStatus there{};
  if (lstat(target.c_str(), &there) == 0 && !S_ISDIR(there.st_mode)) {
    if (!S_ISREG(there.st_mode)) return EEXIST;  // since it was looked at
    if (chown(partial.c_str(), there.st_uid, there.st_gid) != 0) (void)!chown(partial.c_str(), -1, there.st_gid);
    (void)chmod(partial.c_str(), there.st_mode & 0777);
  }
  if (rename(partial.c_str(), target.c_str()) == 0) return 0;
  if (errno != EBUSY && errno != EPERM && errno != EACCES) return errno;
  // A file that is mounted by itself, as containers do, or another user's in /tmp can only be written where it is.
  const int from = open(partial.c_str(), O_RDONLY | O_CLOEXEC),
            to = open(target.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  int why = from < 0 || to < 0 ? errno : copy(from, to);
  if (from >= 0) (void)close(from);
  if (to >= 0 && close(to) != 0 && why == 0) why = errno;
  (void)unlink(partial.c_str());
  return why;
}

[[noreturn]] void refuse(const std::string& option, const fs::path& path, const std::string& why) {
  throw InvalidInput(fmt::format("{} {}: {}", option, path.string(), why));
}

fs::path target_of(const char* option, const fs::path& path) try {
  return follow_links(path);
} catch (const std::exception& error) {
  refuse(option, path, error.what());
}

}  // namespace

CLI::Option* add_output_file(CLI::App& command, const std::string& name, std::string& file, const std::string& about) {
  return command.add_option(name, file, about)->type_name("OUTFILE");
}

fs::path OutputFiles::File::partial() const {
  return kept >= 0 ? fs::path(fmt::format("/proc/self/fd/{}", kept)) : partial_of(target);
}

OutputFiles::~OutputFiles() {
  std::error_code error;
  for (const File& file : files_) {
    if (file.written && file.kind != Kind::stream) fs::remove_all(file.partial(), error);
    for (const int descriptor : {file.kept, file.held})
      if (descriptor >= 0) (void)close(descriptor);
  }
}

void OutputFiles::take(File file) {
  for (const File& other : files_)
    if ((file.kind != Kind::input || other.kind != Kind::input) && same_file(file.target, other.target))
      refuse(file.option, file.path, "is the same file as " + other.option);
  files_.push_back(std::move(file));
}

void OutputFiles::add_input(const char* option, const fs::path& path) {
  if (!path.empty()) take({option, path, path});
}

void OutputFiles::add_input_run(const char* option, const fs::path& folder) {
  if (folder.empty()) return;
  for (const char* name : kRunFiles) add_input(option, folder / name);
}

void OutputFiles::add(const char* option, const fs::path& path) {
  if (path.empty()) return;
  if (!path.has_filename()) refuse(option, path, "is a folder");
  File file{option, path, target_of(option, path), Kind::file};
  FileStatus there{}, words{};
  const bool exists = stat(file.target.c_str(), &there) == 0;
  std::string why = !exists && errno == ENAMETOOLONG ? fmt::format("cannot be written: {}", std::strerror(ENAMETOOLONG))
                                                     : std::string();
  const int number = exists ? own_descriptor(file.target) : -1;
  if (exists && (number >= 0 || !S_ISREG(there.st_mode))) {
    file.kind = Kind::stream;
    file.open_file = number;
    if (!S_ISREG(there.st_mode)) why = why_no_stream(there.st_mode, number >= 0);
    if (why.empty() && number >= 0) why = why_not_open(number);
  }
  if (why.empty() && exists && number < 0 && access(file.target.c_str(), W_OK) != 0) why = "is read-only";
  if (why.empty() && file.kind == Kind::file) why = why_no_room(file.target);
  if (!why.empty()) refuse(option, path, why);
  const bool device = exists && S_ISCHR(there.st_mode) && number < 0;  // of /dev/null nothing is read
  if (exists && !device && fstat(STDOUT_FILENO, &words) == 0 && same_file(there, words)) {
    take_stdout_ = true;
    words_to_stderr();
  }
  take(std::move(file));
}

void OutputFiles::add_folder(const char* option, const fs::path& path) {
  if (path.empty()) return;
  File file{option, path, target_of(option, path), Kind::folder};
  std::error_code error;
  const fs::file_status there = fs::status(file.target, error);
  if (fs::exists(there) && !(fs::is_directory(there) && fs::is_empty(file.target, error)))
    refuse(option, path, "is there already, and not an empty folder");
  if (const std::string why = why_no_room(file.target); !why.empty()) refuse(option, path, why);
  take(std::move(file));
}

void OutputFiles::add_in_memory(const char* option, const fs::path& name) {
  files_.push_back({option, name, name, Kind::stream});
}

OutputFiles::File& OutputFiles::output(const std::string& option) {
  for (File& file : files_)
    if (file.kind != Kind::input && file.option == option) return file;
  throw std::logic_error("no output file of " + option);
}

fs::path OutputFiles::partial(const std::string& option) {
  File& file = output(option);
  if (file.written) return file.partial();
  int why = 0;
  if (file.kind == Kind::stream) {
    file.kept = memfd_create("noisefloor output", MFD_CLOEXEC);
    why = file.kept < 0 ? errno : 0;
  } else {
    why = make_new(file.partial(), file.kind == Kind::folder);
    if (why == 0 && file.kind != Kind::folder) file.held = hold(file.partial());
  }
  if (why != 0) throw cannot_write(file.path, why);
  file.written = true;
  return file.partial();
}

void OutputFiles::write(const std::string& option, std::string_view text) {
  write(option, [&](const fs::path& place) {
    const int descriptor = open(place.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    int why = descriptor < 0 ? errno : write_all(descriptor, text);
    if (descriptor >= 0 && close(descriptor) != 0 && why == 0) why = errno;  // where some disks say that they are full
    if (why != 0) throw cannot_write(place, why);
  });
}

void OutputFiles::write(const std::string& option, const std::function<void(const fs::path&)>& writer) {
  const std::string place = partial(option).string();
  try {
    try {
      writer(place);
    } catch (const fs::filesystem_error& error) {
      throw cannot_write(error.path1(), error.code().value());
    }
  } catch (const std::runtime_error& error) {  // of a file that the user does not know
    std::string why = error.what();
    const std::size_t named = why.find(place);
    if (named == std::string::npos) throw;
    const File& file = output(option);
    std::error_code ignored;
    if (file.kind == Kind::file && fs::exists(file.target, ignored)) why += "; the one before it is whole";
    throw std::runtime_error(why.replace(named, place.size(), file.path.string()));
  }
}

bool OutputFiles::is_stream(const std::string& option) const {
  return std::ranges::any_of(files_,
                             [&](const File& file) { return file.kind == Kind::stream && file.option == option; });
}

void OutputFiles::commit() {
  // A reader that went away leaves no file; a file that cannot be put in place leaves what was read.
  for (const bool streams : {true, false})
    for (File& file : files_) {
      if (!file.written || (file.kind == Kind::stream) != streams) continue;
      if (const int why = streams ? send(file.kept, file.target, file.open_file) : put(file.partial(), file.target);
          why != 0)
        throw cannot_write(file.path, why);
      file.written = false;
    }
}

}  // namespace noisefloor
