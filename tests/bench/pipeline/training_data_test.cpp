// Images to train on: what files of each kind become, and what is refused.
#include "bench/pipeline/training_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "bench/tensors/safetensors.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor::pipeline {
namespace {

NetworkInfo row_of(const ImageShape& image, std::int64_t classes) {
  NetworkInfo row = require_network("digits");
  row.image = image;
  row.classes = classes;
  return row;
}

std::string bytes_of(std::initializer_list<int> numbers) {
  std::string text;
  for (const int number : numbers) text += static_cast<char>(number);
  return text;
}

class TrainingFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  std::string write_tensors(const std::vector<float>& images, std::vector<std::int64_t> shape,
                            const std::vector<float>& labels) const {
    const FileTensor tensors[] = {{"images", "F32", std::move(shape), std::as_bytes(std::span(images))},
                                  {"labels", "F32", {std::ssize(labels)}, std::as_bytes(std::span(labels))}};
    write_safetensors(folder_ / "data", std::span(tensors).first(labels.empty() ? 1 : 2));
    return (folder_ / "data").string();
  }
  std::string refusal(const std::vector<std::string>& files, const NetworkInfo& info = kGrey) const {
    return refusal_of([&] { return read_training_data(files, info); });
  }

  static inline const NetworkInfo kGrey = row_of({2, 2, 1}, 3);
  TemporaryFolder folder_;
  const std::string idx_images_ =
      bytes_of({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 255, 51, 102, 0, 0, 0, 255});
  const std::string idx_labels_ = bytes_of({0, 0, 8, 1, 0, 0, 0, 2, 2, 1});
};

TEST_F(TrainingFiles, TensorsBecomeChannelsLast) {
  const std::vector<float> images{-1, -0.5f, 0, 1, 0.1f, 0.2f, 0.3f, 0.4f};  // one of 2 channels
  const TrainingData data =
      read_training_data(std::vector{write_tensors(images, {1, 2, 2, 2}, {2})}, row_of({2, 2, 2}, 3));
  EXPECT_EQ(data.count, 1);
  EXPECT_EQ(data.images, (std::vector<float>{-1, 0.1f, -0.5f, 0.2f, 0, 0.3f, 1, 0.4f}));
  EXPECT_EQ(data.labels, (std::vector<float>{2}));
}

TEST_F(TrainingFiles, IdxAndItsLabels) {
  const std::vector<std::string> files{write("images", idx_images_), write("labels", idx_labels_)};
  const TrainingData data = read_training_data(files, kGrey);
  EXPECT_EQ(data.count, 2);
  EXPECT_EQ(data.labels, (std::vector<float>{2, 1}));
  EXPECT_EQ(data.images[0], -1);
  EXPECT_EQ(data.images[1], 1);
  EXPECT_NEAR(data.images[2], -0.6, 1e-6);
  // Twice the same pair: one behind the other. Without classes nobody needs labels.
  EXPECT_EQ(read_training_data(std::vector{files[0], files[1], files[0], files[1]}, kGrey).count, 4);
  EXPECT_TRUE(read_training_data(std::vector{files[0]}, row_of({2, 2, 1}, 0)).labels.empty());
}

TEST_F(TrainingFiles, MnistGetsAFrameOfBlack) {
  std::string idx = bytes_of({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28}) + std::string(2 * 28 * 28, '\xff');
  const NetworkInfo info = row_of({32, 32, 1}, 3);
  const TrainingData data = read_training_data(std::vector{write("images", idx), write("labels", idx_labels_)}, info);
  ASSERT_EQ(data.images.size(), 2u * 32 * 32);
  for (std::size_t i = 0; i < data.images.size(); ++i) {
    const std::size_t row = i / 32 % 32, column = i % 32;
    const bool inside = row >= 2 && row < 30 && column >= 2 && column < 30;
    ASSERT_EQ(data.images[i], inside ? 1 : -1) << i;
  }
  expect_parts(refusal({(folder_ / "images").string()}, row_of({32, 32, 3}, 0)), {"images", "28 x 28", "32 x 32"});
}

