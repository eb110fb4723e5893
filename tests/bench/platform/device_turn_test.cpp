#include "bench/platform/device_turn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <future>
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
  EXPECT_TRUE(turn.take_at_once());
  std::promise<void> waits;
  std::thread other([&] {
    DeviceTurn second(file, [&] {
      EXPECT_FALSE(is_free());
      waits.set_value();
    });
    EXPECT_TRUE(second.take_at_once());
  });
  waits.get_future().wait();
  turn.give();
  other.join();
  EXPECT_TRUE(turn.take_at_once()) << "the other one is gone";
  DeviceTurn unasked(folder.path() / "another", [] { FAIL() << "nobody has it"; });
}

TEST_F(Turn, OfAFileThatWasRemovedIsTakenOfTheNewOne) {
  DeviceTurn turn(file);
  std::thread other([&] {
    DeviceTurn second(file, [&] {
      std::filesystem::remove(file);
      turn.give();
    });
    EXPECT_FALSE(is_free());
  });
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
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_THROW(DeviceTurn{file}, std::system_error) << "it is nobody's file";
  std::filesystem::remove(file);
  std::filesystem::create_symlink(folder.path() / "elsewhere", file);
  EXPECT_THROW(DeviceTurn{file}, std::system_error);
  EXPECT_NE(DeviceTurn::file_of("0000:1b:00.0"), DeviceTurn::file_of("0000:1c:00.0"));
}

}  // namespace
}  // namespace noisefloor
