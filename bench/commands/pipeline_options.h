// Options that the commands share which run networks, and what they mean to the files of a command.
#pragma once

#include <string>
#include <string_view>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/pipeline/breakdown.h"
#include "bench/pipeline/sample_request.h"

namespace noisefloor {

std::string known_networks();                              // "a, b or c", for help
std::string images_in_words(std::int64_t n, bool videos);  // "1 image", "2 videos"

// Adds NETWORK, --weights, --settings, --device, --dtype, --plan and --strict.
void add_network_options(CLI::App& command, pipeline::ModelRequest& model, std::string& device);
// Adds --without. `hoist`: where there is a loop.
void add_without_option(CLI::App& command, pipeline::ModelRequest& model, bool* hoist);
// Adds --size. `otherwise`: what holds where a size is not given, for help. `of_pictures`: height and width are those
// of what is drawn. `without`: a size that cannot be chosen.
void add_size_option(CLI::App& command, networks::Sizes& sizes, const char* otherwise = "the network's own",
                     bool of_pictures = false, std::string_view without = {});
// Network options, and those that say what is drawn, but for sizes and the number of steps.
void add_drawing_options(CLI::App& command, pipeline::SampleArguments& arguments, std::string& device);

// Weights and plan, so that no output is written over them; of a request also its decoder's, and its conditioning.
void add_inputs(OutputFiles& files, const pipeline::ModelRequest& model);
void add_inputs(OutputFiles& files, const pipeline::SampleRequest& request);

// Before a request is drawn, on stderr: with --settings list its settings, and what to know of it.
void say_settings(const pipeline::SampleRequest& request);

struct BreakdownArguments {
  bool table = false;
  std::string csv, rows, trace;

  bool wanted() const { return table || !csv.empty() || !rows.empty() || !trace.empty(); }
};
// Adds --breakdown and --trace.
void add_breakdown_options(CLI::App& command, BreakdownArguments& arguments);
// Adds the files to `files`, and says what would keep a breakdown from being made, before anything is loaded or
// measured. Throws InvalidInput; also where a GPU is to be traced and there is no CUPTI.
void check_breakdown(const BreakdownArguments& arguments, const std::string& plan, const std::string& device,
                     OutputFiles& files);
// Measures, writes the files (which `files` puts in place) and prints the tables. Throws what measure_breakdown does.
void break_down(const BreakdownArguments& arguments, Platform& platform, pipeline::Executor& executor,
                const std::string& plan, const Launch& enqueue, const std::string& what, OutputFiles& files,
                const pipeline::Meeting& meet = {});

}  // namespace noisefloor
