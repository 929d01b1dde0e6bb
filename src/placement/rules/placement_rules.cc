#include "placement/rules/placement_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/whole_numbers.h"
#include "ir/types/dimension.h"
#include "ops/by_op.h"
#include "ops/rules.h"

namespace epweave {

PlacementCall::PlacementCall(const Graph& graph, const Placements& placements, TokenExtents& tokens,
                             Facts& facts, const PlacementOptions& options)
    : graph_(graph),
      body_(graph.step()),
      placements_(placements),
      tokens_(tokens),
      facts_(facts),
      options_(options) {}

namespace {

std::size_t count_leaves(const ArgPool& pool, Arg arg) {
  std::size_t count = 0;
  pool.for_each_node(arg, [&](NodeId) { ++count; });
  return count;
}

}  // namespace

void PlacementCall::begin(NodeId node) {
  id_ = node;
  node_ = &body_.nodes[node];
  const ArgPool& pool = graph_.context->args;
  operands_.clear();
  names_.clear();
  assumptions_.clear();
  cut_.reset();
  relied_on_ = {};
  std::size_t leaves = 0;
  auto add = [&](Arg arg) {
    operands_.push_back({arg, leaves, true});
    leaves += count_leaves(pool, arg);
  };
  for (Arg arg : pool[node_->args]) add(arg);
  const auto kwargs = pool[node_->kwargs];
  for (std::size_t i = 0; i + 1 < kwargs.size(); i += 2) {
    names_.push_back(graph_.text(kwargs[i].as_name()));
    add(kwargs[i + 1]);
  }
  accesses_.assign(leaves, Access());
  considered_.assign(leaves, false);
  // A number that a tensor is computed with is the whole's, unless the rule knows better; in a list
  // of sizes it may be the part's.
  const bool computes_tensor = node_->type && graph_.context->types[node_->type].kind != TypeKind::kScalar;
  for (const Operand& operand : operands_)
    if (computes_tensor && is_scalar(operand)) take_whole(operand);
}

Operand PlacementCall::arg(std::size_t position, std::string_view name) const {
  const std::size_t positional = node_->args.count;
  if (position < positional) return operands_[position];
  if (position < op().params.size()) name = op().params[position].name;
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (names_[i] == name) return operands_[positional + i];
  return {};
}

std::vector<Operand> PlacementCall::node_operands() const {
  std::vector<Operand> operands;
  for (const Operand& operand : operands_)
    if (operand.arg.is_node()) operands.push_back(operand);
  return operands;
}

Operand PlacementCall::named(std::string_view param) const {
  const auto position = op().find_param(param);
  return position ? arg(*position) : Operand();
}

int PlacementCall::dim_arg(std::int64_t fallback, std::size_t rank) const {
  const Operand operand = named("dim");
  return dim(operand && operand.arg.is_int() ? operand.arg.as_int() : fallback, rank);
}

std::vector<Operand> PlacementCall::items(Operand list) const {
  std::vector<Operand> result;
  if (!list || !list.arg.is_list()) return result;
  std::size_t leaf = list.leaf;
  for (Arg item : graph_.context->args.children(list.arg)) {
    result.push_back({item, leaf, true});
    leaf += count_leaves(graph_.context->args, item);
  }
  return result;
}

std::int64_t PlacementCall::int_arg(std::size_t position, std::string_view name,
                                    std::int64_t fallback) const {
  const Operand operand = arg(position, name);
  return operand && operand.arg.is_int() ? operand.arg.as_int() : fallback;
}

bool PlacementCall::bool_arg(std::size_t position, std::string_view name, bool fallback) const {
  const Operand operand = arg(position, name);
  return operand && operand.arg.is(ArgKind::kBool) ? operand.arg.as_bool() : fallback;
}

Placement PlacementCall::of(Operand operand) {
  if (!operand || !operand.arg.is_node()) return Placement::whole();
  consider(operand);
  const Placement& placement = placements_.seen_from(operand.arg.as_node(), placements_.region[id_]);
  if (placement.is_partial())
    if (const TensorType* type = tensor(operand))
      if (const auto dims = tokens_.dimensions(*type); !dims.empty()) {
        const Placement& rows = placements_.outside[operand.arg.as_node()];
        if (rows.is(PlacementKind::kUnordered)) refuse_unordered(operand);
        take_slice(operand, dims[0], rows.blocks);
        Placement result = Placement::split(dims[0]);
        result.blocks = rows.blocks;
        return result;
      }
  if (placement.is(PlacementKind::kCarried)) {
    take_whole(operand);
    return Placement::whole();
  }
  if (placement.is(PlacementKind::kAmbiguous))
    refuse("chunk.two-token-extents",
           fmt::format("'{}' has more than one extent that counts tokens", name_of(operand)),
           "keep the value outside the selected module, or give its extents different symbols");
  if (placement.is(PlacementKind::kUnordered)) refuse_unordered(operand);
  return placement;
}

void PlacementCall::refuse_unordered(Operand operand) const {
  refuse(
      "chunk.unknown-order",
      fmt::format("the rows of '{}' are those of a grid, in an order that nothing shows", name_of(operand)),
      "select roots that contain what merges the dimensions, or divide the batch (dim=batch)");
}

Placement PlacementCall::constant_rows(int dim, const Placement& like) {
  Placement rows = Placement::split(dim);
  const TensorType* type = result_tensor();
  if (type == nullptr) return rows;
  const auto multiple = tokens_.multiple(type->sizes[static_cast<std::size_t>(dim)]);
  if (multiple && multiple->factor == 1) return rows;
  rows.blocks = like.blocks;
  rows.any_order = true;
  return rows;
}

void PlacementCall::take_slice_like(Operand operand, int dim, const Placement& rows) {
  if (rows.any_order) refuse_unordered(operand);
  take_slice(operand, dim, rows.is(PlacementKind::kSplit) ? rows.blocks : PolyId());
}

void PlacementCall::take_rows_of(Operand operand, int dim) {
  const Placement& placement = placements_.of(operand.arg.as_node());
  if (placement == Placement::split(dim)) return take_part(operand);
  if (placement.is_whole() || placement.is(PlacementKind::kAmbiguous)) return take_slice(operand, dim);
  refuse("chunk.combination", fmt::format("'{}' is placed {}, where its rows along dimension {} are needed",
                                          name_of(operand), print_placement(placement), dim));
}

const TensorType* PlacementCall::tensor(Operand operand) const {
  const Node* node = producer(operand);
  return node == nullptr ? nullptr : tensor_of(*graph_.context, node->type);
}

bool PlacementCall::is_from_outside(Operand operand) const {
  return operand && operand.arg.is_node() &&
         !placements_.shares_parts(operand.arg.as_node(), placements_.region[id_]);
}

bool PlacementCall::is_scalar(Operand operand) const {
  const Node* node = producer(operand);
  return node != nullptr && node->type && graph_.context->types[node->type].kind == TypeKind::kScalar;
}

bool PlacementCall::is_made_of_sums(NodeId number) {
  const std::uint32_t group = placements_.regions[placements_.region[id_].index()].group + 1;
  const auto is_known = [&](NodeId id) { return made_of_sums_[id].group == group; };
  std::vector<NodeId> open{number};  // arithmetic may be long
  while (!open.empty()) {
    const NodeId top = open.back();
    const std::size_t size = open.size();
    if (!is_known(top) && is_arithmetic_of_part(top))
      for_each_input(*graph_.context, body_.nodes[top], [&](NodeId input) {
        if (!is_known(input)) open.push_back(input);
      });
    if (open.size() > size) continue;
    open.pop_back();
    if (is_known(top)) continue;
    bool is_made = seen(top).is_partial() || seen(top).is_whole();
    if (is_arithmetic_of_part(top)) {
      is_made = true;
      for_each_input(*graph_.context, body_.nodes[top],
                     [&](NodeId input) { is_made &= made_of_sums_[input].is_made; });
    }
    made_of_sums_.at(top) = {group, is_made};
  }
  return made_of_sums_[number].is_made;
}

bool PlacementCall::is_arithmetic_of_part(NodeId number) const {
  const Node& node = body_.nodes[number];
  return seen(number).is_local() && node.kind == NodeKind::kCall &&
         graph_.text(node.target).starts_with("operator.");
}

std::size_t PlacementCall::rank(Operand operand) const {
  const TensorType* type = tensor(operand);
  return type == nullptr ? 0 : type->rank();
}

std::size_t PlacementCall::result_count() const {
  return node_->type ? graph_.context->types[node_->type].elements.size() : node_->op->returns.size();
}

const Node* PlacementCall::producer(Operand operand) const {
  return operand && operand.arg.is_node() ? &body_.nodes[operand.arg.as_node()] : nullptr;
}

int PlacementCall::dim(std::int64_t value, std::size_t rank) const {
  const auto found = find_dimension(value, std::max<std::size_t>(rank, 1));
  return found ? static_cast<int>(*found) : -1;
}

void PlacementCall::refuse(std::string id, std::string problem, std::string remedy) const {
  throw PlacementRefusal{std::move(id), std::move(problem), std::move(remedy)};
}

std::string PlacementCall::name_of(Operand operand) const {
  const Node* node = producer(operand);
  return node == nullptr ? "a literal" : std::string(graph_.text(node->name));
}

void PlacementCall::set(Operand operand, Access access) {
  consider(operand);
  const std::size_t count = count_leaves(graph_.context->args, operand.arg);
  for (std::size_t i = 0; i < count; ++i) accesses_[operand.leaf + i] = access;
}

void PlacementCall::consider(const Operand& operand) {
  const std::size_t count = count_leaves(graph_.context->args, operand.arg);
  for (std::size_t i = 0; i < count; ++i) considered_[operand.leaf + i] = true;
}

void PlacementCall::require_all_considered() const {
  std::size_t leaf = 0;
  for_each_input(*graph_.context, *node_, [&](NodeId input) {
    if (considered_[leaf++] || !placements_.seen_from(input, placements_.region[id_]).is_divided()) return;
    refuse("chunk.combination", fmt::format("it has no rule for a divided value where '{}' stands",
                                            graph_.text(body_.nodes[input].name)));
  });
}

void PlacementCall::require_sums(const Placement& placement) {
  const TensorType* result = result_tensor();
  if (result == nullptr || !(placement.is_partial() || placement.is(PlacementKind::kCarried))) return;
  if (result->dtype == DType::kBool)
    refuse("chunk.combination", "over all parts it is whether any is not zero, and no sum",
           "select roots that leave it outside");
  if (const Operand bias = named("bias"); bias && bias.arg.is_node() && of(bias).is_whole())
    refuse("chunk.combination", fmt::format("each part would add '{}' to its share", name_of(bias)),
           "add the bias behind the product, or select roots that leave it outside");
  for (const Operand& operand : operands()) {
    const TensorType* type = tensor(operand);
    if (type == nullptr || !of(operand).is_partial() || accesses_[operand.leaf].kind != Access::Kind::kPart ||
        converts_sum(operand, result->dtype))
      continue;
    refuse("chunk.combination",
           fmt::format("it converts '{}', a sum over the parts, to another dtype: fractions are dropped or "
                       "sums wrap in each part",
                       name_of(operand)),
           is_floating(type->dtype)
               ? "count in integers, as torch.bincount(.., minlength=n) or one_hot(.., n).sum(0) does, or "
                 "select roots that leave it outside"
               : "select roots that leave it outside");
  }
}

bool PlacementCall::converts_sum(Operand sum, DType to) const {
  return epweave::converts_sum(graph_, *placements_.effects, sum.arg.as_node(), to);
}

void PlacementCall::take_own_sum(Operand sum) {
  if (options_.own_sums == OwnSums::kRefuse)
    refuse("chunk.own-sum",
           fmt::format("its rows take the sum '{}', of which a part has only its own share", name_of(sum)),
           "leave the sum or its use outside the selected module; contract=own-sums divides it if the module "
           "means the sum over its own tokens");
  assume_unproven(fmt::format("uses the part's own sum '{}'", name_of(sum)));
}

void require_same_extent(PlacementCall& call, const RowsOfValue& a, const RowsOfValue& b) {
  const TensorType *x = call.tensor(a.value), *y = call.tensor(b.value);
  if (x == nullptr || y == nullptr) return;
  const ExprId m = x->sizes[static_cast<std::size_t>(a.dim)], n = y->sizes[static_cast<std::size_t>(b.dim)];
  if (call.facts().equal(m, n)) return;
  call.refuse("chunk.mixed-extents",
              fmt::format("it pairs the first rows of '{}' and '{}', which have {} and {}: those of a part "
                          "are not the first of all",
                          call.name_of(a.value), call.name_of(b.value), call.facts().pool().text(m),
                          call.facts().pool().text(n)),
              "cut the longer one to the rows that are used, outside the selected module");
}

bool same_order(const Placement& a, const Placement& b) {
  return a.any_order || b.any_order || a.blocks == b.blocks;
}

void require_same_order(PlacementCall& call, const Placement& a, const Placement& b) {
  if (same_order(a, b)) return;
  // Rows in an order of their own: numbers of rows, or what those picked.
  const bool are_numbered = a.is_local() || b.is_local();
  call.refuse("chunk.mixed-orders",
              "its operands have the rows of a part in different orders: of each block of one, and of "
              "other blocks, or "
              "none, of the other",
              are_numbered
                  ? "an order of k copies of the tokens picks from as many copies: x.repeat(k, 1)[order], "
                    "not x[order % x.shape[0]]; put them back by argsort(order)"
                  : "");
}

// Blocks of the ordered operands, which must have the same; else those that rows in an order of
// their own stem from.
void take_common_order(PlacementCall& call, std::span<const Placement> placements, Placement& rows) {
  const Placement* ordered = nullptr;
  for (const Placement& p : placements) {
    if (!p.is(PlacementKind::kSplit) || p.any_order) continue;
    if (ordered != nullptr) require_same_order(call, *ordered, p);
    ordered = &p;
  }
  rows.any_order = rows.is(PlacementKind::kSplit) && ordered == nullptr;
  if (ordered != nullptr) rows.blocks = ordered->blocks;
  for (const Placement& p : placements)
    if (!rows.blocks && p.is_local()) rows.blocks = p.blocks;
}

Placement common_rows(PlacementCall& call, std::span<const Placement> placements) {
  int dim = -1;
  bool ordered = true;
  for (const Placement& p : placements) {
    if (!p.is_rows()) continue;
    if (dim >= 0 && p.dim != dim)
      call.refuse("chunk.mixed-dimensions",
                  fmt::format("operands are divided along dimensions {} and {}", dim, p.dim));
    dim = p.dim;
    ordered &= p.is(PlacementKind::kSplit);
  }
  EPWEAVE_CHECK(dim >= 0);
  Placement rows = ordered ? Placement::split(dim) : Placement::local(dim);
  take_common_order(call, placements, rows);
  return rows;
}

namespace {

// Sizes: multiples of the token count add up over the parts, anything else belongs to its part.
Placement scalar_arithmetic(std::span<const Placement> placements, Linearity linearity) {
  const auto partials =
      std::count_if(placements.begin(), placements.end(), [](auto& p) { return p.is_partial(); });
  const bool only_sums = std::all_of(placements.begin(), placements.end(),
                                     [](auto& p) { return p.is_partial() || p.is_whole(); });
  if (only_sums && linearity == Linearity::kSum && partials == std::ssize(placements))
    return Placement::partial();
  if (only_sums && linearity == Linearity::kEach && partials == 1) return Placement::partial();
  return Placement::local();
}

}  // namespace

// A sum stays a sum where the op is linear in it; else it is joined and the op runs once.
Placement write_to_shared(PlacementCall& call) {
  for (const Operand& operand : call.operands())
    if (call.of(operand).is_divided())
      call.refuse("chunk.update-not-a-sum",
                  fmt::format("what one part has is written to '{}', which all parts share",
                              call.name_of(call.arg(0))),
                  "only a sum over the tokens can be accumulated into shared state part by part");
  return Placement::whole();
}

Placement sum_arithmetic(PlacementCall& call, std::span<const Operand> operands,
                         std::span<const Placement> placements, Linearity linearity) {
  const auto partials =
      std::count_if(placements.begin(), placements.end(), [](auto& p) { return p.is_partial(); });
  const bool stays = (linearity == Linearity::kSum && partials == std::ssize(placements)) ||
                     (linearity == Linearity::kEach && partials == 1) ||
                     (linearity == Linearity::kFirst && partials == 1 && placements[0].is_partial());
  if (stays) return Placement::partial();
  for (const Operand& operand : operands) call.take_whole(operand);
  return Placement::whole();
}

void refuse_shared_rows(PlacementCall& call, const RowsOfValue& rows) {
  const ExprId extent = call.tensor(rows.value)->sizes[static_cast<std::size_t>(rows.dim)];
  call.refuse(
      "chunk.whole-rows",
      fmt::format("'{}', which all parts share, has {} rows along the divided dimension, which do not "
                  "count tokens: nothing shows which of them pair with a part's",
                  call.name_of(rows.value), call.facts().pool().text(extent)),
      "make the rows inside the selected module from rows of the part, or name the input that has them: "
      "symbolize{inputs=[tokens:0,..]}");
}

void cut_outside_rows(PlacementCall& call, std::span<const Operand> operands,
                      std::span<Placement> placements) {
  const auto is_ordered = [](const Placement& p) { return p.is(PlacementKind::kSplit) && !p.any_order; };
  const Placement* own = nullptr;
  for (std::size_t i = 0; i < operands.size() && own == nullptr; ++i)
    if (is_ordered(placements[i]) && !call.is_from_outside(operands[i])) own = &placements[i];
  if (own == nullptr) return;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    Placement& p = placements[i];
    if (!is_ordered(p) || p.blocks == own->blocks || !call.is_from_outside(operands[i])) continue;
    p.blocks = own->blocks;
    call.take_slice_like(operands[i], p.dim, p);
  }
}

