// The inputs of all ranks: from files (input_files.h), else made from a seed (random_numbers.h) by
// a recipe (recipe.h). The same numbers on every machine and for every way a graph is cut among
// ranks:
//
//   parameters, buffers  one global tensor under its qualified name, of which each rank holds its shard (shards.h)
//   user inputs          one tensor for each coordinate on the mesh axis "batch" (else for each rank)
//   meshes, symbolic scalars, and other values known when traced: as recorded
//
// Numbers are rounded to the dtype. An input that no row of the recipe fits is refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "replay/collectives/groups.h"
#include "replay/inputs/input_files.h"
#include "replay/inputs/recipe.h"
#include "replay/run/executor.h"

namespace epweave::replay {

// What `uniform` and `gain` make: what the recipe says, or integers from -2 to 2 (gains: 1), so
// that sums and products of a few are exact in whatever order they are taken.
enum class DataKind : std::uint8_t { kReal, kInteger };
struct InputData {
  InputData(std::uint64_t from_seed, DataKind of_kind = DataKind::kReal) : seed(from_seed), kind(of_kind) {}
  std::uint64_t seed;
  DataKind kind;
  const Recipe* recipe = nullptr;     // null: torchtitan_recipe()
  const InputFiles* files = nullptr;  // null: none
  std::optional<Rank> only;           // the rank whose tensors are made; none: all
  // The graph that this one is a rewrite of: an input that tells nothing here any more, as the
  // block tables of a mask of which each attention call has a part of its own, is made as the input
  // of that name there. Null: none.
  const Graph* original = nullptr;
  std::string path = {}, original_path = {};  // of the graphs' files, which errors name; empty: none
};

// Inputs of all ranks; with `only`, what other ranks take is left out. Throws InputError naming the
// input that cannot be made.
std::vector<RankInputs> make_inputs(const Graph& graph, const World& world, const KernelTable& kernels,
                                    InputData data);

// Throws the InputError of the first input that make_inputs() refuses by what the graph records of
// it, whatever a recipe says: its type, and how ranks share it. Makes nothing.
void require_inputs(const Graph& graph, const World& world, const InputData& data);

// One rank's loss where every token is as likely as any other, about what a model gives before
// training: ln(vocabulary) / batch coordinates, since a rank sums its own tokens' losses and
// divides by all tokens. None where the graph does not tell its vocabulary.
std::optional<double> find_expected_loss(const Graph& graph, const World& world);

}  // namespace epweave::replay
