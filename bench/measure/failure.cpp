#include "bench/measure/failure.h"

#include <new>

#include "bench/measure/implementation.h"

namespace noisefloor {

Failure current_failure() {
  try {
    throw;
  } catch (const LibraryMissing& error) {
    return {Outcome::not_built, error.what()};
  } catch (const LibraryRefused& error) {
    return {Outcome::unsupported_problem, error.what()};
  } catch (const OutOfMemory& error) {
    return {Outcome::out_of_memory, error.what()};
  } catch (const std::bad_alloc&) {
    return {Outcome::out_of_memory, "host memory ran out while verifying or timing"};
  } catch (const Throttled& error) {
    return {Outcome::throttled, error.what()};
  } catch (const DeviceError& error) {
    return {Outcome::cuda_error, error.what(), error.lost()};
  } catch (const std::exception& error) {
    return {Outcome::cuda_error, error.what()};
  }
}

}  // namespace noisefloor