TEST_F(TrainingFiles, OfUnetcu) {
  std::vector<std::int32_t> header(256);
  header[0] = 20240620, header[1] = 2, header[2] = 3, header[3] = 2, header[4] = 1;
  const std::vector<float> images{0, 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, -1, 1, 0, 0, 0, 0};
  const auto file = [&] {
    std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
    return bytes + std::string(reinterpret_cast<const char*>(images.data()), images.size() * sizeof(float));
  };
  const NetworkInfo info = row_of({2, 1, 3}, 0);
  const TrainingData data = read_training_data(std::vector{write("data.bin", file())}, info);
  EXPECT_EQ(data.count, 2);
  EXPECT_EQ((std::vector<float>(data.images.begin(), data.images.begin() + 8)),
            (std::vector<float>{0, 0.2f, 0.4f, 0.1f, 0.3f, 0.5f, -1, 0}));
  expect_parts(refusal({(folder_ / "data.bin").string()}, row_of({2, 1, 3}, 10)), {"data.bin", "labels"});
  expect_parts(refusal({(folder_ / "data.bin").string()}, row_of({4, 1, 3}, 0)), {"data.bin", "2 x 1", "4 x 1"});
  expect_parts(refusal({write("cut", file().substr(0, 1030))}, info), {"cut", "2 images"});
  expect_parts(refusal({write("header", file().substr(0, 1000))}, info), {"header", "cut off"});
  header[1] = -1;
  expect_parts(refusal({write("negative", file())}, info), {"negative", "-1 images"});
}

TEST_F(TrainingFiles, MayBeGenerated) {
  const NetworkInfo info = row_of({4, 4, 2}, 3);
  const TrainingData data = read_training_data(std::vector<std::string>{kGenerated}, info);
  EXPECT_EQ(std::ssize(data.images), data.count * info.image.elements());
  const auto [least, most] = std::ranges::minmax(data.images);
  EXPECT_TRUE(least >= -1 && least < -0.9f && most <= 1 && most > 0.9f);
  EXPECT_EQ(std::ranges::max(data.labels), 2);
}

// The first picture begins as an IDX file does.
TEST_F(TrainingFiles, Cifar) {
  std::string records(2 * 3073, '\0');
  records[2] = 8;
  records[3] = 3;
  records[1 + 1024] = '\xff';  // green of the first pixel
  records[3073] = 9;
  const TrainingData data = read_training_data(std::vector{write("batch", records)}, row_of({32, 32, 3}, 10));
  EXPECT_EQ(data.count, 2);
  EXPECT_EQ(data.labels, (std::vector<float>{0, 9}));
  EXPECT_EQ((std::vector<float>(data.images.begin(), data.images.begin() + 3)), (std::vector<float>{-1, 1, -1}));
}

