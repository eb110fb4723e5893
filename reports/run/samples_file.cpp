#include "reports/run/run_files.h"

#include <fmt/format.h>
#include <zlib.h>

#include <stdexcept>

namespace noisefloor {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr int kGzip = 16;  // zlib's: added to the bits of the window, it takes gzip alone

struct Inflater {
  z_stream stream{};
  bool ready = inflateInit2(&stream, MAX_WBITS + kGzip) == Z_OK;

  Inflater() = default;
  ~Inflater() {
    if (ready) inflateEnd(&stream);
  }
  Inflater(const Inflater&) = delete;
};

std::string unpack(const std::filesystem::path& file, std::string packed, std::size_t most_bytes) {
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), why));
  };
  Inflater inflater;
  if (!inflater.ready) refuse("cannot be unpacked: zlib cannot be set up");
  z_stream& stream = inflater.stream;
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());  // read_whole_file's bound is far below it
  std::string text;
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    const std::size_t done = text.size();
    text.resize(done + kChunkBytes);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + done);
    stream.avail_out = kChunkBytes;
    result = inflate(&stream, Z_NO_FLUSH);
    text.resize(text.size() - stream.avail_out);
    if (text.size() > most_bytes)
      refuse(fmt::format("is more than {} bytes unpacked, and at most so many are read", most_bytes));
    if (result == Z_BUF_ERROR || (result == Z_OK && stream.avail_in == 0 && stream.avail_out > 0))
      refuse("is cut off: copy it whole");
    if (result != Z_OK && result != Z_STREAM_END)
      refuse(fmt::format("is not whole gzip data ({})", stream.msg != nullptr ? stream.msg : "no reason given"));
  }
  if (stream.avail_in > 0) refuse(fmt::format("has {} bytes behind its gzip data", stream.avail_in));
  return text;
}

}  // namespace

std::filesystem::path samples_file(const std::filesystem::path& folder) {
  const auto plain = folder / kSamplesFile, packed = folder / kPackedSamplesFile;
  std::error_code error;  // where a folder cannot be searched, who reads the file says so
  const auto is_there = [&](const auto& file) {
    return std::filesystem::exists(std::filesystem::symlink_status(file, error));
  };
  if (!is_there(packed)) return plain;
  if (is_there(plain))
    throw std::runtime_error(fmt::format("{}: has {} and {}: remove the one that sweep.csv is not of", folder.string(),
                                         kSamplesFile, kPackedSamplesFile));
  return packed;
}

std::string read_samples_text(const std::filesystem::path& file, std::size_t most_bytes) {
  std::string text = read_whole_file(file, most_bytes);
  if (file.filename() != kPackedSamplesFile) return text;
  return unpack(file, std::move(text), most_bytes);
}

}  // namespace noisefloor
