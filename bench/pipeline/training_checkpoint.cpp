#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>

#include "bench/pipeline/trainer.h"
#include "bench/tensors/safetensors.h"
#include "kernels/core/listed.h"

namespace noisefloor::pipeline {
namespace {

constexpr const char* kSchemaKey = "noisefloor training checkpoint";
constexpr const char* kSchema = "1";
constexpr std::pair<const char*, std::vector<float> TrainingState::*> kStates[] = {
    {"parameters", &TrainingState::parameters},
    {"m", &TrainingState::m},
    {"v", &TrainingState::v},
    {"ema", &TrainingState::ema}};

// A line a problem; its text has no tab.
std::string plan_text(const PlanEntries& plan) {
  std::string text;
  for (const auto& [id, variant] : plan) text += fmt::format("{}\t{}\t{}\t{}\n", id.op, id.dtype, id.problem, variant);
  return text;
}

// Nothing where a line has not its four parts, or there is none.
std::optional<PlanEntries> plan_of(const std::string& text) {
  PlanEntries plan;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream parts(line);
    std::string op, dtype, problem, variant;
    if (!std::getline(parts, op, '\t') || !std::getline(parts, dtype, '\t') || !std::getline(parts, problem, '\t') ||
        !std::getline(parts, variant))
      return std::nullopt;
    plan[{op, problem, dtype}] = variant;
  }
  if (plan.empty()) return std::nullopt;
  return plan;
}

}  // namespace

void write_training(const std::filesystem::path& file, const StoredTraining& stored, const FileMetadata& identity) {
  FileMetadata metadata = identity;
  metadata[kSchemaKey] = kSchema;
  metadata["step"] = fmt::format("{}", stored.state.step);
  metadata["device"] = stored.device;
  metadata["commit"] = stored.commit;
  metadata["plan"] = plan_text(stored.plan);
  metadata["layout of the states"] = stored.layout;
  metadata["micro-batches"] = stored.micro_batches;
  std::vector<FileTensor> tensors;
  for (const auto& [name, member] : kStates) {
    const std::vector<float>& numbers = stored.state.*member;
    tensors.push_back({name, safetensors_name(DType::fp32), {std::ssize(numbers)}, std::as_bytes(std::span(numbers))});
  }
  write_safetensors(file, tensors, metadata);
}

StoredTraining read_training(const std::filesystem::path& path, const FileMetadata& identity, std::int64_t elements) {
  const SafetensorsFile file(path);
  const auto refuse = [&](const std::string& what) {
    throw InvalidInput(fmt::format("--resume {}: {}", path.string(), what));
  };
  const auto said = [&](const std::string& key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? "" : found->second;
  };
  if (said(kSchemaKey).empty())
    refuse("is no training checkpoint, which --checkpoint writes; weights to begin with are --weights");
  if (said(kSchemaKey) != kSchema)
    refuse(fmt::format("is a training checkpoint of schema {}; this program has {}", said(kSchemaKey), kSchema));
  std::vector<std::string> other;
  for (const auto& [key, value] : identity)
    if (said(key) != value)
      other.push_back(fmt::format("{}: {} there, {} here", key, said(key).empty() ? "nothing" : said(key), value));
  if (!other.empty())
    refuse(fmt::format("is of another training; what was begun is resumed with what it was begun with:\n  {}",
                       first_lines(other, identity.size())));

  const auto plan = plan_of(said("plan"));
  if (!plan) refuse("its plan is damaged: not lines of op, dtype, problem and variant");
  StoredTraining stored{{}, said("device"), said("commit"), *plan, {}};
  if (const std::string of_step = said("micro-batches"); !of_step.empty()) stored.micro_batches = of_step;
  const std::string step = said("step");
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), stored.state.step);
  if (error != std::errc() || end != step.data() + step.size() || stored.state.step < 0)
    refuse(fmt::format("its step is '{}', not a whole number", step));
  for (const auto& [name, member] : kStates) {
    const FileTensor* const tensor = file.find(name);
    if (tensor == nullptr || tensor->dtype != "F32" || tensor->shape != std::vector{elements})
      refuse(fmt::format("its tensor {} is {}, not F32 [{}]", name, tensor == nullptr ? "missing" : tensor->text(),
                         elements));
    std::vector<float>& numbers = stored.state.*member;
    numbers.resize(static_cast<std::size_t>(elements));
    file.read(*tensor, std::as_writable_bytes(std::span(numbers)));
    if (!std::ranges::all_of(numbers, [](float number) { return std::isfinite(number); }))
      refuse(fmt::format("its tensor {} has numbers that are not finite", name));
    if (name == std::string_view("v") && std::ranges::any_of(numbers, [](float number) { return number < 0; }))
      refuse("its tensor v has numbers below 0, where means of squares belong");
  }
  return stored;
}

}  // namespace noisefloor::pipeline