TEST_F(TrainingFiles, AreRefusedByName) {
  const std::string images = write("images", idx_images_), labels = write("labels", idx_labels_);
  const auto cut = [&](const std::string& bytes, std::size_t to) { return write("cut", bytes.substr(0, to)); };
  expect_parts(refusal({(folder_ / "nowhere").string()}), {"nowhere"});
  expect_parts(refusal({folder_.path().string()}), {folder_.path().string(), "folder"});
  expect_parts(refusal({images}), {"images", "labels are missing"});
  expect_parts(refusal({labels}), {"labels", "without images"});
  expect_parts(refusal({images, images}), {"images", "labels"});
  expect_parts(refusal({cut(idx_images_, 20), labels}), {"cut", "2, 2, 2", "8 bytes", "has 4"});
  expect_parts(refusal({cut(idx_images_, 10), labels}), {"cut", "header of 16", "has 10"});
  expect_parts(refusal({images, write("one", bytes_of({0, 0, 8, 1, 0, 0, 0, 1, 2, 0}))}), {"one", "1 bytes", "has 2"});
  expect_parts(refusal({write("vast", bytes_of({0, 0, 8, 3}) + std::string(12, '\xff'))}),
               {"vast", "79228162", "has 0"});
  expect_parts(refusal({images, write("one", bytes_of({0, 0, 8, 1, 0, 0, 0, 1, 2}))}), {"one", "1 labels", "2 images"});
  expect_parts(refusal({images, write("high", bytes_of({0, 0, 8, 1, 0, 0, 0, 2, 2, 3}))}), {"high", "3", "0 to 2"});
  expect_parts(refusal({write("floats", bytes_of({0, 0, 13, 1, 0, 0, 0, 0}) + "more")}), {"floats", "13"});
  expect_parts(refusal({images, labels}, row_of({8, 8, 1}, 3)), {"images", "2 x 2", "8 x 8"});
  expect_parts(refusal({write("packed", "\x1f\x8b 12345678")}), {"packed", "gunzip"});
  expect_parts(refusal({write("text", "what a fine day it is")}), {"text", "CIFAR-10"});
  expect_parts(refusal({write_tensors({}, {0, 1, 2, 2}, {})}), {"data", "no images"});
  expect_parts(refusal({write_tensors({0, 0, 0, 0}, {1, 1, 2, 2}, {})}), {"data", "labels"});
  expect_parts(refusal({write_tensors({0, 0, 0, 0}, {1, 2, 2, 1}, {1})}), {"data", "2 x 1"});
  expect_parts(refusal({write_tensors({0, 0, 2, 0}, {1, 1, 2, 2}, {1})}), {"data", "image 0", "2"});
  expect_parts(refusal({write_tensors({0, 0, NAN, 0}, {1, 1, 2, 2}, {1})}), {"data", "finite"});
  expect_parts(refusal({write_tensors({0, 0, 0, 0}, {1, 1, 2, 2}, {1.5})}), {"data", "1.5"});
  expect_parts(refusal({write_tensors({0, 0, 0, 0}, {1, 1, 2, 2}, {-1})}), {"data", "-1"});
}

// Of a network of CIFAR-10's size, what a file lacks to be its.
TEST_F(TrainingFiles, CifarCutOrDamaged) {
  const NetworkInfo info = row_of({32, 32, 3}, 10);
  std::string records(3 * 3073, '\x05');
  expect_parts(refusal({write("cut", records.substr(0, 7000))}, info), {"cut", "3073", "7000"});
  expect_parts(refusal({write("black", std::string(7000, '\0'))}, info), {"black", "3073", "7000"});
  records[2 * 3073] = '\x0a';
  expect_parts(refusal({write("batch", records)}, info), {"batch", "record 2", "label 10", "0 to 9"});
  EXPECT_EQ(refusal({(folder_ / "batch").string()}).find("record 2"), std::string::npos);
}

// Files with a few bytes changed, cut or added are read as data that hold together, or refused.
TEST_F(TrainingFiles, MayComeFromAnywhere) {
  std::mt19937 random(1);
  std::string tensors;
  {
    const std::ifstream file(write_tensors({0, 0, 0, 0, 1, 1, 1, 1}, {2, 1, 2, 2}, {0, 1}), std::ios::binary);
    tensors = (std::ostringstream() << file.rdbuf()).str();
  }
  int read = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string pieces[] = {idx_images_, idx_labels_, tensors};
    std::string& piece = pieces[random() % 3];
    for (std::uint64_t change = random() % 4; change > 0 && !piece.empty(); --change) {
      const std::size_t at = random() % piece.size();
      switch (random() % 3) {
        case 0:
          piece[at] = static_cast<char>(random());
          break;
        case 1:
          piece.resize(at);
          break;
        default:
          piece.insert(at, 1 + random() % 9, static_cast<char>(random()));
      }
    }
    std::vector<std::string> files{write("a", pieces[0]), write("b", pieces[1])};
    if (random() % 2 == 0) files = {write("c", pieces[2])};
    try {
      const TrainingData data = read_training_data(files, kGrey);
      ASSERT_EQ(std::ssize(data.images), 4 * data.count);
      ASSERT_EQ(std::ssize(data.labels), data.count);
      ASSERT_TRUE(std::ranges::all_of(data.images, [](float number) { return number >= -1 && number <= 1; }));
      ASSERT_TRUE(std::ranges::all_of(data.labels, [](float label) { return label == 0 || label == 1 || label == 2; }));
      ++read;
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace noisefloor::pipeline
