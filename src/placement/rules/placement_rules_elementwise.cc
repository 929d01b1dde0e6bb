// Placement of elementwise ops, casts and size arithmetic.
#include <fmt/format.h>

#include "placement/rules/placement_rules.h"

namespace epweave {
namespace {

Placement linear(PlacementCall& call) {
  return elementwise(call, std::vector{call.arg(0)}, Linearity::kFirst);
}

// Casts that convert sums count as linear, though one to fewer digits rounds each part.
Placement cast(PlacementCall& call) {
  const TensorType *from = call.tensor(call.arg(0)), *to = call.result_tensor();
  if (!call.of(call.arg(0)).is_partial() || from == nullptr || to == nullptr) return linear(call);
  const bool is_narrowing = is_floating(to->dtype) && info(to->dtype).bytes < info(from->dtype).bytes;
  if (call.converts_sum(call.arg(0), to->dtype) && !(is_narrowing && call.options().exact_casts))
    return linear(call);
  call.take_whole(call.arg(0));
  return Placement::whole();
}

// A comparison of sizes, or a check of one: what is made of sums over the parts is compared whole.
Placement comparison(PlacementCall& call) {
  bool any_local = false;
  for (const Operand& operand : call.operands())
    any_local |= call.of(operand).is_local() && !call.is_made_of_sums(operand.arg.as_node());
  if (any_local) return Placement::local();
  for (const Operand& operand : call.operands()) call.take_whole(operand);
  return Placement::whole();
}

// Filled with one constant: ordered whatever the order of the argument's rows.
Placement constant_like(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  if (p.is_partial()) {
    call.take_any(call.arg(0));
    return Placement::whole();
  }
  const TensorType* type = call.result_tensor();
  if (p.is_rows() && type != nullptr && call.tokens().scales(type->sizes[static_cast<std::size_t>(p.dim)]))
    return call.constant_rows(p.dim, p);
  return p;
}

// A buffer of the model that every part updates in turn; or rows written over rows of the region's
// own.
Placement add_in_place(PlacementCall& call) {
  const Operand destination = call.arg(0), addend = call.arg(1);
  const Placement to = call.of(destination), from = call.of(addend);
  if (!to.is_divided() && !from.is_divided()) return Placement::whole();
  if (to.is_whole() && from.is_partial()) {
    call.take_chain(destination);
    return Placement::carried();
  }
  if (to.is_whole())
    call.refuse(
        "chunk.update-not-a-sum",
        fmt::format("rows of one part are added to '{}', which all parts share", call.name_of(destination)),
        "only a sum over the tokens can be accumulated into shared state part by part");
  return elementwise(call, std::vector{destination, addend}, Linearity::kSum);
}

// Rows written over rows of the region's own.
Placement write_in_place(PlacementCall& call) {
  if (call.of(call.arg(0)).is_whole()) return write_to_shared(call);
  return elementwise(call, call.node_operands(), Linearity::kNone);
}

// What is said of a part's rows is checked of each part; given sizes are those of the whole.
Placement check_of_metadata(PlacementCall& call) {
  const Operand checked = call.arg(0);
  const Placement p = call.of(checked);
  bool gives_sizes = false;
  for (const std::size_t i : {1UL, 2UL}) {
    const Operand sizes = call.arg(i);
    gives_sizes |= sizes && !sizes.arg.is_none();
    if (sizes) call.take_whole(sizes);
  }
  if (p.is_whole() || !gives_sizes) return p.is_whole() ? p : Placement::local();
  call.take_whole(checked);
  return Placement::whole();
}

// Numbers that are no operands of a sum or product are none of what it is linear in.
Placement arithmetic(PlacementCall& call) {
  switch (call.op().linearity) {
    case Linearity::kNone:
      return elementwise(call, call.node_operands(), Linearity::kNone);
    case Linearity::kFirst:
      return elementwise(call, call.node_operands(),
                         call.arg(0).arg.is_node() ? Linearity::kFirst : Linearity::kNone);
    case Linearity::kEach:
    case Linearity::kSum:
      return elementwise(call, std::vector{call.arg(0), call.arg(1)}, call.op().linearity);
  }
  return Placement::whole();
}

Placement elementwise_op(PlacementCall& call) {
  if (!call.op().writes) return arithmetic(call);
  return call.op().linearity == Linearity::kSum ? add_in_place(call) : write_in_place(call);
}

Placement check(PlacementCall& call) {
  return call.op().reads_types_only ? check_of_metadata(call) : comparison(call);
}

bool has_one_result(const OpInfo& op) {
  return op.returns.size() == 1;
}
// Others have operands that they only keep alive.
bool has_one_operand(const OpInfo& op) {
  return op.params.size() == 1;
}

constexpr PlacementRow kElementwiseRows[] = {
    {OpFamily::kElementwise, elementwise_op, has_one_result},
    {OpFamily::kIdentity, elementwise_op, has_one_result},
    {OpFamily::kCast, cast},
    {OpFamily::kWait, linear, has_one_operand},
    {OpFamily::kNumber, arithmetic},
    {OpFamily::kComparison, comparison},
    {OpFamily::kCheck, check, any_op},
    {OpFamily::kLike, constant_like},
};

}  // namespace

std::span<const PlacementRow> elementwise_placement_rows() {
  return kElementwiseRows;
}

}  // namespace epweave
