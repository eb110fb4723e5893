// The safetensors reader and writer: what they take, and that nothing else gets past them.
#include "bench/tensors/safetensors.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes, std::uint64_t length) {
  std::vector<std::byte> file(8 + header.size() + data_bytes);
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < data_bytes; ++i) file[8 + header.size() + i] = static_cast<std::byte>(i);
  return file;
}
std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes) {
  return file_of(header, data_bytes, header.size());
}

std::string refusal(const std::vector<std::byte>& file) {
  return refusal_of<SafetensorsError>([&] { return parse_safetensors(file); });
}

TEST(Safetensors, ListsTensorsInTheOrderOfTheirBytes) {
  const auto file =
      file_of(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[3,11]},)"
              R"("empty":{"dtype":"I64","shape":[0,7],"data_offsets":[3,3]},)"
              R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
              R"("s":{"shape":[],"data_offsets":[11,13],"dtype":"BF16"}}   )",
              13);
  const auto tensors = parse_safetensors(file);
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[1].name, "empty");
  EXPECT_EQ(tensors[2].name, "b");
  EXPECT_EQ(tensors[2].shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(tensors[2].text(), "F32 [2, 1]");
  EXPECT_EQ(tensors[2].data.size(), 8u);
  EXPECT_EQ(static_cast<int>(tensors[2].data[0]), 3);  // at an odd place: bytes, not floats
  EXPECT_EQ(tensors[3].text(), "BF16 []");
}

TEST(Safetensors, NamesEveryElementTypeOfOurs) {
  for (const DType dtype :
       {DType::fp32, DType::bf16, DType::fp16, DType::fp64, DType::int32, DType::int64, DType::uint8})
    EXPECT_EQ(dtype_of_safetensors(safetensors_name(dtype)), dtype) << to_string(dtype);
  EXPECT_EQ(dtype_of_safetensors("BOOL"), std::nullopt);
  EXPECT_EQ(dtype_of_safetensors("bf16"), std::nullopt);
}

