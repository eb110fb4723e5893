#include "bench/platform/device_turn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <stdexcept>
#include <system_error>
#include <thread>

#include "bench/platform/platform.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

class Turn : public testing::Test {
 protected:
  TemporaryFolder folder;
  std::filesystem::path file = folder.path() / "turn";

  bool is_free() const {
    const Descriptor other(open(file.c_str(), O_RDWR | O_CLOEXEC));
    return flock(other, LOCK_EX | LOCK_NB) == 0;
  }
};

TEST_F(Turn, IsHeldUntilItIsGiven) {
  {
    DeviceTurn turn(file);
    EXPECT_FALSE(is_free());
    turn.take();
    turn.give();
    EXPECT_TRUE(is_free());
    turn.take();
    EXPECT_FALSE(is_free());
  }
  EXPECT_TRUE(is_free()) << "it goes with its holder";
}

TEST_F(Turn, IsWaitedFor) {
  DeviceTurn turn(file);
  bool given = false;
  std::thread other([&] {
    const DeviceTurn second(file);
    EXPECT_TRUE(given);
  });
  given = true;
  turn.give();
  other.join();
}

TEST_F(Turn, IsSharedWithAChild) {
  DeviceTurn turn(file);
  const auto run = [&](const char* flag, int inherited) {
    ChildCommand command{{"flock", flag, std::to_string(turn.descriptor())}};
    command.inherited = inherited;
    return ChildProcess(command, ChildRole::lane).wait();
  };
  EXPECT_NE(run("-u", -1), 0) << "it is not inherited unasked";
  EXPECT_FALSE(is_free());
  EXPECT_EQ(run("-u", turn.descriptor()), 0);
  EXPECT_TRUE(is_free());
  EXPECT_EQ(run("-x", turn.descriptor()), 0);
  EXPECT_FALSE(is_free()) << "the child has ended, and its parent has it";
}

TEST_F(Turn, IsAnothersWhileTheHostWorks) {
  DeviceTurn turn(file);
  const auto platform = make_host_platform();
  platform->aside([&] { EXPECT_FALSE(is_free()) << "nobody shares it yet"; });
  platform->share(turn);
  platform->aside([&] { EXPECT_TRUE(is_free()); });
  EXPECT_FALSE(is_free());
  EXPECT_THROW(platform->aside([] { throw std::logic_error("work"); }), std::logic_error);
  EXPECT_FALSE(is_free());
}

TEST_F(Turn, NamesAFileThatCannotBeOpened) {
  try {
    const DeviceTurn turn(folder.path() / "none" / "turn");
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what()).find("none/turn: cannot be opened"), std::string::npos) << error.what();
  }
  EXPECT_NE(DeviceTurn::file_of("0000:1b:00.0"), DeviceTurn::file_of("0000:1c:00.0"));
}

}  // namespace
}  // namespace noisefloor
