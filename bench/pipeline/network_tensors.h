// Tensors of the files that networks read and write: images are channels-first there, as PyTorch has them, and
// channels-last in the network; numbers are looked at before they are used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tensors/safetensors.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

using namespace networks;

// [..., a, b] to [..., b, a].
template <class Number>
std::vector<Number> transposed(const std::vector<Number>& numbers, std::int64_t a, std::int64_t b) {
  std::vector<Number> result(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i), image = at / (a * b), row = at / b % a, column = at % b;
    result[static_cast<std::size_t>((image * b + column) * a + row)] = numbers[i];
  }
  return result;
}
template <class Number>
std::vector<Number> to_channels_first(const std::vector<Number>& images, const ImageShape& image) {
  return transposed(images, image.pixels(), image.channels);
}
template <class Number>
std::vector<Number> to_channels_last(const std::vector<Number>& images, const ImageShape& image) {
  return transposed(images, image.channels, image.pixels());
}
// Of [n, height, width, channels] or [n, frames, height, width, channels].
std::vector<std::int64_t> channels_first_shape(std::vector<std::int64_t> channels_last);

// Throws InvalidInput with file and tensor: a dtype that is no number's, another shape, numbers that are not finite or
// that fp32 cannot hold.
std::vector<double> numbers_of(const SafetensorsFile& file, const FileTensor& tensor, const std::string& path,
                               const std::vector<std::int64_t>& shape);

// What a network draws, in pixels, unless other sides are asked for: multiples of `side` (0: no others).
struct PictureSides {
  std::int64_t height, width, side;
};
PictureSides picture_sides(const NetworkInfo& info);

// Height and width of pictures, as those of the latents that a decoder makes them of; other networks' are their
// pictures'. Throws InvalidInput on pictures that the network does not draw.
Sizes latents_of_pictures(const NetworkInfo& info, Sizes pictures);

// The sizes of a call on a user's tensors: those asked for, and where none is (0), those of the tensors: images [n,
// channels, height, width], of videos [n, frames, channels, height, width] (or one for all frames), and text [n,
// tokens]. What `tensor_of` an input's name has not, or has with another number of dimensions, is for the caller to
// complain of. Throws InvalidInput, with file and tensor, where the two contradict each other (`of_pictures`: in pixels
// of what is drawn), or the network does not take such sizes.
using TensorOf = std::function<const FileTensor*(std::string_view input)>;
Sizes sizes_of_inputs(const NetworkInfo& info, const Sizes& asked, const TensorOf& tensor_of, const std::string& path,
                      bool of_pictures = false);

// Throws InvalidInput that names a tensor of the file which is none of `known`.
void require_known(const SafetensorsFile& file, const std::string& path, const NetworkInfo& info,
                   const std::vector<std::string>& known);
// How many images a file has for a call: the rows of x. Throws InvalidInput where it has no such tensor.
std::int64_t images_in(const SafetensorsFile& file, const std::string& path, const NetworkInfo& info);
// All inputs of a network, in the layout and dtype that they are uploaded in. Throws InvalidInput that names file and
// tensor: one that is missing, that the network does not take, of another shape, or with a number that it cannot be
// asked.
std::vector<std::vector<char>> inputs_in(const SafetensorsFile& file, const std::string& path, const Network& network);

// Images [n, height, width, channels] as a file has them. A video has frames also where there is one.
struct ImageTensor {
  const char* name;
  ImageShape shape;
  const std::vector<float>& numbers;
  bool video;
};
void write_image_tensors(const std::filesystem::path& file, const std::string& network,
                         std::span<const ImageTensor> images, std::span<const std::int64_t> labels = {});

}  // namespace noisefloor::pipeline
