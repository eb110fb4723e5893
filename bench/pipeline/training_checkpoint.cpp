// Training checkpoints: what they hold, and what may differ where one is resumed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <sstream>

#include "bench/pipeline/trainer.h"
#include "bench/platform/build_info.h"
#include "bench/platform/fingerprint.h"
#include "bench/platform/refusal.h"
#include "bench/tensors/safetensors.h"
#include "kernels/core/listed.h"

namespace noisefloor::pipeline {
namespace {

constexpr const char* kSchemaKey = "noisefloor training checkpoint";
constexpr const char* kSchema = "2";
constexpr const char* kDigestKey = "digest";
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
    std::istringstream text_of_line(line);
    std::array<std::string, 4> parts;
    for (std::string& part : parts)
      if (!std::getline(text_of_line, part, '\t')) return std::nullopt;
    plan[{parts[0], parts[2], parts[1]}] = parts[3];
  }
  if (plan.empty()) return std::nullopt;
  return plan;
}

// Without the number of a host's threads, which changes no bit.
std::string_view without_threads(std::string_view device) {
  return device.ends_with(" core)") || device.ends_with(" cores)") ? device.substr(0, device.rfind(" (")) : device;
}

}  // namespace

// Tells a damaged file: of all that the header says, and of the states, eight bytes at a time.
std::string digest_of(const FileMetadata& metadata, const TrainingState& state) {
  Fingerprint header;
  for (const auto& [key, value] : metadata)
    if (key != kDigestKey) header.add(key).add(0).add(value).add(0);
  std::uint64_t digest = header.value();
  for (const auto& [name, member] : kStates) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(state.*member));
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
      digest = (digest ^ word) * 0x100000001b3;  // as FNV-1a
    }
  }
  return fmt::format("{:016x}", digest);
}

void write_training(const std::filesystem::path& file, const StoredTraining& stored, const FileMetadata& identity) {
  FileMetadata metadata = identity;
  metadata[kSchemaKey] = kSchema;
  metadata["step"] = fmt::format("{}", stored.state.step);
  metadata["device"] = stored.device;
  metadata["commit"] = stored.commit;
  metadata["plan"] = plan_text(stored.plan);
  metadata["layout of the states"] = stored.layout;
  metadata["micro-batches"] = stored.micro_batches;
  metadata[kDigestKey] = digest_of(metadata, stored.state);
  std::vector<FileTensor> tensors;
  for (const auto& [name, member] : kStates) {
    const std::vector<float>& numbers = stored.state.*member;
    tensors.push_back({name, safetensors_name(DType::fp32), {std::ssize(numbers)}, std::as_bytes(std::span(numbers))});
  }
  write_safetensors(file, tensors, metadata);
}

StoredTraining read_training(const std::filesystem::path& path, const FileMetadata& identity, std::int64_t elements) {
  const SafetensorsFile file(path);
  const auto refuse = [&](const std::string& what) { throw refusal("--resume {}: {}", path.string(), what); };
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
  if (said(kDigestKey) != digest_of(file.metadata(), stored.state))
    refuse("is damaged: its header and numbers are not what was written");
  return stored;
}

// ---- Of a trainer.

// What keeps a training that goes on from the numbers of one that was not interrupted.
void Trainer::doubt(const Suite& nodes, const std::vector<CountedProblem>& problems, StoredTraining& stored) {
  const std::string &device = platform_.description().name, &commit = build_info().commit;
  std::vector<std::string> reasons;
  if (without_threads(stored.device) != without_threads(device)) {
    reasons.push_back(fmt::format("was written on {}, this is {}", stored.device, device));
    stored.plan.clear();
  }
  if (stored.micro_batches != micro_batches())
    reasons.push_back(fmt::format("adds {} micro-batches a step, this {}", stored.micro_batches, micro_batches()));
  if (stored.commit != commit) reasons.push_back(fmt::format("was written by {}, this is {}", stored.commit, commit));
  for (const CountedProblem& problem : problems) {
    const auto choice = stored.plan.find(problem_id(problem));
    if (choice == stored.plan.end()) continue;
    const auto& [id, variant] = *choice;
    const std::string why = why_not_launched(platform_, nodes, problem, variant);
    if (!why.empty())
      reasons.push_back(fmt::format("has {} of {}, but {}", variant, id.op, why));
    else if (nodes.find(id.op)->find(variant)->is(Kind::baseline))
      reasons.push_back(fmt::format("has {} of {}, whose algorithm is chosen anew", variant, id.op));
    if (!why.empty()) stored.plan.erase(choice);
  }
  if (reasons.empty()) return;
  std::ranges::sort(reasons);
  reasons.erase(std::ranges::unique(reasons).begin(), reasons.end());
  note_ = fmt::format("{}: from here on numbers may be rounded otherwise: it {}", request_.resume,
                      fmt::join(reasons, "; it "));
}

// A line a parameter, for whoever reads a checkpoint: its name, where it begins in each state, and its shape there.
std::string Trainer::layout_text() const {
  std::string text;
  for (const auto* ids : {&training().slices, &training().factors})
    for (const ValueId id : *ids) {
      const Value& slice = training().network.graph[id];
      text += fmt::format("{}\t{}\t{}\n", slice.source->name, slice.part->first, fmt::join(slice.shape, ","));
    }
  return text;
}

// What tells one training from another: all that its numbers depend on, but for device and variants.
FileMetadata Trainer::identity(const TrainingData& data) const {
  FileMetadata all{{"network", request_.network}, {"--dtype", to_string(dtype_)}, {"--data", data.fingerprint()}};
  for (const RecipeField& field : recipe_fields()) all[field.option()] = field.text(recipe());
  all["layout of the parameters"] = Fingerprint().add(layout_text()).text();
  return all;
}

std::string Trainer::micro_batches() const {
  return fmt::format("{}", std::ssize(ranks_) * request_.accumulate);
}

StoredTraining Trainer::stored() const {
  StoredTraining all{{taken_, state(training().parameters), state(training().m), state(training().v), {}},
                     platform_.description().name,
                     build_info().commit,
                     {},
                     layout_text(),
                     micro_batches()};
  all.state.ema = training().ema ? state(*training().ema) : all.state.parameters;
  const auto& nodes = training().network.graph.nodes();
  for (std::size_t node = 0; node < nodes.size(); ++node)
    all.plan[problem_id(nodes[node])] = ranks_.front().executor->implementation(node).name;
  return all;
}

void Trainer::write_checkpoint(const std::filesystem::path& file) {
  StoredTraining all = stored();
  write_training(file, all, identity_);
  kept_ = std::move(all.state);
}

}  // namespace noisefloor::pipeline
