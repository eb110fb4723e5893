#include "bench/pipeline/training_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/network_tensors.h"
#include "bench/platform/fingerprint.h"
#include "bench/platform/refusal.h"
#include "kernels/core/philox.h"
#include "reports/run/files.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::size_t kHeadBytes = 9;                // that tell what a file is
constexpr std::int64_t kMostImages = 1'000'000'000;  // training_batch counts in 32 bits
constexpr std::int64_t kGeneratedImages = 256;
constexpr ImageShape kCifar = {32, 32, 3}, kMnist = {28, 28, 1};
constexpr auto kCifarRecord = static_cast<std::size_t>(1 + 32 * 32 * 3);  // the label, then red, green and blue

template <class... Words>
[[noreturn]] void refuse_data(const std::string& file, fmt::format_string<Words...> form, Words&&... words) {
  throw refusal("{}: {}", file, fmt::format(form, std::forward<Words>(words)...));
}

std::string shape_text(const ImageShape& image) {
  return fmt::format("{}{} x {} with {} channel{}",
                     image.frames == 1 ? "" : fmt::format("videos of {} frames, ", image.frames), image.height,
                     image.width, image.channels, image.channels == 1 ? "" : "s");
}

// The header of an IDX file: 0, 0, type, dimensions; sizes as big-endian words. The numbers follow.
struct IdxHeader {
  explicit IdxHeader(std::string_view file) {
    const auto byte = [&](std::size_t at) { return static_cast<std::uint64_t>(static_cast<unsigned char>(file[at])); };
    constexpr std::uint64_t kFirstType = 8, kLastType = 14;
    if (file.size() < 4 || byte(0) != 0 || byte(1) != 0 || byte(2) < kFirstType || byte(2) > kLastType) return;
    type = byte(2);
    dimensions = byte(3);
    bytes = 4 + 4 * dimensions;
    if (file.size() < bytes) return;
    for (std::size_t at = 4; at < bytes; at += 4) {
      shape.push_back(
          static_cast<std::int64_t>(byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3)));
      numbers *= static_cast<double>(shape.back());
    }
    fits = dimensions > 0 && numbers == static_cast<double>(file.size() - bytes);
  }
  std::uint64_t type = 0, dimensions = 0, bytes = 0;  // bytes: of the header; 0: of no IDX file
  std::vector<std::int64_t> shape;                    // empty of a header that is cut off
  double numbers = 1;                                 // exact up to more bytes than a file has
  bool fits = false;                                  // the file is as long as the shape says
};

// What files have, for a network: data that grows file by file.
class Reader {
 public:
  explicit Reader(const NetworkInfo& info) : info_(info) {}

  void read(const std::string& file) {
    file_ = file;
    if (file == kGenerated) return generate();
    const std::string head = head_of(file, kHeadBytes);
    if (is_safetensors(head)) return read_tensors(SafetensorsFile(file));
    if (is_unetcu_file(file, kUnetcuImages)) {
      if (info_.classes > 0) refuse_data(file, "is unet.cu's, without labels; {} is trained with them", info_.name);
      return read_tensors({file, parse_unetcu_images});
    }
    if (head.starts_with("\x1f\x8b")) refuse_data(file, "is compressed with gzip; unpack it first, with gunzip");
    const std::string bytes = read_whole_file(file);
    const IdxHeader idx(bytes);
    const std::string why_no_cifar = not_cifar(bytes);  // whose first picture may begin as IDX does
    if (idx.fits || (idx.bytes > 0 && !why_no_cifar.empty())) return read_idx(idx, bytes);
    if (why_no_cifar.empty()) return read_cifar(bytes);
    std::string kind = kind_of_file(file);
    if (kind.empty() && info_.image.elements() == kCifar.elements())
      kind = fmt::format("as CIFAR-10's, {}", why_no_cifar);
    refuse_data(file,
                "is none of the files of images that are read (safetensors with images and labels, IDX, CIFAR-10's "
                "binary version, unet.cu's data){}",
                kind.empty() ? "" : ":\n" + kind);
  }

  TrainingData take() {
    if (waits_for_labels_) refuse_data(file_, "its labels are missing: give their file behind it");
    return std::move(data_);
  }

