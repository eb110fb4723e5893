// env.json of a run folder, read as it is parsed: a tree of a hostile file would take many times its size.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>

#include "reports/run/json_file.h"
#include "reports/run/run_files.h"

namespace noisefloor {
namespace {

constexpr std::size_t kMaxArguments = 1024;  // of one command line

class EnvironmentReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  RunEnvironment environment;

  bool key(string_t& name) override {
    if (depth_ == 1) field_ = std::move(name);
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ > 0) refuse_if_known();
    return deeper();
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    constexpr int kLineDepth = 2;
    if (depth_ == 0 || !is_command_lines() || depth_ > kLineDepth) refuse_if_known();
    if (is_command_lines() && depth_ == 1) environment.command_lines.clear();
    if (is_command_lines() && depth_ == kLineDepth) {
      if (environment.command_lines.size() == kMaxCommandLines)
        throw std::runtime_error(fmt::format("field 'command_lines' has over {} lines", kMaxCommandLines));
      environment.command_lines.emplace_back();
    }
    return deeper();
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool string(string_t& text) override {
    constexpr int kArgumentDepth = 3;
    if (std::string* const member = depth_ == 1 ? text_field() : nullptr) {
      *member = std::move(text);
      seen_device_ = seen_device_ || field_ == "device";
      seen_commit_ = seen_commit_ || field_ == "commit";
    } else if (is_command_lines() && depth_ == kArgumentDepth) {
      auto& line = environment.command_lines.back();
      if (line.size() == kMaxArguments)
        throw std::runtime_error(fmt::format("field 'command_lines' has over {} texts in a line", kMaxArguments));
      line.push_back(std::move(text));
    } else {
      refuse_if_known();
    }
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (number_field() != nullptr) return take_number(static_cast<double>(value));
    if (depth_ != 1 || field_ != "schema" || value == 0) return other();
    if (value > static_cast<number_unsigned_t>(kRunSchema))
      throw std::runtime_error(
          fmt::format("schema {} is newer than this program, which knows 1 to {}", value, kRunSchema));
    environment.schema = static_cast<int>(value);
    return true;
  }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_float(number_float_t value, const string_t&) override {
    return number_field() != nullptr ? take_number(value) : other();
  }
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool parse_error(std::size_t place, const std::string&, const nlohmann::json::exception&) override {
    error_place = place;
    return false;
  }

  void require_all() const {
    if (!seen_device_) throw std::runtime_error("field 'device' is missing");
    if (!seen_commit_) throw std::runtime_error("field 'commit' is missing");
  }
  std::size_t error_place = 0;

 private:
  bool deeper() {
    if (++depth_ > kDeepestJson) throw std::runtime_error(fmt::format("is nested deeper than {} levels", kDeepestJson));
    return true;
  }
  bool is_command_lines() const { return field_ == "command_lines"; }
  std::optional<double>* number_field() {
    if (depth_ != 1) return nullptr;
    if (field_ == "power_limit_w") return &environment.power_limit_w;
    return field_ == "l2_bytes" ? &environment.l2_bytes : nullptr;
  }
  bool take_number(double value) {
    if (value < 0) refuse_if_known();
    *number_field() = value;
    return true;
  }
  bool other() {
    refuse_if_known();
    return true;
  }
  void refuse_if_known() {
    if (depth_ == 0) throw std::runtime_error("is not a JSON object");
    if (is_command_lines()) throw std::runtime_error("field 'command_lines' is not a list of lists of texts");
    if (depth_ != 1) return;
    if (number_field() != nullptr) throw std::runtime_error(fmt::format("field '{}' is not a number from 0", field_));
    if (field_ == "schema") throw std::runtime_error("field 'schema' is not a whole number from 1");
    if (text_field() != nullptr) throw std::runtime_error(fmt::format("field '{}' is not a text", field_));
  }
  std::string* text_field() {
    const std::pair<const char*, std::string*> fields[] = {
        {"device", &environment.device},
        {"commit", &environment.commit},
        {"driver", &environment.driver},
        {"cuda_toolkit", &environment.cuda_toolkit},
        {"cuda_architectures", &environment.cuda_architectures},
        {"compiler", &environment.compiler},
        {"host_arch", &environment.host_arch},
        {"build_type", &environment.build_type},
        {"version", &environment.version},
        {"host", &environment.host},
        {"time_utc", &environment.time_utc},
        {"cublaslt", &environment.cublaslt},
        {"cudnn", &environment.cudnn},
        {"cupti", &environment.cupti},
        {"pytorch", &environment.pytorch},
        {"ecc", &environment.ecc},
        {"mig", &environment.mig},
        {"cpu_governor", &environment.cpu_governor},
    };
    for (const auto& [name, value] : fields)
      if (field_ == name) return value;
    return nullptr;
  }

  int depth_ = 0;
  std::string field_;
  bool seen_device_ = false, seen_commit_ = false;
};

}  // namespace

bool same_code(const std::string& commit, const std::string& other) {
  return commit == other && commit != "unknown";
}

std::optional<double> parse_time(const std::string& text) {
  static const std::regex form(
      R"((\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)(?:[Zz]|([+-])(\d\d):?(\d\d)))");
  std::smatch parts;
  constexpr std::size_t kLongest = 64;
  if (text.size() > kLongest || !std::regex_match(text, parts, form)) return std::nullopt;
  const auto number = [&](std::size_t part) { return parts[part].matched ? std::stoi(parts[part]) : 0; };
  const std::chrono::year_month_day day(std::chrono::year(number(1)), std::chrono::month(unsigned(number(2))),
                                        std::chrono::day(unsigned(number(3))));
  const double seconds = std::stod(parts[6]);
  constexpr int kHours = 24, kMinutes = 60;
  if (!day.ok() || number(4) >= kHours || number(5) >= kMinutes || seconds >= kMinutes + 1 || number(8) >= kHours ||
      number(9) >= kMinutes)
    return std::nullopt;
  const int ahead = (parts[7] == "-" ? -1 : 1) * (kMinutes * number(8) + number(9));
  const double minutes =
      kMinutes * (kHours * double(std::chrono::sys_days(day).time_since_epoch().count()) + number(4));
  return 60 * (minutes + number(5) - ahead) + seconds;
}

RunEnvironment read_environment(const std::filesystem::path& file) {
  const std::string text = read_whole_file(file, kMostJsonBytes);
  const auto refuse = [&](const std::string& what) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), what));
  };
  EnvironmentReader reader;
  try {
    if (nlohmann::json::sax_parse(text, &reader)) {
      reader.require_all();
      return std::move(reader.environment);
    }
  } catch (const std::runtime_error& error) {
    refuse(error.what());
  } catch (const nlohmann::json::exception& error) {
    refuse(error.what());
  }
  const auto place = std::min(reader.error_place, text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place), '\n');
  throw std::runtime_error(fmt::format("{}:{}: not JSON, or cut off there", file.string(), line));
}

}  // namespace noisefloor
