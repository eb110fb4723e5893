// The files that a command writes at its end: looked at before any work is done, written beside their places, and
// renamed together, so that a failed command leaves none of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace noisefloor {

class OutputFiles {
 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  ~OutputFiles();  // removes what was not put in place

  // A file that the command reads: no output may be the same. Nothing where `file` is empty.
  void add_input(const char* option, const std::filesystem::path& file);
  void add_input_run(const char* option, const std::filesystem::path& folder);  // the files of a run
  // A file to write. A file beside it is made, and removed again. Throws InvalidInput that names the option: no such
  // folder, a folder or device of that name, not writable, or the file of another option. Nothing where `file` is
  // empty.
  void add(const char* option, const std::filesystem::path& file);
  // The same of a folder: there is none of that name yet, or an empty one.
  void add_folder(const char* option, std::filesystem::path folder);
  // Where to write the file of an option that was added, or the files of its folder; it will be renamed.
  std::filesystem::path partial(const std::string& option);
  // Puts every file in its place that partial() was asked for. Throws std::runtime_error with the file's name.
  void commit();

 private:
  struct File {
    std::string option;
    std::filesystem::path path;
    bool output = false, folder = false, written = false;
  };
  void require_distinct(const char* option, const std::filesystem::path& file, bool output) const;

  std::vector<File> files_;
};

}  // namespace noisefloor
