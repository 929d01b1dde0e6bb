// Seconds of one call, by the shape of the cluster. docs/overlap.md has the formulas.
//
//   mm(bf16[4096, 7168], bf16[7168, 2048])      the larger of 2mnk at 70 % of the peak and its bytes, and 2 us
//   all_to_all_single of 402 MB in 2 nodes      what crosses at the NIC's rate, and 20 us
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cost/cost.h"
#include "cost/extents.h"
#include "cost/step_model.h"
#include "ops/op.h"

namespace epweave {

// A tensor of a type, with numbers for its extents.
struct PricedTensor {
  const TensorType* type = nullptr;
  std::int64_t stored = 0;  // bytes of all its elements
  std::int64_t moved = 0;   // the same with dimensions of stride 0 counted once
  bool on_host = false;
  bool is_known = true;     // its extents have numbers
  bool is_assumed = false;  // they rest on balanced ones
};

struct Price {
  double seconds = 0;
  std::int64_t bytes = 0;
  PriceSource source = PriceSource::kNone;
  std::string problem;  // kUnpriced: why
  std::string remedy;   // and what gives the model what it lacks; empty where nothing does
};

// Whether the step was traced on the CPU: none of its tensors is on another device. They are taken
// to be the device's.
bool runs_on_host(const Graph& graph);

class Pricer {
 public:
  Pricer(const Graph& graph, const Cluster& cluster, Extents& extents);

  StepKind kind_of(NodeId id);
  // Of a call of kind kKernel; `inputs` are its operands, each once, in the order of the arguments.
  Price price_kernel(NodeId id, std::span<const NodeId> inputs);
  Price price_launch(NodeId id, const StepGroup& group);
  // The group that a launch names. A group without ranks has 0 of them.
  StepGroup group_of(Arg group) const;
  // Whether the host goes on behind a kernel only when it is done.
  bool stops_host(NodeId id) const;

  std::span<const PricedTensor> tensors_of(TypeId type);

  // "f32[1024, 256], f32[256, 64]": tensors among the arguments, as the replay lists them. None
  // where an extent has no number.
  std::optional<std::string> describe_operands(NodeId id);
  // Of a launch: bytes of its first operand, of a coalesced one of all in its list.
  std::optional<std::int64_t> operand_bytes(NodeId id);

 private:
  struct Range {
    std::uint32_t begin = 0, count = 0;
    bool is_set = false;
  };
  struct Operands {
    std::vector<PricedTensor> taken, given;
    std::int64_t read = 0, written = 0;  // bytes moved
  };

  using Shape = std::vector<double>;

  bool describe(NodeId input, std::string& text);
  void add_tensors(TypeId type);
  PricedTensor measure(const TensorType& tensor);
  bool is_host_only(NodeId id);
  bool is_copying_reshape(const Node& node);

  void take_operands(NodeId id, std::span<const NodeId> inputs);
  Price add_exchange(NodeId id, Price kernels);
  double bandwidth() const;
  bool is_between_devices(const OpInfo& op) const;
  double moved_bytes(const Node& node) const;
  double slot_bytes() const;

  std::int64_t product_bytes(const OpInfo& op) const;
  std::optional<double> flops_of(NodeId id);
  std::optional<Shape> shape_of(const Node& node, std::string_view param);
  std::optional<double> attention_flops(const Node& node);
  double attention_share(double keys) const;
  double peak_of(const OpInfo& op) const;

  static std::int64_t message_bytes(OpFamily family, std::int64_t sent, std::int64_t received);

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Cluster& cluster_;
  Extents& extents_;
  CostModel costs_;
  const bool runs_on_host_;
  std::uint32_t rank_ = 0;
  std::int64_t document_ = 0;  // tokens that a token sees at most, by the trace's options; 0: not said
  SideTable<TypeId, Range> ranges_;
  std::vector<PricedTensor> tensors_;
  Operands operands_;
};

// How many of these ranks each node of the cluster has that has any.
using MemberCounts = std::map<std::uint32_t, std::uint32_t>;
MemberCounts count_members(const std::vector<std::uint32_t>& ranks, const Cluster& cluster);

// Of a collective of a group of more than one: `bytes` are those of its message (Price::bytes).
double collective_seconds(const Cluster& cluster, OpFamily family, std::int64_t bytes,
                          const StepGroup& group);

}  // namespace epweave
