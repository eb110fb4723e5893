// Files of unet.cu (github.com/clu0/unet.cu): a header of 256 int32, then numbers in fp32. Of weights the header is
// 12345678, B, C_in, C_model, C_out, H, W, max_period, whether AdamW's two moments and whether the generator's states
// follow, and zeros; the parameters stand in the order of train_unet.py's named_parameters. Of images, which are
// channels-first, it is 20240620, n, 3, 64, 64.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>

#include "bench/pipeline/checkpoint.h"
#include "reports/run/files.h"

namespace noisefloor::pipeline {
namespace {

using Header = std::array<std::int32_t, 256>;
enum Place : std::size_t { magic, batch, c_in, c_model, c_out, height, width, max_period, moments, generator };
struct Fixed {
  Place place;
  const char* name;
  std::int32_t value;
};
constexpr Fixed kFixed[] = {{c_in, "C_in", 3}, {c_model, "C_model", 64}, {c_out, "C_out", 3},
                            {height, "H", 64}, {width, "W", 64},         {max_period, "max_period", 1000}};

// Modules in the order in which its classes make them, by their number or place here; the weight before the bias.
std::vector<int> key_of(std::string_view name) {
  static constexpr std::string_view kOrder[] = {
      "time_embed", "input_blocks",    "middle_block", "output_blocks", "out",  "gn1",    "cv3_1", "l_emb", "gn2",
      "cv3_2",      "skip_connection", "gn",           "qkv",           "proj", "weight", "bias"};
  std::vector<int> key;
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('.'));
    name.remove_prefix(std::min(name.size(), part.size() + 1));
    int number = static_cast<int>(std::ranges::find(kOrder, part) - std::begin(kOrder));
    std::from_chars(part.data(), part.data() + part.size(), number);
    key.push_back(number);
  }
  return key;
}

std::vector<FileTensor> parameters() {
  std::vector<FileTensor> all;
  for (auto& [name, shape] : checkpoint_of(require_network("unetcu").build({}).graph))
    all.push_back({name, safetensors_name(DType::fp32), shape, {}});
  std::ranges::sort(all, {}, [](const FileTensor& tensor) { return key_of(tensor.name); });
  return all;
}

Header header_of(std::span<const std::byte> file, const char* what) {
  Header header{};
  if (file.size() < sizeof header)
    throw SafetensorsError(fmt::format("{} of unet.cu, but its header of 1,024 bytes is cut off", what));
  std::memcpy(header.data(), file.data(), sizeof header);
  return header;
}

// A double: sizes that a file says may overflow. None where one is negative.
double bytes_of(std::span<const std::int64_t> shape) {
  double bytes = sizeof(float);
  for (const std::int64_t extent : shape) bytes *= static_cast<double>(std::max<std::int64_t>(0, extent));
  return bytes;
}

}  // namespace

bool is_unetcu_file(const fs::path& file, std::int32_t kind) {
  std::int32_t first = 0;
  const std::string head = head_of(file, sizeof first);
  std::memcpy(&first, head.data(), head.size());
  return first == kind;
}

std::vector<FileTensor> parse_unetcu_images(std::span<const std::byte> file) {
  const Header header = header_of(file, "images");
  std::vector<std::int64_t> shape(header.begin() + 1, header.begin() + 5);
  const std::span<const std::byte> images = file.subspan(sizeof header);
  if (std::ranges::min(shape) < 0 || bytes_of(shape) != static_cast<double>(images.size()))
    throw SafetensorsError(
        fmt::format("is unet.cu's data of {} images of [{}], which are {:.0f} bytes behind its header; it has {}",
                    shape[0], fmt::join(std::span(shape).subspan(1), ", "), bytes_of(shape), images.size()));
  return {{"images", safetensors_name(DType::fp32), std::move(shape), images}};
}

std::vector<FileTensor> parse_unetcu_weights(std::span<const std::byte> file) {
  const auto refuse = [](const std::string& what) { throw SafetensorsError("weights of unet.cu, but " + what); };
  const Header header = header_of(file, "weights");
  for (const auto& [place, name, value] : kFixed)
    if (header[place] != value) refuse(fmt::format("{} is {}; unetcu has {}", name, header[place], value));
  for (const Place place : {moments, generator})
    if (header[place] != 0 && header[place] != 1)
      refuse(
          fmt::format("number {} of its header is {}; it is 0 or 1", static_cast<std::size_t>(place), header[place]));
  std::vector<FileTensor> tensors = parameters();
  std::size_t at = sizeof header;
  for (FileTensor& parameter : tensors) {
    const auto bytes = static_cast<std::size_t>(bytes_of(parameter.shape));
    if (at + bytes > file.size())
      refuse(fmt::format("it ends within {}, behind {} bytes", parameter.name, file.size()));
    parameter.data = file.subspan(at, bytes);
    at += bytes;
  }
  const std::size_t end = at + (header[moments] == 1 ? 2 * (at - sizeof header) : 0);
  if (file.size() < end || (file.size() > end && header[generator] == 0))
    refuse(fmt::format("it has {} bytes, where its header says {}", file.size(), end));
  return tensors;
}

bool is_named_as_unetcu(const fs::path& name, const NetworkInfo& info) {
  return info.name == std::string_view("unetcu") && name.extension() == ".bin";
}

void write_unetcu(const fs::path& file, std::span<const FileTensor> tensors, std::int64_t images) {
  Header header{};
  header[magic] = kUnetcuWeights;
  header[batch] = static_cast<std::int32_t>(images);
  for (const auto& [place, name, value] : kFixed) header[place] = value;
  std::ofstream stream(file, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(header.data()), sizeof header);
  for (const FileTensor& parameter : parameters()) {
    const auto tensor = std::ranges::find(tensors, parameter.name, &FileTensor::name);
    if (tensor == tensors.end()) throw std::logic_error(parameter.name + " is missing");
    stream.write(reinterpret_cast<const char*>(tensor->data.data()), static_cast<std::streamsize>(tensor->data.size()));
  }
  stream.close();
  if (!stream) throw SafetensorsError(fmt::format("{}: cannot be written: {}", file.string(), std::strerror(errno)));
}

}  // namespace noisefloor::pipeline
