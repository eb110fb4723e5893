// Variants made wrong on purpose: a right one whose output is then spoilt in one place. They exist in tests only, to
// show that verification catches each kind of wrong.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "bench/measure/fixture.h"
#include "tests/support/host_platforms.h"

namespace noisefloor {

enum class Tampering {
  one_element_off,
  last_element_off,
  one_nan,
  one_not_written,
  past_the_end,
  before_the_start,
  input_changed
};

// The last changes the fixture for good.
inline constexpr std::pair<Tampering, const char*> kAllTamperings[] = {
    {Tampering::one_element_off, "one element off"},
    {Tampering::last_element_off, "the last element off"},
    {Tampering::one_nan, "one NaN"},
    {Tampering::one_not_written, "one element not written"},
    {Tampering::past_the_end, "a write one element past the end"},
    {Tampering::before_the_start, "a write one element before the start"},
    {Tampering::input_changed, "an input changed"}};

inline double root_mean_square(Platform& platform, const TensorSpec& spec, const void* data) {
  std::vector<char> bytes(spec.bytes());
  platform.download(bytes.data(), data, bytes.size());
  double squares = 0;
  for (std::int64_t i = 0; i < spec.elements(); ++i) {
    const double value = load_element(spec.dtype, bytes.data(), i);
    squares += value * value;
  }
  return std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(1, spec.elements())));
}

// `right` with one output spoilt after each launch: the first, or the last for those that are about ends, so that ops
// with several outputs have all of them shown to be checked. `fixture` must outlive it.
inline AnyVariant wrong_variant(const AnyVariant& right, Tampering tampering, const Fixture& fixture) {
  return launched_by(right, [=, &fixture](const auto& own, auto pointers, const auto&) {
    const Status status = own(pointers);
    if (!status.ok()) return status;
    Platform& platform = fixture.platform();
    platform.synchronize();
    std::size_t output = 0, input = 0;
    for (std::size_t i = fixture.specs().size(); i-- > 0;) (fixture.specs()[i].role == Role::in ? input : output) = i;
    if (tampering == Tampering::last_element_off || tampering == Tampering::past_the_end ||
        tampering == Tampering::one_not_written)
      for (std::size_t i = 0; i < fixture.specs().size(); ++i)
        if (fixture.specs()[i].role != Role::in) output = i;
    const TensorSpec& spec = fixture.specs()[output];
    const auto size = static_cast<std::int64_t>(size_of(spec.dtype));
    char* const data = static_cast<char*>(pointers[output]);

    std::int64_t place = spec.elements() / 3;
    if (tampering == Tampering::last_element_off) place = spec.elements() - 1;
    if (tampering == Tampering::past_the_end) place = spec.elements();
    if (tampering == Tampering::before_the_start) place = -1;
    std::array<char, 8> element{};
    if (tampering == Tampering::input_changed) {
      platform.download(element.data(), pointers[input], 2);
      element[0] = static_cast<char>(element[0] ^ 1);
      platform.upload(pointers[input], element.data(), 2);
      return success();
    }
    platform.download(element.data(), data + place * size, static_cast<std::size_t>(size));
    const double value = load_element(spec.dtype, element.data(), 0);
    const double allowed = fixture.workload().tolerance(fixture.problem(), fixture.dtype()).max_error;
    double spoilt = value + 6 * allowed * (std::abs(value) + root_mean_square(platform, spec, data) + 1);
    if (tampering == Tampering::past_the_end || tampering == Tampering::before_the_start) spoilt = 1;
    if (tampering == Tampering::one_nan) spoilt = std::numeric_limits<double>::quiet_NaN();
    store_element(spec.dtype, element.data(), 0, spoilt);
    if (tampering == Tampering::one_not_written) element.fill(static_cast<char>(0xFF));
    platform.upload(data + place * size, element.data(), static_cast<std::size_t>(size));
    return success();
  });
}

}  // namespace noisefloor
