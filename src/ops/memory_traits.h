// What decides whether backward keeps a call's value or computes it again, by the call's target:
// PyTorch's partitioner and torchtitan's memory policies each have lists of ops. They are neither a
// family nor a cost: a grouped product is in none of them, `squeeze` is both a view and pointwise,
// `transpose` is no view. Beside them, what PyTorch's overlap scheduler asks of a target.
//
//   aten.mm.default          compute-intensive, saved by torchtitan's policies
//   aten.silu.default        recomputable, fusible
//   aten.transpose.int       an alias for offload, in no list of the partitioner
//
// Targets without a row in the op table may be in the lists, too.
#pragma once

#include <span>
#include <string_view>

#include "base/id.h"
#include "base/interner.h"

namespace epweave {

struct Context;
struct Node;

enum MemoryTrait : unsigned {
  kIsRecomputable = 1,       // PyTorch: may be computed again
  kIsFusible = 2,            // PyTorch: fuses with what is fusible, too
  kIsTorchView = 4,          // PyTorch: a view, never banned
  kIsTorchRandom = 8,        // PyTorch: draws, as far as it knows
  kIsComputeIntensive = 16,  // PyTorch: too much work to do again
  kIsSavedByDefault = 32,    // torchtitan: policies `default` and `eager` save it
  kIsAliasOp = 64,           // torchtitan: shares its operand's storage; never moved to the host
  kIsAlternated = 128,       // torchtitan: policy `eager` computes each second one of a layer again
  kSendsToHost = 256,        // begins a copy to the host
  kLoadsFromHost = 512,      // begins one back
  kCountsFlops = 1024,       // PyTorch: its flop counter has a formula; to its overlap scheduler, compute
  kIsPointwise = 2048,       // PyTorch: tagged so
  kIsDeclaredView = 4096,    // PyTorch: the schema says that the result shows an argument, and writes none
};

unsigned memory_traits_of(std::string_view target);

// The same of many nodes of one context; each target is looked up once.
class MemoryTraits {
 public:
  explicit MemoryTraits(const Context& context) : context_(context) {}
  unsigned of(const Node& node);
  bool has(const Node& node, MemoryTrait trait) { return (of(node) & trait) != 0; }

 private:
  const Context& context_;
  SideTable<StringId, unsigned> traits_;
};

}  // namespace epweave
