// The options of each command, and what they set.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "commands.h"

namespace epweave::cli {

inline constexpr const char* kChakra = "chakra";  // a form that convert writes

// Everything that an option can set.
struct Choices {
  ConsoleOptions console;
  InputOptions input;
  OutputOptions output;
  RewriteOptions rewrite;
  std::vector<std::string> more;  // graphs behind the first
  bool ranks = false, assume_none = false, explain_literals = false;
  std::string node;
  PrintOptions print;
  OverlapOptions overlap;
  SimulateOptions simulate;
  ReportCommand report;
  PartitionOptions partition;
  InputOptions forward, backward;     // halves, of verify
  std::vector<std::string> tangents;  // of the graph that they are halves of
  DiffCommand diff;
  ReduceOptions reduce;
  BisectCommand bisect;
  ExtractCommand extract;
  ResizeCommand resize;
  SpecializeCommand specialize;
  bool repair = false;
  ArtifactCommand artifact;
  ConvertOptions convert{.output = {.path = ""}};
  std::vector<std::string> listed;  // passes and presets, of passes
  std::string completion;
};

// What several commands have.
void add_input(CLI::App& command, InputOptions& input, const char* help);
void add_pricing(CLI::App& command, Pricing& pricing);
void add_tangents(CLI::App& command, std::vector<std::string>& names);
void add_output_form(CLI::App& command, OutputOptions& output);
// Graphs behind the first one.
void add_more(CLI::App& command, Choices& choices, const char* help);

// Options of the commands that look at graphs (options_look.cc), and of those that make them
// (options_make.cc).
void add_convert_options(CLI::App& command, Choices& choices);
void add_rewrite_options(CLI::App& command, Choices& choices);
void add_partition_options(CLI::App& command, Choices& choices);
void add_print_options(CLI::App& command, Choices& choices);
void add_diff_options(CLI::App& command, Choices& choices);
void add_stats_options(CLI::App& command, Choices& choices);
void add_overlap_options(CLI::App& command, Choices& choices);
void add_report_options(CLI::App& command, Choices& choices);
void add_simulate_options(CLI::App& command, Choices& choices);
void add_reduce_options(CLI::App& command, Choices& choices);
void add_bisect_options(CLI::App& command, Choices& choices);
void add_extract_options(CLI::App& command, Choices& choices);
void add_resize_options(CLI::App& command, Choices& choices);
void add_specialize_options(CLI::App& command, Choices& choices);
void add_generalize_options(CLI::App& command, Choices& choices);
void add_artifact_options(CLI::App& command, Choices& choices);
void add_verify_options(CLI::App& command, Choices& choices);
void add_doctor_options(CLI::App& command, Choices& choices);
void add_explain_options(CLI::App& command, Choices& choices);
void add_passes_options(CLI::App& command, Choices& choices);

}  // namespace epweave::cli
