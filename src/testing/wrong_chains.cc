#include "testing/wrong_chains.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/family.h"

namespace epweave {
namespace {

bool is_tensor_param(const OpParam& param) {
  return param.type == "Tensor" || param.type == "Tensor[]";
}

// Ops that a chain may hold, by what they do to memory.
struct OpClasses {
  std::vector<const OpInfo*> views, writers, reductions, pairs, makers, others;

  OpClasses() {
    for (const OpInfo& op : ops()) {
      const bool computes = op.type_rule != nullptr && !op.is_random && !op.is_effectful &&
                            op.cost != CostClass::kCollective && op.cost != CostClass::kWait &&
                            op.cost != CostClass::kHostSync && !op.params.empty() && op.returns.size() == 1 &&
                            op.returns.front().type == "Tensor";
      if (!computes) continue;
      auto& list = op.writes                                               ? writers
                   : op.is_view                                            ? views
                   : op.cost == CostClass::kReduction                      ? reductions
                   : std::ranges::count_if(op.params, is_tensor_param) > 1 ? pairs
                   : makes_rows_alike(op.family)                           ? makers
                                                                           : others;
      list.push_back(&op);
    }
  }
};

const OpInfo& draw_op(Dice& dice) {
  static const OpClasses classes;
  const std::vector<const OpInfo*>* const lists[] = {&classes.views, &classes.writers, &classes.reductions,
                                                     &classes.pairs, &classes.makers,  &classes.others,
                                                     &classes.others};
  return *dice.pick(*lists[dice.below(std::size(lists))]);
}

}  // namespace

WrongChain::WrongChain(const Graph& a, const Graph& b, const PairedNodes& paired, Dice& dice)
    : a_(a), b_(b), paired_(paired), dice_(dice), context_(*a.context), editor_a_(a), editor_b_(b) {}

std::optional<Mutant> WrongChain::make() {
  base_ = draw_base();
  if (!base_) return std::nullopt;
  open_lanes();
  std::vector<Lane*> lanes = {&original_};
  for (Lane& part : parts_) lanes.push_back(&part);
  for (std::size_t links = 1 + dice_.below(3), i = 0; i < links; ++i)
    if (!add_call(lanes)) return std::nullopt;
  std::string kind = "chain";
  if (can_splice() && dice_.one_in(2)) {
    kind = "chain spliced in";
    splice();
    if (!editor_a_.retype(original_.values.back())) return std::nullopt;
  } else {
    if (!join()) return std::nullopt;
    for (std::size_t links = dice_.below(3), i = 0; i < links; ++i)
      if (!add_call({&original_, &joined_})) break;
    editor_a_.return_also(original_.values.back());
    editor_b_.return_also(joined_.values.back());
  }
  return Mutant{editor_a_.take(), editor_b_.take(), std::move(kind),
                fmt::format("{} behind %{}", what_, a_.text(a_.step().nodes[base_].name)), true};
}

NodeId WrongChain::draw_base() {
  std::vector<NodeId> all, sums;
  for (NodeId id : paired_.divided()) {
    if (tensor_of(context_, a_.step().nodes[id].type) == nullptr) continue;
    all.push_back(id);
    if (b_.step().nodes[paired_.parts(id).front()].type == a_.step().nodes[id].type) sums.push_back(id);
  }
  if (all.empty()) return {};
  return !sums.empty() && dice_.one_in(4) ? dice_.pick(sums) : dice_.pick(all);
}

void WrongChain::open_lanes() {
  original_ = {&editor_a_, std::nullopt, {base_}, base_, editor_a_.node(base_)};
  const std::vector<NodeId>& parts = paired_.parts(base_);
  const NodeId last =
      *std::ranges::max_element(parts, {}, [&](NodeId part) { return editor_b_.position(part); });
  side_by_side_ = dice_.one_in(2);
  for (std::uint32_t k = 0; k < parts.size(); ++k)
    parts_.push_back({&editor_b_, k, {parts[k]}, side_by_side_ ? parts[k] : last, editor_b_.node(parts[k])});
}

std::optional<WrongChain::Operand> WrongChain::draw_operand(const OpParam& param, std::size_t values) {
  if (is_tensor_param(param)) {
    Operand operand;
    operand.is_list = param.type == "Tensor[]";
    if (operand.is_list) operand.next = dice_.below(values);
    if (!dice_.one_in(4)) return operand.value = dice_.one_in(2) ? values - 1 : dice_.below(values), operand;
    const std::vector<NodeId>& order = a_.step().order;
    operand.outside = order[dice_.below(editor_a_.position(base_) + 1) % order.size()];
    return operand;
  }
  const std::optional<Arg> literal = draw_literal(a_, dice_, param);
  if (!literal) return std::nullopt;
  Operand operand{.value = {}, .outside = {}, .literal = *literal, .of_part = {}};
  if (literal->is_int() && dice_.one_in(8)) {
    operand.literal = Arg::integer(literal->as_int() * static_cast<std::int64_t>(parts_.size()));
    operand.of_part = *literal;
  }
  return operand;
}

WrongChain::Call WrongChain::draw_call(std::size_t values) {
  Call call{.op = &draw_op(dice_), .positional = {}, .keywords = {}};
  for (const OpParam& param : call.op->params) {
    if (param.has_default && !dice_.one_in(3)) {
      if (!param.kwarg_only) break;
      continue;
    }
    const std::optional<Operand> operand = draw_operand(param, values);
    if (!operand) {
      if (param.has_default) continue;
      return {};
    }
    if (!param.kwarg_only) {
      call.positional.push_back(*operand);
    } else if (!operand->value && !operand->outside) {
      call.keywords.emplace_back(a_.intern(param.name), operand->literal);
    } else {
      return {};
    }
  }
  return call;
}

Arg WrongChain::resolve(Lane& lane, const Operand& operand) {
  if (!operand.value && !operand.outside)
    return lane.part && operand.of_part ? *operand.of_part : operand.literal;
  NodeId value;
  if (operand.value) {
    value = lane.values[*operand.value];
  } else if (lane.editor == &editor_a_) {
    value = operand.outside;
  } else {
    if (lane.part) value = paired_.part(operand.outside, *lane.part);
    if (!value) value = paired_.whole(operand.outside);
    if (!value || editor_b_.position(value) > editor_b_.position(lane.last)) return Arg();
  }
  return operand.is_list
             ? lane.editor->list(std::vector{Arg::node(value), Arg::node(lane.values[operand.next])})
             : Arg::node(value);
}

// A node like the lane's last one; none: the arguments do not fit.
std::optional<Node> WrongChain::make_node(Lane& lane, const Call& call, StringId name) {
  std::vector<Arg> args, kwargs;
  for (const Operand& operand : call.positional) {
    args.push_back(resolve(lane, operand));
    if (args.back().is_none()) return std::nullopt;
  }
  for (const auto& [keyword, value] : call.keywords) kwargs.insert(kwargs.end(), {Arg::text(keyword), value});
  Node node = lane.model;
  node.kind = NodeKind::kCall;
  node.target = a_.intern(call.op->target);
  node.args = context_.args.add(args);
  node.kwargs = context_.args.add(kwargs);
  node.extra = nullptr;
  node.ep = {};
  resolve_op(context_, node);
  node.type = lane.editor->infer(node);
  if (tensor_of(context_, node.type) == nullptr) return std::nullopt;
  node.name = name;
  if (lane.editor == &editor_a_) return node;
  std::vector<Provenance> records(node.provenance.begin(), node.provenance.end());
  for (Provenance& record : records) record.origins = name;
  node.provenance = context_.own(std::span<const Provenance>(records));
  if (!lane.part) return node;
  if (node.chunk.original_name) node.chunk.original_name = name;
  node.name = a_.intern(fmt::format("{}_chunk{}", a_.text(name), *lane.part));
  return node;
}

void WrongChain::append(Lane& lane, const Node& node) {
  lane.last = lane.editor->insert_behind(lane.last, node);
  lane.values.push_back(lane.last);
}

bool WrongChain::add_call(std::vector<Lane*> lanes) {
  const StringId name = a_.intern(fmt::format("link_{}", made_));
  for (std::size_t tries = 0; tries < 200; ++tries) {
    const Call call = draw_call(lanes.front()->values.size());
    if (call.op == nullptr) continue;
    std::vector<Node> nodes;
    for (Lane* lane : lanes) {
      const std::optional<Node> node = make_node(*lane, call, name);
      if (!node) break;
      nodes.push_back(*node);
    }
    if (nodes.size() != lanes.size()) continue;
    for (std::size_t i = 0; i < lanes.size(); ++i) append(*lanes[i], nodes[i]);
    editor_b_.graph().origins.push_back({name, nodes.front().target});
    what_ += fmt::format("{}{}", what_.empty() ? "" : ", ", call.op->target);
    name_ = name;
    ++made_;
    return true;
  }
  return false;
}

// Where a part is smaller than the whole; none: nowhere.
std::optional<std::int64_t> WrongChain::find_divided_dim() {
  const TensorType* whole = editor_a_.tensor(original_.values.back());
  const TensorType* part = editor_b_.tensor(parts_.front().values.back());
  if (whole->rank() != part->rank()) return std::nullopt;
  for (std::size_t d = 0; d < whole->rank(); ++d) {
    if (whole->sizes[d] == part->sizes[d]) continue;
    const auto n = editor_a_.hint(whole->sizes[d]), m = editor_b_.hint(part->sizes[d]);
    if (!n || n != m) return static_cast<std::int64_t>(d);
  }
  return std::nullopt;
}

NodeId WrongChain::add_join(std::string_view target, const std::vector<Arg>& args) {
  const Lane& model = parts_.back();
  Node node = editor_b_.node(model.values.back());
  node.name = a_.intern(fmt::format("{}_join_{}", a_.text(name_), joined_.values.size()));
  node.target = a_.intern(target);
  node.args = context_.args.add(args);
  node.kwargs = {};
  resolve_op(context_, node);
  node.type = editor_b_.infer(node);
  if (node.chunk.role) node.chunk.role = a_.intern("materialization");
  node.chunk.part.reset();
  node.chunk.original_name = {};
  Provenance record = node.provenance.back();
  record.role = ProvenanceRole::kMaterialize;
  record.part = record.parts = 0;
  node.provenance = context_.own(std::span<const Provenance>(&record, 1));
  if (!node.type) return {};
  joined_.last = editor_b_.insert_behind(joined_.last, node);
  joined_.values.push_back(joined_.last);
  return joined_.last;
}

bool WrongChain::join() {
  const NodeId value = original_.values.back();
  joined_.editor = &editor_b_;
  joined_.last = std::ranges::max_element(parts_, {}, [&](const Lane& lane) {
                   return editor_b_.position(lane.last);
                 })->last;
  std::vector<Arg> items;
  for (const Lane& part : parts_) items.push_back(Arg::node(part.values.back()));
  const std::optional<std::int64_t> dim = find_divided_dim();
  if (dim) {
    if (!add_join("aten.cat.default", {editor_b_.list(items), Arg::integer(*dim)})) return false;
  } else {
    Arg sum = items.front();
    for (std::size_t k = 1; k < items.size(); ++k) {
      const NodeId next = add_join("aten.add.Tensor", {sum, items[k]});
      if (!next) return false;
      sum = Arg::node(next);
    }
  }
  // What comes behind is no join but a node that was kept.
  joined_.model = editor_b_.node(joined_.last);
  joined_.model.chunk = {};
  Provenance record = joined_.model.provenance.back();
  record.role = ProvenanceRole::kKept;
  joined_.model.provenance = context_.own(std::span<const Provenance>(&record, 1));
  joined_.values = {joined_.last};
  original_.values = {value};
  return true;
}

bool WrongChain::can_splice() {
  return side_by_side_ && !paired_.is_kept(base_) &&
         editor_a_.node(original_.values.back()).type == a_.step().nodes[base_].type;
}

// Users of the value take the chain's; what joined the parts of one joins those of the other.
void WrongChain::splice() {
  const auto replace = [&](Lane& lane) {
    std::vector<std::pair<ArgRange, ArgRange>> own;
    for (std::size_t i = 1; i < lane.values.size(); ++i) {
      const Node& node = lane.editor->node(lane.values[i]);
      own.emplace_back(node.args, node.kwargs);
    }
    lane.editor->replace_uses(lane.values.front(), lane.values.back());
    for (std::size_t i = 1; i < lane.values.size(); ++i) {
      lane.editor->node(lane.values[i]).args = own[i - 1].first;
      lane.editor->node(lane.values[i]).kwargs = own[i - 1].second;
    }
  };
  replace(original_);
  for (Lane& part : parts_) replace(part);
  const StringId old = a_.step().nodes[base_].name;
  for (NodeId id : editor_b_.step().order) {
    Node& node = editor_b_.node(id);
    const Lineage lineage = find_lineage(node);
    const bool joins = lineage.role == ProvenanceRole::kMaterialize || lineage.role == ProvenanceRole::kAdded;
    if (!joins || lineage.origins.empty() || lineage.origins.front() != old) continue;
    std::vector<Provenance> records(node.provenance.begin(), node.provenance.end());
    for (Provenance& record : records) record.origins = name_;
    node.provenance = context_.own(std::span<const Provenance>(records));
  }
}

}  // namespace epweave
