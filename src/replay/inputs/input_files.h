// Inputs of a graph by name, in safetensors files.
//
// The name of an input is its qualified name (parameters and buffers), else what it is (`tokens`,
// `attention_masks.kv_indices`), as the graph records it; else, and where two inputs have the same,
// the name of its node. A file's tensor is meant for an input by
//
//   rank3/NAME, rank3/NODE   what rank 3 holds
//   NAME, NODE               what every rank holds; of a sharded parameter also the global tensor, of which each
//                            rank takes its shard (shards.h)
//
// in this order. dtype and shape must be the input's. Results are named in the same way:
// `rank0/loss`, `rank0/grad/NAME`, `rank0/buffer/NAME`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "replay/collectives/groups.h"
#include "replay/inputs/safetensors.h"

namespace epweave::replay {

struct InputName {
  std::string name, node;
};
// Of each placeholder of the step, in order.
std::vector<InputName> list_input_names(const Graph& graph);

class InputFiles {
 public:
  // Throws InputError: the file is invalid, or has a tensor that another file has too.
  void add(const std::string& path);
  bool empty() const { return files_.empty(); }

  struct Found {
    const SafetensorsFile* file = nullptr;
    const StoredTensors::value_type* entry = nullptr;  // null: the files have none
    bool is_of_rank = false;
  };
  Found find(const InputName& input, Rank rank) const;

  // Throws InputError if the files have tensors that are an input of none of the graphs: a name may
  // be misspelt.
  struct User {
    const Graph& graph;
    Rank ranks;
  };
  void require_all_used(const std::vector<User>& users) const;

 private:
  const StoredTensors::value_type* find_entry(const std::string& name, const SafetensorsFile*& file) const;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
};

}  // namespace epweave::replay
