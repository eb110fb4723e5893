// Packed samples are read as those that are not, and what is damaged is refused by name.
#include "reports/run/run_files.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

class SamplesFileTest : public testing::Test {
 protected:
  void write(const char* name, const std::string& text) { std::ofstream(folder_ / name, std::ios::binary) << text; }
  std::string pack(const std::string& text) {
    const auto file = folder_ / "scratch.gz";
    gzFile packed = gzopen(file.c_str(), "wb");
    EXPECT_EQ(gzwrite(packed, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
    EXPECT_EQ(gzclose(packed), Z_OK);
    const std::string bytes = read_whole_file(file);
    std::filesystem::remove(file);
    return bytes;
  }
  // What is read of these bytes; empty where they are refused, with the reason in refusal_.
  std::string read(const std::string& bytes, std::size_t most_bytes = kMostFileBytes) {
    write(kPackedSamplesFile, bytes);
    std::string text;
    refusal_ = error_of([&] { return text = read_samples_text(folder_ / kPackedSamplesFile, most_bytes); });
    return text;
  }
  bool refused(const std::string& why) const {
    return refusal_.find("samples.jsonl.gz: ") != std::string::npos && refusal_.find(why) != std::string::npos;
  }
  TemporaryFolder folder_;
  std::string refusal_;
};

TEST_F(SamplesFileTest, IsTheOneThatIsThere) {
  EXPECT_EQ(samples_file(folder_.path()), folder_ / "samples.jsonl");
  write(kPackedSamplesFile, "");
  EXPECT_EQ(samples_file(folder_.path()), folder_ / "samples.jsonl.gz");
  write(kSamplesFile, "");
  EXPECT_THROW((void)samples_file(folder_.path()), std::runtime_error);
}

TEST_F(SamplesFileTest, PackedTextIsWhatItWas) {
  std::string text;
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, (std::size_t{1} << 20) - 1, std::size_t{1} << 20,
                                   (std::size_t{1} << 20) + 1, std::size_t{5} << 20}) {
    while (text.size() < length) text += static_cast<char>('a' + text.size() * text.size() % 23);
    EXPECT_EQ(read(pack(text)), text) << length;
    EXPECT_EQ(refusal_, "");
  }
}

TEST_F(SamplesFileTest, WhatIsDamagedIsRefused) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::to_string(i * i * 7919 % 1000) + "\n";
  const std::string whole = pack(text);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(read(whole.substr(0, length)), "") << length;
    EXPECT_TRUE(refused("is cut off")) << length << ": " << refusal_;
  }
  constexpr std::size_t kHeader = 10;  // bytes: of its time and system nothing depends
  for (std::size_t at = kHeader; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_EQ(read(damaged), "") << at;
    EXPECT_TRUE(refused("is not whole gzip data") || refused("is cut off") || refused("behind its gzip data"))
        << at << ": " << refusal_;
  }
  EXPECT_EQ(read(whole + "x"), "");
  EXPECT_TRUE(refused("has 1 bytes behind its gzip data")) << refusal_;
  EXPECT_EQ(read(text), "");
  EXPECT_TRUE(refused("is not whole gzip data")) << refusal_;
}

TEST_F(SamplesFileTest, MoreThanIsReadIsRefused) {
  const std::string packed = pack(std::string(std::size_t{4} << 20, 'a'));
  EXPECT_EQ(read(packed, 100'000), "");
  EXPECT_TRUE(refused("is more than 100000 bytes unpacked")) << refusal_;
  EXPECT_EQ(read(packed.substr(0, packed.size() - 20), 100'000), "");  // said before its end is looked for
  EXPECT_TRUE(refused("is more than 100000 bytes unpacked")) << refusal_;
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  EXPECT_EQ(read(packed, kBytes).size(), kBytes);
  EXPECT_EQ(read(packed, kBytes - 1), "");
  EXPECT_TRUE(refused("is more than")) << refusal_;
}

}  // namespace
}  // namespace noisefloor
