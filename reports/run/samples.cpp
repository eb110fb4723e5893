// samples.jsonl: a line a row, plain or packed.
#include <fmt/format.h>
#include <zlib.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "reports/run/json_file.h"
#include "reports/run/run_files.h"

namespace noisefloor {
namespace {

using SampleJson = nlohmann::ordered_json;

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr int kGzip = 16;  // zlib's: added to the bits of the window, it takes gzip alone

struct Inflater {
  z_stream stream{};
  bool ready = inflateInit2(&stream, MAX_WBITS + kGzip) == Z_OK;

  Inflater() = default;
  ~Inflater() {
    if (ready) inflateEnd(&stream);
  }
  Inflater(const Inflater&) = delete;
};

std::string unpack(const fs::path& file, std::string packed, std::size_t most_bytes) {
  const auto refuse = [&](const std::string& why) { throw failure("{}: {}", file.string(), why); };
  Inflater inflater;
  if (!inflater.ready) refuse("cannot be unpacked: zlib cannot be set up");
  z_stream& stream = inflater.stream;
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());  // read_whole_file's bound is far below it
  std::string text;
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    const std::size_t done = text.size();
    text.resize(done + kChunkBytes);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + done);
    stream.avail_out = kChunkBytes;
    result = inflate(&stream, Z_NO_FLUSH);
    text.resize(text.size() - stream.avail_out);
    if (text.size() > most_bytes)
      refuse(fmt::format("is more than {} bytes unpacked, and at most so many are read", most_bytes));
    if (result == Z_BUF_ERROR || (result == Z_OK && stream.avail_in == 0 && stream.avail_out > 0))
      refuse("is cut off: copy it whole");
    if (result != Z_OK && result != Z_STREAM_END)
      refuse(fmt::format("is not whole gzip data ({})", stream.msg != nullptr ? stream.msg : "no reason given"));
  }
  if (stream.avail_in > 0) refuse(fmt::format("has {} bytes behind its gzip data", stream.avail_in));
  return text;
}

// Every list of a line, in the order in which they are written.
template <class Samples, class Visit>
void visit_lists(Samples& samples, const Visit& visit) {
  visit("cold_us", samples.cold_us);
  visit("warm_us", samples.warm_us);
  visit("cold_batches", samples.cold_batches);
  visit("cold_mhz", samples.cold_mhz);
  visit("warm_batches", samples.warm_batches);
  visit("warm_mhz", samples.warm_mhz);
  visit("warm_edge_us", samples.warm_edge_us);
  visit("warm_serial_us", samples.warm_serial_us);
  visit("warm_serial_batches", samples.warm_serial_batches);
  visit("warm_serial_mhz", samples.warm_serial_mhz);
  visit("warm_serial_edge_us", samples.warm_serial_edge_us);
  visit("weights_cold_us", samples.weights_cold_us);
  visit("weights_cold_batches", samples.weights_cold_batches);
  visit("weights_cold_mhz", samples.weights_cold_mhz);
  visit("kernels", samples.kernels);
  visit("kernel_counts", samples.kernel_counts);
  visit("launches", samples.launches);
  visit("launch_counts", samples.launch_counts);
}

SampleJson parse_line(std::string_view line) {
  if (line.size() > kMostJsonBytes) throw failure("has {} bytes, and at most {} are read", line.size(), kMostJsonBytes);
  try {
    SampleJson json = SampleJson::parse(line, [](int depth, SampleJson::parse_event_t, SampleJson&) {
      if (depth > kDeepestJson) throw failure("is nested deeper than {} levels", kDeepestJson);
      return true;
    });
    if (!json.is_object()) throw std::runtime_error("is not a JSON object");
    return json;
  } catch (const SampleJson::parse_error& error) {
    throw failure("not JSON at column {}", error.byte);
  } catch (const SampleJson::exception&) {
    throw std::runtime_error("not JSON: it has a number out of range");
  }
}

[[noreturn]] void refuse_field(const std::string& field, const std::string& what) {
  throw failure("field '{}' {}", field, what);
}

// A value's kind, or a number as it is written.
std::string said(const SampleJson& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  return value.is_string() ? "a text" : value.dump();
}

// Each is false where the value is none of its kind.
bool take_value(const SampleJson& value, double& time) {
  time = value.is_number() ? value.get<double>() : 0;
  return time > 0;
}
bool take_value(const SampleJson& value, std::size_t& count) {
  constexpr double kMost = 1e9;
  const double number = value.is_number() ? value.get<double>() : 0;
  const bool whole = number >= 1 && number <= kMost && number == std::floor(number);
  count = whole ? static_cast<std::size_t>(number) : 0;
  return whole;
}
bool take_value(const SampleJson& value, std::string& name) {
  name = value.is_string() ? value.get<std::string>() : "";
  return value.is_string();
}

