// What a pass is: one row (name, summary, options, function) around one pure function.
//
// The function reads a graph and returns a new one. It prints nothing, keeps nothing, and gives the
// same result for the same input. Each pass has its own header with a typed entry point,
//
//     Graph overlap_ep(const Graph& graph, const OverlapEpOptions& options);
//
// and its row in registry.cc adapts that to `PassInfo::run`. The row's name is the pass's name
// everywhere: in pipelines, in the log, in provenance, and of its file.
//
// Provenance: a pass appends a record to every node it made or changed; nodes it leaves as they
// were need none (the runner says "kept" of a node that no pass ever touched).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/graph.h"

namespace epweave {

enum class OptionKind : std::uint8_t {
  kText,    // roots=layers.*.moe
  kInt,     // parts=2
  kFlag,    // keep-names, keep-names=false
  kChoice,  // dim=batch: one of OptionSpec::choices
  kList,    // roots=[layers.*.moe:4,layers.*.feed_forward:2]; one element needs no brackets
};

struct OptionSpec {
  std::string_view name;
  OptionKind kind = OptionKind::kText;
  // Default, as a pipeline would write it; none: must be given, or may be left out if it
  // `is_optional`.
  std::optional<std::string_view> fallback;
  std::string_view help;
  std::vector<std::string_view> choices = {};  // of kChoice; of kList: words that stand for a list
  std::int64_t at_least = std::numeric_limits<std::int64_t>::min();  // of kInt
  bool is_optional = false;
};

using OptionValue = std::variant<std::string, std::int64_t, bool, std::vector<std::string>>;

// A value for each option of a pass, in the order of its specs, but for optional ones that are not
// given. Asking for an option that the pass does not have, or as another kind, is our bug.
class Options {
 public:
  void set(std::string_view name, OptionValue value);           // replaces
  void set_fallback(std::string_view name, OptionValue value);  // of an option that is not given

  bool has(std::string_view name) const;                 // whether an optional one is given
  bool is_given(std::string_view name) const;            // and not left to its fallback
  const std::string& text(std::string_view name) const;  // kText, kChoice
  std::int64_t integer(std::string_view name) const;
  bool flag(std::string_view name) const;
  const std::vector<std::string>& list(std::string_view name) const;

  std::span<const std::pair<std::string, OptionValue>> values() const { return values_; }
  friend bool operator==(const Options& a, const Options& b) { return a.values_ == b.values_; }

 private:
  const OptionValue& find(std::string_view name) const;
  std::vector<std::pair<std::string, OptionValue>> values_;
  std::vector<std::string> fallbacks_;  // names of those that are not given
};

struct PassResult {
  Graph graph;
  std::vector<std::string> notes = {};  // what the result rests on: assumptions, things declined, counts
};

struct PassInfo;

struct PassCall {
  const PassInfo* pass = nullptr;
  Options options;
};

struct PassInfo {
  std::string_view name;
  std::string_view summary;  // one line for listings
  std::vector<OptionSpec> options;
  PassResult (*run)(const Graph& graph, const Options& options) = nullptr;
  // Sets options that follow from others. Throws UsageError where the text of an option means
  // nothing, or options contradict each other; called when a pipeline is read. May be null.
  void (*settle)(Options& options) = nullptr;
};

// A named pipeline with its own options, which `expand` writes into the pipeline's text.
struct PresetInfo {
  std::string_view name;
  std::string_view summary;
  std::vector<OptionSpec> options;
  std::string (*expand)(const Options& options) = nullptr;
};

}  // namespace epweave
