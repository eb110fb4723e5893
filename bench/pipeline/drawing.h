// Pictures as a request wants them shown: how, before they are drawn, and made of what was.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "bench/pipeline/pictures.h"
#include "bench/pipeline/sample_request.h"

namespace noisefloor::pipeline {

// What calls that are not whole gain and cost, of one batch.
struct ShallowCost {
  double seconds, seconds_all_whole;
  double off;  // relative L2 error of x0
};

// What was drawn, channels-last.
struct Images {
  std::vector<float> images, noise, latents;  // latents: of which a decoder made the images
  // By step, -1 for the noise itself: the latents of every image (for a strip alone: of the first batch), as far from
  // black and white at every noise level as a picture is.
  std::map<int, std::vector<float>> frames;
  double seconds = 0;                            // that all of it took
  std::optional<ShallowCost> shallow_cost = {};  // beside them
};

struct Drawing {
  // Pictures will be each of that shape. Throws InvalidInput where the network lacks a label's class, guidance is asked
  // of one without classes and text, or a picture would be larger than its format.
  Drawing(const SampleRequest& request, const Network& network, const ImageShape& picture);

  ImageShape latents, picture;
  std::vector<int> labels;  // one an image
  std::int64_t columns = 1, zoom = 1;

  // One grid of all images; of videos one for each of their frames.
  std::vector<Picture> grids(const Images& images) const;
  // A row an image, a column a frame.
  Picture strip(const Images& images, std::int64_t rows) const;
  // All images at each of the frames.
  std::vector<Picture> way(const Images& images) const;
};

}  // namespace noisefloor::pipeline
