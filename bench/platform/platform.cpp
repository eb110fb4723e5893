#include "bench/platform/platform.h"

#include <fmt/format.h>

namespace noisefloor {

LaunchContext Platform::context() const {
  LaunchContext context;
  context.stream = stream_;
  context.device = &description_.info;
  return context;
}

double Platform::element(DType dtype, const void* data, std::int64_t index) {
  char bytes[sizeof(double)];
  download(bytes, static_cast<const char*>(data) + static_cast<std::size_t>(index) * size_of(dtype), size_of(dtype));
  return load_element(dtype, bytes, 0);
}

void throw_if_failed(const Status& status) {
  switch (status.code) {
    case StatusCode::ok:
      return;
    case StatusCode::out_of_memory:
      throw OutOfMemory(status.what);
    case StatusCode::cuda_error:
      throw DeviceError(status.cuda_error == 0  // a library's, which has its words in `what`
                            ? status.what
                            : fmt::format("{}: {}", status.what, cuda_error_text(status.cuda_error)),
                        false);
    default:
      throw std::runtime_error(fmt::format("{}: {}", to_string(status.code), status.what));
  }
}

}  // namespace noisefloor