TEST(Safetensors, RefusesWhatTheFormatDoesNotAllow) {
  const std::string u8 = R"("dtype":"U8","shape":[2],)";
  const auto one = [&](const std::string& entry) { return file_of("{\"x\":{" + entry + "}}", 2); };
  const auto two = [&](const std::string& first, const std::string& second, std::size_t bytes) {
    return file_of(
        "{\"x\":{" + u8 + "\"data_offsets\":" + first + "},\"y\":{" + u8 + "\"data_offsets\":" + second + "}}", bytes);
  };
  const struct {
    std::vector<std::byte> file;
    const char* says;
  } cases[] = {
      {{}, "truncated: 0 bytes"},
      {std::vector<std::byte>(7), "truncated: 7 bytes"},
      {file_of("{}", 0, 3), "truncated: the header's length is 3 bytes, but only 2 follow"},
      {file_of("{}", 0, std::uint64_t{2} << 30), "the header's length is 2147483648 bytes, more than"},
      {file_of("{}", 0, ~std::uint64_t{0}), "more than the format's limit"},
      {file_of("", 0), "does not begin with '{'"},
      {file_of(" {}", 0), "does not begin with '{'"},
      {file_of("{", 0), "not JSON at its byte"},
      {file_of("{}x", 0), "not JSON at its byte 3"},
      {file_of("{\"x\":\xff}", 0), "not JSON at its byte"},
      {file_of("{}", 1), "1 bytes behind the last tensor"},
      {file_of(R"({"x":3})", 0), "tensor 'x' is the number 3, not an object"},
      {file_of(R"({"x":null})", 0), "tensor 'x' is null, not an object"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "'__metadata__' has the number 1 where a string belongs"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "'__metadata__' is given twice"},
      {one(u8 + "\"data_offsets\":[0,2],\"more\":1"), "tensor 'x': unknown key 'more'"},
      {one(u8 + "\"data_offsets\":[0,2],\"shape\":[2]"), "tensor 'x': 'shape' is given twice"},
      {one(u8 + "\"data_offsets\":[0]"), "data_offsets has 1 numbers, not 2"},
      {one(u8 + "\"data_offsets\":[0,1,2]"), "data_offsets has 3 numbers, not 2"},
      {one(u8 + "\"data_offsets\":[0,3]"), "data_offsets [0, 3] do not lie in the 2 bytes behind the header"},
      {one(u8 + "\"data_offsets\":[2,0]"), "data_offsets [2, 0] do not lie in"},
      {one(u8 + "\"data_offsets\":[0,18446744073709551615]"), "data_offsets [0, 18446744073709551615] do not lie"},
      {one(u8 + "\"data_offsets\":[0,18446744073709551616]"), "where a whole number below 2^64 belongs"},
      {one(u8 + "\"data_offsets\":[-1,1]"), "data_offsets has the number -1"},
      {one(u8 + "\"data_offsets\":[0,2.0]"), "data_offsets has the number 2.0"},
      {one(u8 + "\"data_offsets\":\"0\""), "data_offsets is a string"},
      {one(u8 + "\"data_offsets\":[[0],2]"), "data_offsets has an array"},
      {one(u8), "not JSON at its byte"},
      {one(R"("dtype":"U8","shape":[2])"), "tensor 'x' has no data_offsets"},
      {one(R"("shape":[2],"data_offsets":[0,2])"), "tensor 'x' has no dtype"},
      {one(R"("dtype":"U8","data_offsets":[0,2])"), "tensor 'x' has no shape"},
      {one(R"("dtype":"U9","shape":[2],"data_offsets":[0,2])"), "unknown dtype 'U9'; known are BF16"},
      {one(R"("dtype":8,"shape":[2],"data_offsets":[0,2])"), "dtype is the number 8, not a string"},
      {one(R"("dtype":"F32","shape":[2],"data_offsets":[0,2])"),
       "tensor 'x' is F32 [2], which takes 8 bytes; data_offsets give it 2"},
      {one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), "which takes 1.5 bytes"},
      {one(R"("dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,2])"), "more than 2^61"},
      {one(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,2])"), "is too large"},
      {one(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,2])"),
       "shape has more than 16 numbers"},
      {two("[0,2]", "[1,3]", 4), "tensor 'y' overlaps the one before it at byte 1"},
      {two("[0,2]", "[0,2]", 2), "overlaps the one before it at byte 0"},
      {two("[0,2]", "[3,5]", 5), "a gap of 1 bytes before tensor 'y', which begins at byte 3"},
      {two("[1,3]", "[3,5]", 5), "a gap of 1 bytes before tensor 'x'"},
      {two("[0,2]", "[2,4]", 6), "2 bytes behind the last tensor"},
      {file_of("{\"x\":{" + u8 + "\"data_offsets\":[0,2]},\"x\":{" + u8 + "\"data_offsets\":[2,4]}}", 4),
       "tensor 'x' is in the header twice"},
      {file_of("{\"" + std::string(5000, 'n') + "\":{}}", 0), "a name of 5000 bytes"},
  };
  for (const auto& test : cases) expect_parts(refusal(test.file), {test.says});
}

TEST(Safetensors, DeepAndLongHeadersEndAtOnce) {
  constexpr std::size_t kMany = 1 << 20;
  EXPECT_NE(refusal(file_of("{\"x\":" + std::string(kMany, '['), 0)).find("tensor 'x' is an array"), std::string::npos);
  EXPECT_NE(refusal(file_of("{" + std::string(kMany, ' '), 0)).find("not JSON"), std::string::npos);
  std::string shape = "1";
  for (std::size_t i = 0; i < kMany; ++i) shape += ",1";
  EXPECT_NE(refusal(file_of("{\"x\":{\"shape\":[" + shape + "]}}", 0)).find("more than 16 numbers"), std::string::npos);
}

