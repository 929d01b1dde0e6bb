#include "testing/returned_copies.h"

#include <fmt/format.h>

#include <vector>

#include "ops/op.h"

namespace epweave {

ReturnedCopies::ReturnedCopies(const Graph& a, const Graph& b, const PairedNodes& paired, Dice& dice)
    : a_(a), paired_(paired), dice_(dice), editor_a_(a), editor_b_(b) {}

bool ReturnedCopies::make() {
  static constexpr How kChoices[] = {How::kCopied, How::kShown, How::kShown, How::kOnce};
  const How how = kChoices[dice_.below(std::size(kChoices))];
  const NodeId value = draw_value();
  if (!value || editor_b_.graph().origins.empty() || editor_b_.graph().passes.empty()) return false;
  const StringId first = a_.intern("returned_copy"), second = a_.intern("returned_copy_again");
  const std::optional<Node> copy = make_copy(first, value);
  if (!copy) return false;
  const NodeId in_a = add_to_a(*copy);
  editor_a_.return_also(in_a);
  Node in_b = *copy;
  const Arg shown = Arg::node(paired_.whole(value));
  in_b.args = a_.context->args.add({&shown, 1});
  NodeId returned;
  if (how == How::kCopied) {
    what_ = "a copy";
    returned = add_to_b(in_b, ProvenanceRole::kKept, NameList(first));
  } else if (how == How::kShown) {
    what_ = "a view for a copy";
    const std::optional<Arg> sizes = sizes_of(value);
    if (!sizes) return false;
    const Arg args[] = {shown, *sizes};
    in_b.target = a_.intern("aten.view.default");
    in_b.args = a_.context->args.add(args);
    resolve_op(*a_.context, in_b);
    in_b.type = editor_b_.infer(in_b);
    if (!in_b.type) return false;
    returned = add_to_b(in_b, ProvenanceRole::kMaterialize, NameList(first));
  } else {
    what_ = "one copy for two";
    editor_a_.return_also(add_to_a(*make_copy(second, value)));
    const StringId both[] = {first, second};
    returned = add_to_b(in_b, ProvenanceRole::kMerged, a_.context->own(std::span<const StringId>(both)));
    editor_b_.return_also(returned);
  }
  editor_b_.return_also(returned);
  if (dice_.one_in(2)) {
    editor_a_.return_also(value);
    editor_b_.return_also(paired_.whole(value));
  }
  what_ += fmt::format(" of %{}", a_.text(a_.step().nodes[value].name));
  return true;
}

NodeId ReturnedCopies::draw_value() {
  for (std::size_t tries = 0; tries < 20; ++tries) {
    const NodeId id = dice_.pick(a_.step().order);
    if (tensor_of(*a_.context, a_.step().nodes[id].type) != nullptr && paired_.whole(id)) return id;
  }
  return {};
}

// None: no rule says what it is.
std::optional<Node> ReturnedCopies::make_copy(StringId name, NodeId value) {
  const Arg source = Arg::node(value);
  Node copy{.name = name,
            .target = a_.intern("aten.clone.default"),
            .args = a_.context->args.add({&source, 1}),
            .module = a_.step().nodes[value].module};
  resolve_op(*a_.context, copy);
  copy.type = editor_a_.infer(copy);
  return copy.type ? std::optional(copy) : std::nullopt;
}

// Behind everything else.
NodeId ReturnedCopies::add_to_a(const Node& copy) {
  editor_b_.graph().origins.push_back({copy.name, copy.target});
  const std::vector<NodeId>& order = editor_a_.step().order;
  return editor_a_.insert_behind(order[order.size() - 2], copy);
}

NodeId ReturnedCopies::add_to_b(Node copy, ProvenanceRole role, const NameList& origins) {
  const Provenance record{
      .pass = a_.intern(editor_b_.graph().passes.back().name), .role = role, .origins = origins};
  copy.provenance = a_.context->own(std::span<const Provenance>(&record, 1));
  const std::vector<NodeId>& order = editor_b_.step().order;
  return editor_b_.insert_behind(order[order.size() - 2], copy);
}

std::optional<Arg> ReturnedCopies::sizes_of(NodeId value) {
  std::vector<Arg> sizes;
  for (ExprId extent : editor_a_.tensor(value)->sizes) {
    const auto number = a_.context->exprs.constant(extent);
    if (!number) return std::nullopt;
    sizes.push_back(Arg::integer(*number));
  }
  return editor_a_.list(sizes);
}

}  // namespace epweave
