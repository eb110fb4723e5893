// The files that a command's user names to be written, in one place: looked at before any work is done, written beside
// their places, and put there together, so that a failed command leaves none of them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace noisefloor {

// Declares an option that names a file to write. Help shows it as OUTFILE, by which a test finds all of them.
CLI::Option* add_output_file(CLI::App& command, const std::string& name, std::string& file, const std::string& about);

class OutputFiles {
 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  ~OutputFiles();  // removes what was not put in place

  // A file that the command reads: no output may be the same. Nothing where `file` is empty.
  void add_input(const char* option, const std::filesystem::path& file);
  void add_input_run(const char* option, const std::filesystem::path& folder);  // the files of a run
  // A file to write; nothing where `file` is empty. A link is followed, also to a file that is not there yet. A pipe, a
  // terminal, /dev/null and an open file (/dev/stdout, /dev/fd/3) are written as they are; where that is this program's
  // stdout, its own words go to stderr. Throws InvalidInput that names the option: no such folder, a folder of that
  // name, not writable, or the file of another option.
  void add(const char* option, const std::filesystem::path& file);
  // The same of a folder: there is none of that name yet, or an empty one.
  void add_folder(const char* option, const std::filesystem::path& folder);

  // What is written and read again, and never put in place: it lies in memory. `name` stands for it in messages.
  void add_in_memory(const char* option, const std::filesystem::path& name);

  // Keeps the text of an option that was added, or what `writer` writes at the place that it gets. Throws
  // std::runtime_error with the file's name, and whether another is there still.
  void write(const std::string& option, std::string_view text);
  void write(const std::string& option, const std::function<void(const std::filesystem::path&)>& writer);
  // Where to write the files of an option's folder.
  std::filesystem::path partial(const std::string& option);
  // Puts in place all that was written. A file that was there keeps its permissions. Throws std::runtime_error with the
  // file's name.
  void commit();
  bool is_stream(const std::string& option) const;  // a pipe, a device or an open file
  bool take_stdout() const { return take_stdout_; }

 private:
  enum class Kind { input, file, stream, folder };
  struct File {
    std::string option;
    std::filesystem::path path, target;  // as given, and where it leads
    Kind kind = Kind::input;
    int open_file = -1;  // of this process, for a stream that is one
    int kept = -1;       // in memory, what a stream will get
    int held = -1;       // what holds the partial file of all else
    bool written = false;

    std::filesystem::path partial() const;
  };
  void take(File file);
  File& output(const std::string& option);

  std::vector<File> files_;
  bool take_stdout_ = false;
};

}  // namespace noisefloor
