// What a command does with the files that it writes: all of them or none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "bench/commands/output_files.h"
#include "kernels/core/fields.h"
#include "reports/run/files.h"
#include "tests/support/refusal.h"
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
  return refusal_of([&] { return files.add(option, file), 0; });
}

TEST(OutputFiles, AreAllPutInPlaceOrNone) {
  const TemporaryFolder folder;
  const fs::path a = folder / "a", b = folder / "b";
  write(a, "old");
  for (const bool commit : {false, true}) {
    OutputFiles files;
    files.add("--a", a);
    files.add("--b", b);
    files.add("--c", "");
    EXPECT_EQ(files_in(folder.path()), 1);  // what was tried, or not committed, is gone
    write(files.partial("--a"), "new a");
    write(files.partial("--b"), "new b");
    EXPECT_EQ(read(a), "old");
    if (commit) files.commit();
  }
  EXPECT_EQ(read(a) + read(b), "new anew b");
  EXPECT_EQ(files_in(folder.path()), 2);
}

// Of a process of the same number in another container or on another machine.
TEST(OutputFiles, OfProcessesElsewhereStay) {
  const TemporaryFolder folder;
  const fs::path file = folder / "a", theirs = fmt::format("{}.{}-0123456789abcdef.partial", file.string(), getpid());
  write(theirs, "theirs");
  const int held = hold(theirs);
  OutputFiles files;
  files.add("--a", file);
  files.write("--a", "whole");
  remove_left_partials(file);
  files.commit();
  EXPECT_EQ(read(file) + read(theirs), "wholetheirs");
  close(held);
  remove_left_partials(file);
  EXPECT_FALSE(fs::exists(theirs));
}

TEST(OutputFiles, InMemoryLeaveNothing) {
  const TemporaryFolder folder;
  OutputFiles files;
  files.add_in_memory("--a", folder / "a");
  files.write("--a", "text");
  EXPECT_EQ(read(files.partial("--a")), "text");
  EXPECT_EQ(files_in(folder.path()), 0);
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
  says(folder.path() / "out", "is the same file as --out");  // which is not there yet
  says(folder.path() / "." / "out", "is the same file as --out");
  says(folder.path() / "in", "is the same file as --input");
  fs::create_symlink("in", folder.path() / "link");
  says(folder.path() / "link", "is the same file as --input");
  says(folder.path() / std::string(256, 'x'), "cannot be written: File name too long");
  EXPECT_EQ(read(folder.path() / "in"), "mine");
  EXPECT_EQ(files_in(folder.path()), 2);
}

TEST(OutputFiles, MayHaveTheLongestNames) {
  const TemporaryFolder folder;
  const std::string start(254, 'x');
  {
    OutputFiles files;
    for (const char* last : {"a", "b"}) files.add(last, folder / (start + last));
    for (const char* last : {"a", "b"}) files.write(last, last);
    files.commit();
  }
  EXPECT_EQ(read(folder / (start + "a")) + read(folder / (start + "b")), "ab");
  EXPECT_EQ(files_in(folder.path()), 2);
}

TEST(OutputFiles, PutAFolderInItsPlace) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "empty");
  fs::create_directory_symlink(folder / "nowhere", folder / "link");
  for (const char* name : {"new", "empty", "slash/", "link"})
    for (const bool commit : {false, true}) {
      const fs::path there = folder / std::string(name).substr(0, 5);
      {
        OutputFiles files;
        files.add_folder("--folder", folder / name);
        write(files.partial("--folder") / "a", "1");
        write(files.partial("--folder") / "b", "2");
        if (commit) files.commit();
      }
      EXPECT_EQ(fs::exists(there / "a"), commit) << name;
      EXPECT_EQ(read(there / "b"), commit ? "2" : "") << name;
    }
  EXPECT_EQ(files_in(folder / "nowhere"), 2);
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(files_in(folder.path()), 5);
  write(folder / "file", "mine");
  for (const auto& [name, says] : {std::pair{"new", "is there already"}, std::pair{"file", "is there already"},
                                   std::pair{"no/x", "there is no folder"}}) {
    OutputFiles files;
    expect_parts(refusal_of([&] { return files.add_folder("--folder", folder / name), 0; }), {says});
  }
}

// Of links to files tests/cli/test_output_files.py shows it, for every command.
TEST(OutputFiles, GoWhereLinksLead) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "d");
  fs::create_symlink("new", folder / "d" / "inner");
  fs::create_symlink("d/inner", folder / "link");
  fs::create_symlink("circle", folder / "circle");
  OutputFiles files;
  files.add("--a", folder / "link");
  EXPECT_THROW(files.add("--c", folder / "d" / "new"), InvalidInput);  // the file of --a
  EXPECT_THROW(files.add("--c", folder / "circle"), std::runtime_error);
  files.write("--a", "a");
  files.commit();
  EXPECT_EQ(read(folder / "d" / "new"), "a");
  EXPECT_TRUE(fs::is_symlink(folder / "link") && fs::is_symlink(folder / "d/inner"));
  EXPECT_EQ(files_in(folder / "d"), 2);
}

TEST(OutputFiles, OfPipesAndOpenFilesAreWrittenAsTheyAre) {
  const TemporaryFolder folder;
  const fs::path pipe = folder / "pipe", appended = folder / "appended";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  write(appended, "before ");
  const int number = open(appended.c_str(), O_WRONLY | O_APPEND);
  const int to_read = open(appended.c_str(), O_RDONLY);
  ASSERT_TRUE(reader >= 0 && number >= 0 && to_read >= 0);
  const auto of = [](int descriptor) { return "/dev/fd/" + std::to_string(descriptor); };
  {
    OutputFiles files;
    files.add("--a", pipe);
    files.add("--b", of(number));
    files.add("--c", "/dev/null");
    files.add("--d", "/dev/null");
    EXPECT_NE(refusal(files, "--e", of(to_read)).find("open to be read"), std::string::npos);
    EXPECT_NE(refusal(files, "--e", "/dev/fd/999").find("--e"), std::string::npos);
    for (const char* option : {"--a", "--b", "--c", "--d"}) files.write(option, option);
    files.commit();
  }
  char text[8] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 3);
  EXPECT_EQ(std::string(text), "--a");
  EXPECT_EQ(read(appended), "before --b");
  EXPECT_EQ(files_in(folder.path()), 2);
  {
    OutputFiles files;
    files.add("--a", pipe);
    files.write("--a", "left out");  // not committed
  }
  EXPECT_EQ(::read(reader, text, sizeof text), 0);
  for (const int one : {reader, number, to_read}) close(one);
}

}  // namespace
}  // namespace noisefloor
