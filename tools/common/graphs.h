// Reading and writing graphs as the commands do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/verify.h"
#include "io/file.h"

namespace epweave::cli {

struct InputOptions {
  std::string path;  // "-": stdin
  std::string from;  // format name; empty: by extension or content
};

struct OutputOptions {
  std::string path = "-";  // "-": stdout
  std::string to;          // format name; empty: by extension
  bool force = false;      // binary to a terminal too
};

std::optional<Format> format_named(const std::string& name);  // none for ""; throws UsageError

// Decodes only: the graph may break invariants. A second graph to compare with the first takes its
// context.
Graph read_input(const InputOptions& options, std::shared_ptr<Context> context = nullptr);
// As above. Throws InputError listing what `epweave verify` finds wrong with the graph, recorded
// types apart.
enum class Soundness { kStructure, kAll };
Graph read_sound_input(const InputOptions& options, std::shared_ptr<Context> context = nullptr,
                       Soundness soundness = Soundness::kAll);
// The same, with all that verify_graph finds: what reading lets pass.
struct VerifiedInput {
  Graph graph;
  std::vector<Violation> violations;
};
VerifiedInput read_verified_input(const InputOptions& options, std::shared_ptr<Context> context = nullptr);
// The same, with fused products written out, as a run has them (analysis/fused_products.h).
Graph read_written_out(const InputOptions& options);

// Throws UsageError where the output would be binary on a terminal, or has an unsupported form.
// Called before work starts.
void check_output(const OutputOptions& options);
void write_output(const Graph& graph, const OutputOptions& options);
// Writes the graph to a file that the caller commits.
void encode_output(const Graph& graph, const OutputOptions& options, OutputFile& file);

// "standard input" for "-".
std::string display_name(const InputOptions& options);

}  // namespace epweave::cli