bool has_elements(PlacementCall& call, const TensorType& type) {
  return std::ranges::none_of(type.sizes,
                              [&](ExprId extent) { return call.facts().pool().constant(extent) == 0; });
}

Placement elementwise(PlacementCall& call, std::span<const Operand> operands, Linearity linearity) {
  std::vector<Placement> placements;
  const TensorType* result = call.result_tensor();
  const bool takes_rows = std::ranges::any_of(operands, [&](const Operand& operand) {
    return !call.is_scalar(operand) && call.of(operand).is_rows();
  });
  for (const Operand& operand : operands) {
    // Beside a tensor a number is the whole's, but one that only a part has, as of its own rows.
    const bool is_number = result != nullptr && call.is_scalar(operand);
    const bool is_own = !takes_rows && is_number && call.of(operand).is_local() &&
                        !call.is_made_of_sums(operand.arg.as_node());
    if (is_own) call.take_part(operand);
    placements.push_back(is_number && !is_own ? Placement::whole() : call.of(operand));
  }
  cut_outside_rows(call, operands, placements);
  auto any = [&](auto&& predicate) { return std::any_of(placements.begin(), placements.end(), predicate); };
  if (!any([](const Placement& p) { return p.is_divided(); })) return Placement::whole();

  if (result == nullptr) return scalar_arithmetic(placements, linearity);
  if (!any([](const Placement& p) { return p.is_rows(); })) {
    if (any([](const Placement& p) { return p.is_local(); })) return Placement::local();
    return sum_arithmetic(call, operands, placements, linearity);
  }

  // Operands are aligned from the right, as broadcasting does.
  const int rank = static_cast<int>(result->rank());
  std::vector<Placement> aligned;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Placement& p = placements[i];
    if (p.is_rows()) {
      aligned.push_back(p);
      aligned.back().dim += rank - static_cast<int>(call.rank(operands[i]));
    } else if ((p.is_partial() || p.is_local()) &&
               (call.tensor(operands[i]) == nullptr || has_elements(call, *call.tensor(operands[i])))) {
      call.take_own_sum(operands[i]);
      aligned.push_back(Placement::local());
    }
  }
  Placement rows = common_rows(call, aligned);
  if (std::any_of(aligned.begin(), aligned.end(), [](const Placement& p) { return p.is_local(); }))
    rows.kind = PlacementKind::kLocal, rows.any_order = false;
  // A whole operand that has rows of its own along the divided dimension is cut like the others;
  // beside equal rows that decides which rows a part has.
  const auto cut_like = [&](const Operand& operand, int dim) {
    rows.any_order = false;
    call.take_slice_like(operand, dim, rows);
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const TensorType* type = call.tensor(operands[i]);
    if (!placements[i].is_whole() || type == nullptr) continue;
    const int dim = rows.dim - (rank - static_cast<int>(type->rank()));
    if (dim < 0) continue;
    const ExprId extent = type->sizes[static_cast<std::size_t>(dim)];
    if (call.tokens().scales(extent)) {
      cut_like(operands[i], dim);
    } else if (call.facts().pool().constant(extent) != 1) {
      refuse_shared_rows(call, {operands[i], dim});
    }
  }
  return rows;
}

