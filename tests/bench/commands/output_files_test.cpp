// What a command does with the files that it writes: all of them or none.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "bench/commands/output_files.h"
#include "kernels/core/fields.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
  std::ofstream(file) << text;
}

std::string read(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

long files_in(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

std::string refusal(OutputFiles& files, const char* option, const fs::path& file) {
  try {
    files.add(option, file);
    return "";
  } catch (const InvalidInput& error) {
    return error.what();
  }
}

TEST(OutputFiles, AreAllPutInPlaceOrNone) {
  const TemporaryFolder folder;
  const fs::path a = folder.path() / "a", b = folder.path() / "b";
  write(a, "old");
  {
    OutputFiles files;
    files.add("--a", a);
    files.add("--b", b);
    files.add("--c", "");
    EXPECT_EQ(files_in(folder.path()), 1);  // what was tried is gone
    write(files.partial("--a"), "new a");
    write(files.partial("--b"), "new b");
  }
  EXPECT_EQ(read(a), "old");
  EXPECT_EQ(files_in(folder.path()), 1);
  {
    OutputFiles files;
    files.add("--a", a);
    files.add("--b", b);
    write(files.partial("--a"), "new a");
    write(files.partial("--b"), "new b");
    files.commit();
  }
  EXPECT_EQ(read(a), "new a");
  EXPECT_EQ(read(b), "new b");
  EXPECT_EQ(files_in(folder.path()), 2);
}

TEST(OutputFiles, SayWhatCannotBeWritten) {
  const TemporaryFolder folder;
  write(folder.path() / "in", "mine");
  OutputFiles files;
  files.add_input("--input", folder.path() / "in");
  files.add("--out", folder.path() / "out");
  const auto says = [&](const fs::path& file, const std::string& part) {
    const std::string message = refusal(files, "--b", file);
    EXPECT_NE(message.find("--b " + file.string() + ": "), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(folder.path() / "none" / "x", "there is no folder");
  says(folder.path(), "is a folder");
  says("/dev/null", "is not a regular file");
  says(folder.path() / "out", "is the same file as --out");  // which is not there yet
  says(folder.path() / "." / "out", "is the same file as --out");
  says(folder.path() / "in", "is the same file as --input");
  fs::create_symlink(folder.path() / "in", folder.path() / "link");
  says(folder.path() / "link", "is the same file as --input");
  says(folder.path() / std::string(250, 'x'), "cannot be written: File name too long");
  EXPECT_EQ(read(folder.path() / "in"), "mine");
  EXPECT_EQ(files_in(folder.path()), 2);
}

}  // namespace
}  // namespace noisefloor