template <class Value>
void read_list(const std::string& field, const SampleJson& list, std::vector<Value>& values) {
  constexpr bool kIsTime = std::is_same_v<Value, double>;
  const bool is_clock = field.ends_with("_mhz");
  const char* const wanted = std::is_same_v<Value, std::string> ? "name"
                             : !kIsTime                         ? "whole number from 1 to 1e9"
                             : is_clock                         ? "clock above 0"
                                                                : "time above 0";
  if (!list.is_array()) refuse_field(field, "is " + said(list));
  values.reserve(list.size());
  for (const SampleJson& value : list) {
    Value& taken = values.emplace_back();
    if constexpr (kIsTime)
      if (is_clock && value.is_null()) {
        taken = std::numeric_limits<double>::quiet_NaN();
        continue;
      }
    if (!take_value(value, taken)) refuse_field(field, fmt::format("holds {}, not a {}", said(value), wanted));
  }
}

void require_batches(const char* phase, const std::vector<double>& us, const std::vector<std::size_t>& batches,
                     const std::vector<double>& mhz) {
  const std::size_t sum = std::accumulate(batches.begin(), batches.end(), std::size_t{0});
  if (!batches.empty() && sum != us.size())
    throw failure("field '{0}_batches' adds up to {1}, but '{0}_us' has {2}", phase, sum, us.size());
  if (!mhz.empty() && mhz.size() != batches.size())
    throw failure("field '{}_mhz' has {} clocks for {} batches", phase, mhz.size(), batches.size());
}

}  // namespace

fs::path samples_file(const fs::path& folder) {
  const auto plain = folder / kSamplesFile, packed = folder / kPackedSamplesFile;
  std::error_code error;  // where a folder cannot be searched, who reads the file says so
  const auto is_there = [&](const auto& file) { return fs::exists(fs::symlink_status(file, error)); };
  if (!is_there(packed)) return plain;
  if (is_there(plain))
    throw failure("{}: has {} and {}: remove the one that sweep.csv is not of", folder.string(), kSamplesFile,
                  kPackedSamplesFile);
  return packed;
}

std::string read_samples_text(const fs::path& file, std::size_t most_bytes) {
  std::string text = read_whole_file(file, most_bytes);
  if (file.filename() != kPackedSamplesFile) return text;
  return unpack(file, std::move(text), most_bytes);
}

std::string samples_line(const CaseId& id, const RowSamples& samples) {
  SampleJson line = {{"op", id.op}, {"dtype", id.dtype}, {"problem", id.problem}, {"variant", id.variant}};
  constexpr std::size_t kAlways = 7;  // these, and the first three lists
  visit_lists(samples, [&](const char* name, const auto& list) {
    if (list.empty() && line.size() >= kAlways) return;
    auto& values = line[name] = list;  // NaN is written as null
    for (auto& value : values)
      if (value.is_number_float())
        value = std::round(value.template get<double>() * 1e3) / 1e3;  // finer than any event
  });
  return line.dump();
}

SamplesLine parse_samples_line(std::string_view line) {
  const SampleJson json = parse_line(line);
  SamplesLine read;
  for (const auto& [name, part] : kCaseParts) {
    const SampleJson value = json.value(name, SampleJson(""));
    if (!take_value(value, read.id.*part)) refuse_field(name, fmt::format("is {}, not a text", said(value)));
    if ((read.id.*part).empty()) refuse_field(name, "is missing or empty");
  }
  RowSamples& samples = read.samples;
  visit_lists(samples, [&](const char* name, auto& list) {
    if (json.contains(name)) read_list(name, json[name], list);
  });
  require_batches("cold", samples.cold_us, samples.cold_batches, samples.cold_mhz);
  require_batches("warm", samples.warm_us, samples.warm_batches, samples.warm_mhz);
  require_batches("warm_serial", samples.warm_serial_us, samples.warm_serial_batches, samples.warm_serial_mhz);
  require_batches("weights_cold", samples.weights_cold_us, samples.weights_cold_batches, samples.weights_cold_mhz);
  if (samples.kernels.size() != samples.kernel_counts.size())
    throw failure("field 'kernel_counts' has {} numbers for {} kernels", samples.kernel_counts.size(),
                  samples.kernels.size());
  if (samples.launches.size() != samples.launch_counts.size())
    throw failure("field 'launch_counts' has {} numbers for {} launches", samples.launch_counts.size(),
                  samples.launches.size());
  return read;
}

}  // namespace noisefloor