TEST(Safetensors, WritesWhatItReads) {
  const TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  std::vector<std::byte> bytes(24);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  const std::span<const std::byte> all(bytes);
  const std::vector<FileTensor> tensors = {{"odd \"name\"\n", "U8", {3}, all.first(3)},
                                           {"d", "BF16", {2, 2}, all.subspan(3, 8)},
                                           {"stats", "F32", {2}, all.subspan(11, 8)},
                                           {"none", "F32", {0}, {}}};
  write_safetensors(path, tensors, {{"variant", "host"}});
  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 4u);
  for (const FileTensor& tensor : tensors) {
    const FileTensor* found = file.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->text(), tensor.text());
    EXPECT_TRUE(std::equal(tensor.data.begin(), tensor.data.end(), found->data.begin(), found->data.end()));
    const std::size_t element = tensor.dtype == "U8" ? 1 : tensor.dtype == "BF16" ? 2 : 4;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found->data.data()) % element, 0u);
  }
  EXPECT_EQ(file.find("nothing"), nullptr);
}

// More than one piece of either kind of reading, the last of them ragged.
TEST(Safetensors, PiecesOfALargeTensorAreItsBytes) {
  const TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  constexpr std::int64_t kSize = (std::int64_t{9} << 20) + 3;
  std::vector<std::byte> bytes(kSize);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 7);
  const FileTensor tensors[] = {{"large", "U8", {kSize}, bytes}, {"none", "U8", {0}, {}}};
  write_safetensors(path, tensors);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.read(*file.find("large")), bytes);
  EXPECT_TRUE(file.read(*file.find("none")).empty());
  const auto scanned = [&](const char* name) {  // how many bytes, and their sum
    std::atomic<std::uint64_t> count = 0, sum = 0;
    file.scan(*file.find(name), [&](std::span<const std::byte> piece) {
      count += piece.size();
      for (const std::byte byte : piece) sum += static_cast<std::uint64_t>(byte);
    });
    return std::pair(count.load(), sum.load());
  };
  std::uint64_t sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<std::uint64_t>(byte);
  EXPECT_EQ(scanned("large"), (std::pair<std::uint64_t, std::uint64_t>(kSize, sum)));
  EXPECT_EQ(scanned("none").first, 0u);
  std::filesystem::resize_file(path, kSize / 2);  // which the end of the process would be for who reads the mapping
  for (const std::string& refusal : {refusal_of<SafetensorsError>([&] { return file.read(*file.find("large")); }),
                                     refusal_of<SafetensorsError>([&] { return scanned("large"); })})
    expect_parts(refusal, {"tensor 'large' cannot be read: the file was truncated"});
}

TEST(Safetensors, TheOtherLayoutIsRefused) {
  const TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  const std::vector<std::byte> bytes(4);
  const FileTensor tensor{"x", "F32", {1}, bytes};
  FileMetadata many{{kLayoutKey, kChannelsLast}};
  for (int i = 0; i < 200; ++i) many["a" + std::to_string(i)] = "stands before it";
  write_safetensors(path, std::span(&tensor, 1), many);
  EXPECT_THROW(SafetensorsFile(path).require_layout(kChannelsFirst), SafetensorsError);
  for (const std::map<std::string, std::string>& metadata :
       {std::map<std::string, std::string>{}, {{"format", kChannelsLast}}, {{kLayoutKey, "torch.strided"}}}) {
    write_safetensors(path, std::span(&tensor, 1), metadata);
    EXPECT_NO_THROW(SafetensorsFile(path).require_layout(kChannelsFirst));
    EXPECT_NO_THROW(SafetensorsFile(path).require_layout(kChannelsLast));
  }
}

TEST(Safetensors, WhatIsNoFileIsNotWritten) {
  const TemporaryFolder folder;
  const auto path = folder / "a.safetensors";
  const std::vector<std::byte> bytes(4);
  const FileTensor wrong{"x", "F32", {2}, bytes}, right{"x", "F32", {1}, bytes};
  EXPECT_THROW(write_safetensors(path, std::vector{wrong}), SafetensorsError);
  EXPECT_THROW(write_safetensors(path, std::vector{right, right}), SafetensorsError);
  EXPECT_THROW(write_safetensors(folder / "no" / "a", std::vector{right}), SafetensorsError);
  EXPECT_THROW(SafetensorsFile{path}, SafetensorsError);
  EXPECT_THROW(SafetensorsFile{folder.path()}, SafetensorsError);
  EXPECT_THROW(SafetensorsFile{folder / "missing"}, SafetensorsError);
}

}  // namespace
}  // namespace noisefloor