 private:
  // A header's length in eight bytes, of which the last are 0 in every file of less than 2^40 bytes.
  static bool is_safetensors(std::string_view head) {
    return head.size() < kHeadBytes || (head[8] == '{' && head.substr(5, 3) == std::string_view("\0\0\0", 3));
  }
  // Why a file is not CIFAR-10's; empty where it is.
  static std::string not_cifar(std::string_view bytes) {
    if (bytes.size() % kCifarRecord != 0)
      return fmt::format("of records of {} bytes, its {} bytes are cut off within one", kCifarRecord, bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += kCifarRecord)
      if (const int label = static_cast<unsigned char>(bytes[at]); label > 9)
        return fmt::format("its record {} has the label {}, which is out of 0 to 9", at / kCifarRecord, label);
    return "";
  }

  void require_shape(const ImageShape& image) const {
    const ImageShape& own = info_.image;
    if (image.height != own.height || image.width != own.width || image.channels != own.channels ||
        image.frames != own.frames)
      refuse_data(file_, "its images are {}; {} is trained on {}", shape_text(image), info_.name, shape_text(own));
  }

  void add_images(std::int64_t count, const std::vector<float>& channels_first) {
    if (count < 1) refuse_data(file_, "has no images");
    if (count > kMostImages - data_.count) refuse_data(file_, "more than {} images in all", kMostImages);
    for (std::size_t i = 0; i < channels_first.size(); ++i)
      if (!(channels_first[i] >= -1 && channels_first[i] <= 1))
        refuse_data(file_, "image {} has the number {}; images go from -1 (black) to 1 (white)",
                    static_cast<std::int64_t>(i) / info_.image.elements(), channels_first[i]);
    const std::vector<float> images = to_channels_last(channels_first, info_.image);
    data_.images.insert(data_.images.end(), images.begin(), images.end());
    data_.count += count;
    last_count_ = count;
  }

  void add_labels(const std::vector<double>& labels) {
    if (std::ssize(labels) != last_count_)
      refuse_data(file_, "has {} labels for {} images", std::ssize(labels), last_count_);
    for (std::size_t i = 0; i < labels.size() && info_.classes > 0; ++i) {
      const double label = labels[i];
      if (!(label >= 0 && label < static_cast<double>(info_.classes) && label == std::floor(label)))
        refuse_data(file_, "label {} of image {} is out of range: {} has classes 0 to {}", label, i, info_.name,
                    info_.classes - 1);
      data_.labels.push_back(static_cast<float>(label));
    }
  }

  // Uniform noise: what a step takes does not depend on what is in its pictures.
  void generate() {
    const PhiloxKeys keys = philox_keys(0);
    std::vector<float> images(static_cast<std::size_t>(kGeneratedImages * info_.image.elements()));
    for (std::size_t i = 0; i < images.size(); ++i)
      images[i] = static_cast<float>(philox4x32_10(philox_counter(i, 0), keys).v[0] >> 8) * 0x1p-23f - 1;
    add_images(kGeneratedImages, images);
    std::vector<double> labels;
    for (std::int64_t i = 0; i < kGeneratedImages; ++i)
      labels.push_back(static_cast<double>(i % std::max<std::int64_t>(1, info_.classes)));
    add_labels(labels);
  }

  void read_tensors(const SafetensorsFile& file) {
    file.require_layout(kChannelsFirst);
    const FileTensor* const images = file.find("images");
    const std::size_t of_frames = info_.most_frames > 1 ? 1 : 0;
    if (images == nullptr || images->shape.size() != 4 + of_frames)
      refuse_data(file_, "needs a tensor images [n, {}channels, height, width]{}", of_frames == 1 ? "frames, " : "",
                  images == nullptr ? "" : fmt::format(", and has [{}]", fmt::join(images->shape, ", ")));
    const std::span<const std::int64_t> shape = std::span(images->shape).subspan(of_frames);
    require_shape({shape[2], shape[3], shape[1], of_frames == 1 ? shape[0] : 1});
    const std::vector<double> numbers = numbers_of(file, *images, file_, images->shape);
    add_images(images->shape[0], {numbers.begin(), numbers.end()});
    if (info_.classes == 0) return;
    const FileTensor* const labels = file.find("labels");
    if (labels == nullptr)
      refuse_data(file_, "needs a tensor labels [n]: {} is trained on labelled images", info_.name);
    add_labels(numbers_of(file, *labels, file_, {last_count_}));
  }

