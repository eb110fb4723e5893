// safetensors on the disk: files mapped to be read, and written.
#include "bench/tensors/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "kernels/core/parallel.h"

namespace noisefloor {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw SafetensorsError(fmt::format("{}: {}", path.string(), what));
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : SafetensorsFile(path, [this](std::span<const std::byte> file) { return parse_safetensors(file, &metadata_); }) {}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, const Parse& parse) : SafetensorsFile() {
  path_ = path;
  // Before it is opened: opening a pipe waits for its other end.
  std::error_code error;
  if (const auto status = std::filesystem::status(path, error);
      !error && std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    refuse(path, std::filesystem::is_directory(status) ? "is a folder" : "is not a regular file");
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0)
    refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  bytes_ = static_cast<std::size_t>(status.st_size);
  if (bytes_ == 0) refuse(path, "is empty");
  void* const mapping = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (mapping == MAP_FAILED) refuse(path, fmt::format("cannot be mapped: {}", std::strerror(errno)));
  mapping_ = mapping;
  try {
    tensors_ = parse({static_cast<const std::byte*>(mapping), bytes_});
  } catch (const SafetensorsError& problem) {
    refuse(path, problem.what());
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) munmap(mapping_, bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

std::vector<std::byte> SafetensorsFile::read(const FileTensor& tensor) const {
  std::vector<std::byte> bytes(tensor.data.size());
  read(tensor, bytes);
  return bytes;
}

namespace {

constexpr int kTruncated = -1;

// 0, kTruncated or errno.
int read_at(int descriptor, std::int64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = pread(descriptor, bytes.data(), bytes.size(), offset);
    if (got == 0) return kTruncated;
    if (got < 0 && errno != EINTR) return errno;
    if (got < 0) continue;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
  return 0;
}

}  // namespace

void SafetensorsFile::read(const FileTensor& tensor, std::span<std::byte> bytes) const {
  constexpr std::int64_t kGrain = std::int64_t{4} << 20;  // bytes: about 1 ms of a core, out of the page cache
  std::atomic<int> fault = 0;
  parallel_for_memory(std::ssize(bytes), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const auto part = bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    if (fault == 0)
      if (const int found = read_at(descriptor_, offset_of(tensor) + begin, part); found != 0) fault = found;
  });
  require_read(tensor, fault);
}

void SafetensorsFile::scan(const FileTensor& tensor,
                           const std::function<void(std::span<const std::byte>)>& take) const {
  constexpr std::int64_t kGrain = std::int64_t{256} << 10;  // bytes, which a core's L2 holds
  std::atomic<int> fault = 0;
  parallel_for_memory(std::ssize(tensor.data), kGrain, [&](std::int64_t begin, std::int64_t end) {
    // Not in a thread's own segment, which its stack pays for.
    thread_local const std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[kGrain]);
    if (!memory) fault = ENOMEM;
    if (fault != 0) return;
    const std::span part(memory.get(), static_cast<std::size_t>(end - begin));
    if (const int found = read_at(descriptor_, offset_of(tensor) + begin, part); found != 0)
      fault = found;
    else
      take(part);
  });
  require_read(tensor, fault);
}

std::int64_t SafetensorsFile::offset_of(const FileTensor& tensor) const {
  return tensor.data.data() - static_cast<const std::byte*>(mapping_);
}

void SafetensorsFile::require_read(const FileTensor& tensor, int fault) const {
  if (fault == 0) return;
  refuse(path_, fmt::format("tensor '{}' cannot be read: {}", tensor.name,
                            fault == kTruncated ? "the file was truncated while it was in use" : std::strerror(fault)));
}

void SafetensorsFile::require_layout(std::string_view layout) const {
  const std::string_view other = layout == kChannelsLast ? kChannelsFirst : kChannelsLast;
  if (const auto said = metadata_.find(kLayoutKey); said != metadata_.end() && said->second == other)
    refuse(path_, fmt::format("its metadata says '{}: {}'; what is read here is {}", kLayoutKey, other, layout));
}

const FileTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &FileTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void write_safetensors(const std::filesystem::path& path, std::span<const FileTensor> tensors,
                       const FileMetadata& metadata) {
  std::vector<const FileTensor*> order;
  for (const FileTensor& tensor : tensors) order.push_back(&tensor);
  const auto element_bytes = [](const FileTensor* tensor) {
    const auto dtype = dtype_of_safetensors(tensor->dtype);
    return dtype ? size_of(*dtype) : 0;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const FileTensor* a, const FileTensor* b) { return element_bytes(a) > element_bytes(b); });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t end = 0;
  for (const FileTensor* tensor : order) {
    if (header.contains(tensor->name)) refuse(path, fmt::format("tensor '{}' is to be written twice", tensor->name));
    const std::size_t begin = end;
    end += tensor->data.size();
    header[tensor->name] = {{"dtype", tensor->dtype}, {"shape", tensor->shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  constexpr std::size_t kAlignment = 8;  // of the largest element
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const std::uint64_t length = text.size();

  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(reinterpret_cast<const char*>(&length), sizeof length);
  stream << text;
  for (const FileTensor* tensor : order)
    stream.write(reinterpret_cast<const char*>(tensor->data.data()), static_cast<std::streamsize>(tensor->data.size()));
  stream.close();
  if (!stream) refuse(path, fmt::format("cannot be written: {}", std::strerror(errno)));
  const SafetensorsFile written(path);  // what was asked for was a file that can be read
}

}  // namespace noisefloor
