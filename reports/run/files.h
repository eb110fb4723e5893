// Whole files, read and written with care: what lies in a folder may come from anywhere.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace noisefloor {

namespace fs = std::filesystem;  // as all who include this write it

// What cannot be done, in words: throw failure("{}: the run has no rows", folder).
template <class... Words>
std::runtime_error failure(fmt::format_string<Words...> form, Words&&... words) {
  return std::runtime_error(fmt::format(form, std::forward<Words>(words)...));
}

inline constexpr std::size_t kMostFileBytes = std::size_t{1} << 30;  // far above any file of a run

// The text of a regular file. A pipe could block for ever and a device has no end, so both are refused, as are folders
// and files of more than `most_bytes`. Throws std::runtime_error with the file's name.
std::string read_whole_file(const fs::path& file, std::size_t most_bytes = kMostFileBytes);

// The first bytes of a regular file; empty of what is none, or cannot be read: whoever reads it whole says so.
std::string head_of(const fs::path& file, std::size_t bytes);

// Whether a folder has that name, or may: what cannot be looked at, and a link that leads nowhere, is not taken for
// nothing. Reading it says what is wrong.
bool is_there(const fs::path& file);

// Whether a name begins as what editors, desktops and file systems leave beside files: ._gemm.csv, #gemm.csv#,
// ~$gemm.csv. What lists a folder passes over these: nothing that is looked for is called so.
inline bool is_leftover(std::string_view name) {
  return name.find_first_of(".#~") == 0;
}

// Writes a whole file beside and renames, so that a reader or a full disk never leaves half a file: when it cannot be
// written it is left as it was. A symbolic link is replaced, not followed. Threads may write one file. Throws
// std::runtime_error with the file's name.
void write_atomically(const fs::path& file, std::string_view text);

// Of a file, or of the names in a folder, to the disk. Throws fs::filesystem_error.
void write_through(const fs::path& path);

// Writes all of it; 0, or the errno of what went wrong.
int write_all(int descriptor, std::string_view text);

// Whether the name is still that of the open file: it may have been removed, or another put in its place.
bool is_still(const fs::path& file, int descriptor);

// Where a name leads that a user gives: the target of a link, and of links to links, also one that is not there yet.
// A name of an open file (/dev/stdout, /dev/fd/3) stays as /proc has it: what it leads to is no path. Throws
// std::runtime_error where links lead round in a circle.
fs::path follow_links(fs::path path);

// Throws std::runtime_error where `file` is there and is not a regular file: what a program appends to or cuts must
// not be a link to somebody's file elsewhere, a pipe or a device.
void require_regular_or_absent(const fs::path& file);

// Where this process writes what will be renamed to `target`: TARGET.<pid>-<machine>.partial, where machine tells whose
// numbers of processes those are: of a start of a machine, or of a container.
fs::path partial_of(const fs::path& target);
// The process that writes a file holds it, for those elsewhere. The lock goes with the descriptor; -1: it cannot be
// opened.
int hold(const fs::path& partial);
// Removes what killed processes left of `target` beside it: TARGET.<pid>-<machine>.partial of this machine where no
// process <pid> runs, a file of another one where none holds it, and such a .partial.old where `target` is there.
// Folders of another machine, or of this one before it was started anew, stay: who makes them is not seen.
void remove_left_partials(const fs::path& target);
// Whether a name is that of a partial file or folder, or of what was to be replaced by one (.old).
bool is_partial(const fs::path& path);
// A folder to be filled that then takes the place of another, all at once: a reader finds the old one or the new one.
class StagedFolder {
 public:
  // Makes partial_of(target), behind remove_left_partials().
  explicit StagedFolder(fs::path target);
  ~StagedFolder();  // gone with all in it, unless it took the place
  StagedFolder(const StagedFolder&) = delete;

  const fs::path& path() const { return path_; }
  // Both throw fs::filesystem_error, with the target as it was.
  void write_through() const;
  // False where the old folder cannot be moved (a mount point).
  bool take_place();

 private:
  fs::path target_, path_;
};

}  // namespace noisefloor
