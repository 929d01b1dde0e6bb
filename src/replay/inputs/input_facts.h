// What a graph records about its inputs, asked by the input's place among the placeholders.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "replay/collectives/groups.h"
#include "replay/inputs/shards.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {

// Why an input cannot be made, and what to do, where that is known.
struct InputProblem {
  std::string what, remedy;

  bool empty() const { return what.empty(); }
};

class InputFacts {
 public:
  // Errors name the graph's file where its `path` is given.
  InputFacts(const Graph& graph, const World& world, std::string path = {});

  std::size_t size() const { return placeholders_.size(); }
  const std::vector<NodeId>& placeholders() const { return placeholders_; }
  const Symbols& symbols() const { return symbols_; }

  const Node& node_of(std::size_t i) const { return graph_.step().nodes[placeholders_[i]]; }
  std::string_view role_text(std::size_t i, StringId InputRole::*field) const;
  // The name that recipes go by, and the node's where the graph records none.
  std::string_view recipe_name(std::size_t i) const;
  // A parameter or buffer: one tensor of all ranks. Others have one for each batch coordinate.
  bool is_global(std::size_t i) const;
  ResultType type_of(std::size_t i) const;  // of a tensor, with numbers for symbols
  bool has_global_shape(std::size_t i) const { return find_more(i, "global_shape") != nullptr; }
  Shard shard_of(std::size_t i, const Extents& local) const;
  // Why no number can be made for an input, by its recorded type; nothing: there is no reason.
  InputProblem type_problem(std::size_t i) const;
  // The same, also by how a parameter or buffer is cut.
  InputProblem problem(std::size_t i) const;

  // Names a user input's stream of random numbers on a rank: the same for ranks that hold the same,
  // by its placements, else by the batch coordinate.
  std::string batch_key(std::size_t i, std::string_view name, Rank rank) const;
  std::int64_t batch_count() const;
  std::optional<std::int64_t> find_vocabulary() const;  // rows of the parameter that is named `*embed*`
  // In a rank's batch: of `tokens`, or in a part of a step of `labels` or of positions.
  std::int64_t count_tokens(std::size_t asked_by) const;
  bool reads_elements(std::size_t i) const;     // whether some node reads more of the input than its sizes
  std::optional<double> expected_loss() const;  // see find_expected_loss
  // A number that an argument of a call stands for.
  std::int64_t number_of(std::size_t asked_by, Arg arg) const;

  // Throws InputError naming the input.
  [[noreturn]] void refuse(std::size_t i, std::string_view why) const;
  [[noreturn]] void refuse(std::size_t i, const InputProblem& problem) const;

 private:
  void bind_hints();  // the symbols of the inputs' extents get the numbers they had when the graph was traced
  IdSet<StringId> find_input_symbols() const;
  const InputRole* role_of(std::size_t i) const;
  const Arg* find_more(std::size_t i, std::string_view key) const;
  std::vector<std::int64_t> read_extents(Arg list) const;
  void find_meshes();
  Cuts cuts_of(std::size_t i, const Extents& global, const Extents& local) const;
  Shard find_shard(std::size_t i, const Extents& local) const;

  const Graph& graph_;
  const Context& context_;
  const World& world_;
  const std::string path_;
  Symbols symbols_;
  std::vector<NodeId> placeholders_;
  std::vector<Arg> meshes_;  // that inputs lie on; none: none is recorded
};

}  // namespace epweave::replay
