#include <gtest/gtest.h>

#include "bench/commands/sample_arguments.h"

namespace noisefloor {
namespace {

TEST(GuidanceNote, IsGivenForCheckpointsThatNeverSawAMissingLabel) {
  EXPECT_NE(guidance_note(networks::require_network("adm64")).find("OpenAI's checkpoints of adm64 were never trained"),
            std::string::npos);
  EXPECT_EQ(guidance_note(networks::require_network("digits")), "");
}

}  // namespace
}  // namespace noisefloor
