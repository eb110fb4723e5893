#include "bench/commands/output_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/core/fields.h"
#include "reports/run/files.h"
#include "reports/run/run_files.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  // Neither need be there yet; their folders are.
  const bool same_folder = fs::equivalent(folder_of(a), folder_of(b), error);
  return same_folder && a.filename() == b.filename();
}

}  // namespace

OutputFiles::~OutputFiles() {
  std::error_code error;
  for (const File& file : files_)
    if (file.written) fs::remove_all(partial_of(file.path), error);
}

void OutputFiles::require_distinct(const char* option, const fs::path& path, bool output) const {
  for (const File& file : files_)
    if ((output || file.output) && same_file(path, file.path))
      throw InvalidInput(fmt::format("{} {}: is the same file as {}", option, path.string(), file.option));
}

void OutputFiles::add_input(const char* option, const fs::path& path) {
  if (path.empty()) return;
  require_distinct(option, path, false);
  files_.push_back({option, path});
}

void OutputFiles::add_input_run(const char* option, const fs::path& folder) {
  if (folder.empty()) return;
  for (const char* name : kRunFiles) add_input(option, folder / name);
}

void OutputFiles::add(const char* option, const fs::path& path) {
  if (path.empty()) return;
  const auto refuse = [&](const std::string& why) {
    throw InvalidInput(fmt::format("{} {}: {}", option, path.string(), why));
  };
  std::error_code error;
  if (!fs::is_directory(folder_of(path), error)) refuse("there is no folder " + folder_of(path).string());
  if (!path.has_filename() || fs::is_directory(path, error)) refuse("is a folder");
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) refuse("is not a regular file");
  require_distinct(option, path, true);
  // The longest name that will be needed: a partial file is itself written beside and renamed.
  const fs::path trial = partial_of(partial_of(path));
  const int descriptor = open(trial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor < 0) refuse(fmt::format("cannot be written: {}", std::strerror(errno)));
  close(descriptor);
  fs::remove(trial, error);
  files_.push_back({option, path, true});
}

void OutputFiles::add_folder(const char* option, fs::path path) {
  if (path.empty()) return;
  if (!path.has_filename()) path = path.parent_path();  // "frames/"
  const auto refuse = [&](const std::string& why) {
    throw InvalidInput(fmt::format("{} {}: {}", option, path.string(), why));
  };
  std::error_code error;
  if (!path.has_filename() || !fs::is_directory(folder_of(path), error))
    refuse("there is no folder " + folder_of(path).string());
  if (fs::symlink_status(path, error).type() != fs::file_type::not_found &&
      !(fs::is_directory(fs::symlink_status(path, error)) && fs::is_empty(path, error)))
    refuse("is there already, and not an empty folder");
  require_distinct(option, path, true);
  const fs::path trial = partial_of(partial_of(path));
  if (!fs::create_directory(trial, error)) refuse("cannot be written: " + error.message());
  fs::remove(trial, error);
  files_.push_back({option, path, true, true});
}

fs::path OutputFiles::partial(const std::string& option) {
  for (File& file : files_) {
    if (!file.output || file.option != option) continue;
    std::error_code error;
    if (!file.written) fs::remove(partial_of(file.path), error);  // a link there would be written through
    if (file.folder) fs::create_directory(partial_of(file.path));
    file.written = true;
    return partial_of(file.path);
  }
  throw std::logic_error("no output file of " + option);
}

void OutputFiles::commit() {
  for (File& file : files_) {
    if (!file.written) continue;
    std::error_code error;
    fs::rename(partial_of(file.path), file.path, error);
    if (error) throw std::runtime_error(fmt::format("{}: cannot be written: {}", file.path.string(), error.message()));
    file.written = false;
  }
}

}  // namespace noisefloor