  void read_idx(const IdxHeader& idx, std::string_view file) {
    constexpr std::uint64_t kUnsignedByte = 8;
    if (idx.type != kUnsignedByte || (idx.dimensions != 1 && idx.dimensions != 3))
      refuse_data(file_,
                  "is an IDX file of type {} and {} dimensions; read are those of bytes (type 8): images [n, height, "
                  "width] and labels [n]",
                  idx.type, idx.dimensions);
    if (idx.shape.empty())
      refuse_data(file_, "is an IDX file, cut off within its header of {} bytes: it has {}", idx.bytes, file.size());
    if (!idx.fits)
      refuse_data(file_, "is an IDX file of [{}], which are {:.0f} bytes behind its header; it has {}",
                  fmt::join(idx.shape, ", "), idx.numbers, file.size() - idx.bytes);
    const std::string_view numbers = file.substr(idx.bytes);
    if (idx.dimensions == 1) return read_idx_labels(numbers);
    const ImageShape& own = info_.image;
    const bool framed = idx.shape[1] == kMnist.height && idx.shape[2] == kMnist.width && own.height == 32 &&
                        own.width == 32 && own.channels == 1;
    if (!framed) require_shape({idx.shape[1], idx.shape[2], 1});
    if (waits_for_labels_) refuse_data(file_, "images, where the labels of the file before it belong");
    add_images(idx.shape[0], framed ? with_frame(floats_of(numbers)) : floats_of(numbers));
    waits_for_labels_ = info_.classes > 0;
  }

  void read_idx_labels(std::string_view numbers) {
    if (info_.classes > 0 && !waits_for_labels_)
      refuse_data(file_, "is labels without images: give the file of their images before it");
    waits_for_labels_ = false;
    add_labels(labels_of(numbers));
  }

  void read_cifar(std::string_view bytes) {
    require_shape(kCifar);
    std::vector<float> images;
    std::string labels;
    for (; !bytes.empty(); bytes.remove_prefix(kCifarRecord)) {
      labels += bytes[0];
      const std::vector<float> image = floats_of(bytes.substr(1, kCifarRecord - 1));
      images.insert(images.end(), image.begin(), image.end());
    }
    add_images(std::ssize(labels), images);
    if (info_.classes > 0) add_labels(labels_of(labels));
  }

  // MNIST's images in the middle of a network's.
  std::vector<float> with_frame(const std::vector<float>& images) const {
    const ImageShape& own = info_.image;
    const std::int64_t count = std::ssize(images) / kMnist.pixels(), top = (own.height - kMnist.height) / 2,
                       left = (own.width - kMnist.width) / 2;
    std::vector<float> framed(static_cast<std::size_t>(count * own.pixels()), -1);
    for (std::int64_t row = 0; row < count * kMnist.height; ++row)
      std::copy_n(images.begin() + row * kMnist.width, kMnist.width,
                  framed.begin() + row / kMnist.height * own.pixels() + (top + row % kMnist.height) * own.width + left);
    return framed;
  }

  // Of bytes from 0 to 255.
  static std::vector<double> labels_of(std::string_view bytes) {
    const std::span numbers(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    return {numbers.begin(), numbers.end()};
  }
  static std::vector<float> floats_of(std::string_view bytes) {
    std::vector<float> numbers(bytes.size());
    std::ranges::transform(bytes, numbers.begin(),
                           [](char byte) { return static_cast<float>(static_cast<unsigned char>(byte)) / 127.5f - 1; });
    return numbers;
  }

  const NetworkInfo& info_;
  std::string file_;
  TrainingData data_;
  std::int64_t last_count_ = 0;  // images of the last file that has some
  bool waits_for_labels_ = false;
};

}  // namespace

std::string TrainingData::fingerprint() const {
  Fingerprint all;
  for (const std::vector<float>* numbers : {&images, &labels})
    all.add(numbers->data(), numbers->size() * sizeof(float));
  return all.text();
}

TrainingData read_training_data(std::span<const std::string> files, const NetworkInfo& info) {
  Reader reader(info);
  for (const std::string& file : files) reader.read(file);
  return reader.take();
}

}  // namespace noisefloor::pipeline
