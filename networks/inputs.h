// What goes into a network: latents and labels as it takes them, and numbers for timing and verification.
#pragma once

#include <span>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

// For builders: `x` as a predictor of noise takes it. With guidance twice, and for a sampler, whose latents are x0 +
// sigma noise, brought to unit variance by the input sigma, which the network then takes.
ValueId input_of_noise_predictor(const BuildOptions& options, Network& network, ValueId x);

// For builders: `c_noise`, which edm_precondition made of a call's sigma, or with levels ahead that of all calls.
ValueId c_noise_to_embed(Network& network, ValueId c_noise);

// Images, text and conditioning are drawn; all else is a function of its place in the batch (fill_for_timing).
bool drawn(NetworkTensor::Kind kind);

// Noise levels spread over the range that a network is asked at, and a label or token for each place. In `dtype`.
void fill_for_timing(const NetworkTensor& input, DType dtype, void* data);

// One label an image, as the network's labels hold them: a guided network gets them behind a half without, one with
// levels ahead again for each. Throws InvalidInput on one out of range.
std::vector<char> one_hot(const Network& network, std::span<const int> labels);

}  // namespace noisefloor::networks
