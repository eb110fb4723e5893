// Files that come from anywhere: pipes, devices, links and endless ones are refused by name, and what a killed process
// left is removed by the next.
#include "reports/run/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "reports/run/folder_lock.h"
#include "reports/run/run_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

// Of a process that has ended, so that nobody has it.
pid_t dead_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  (void)waitpid(child, nullptr, 0);
  return child;
}

TEST(Files, AreReadWhole) {
  const TemporaryFolder folder;
  const std::string text = std::string(100'000, 'a') + '\0' + "\xff\n";
  write(folder / "file", text);
  EXPECT_EQ(read_whole_file(folder / "file"), text);
  EXPECT_EQ(read_whole_file(folder / "file", text.size()), text);
  write(folder / "empty", "");
  EXPECT_EQ(read_whole_file(folder / "empty"), "");
  fs::create_symlink(folder / "file", folder / "link");  // a run may be a folder of links
  EXPECT_EQ(read_whole_file(folder / "link").size(), text.size());
}

// By every reader of a run: tests/attack/test_damaged_folders.py.
TEST(Files, OfOtherKindsAreRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_directory(folder / "folder");
  fs::create_symlink("/dev/zero", folder / "endless");
  const std::pair<const char*, const char*> files[] = {{"pipe", "pipe: cannot be read: it is a pipe"},
                                                       {"folder", "folder: cannot be read: it is a folder"},
                                                       {"endless", "endless: cannot be read: it is a device"},
                                                       {"none", "none: cannot be read: No such file"}};
  for (const auto& [name, says] : files) expect_parts(error_of([&] { return read_whole_file(folder / name); }), {says});
}

TEST(Files, OfMoreBytesThanABoundAreNotRead) {
  const TemporaryFolder folder;
  write(folder / "file", "12345");
  expect_parts(error_of([&] { return read_whole_file(folder / "file", 4); }), {"has 5 bytes, and at most 4 are read"});
}

TEST(Files, OfDeepJsonAreRefused) {
  const TemporaryFolder folder;
  const auto nested = [&](std::size_t depth) {
    return R"({"device":"d","commit":"c","x":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  write(folder / "env.json", nested(20));
  EXPECT_EQ(read_environment(folder / "env.json").device, "d");
  for (const std::string& text : {nested(1000), std::string(1'000'000, '[')}) {
    write(folder / "env.json", text);
    expect_parts(error_of([&] { return read_environment(folder / "env.json"); }), {"env.json: is n"});
  }
}

TEST(Files, AreNotWrittenThroughLinks) {
  const TemporaryFolder folder;
  write(folder / "precious", "precious");
  fs::create_symlink(folder / "precious", partial_of(folder / "file"));
  write_atomically(folder / "file", "text");
  EXPECT_EQ(read_whole_file(folder / "file"), "text");
  fs::create_symlink(folder / "precious", folder / "link");
  write_atomically(folder / "link", "text");
  EXPECT_FALSE(fs::is_symlink(folder / "link"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_parts(error_of([&] { return write_atomically(folder / "pipe", "text"), 0; }), {"it is a pipe"});
  EXPECT_EQ(read_whole_file(folder / "precious"), "precious");

  fs::create_directory(folder / "run");
  fs::create_symlink(folder / "precious", folder / "run" / ".lock");
  expect_parts(error_of([&] { return FolderLock(folder / "run"), 0; }), {".lock: cannot be written: it is a symbolic"});
  EXPECT_EQ(read_whole_file(folder / "precious"), "precious");
  fs::remove(folder / "run" / ".lock");
  ASSERT_EQ(mkfifo((folder / "run" / ".lock").c_str(), 0600), 0);
  expect_parts(error_of([&] { return FolderLock(folder / "run"), 0; }), {"it is a pipe"});
  const FolderLock reading(folder / "run", FolderLock::Mode::reading);  // and does not wait
}

TEST(Files, ThatSeveralThreadsWriteAreAlwaysWhole) {
  const TemporaryFolder folder;
  const auto text = [](char letter) { return std::string(50000, letter); };
  write_atomically(folder / "file", text('a'));
  std::vector<std::thread> writers;
  for (const char letter : {'b', 'c', 'd', 'e'})
    writers.emplace_back([&, letter] {
      for (int n = 0; n < 50; ++n) EXPECT_NO_THROW(write_atomically(folder / "file", text(letter)));
    });
  for (int n = 0; n < 200; ++n) {
    const std::string seen = read_whole_file(folder / "file");
    EXPECT_EQ(seen, text(seen.empty() ? '?' : seen.front()));
  }
  for (std::thread& writer : writers) writer.join();
}

TEST(Files, OfKilledWritersAreRemoved) {
  const TemporaryFolder folder;
  const std::string dead = std::to_string(dead_process()), alive = std::to_string(getppid());
  const auto make = [&](const std::string& name) {
    fs::create_directory(folder / name);
    write(folder.path() / name / "sweep.csv", "op\n");
  };
  for (const char* name : {"base", "other"}) make(name);
  const std::string own = partial_of("base").string(), here = own.substr(own.find('-'));  // -<machine>.partial
  const std::vector<std::string> left = {"base." + dead + here, "base." + dead + here + ".old",
                                         "base." + dead + ".partial"};  // of a program before this one
  const std::vector<std::string> kept = {"base." + alive + here,
                                         "other." + dead + here,
                                         "base.1." + dead + here,
                                         "base." + dead + ".old",
                                         "base." + dead + "-0123456789abcdef.partial",
                                         "base." + std::to_string(getpid()) + "-0123456789abcdef.partial",
                                         "base.x.partial"};
  for (const std::string& name : left) make(name);
  for (const std::string& name : kept) make(name);
  EXPECT_TRUE(is_partial(folder / left[0]) && is_partial(folder / left[1]) && is_partial(folder / kept[3]) &&
              is_partial(folder / left[2]));
  EXPECT_FALSE(is_partial(folder / "base") || is_partial(folder / "base.x.partial") ||
               is_partial(folder / "base.2024-11-30.old") || is_partial(folder / "a.partial"));
  (void)StagedFolder(folder / "base");
  for (const std::string& name : left) EXPECT_FALSE(fs::exists(folder / name)) << name;
  for (const std::string& name : kept) EXPECT_TRUE(fs::exists(folder / name)) << name;

  // Killed between two renames: the aside is the only copy.
  make(left[1]);
  fs::remove_all(folder / "base");
  (void)StagedFolder(folder / "base");
  EXPECT_TRUE(fs::exists(folder / left[1]));
}

}  // namespace
}  // namespace noisefloor
