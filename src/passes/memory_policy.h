// Decides what backward does about the value of each forward call: `recompute`, the field that
// `recompute`, `cpu-offload` and PyTorch's partitioner read.
//
//   %mm = aten.mm.default(%x, %w)            recompute=MUST_SAVE
//   %silu = aten.silu.default(%mm)           recompute=PREFER_RECOMPUTE
//
// The first rule that applies to a forward call decides, as in torchtitan:
//
//   head and loss   no tag: their backward comes first, nothing is gained
//   unshard         reshard=never: the whole parameter at the end of its chain is saved
//   parent's        an element of a tuple, and a wait, have the tag of what they take
//   numbers         integers are saved: to read a size again would keep its tensor alive
//   policy          default           saves matrix products, attention and exchanges of tokens, not grouped products
//                   eager             as default, but of the products of a layer each second is
//                                     computed again
//                   full              saves random draws and the calls that `save` names
//                   none              saves all
//                   sac-and-offload   as default; what is saved moves to the host where that is
//                                     worth it (cpu_offload.h)
//
// Then what is computed again for a call of a higher layer that is computed again, too, is saved:
// else backward of one layer would run all layers before it. One walk in the graph's order, as the
// reference does it.
//
// reshard=always gathers parameters again in backward, whatever the policy; without it that is the
// policy's to say. Tags that were there are replaced. Backward calls are left alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/pass.h"

namespace epweave {

enum class MemoryPolicy : std::uint8_t { kDefault, kEager, kFull, kNone, kSacAndOffload };
MemoryPolicy memory_policy_named(std::string_view name);

enum class Reshard : std::uint8_t { kAlways, kNever };

// Saves the calls of this op in these modules.
struct SaveSelector {
  std::string modules;  // pattern, analysis/module_path.h
  std::string op;       // "aten.mm.default"
};
SaveSelector parse_save_selector(
    std::string_view text);  // "layers.*.moe::aten.mm.default"; throws UsageError

struct MemoryPolicyOptions {
  MemoryPolicy policy = MemoryPolicy::kDefault;
  std::vector<SaveSelector> save = {};     // with kFull only
  std::optional<Reshard> reshard = {};     // none: as the policy says
  std::optional<double> offload_gib = {};  // with kSacAndOffload only; 0 and none: no limit
};

PassResult memory_policy(const Graph& graph, const MemoryPolicyOptions& options);

}  // namespace epweave