Placement draw_once(PlacementCall& call) {
  const auto take = [&](const Operand& operand) {
    const Placement p = call.of(operand);
    if (!p.is_divided()) return;
    const bool is_joinable = p.is(PlacementKind::kSplit) || p.is_partial();
    if (!is_joinable)
      call.refuse("chunk.random", "it draws random numbers for rows in an order of the part's own",
                  "trace the model without it (dropout of 0), or select roots that leave it outside");
    call.take_whole(operand);
  };
  for (const Operand& operand : call.operands()) {
    take(operand);
    for (const Operand& item : call.items(operand)) take(item);
  }
  return Placement::whole();
}

bool writes_nothing(const OpInfo& op) {
  return !op.writes;
}
bool any_op(const OpInfo&) {
  return true;
}

std::vector<PlacementRow> placement_rows() {
  std::vector<PlacementRow> all;
  for (auto rows : {elementwise_placement_rows(), shape_placement_rows(), compute_placement_rows(),
                    routing_placement_rows(), collective_placement_rows(), attention_placement_rows()})
    all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

namespace {

// What a device computes of elements, by the mapping of its dimensions. A collective, a wait or a
// copy to another device of a part has its own meaning: there is none for those.
PlacementRule default_rule(const OpInfo& op) {
  const bool computes = op.cost != CostClass::kCollective && op.cost != CostClass::kWait &&
                        op.cost != CostClass::kHostSync && op.family != OpFamily::kTransfer;
  if (!computes || op.is_effectful) return nullptr;
  if (!op.writes) return by_factors;
  return op.params[0].is_written ? by_factors_in_place : nullptr;
}

}  // namespace

PlacementRule find_placement_rule(const OpInfo& op) {
  static const std::vector<PlacementRule> rules = [] {
    std::map<OpFamily, PlacementRow> of_family;
    for (const PlacementRow& row : placement_rows()) EPWEAVE_CHECK(of_family.emplace(row.family, row).second);
    return list_by_op([&](const OpInfo& each) {
      const auto found = of_family.find(each.family);
      return found != of_family.end() && found->second.covers(each) ? found->second.rule : default_rule(each);
    });
  }();
  return rules[op.index];
}

}  // namespace epweave
