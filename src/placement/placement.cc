#include "placement/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/element_call.h"
#include "analysis/module_path.h"
#include "analysis/users.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "placement/chunk_roots.h"
#include "placement/obstacles.h"
#include "placement/placement_blocks.h"
#include "placement/placement_reshape.h"
#include "placement/recorded_types.h"
#include "placement/rules/placement_rules.h"

namespace epweave {

Placement Placement::tuple(std::vector<Placement> elements) {
  return {PlacementKind::kTuple, -1, std::move(elements)};
}

bool Placement::is_divided() const {
  if (kind == PlacementKind::kTuple)
    return std::any_of(elements.begin(), elements.end(), [](const Placement& p) { return p.is_divided(); });
  return kind != PlacementKind::kWhole;
}

std::string print_placement(const Placement& p) {
  switch (p.kind) {
    case PlacementKind::kWhole:
      return "Whole";
    case PlacementKind::kSplit:
      return fmt::format("Split({}{})", p.dim, p.blocks ? " in blocks" : "");
    case PlacementKind::kLocal:
      return p.dim < 0 ? "Local" : fmt::format("Local({})", p.dim);
    case PlacementKind::kPartial:
      return "Partial";
    case PlacementKind::kCarried:
      return "Carried";
    case PlacementKind::kAmbiguous:
      return "Ambiguous";
    case PlacementKind::kUnordered:
      return "Unordered";
    case PlacementKind::kTuple:
      break;
  }
  std::string text = "(";
  for (std::size_t i = 0; i < p.elements.size(); ++i)
    text += (i > 0 ? ", " : "") + print_placement(p.elements[i]);
  return text + ")";
}

namespace {

std::size_t hash(const Placement& p) {
  std::size_t h = mix_hash(static_cast<std::size_t>(p.kind), static_cast<std::size_t>(p.dim));
  h = mix_hash(mix_hash(h, p.blocks.index()), p.any_order ? 1 : 0);
  for (const Placement& element : p.elements) h = mix_hash(h, hash(element));
  return h;
}

}  // namespace

void PlacementTable::set(NodeId id, const Placement& placement) {
  const std::size_t h = hash(placement);
  std::uint32_t number = index_.find(h, [&](std::uint32_t i) { return distinct_[i] == placement; });
  if (number == HashIndex::kNone) {
    number = static_cast<std::uint32_t>(distinct_.size());
    distinct_.push_back(placement);
    index_.insert(h, number);
  }
  numbers_.at(id) = number;
}

void Placements::set_access(NodeId node, const std::vector<Access>& accesses) {
  access_begin_.at(node) = static_cast<std::uint32_t>(accesses_.size());
  accesses_.insert(accesses_.end(), accesses.begin(), accesses.end());
}

namespace {

class Inference {
 public:
  Inference(const Graph& graph, const PlacementOptions& options, TokenExtents& tokens, Facts& facts)
      : graph_(graph),
        step_(graph.step()),
        options_(options),
        tokens_(tokens),
        facts_(facts),
        types_(facts),
        matcher_(options.roots, graph.context->strings),
        call_(graph, result_, tokens, facts, options),
        obstacles_(graph) {
    result_.effects = std::make_shared<const Effects>(*graph.context, step_);
    result_.region = SideTable<NodeId, RegionId>(step_.nodes.size(), RegionId());
    result_.placement = result_.outside = PlacementTable(step_.nodes.size());
  }

  Placements run() {
    roots_ = select_roots(graph_, options_, matcher_);
    require_unchunked(graph_, roots_, matcher_);
    require_tokens();
    find_sharing_ranks();
    result_.unused_patterns = roots_.unused_patterns;
    result_.unmatched_patterns = roots_.unmatched_patterns;
    for (const auto [id, node] : walk(*graph_.context, step_)) {
      infer_outside(id, node.type);
      if (const RegionId region = region_of(id)) {
        result_.region.at(id) = region;
        if (!obstacles_.is_behind_one(id)) visit(id, region);
      }
      note_writes(id);
    }
    obstacles_.require_none();
    leave_out_undivided();
    return std::move(result_);
  }

 private:
  void refuse(NodeId id, const PlacementRefusal& refusal) {
    const Node& node = step_.nodes[id];
    std::string inputs;
    for_each_input(*graph_.context, node, [&](NodeId input) {
      inputs += fmt::format("{}{}: {}", inputs.empty() ? "" : ", ", graph_.text(step_.nodes[input].name),
                            print_placement(result_.seen_from(input, result_.region[id])));
    });
    obstacles_.add(id, PassError(refusal.id,
                                 fmt::format("{} cannot run on parts of the tokens: {} (arguments {})",
                                             graph_.text(node.target), refusal.problem, inputs),
                                 site_of(graph_, node), remedy_of(refusal)));
  }

  std::string remedy_of(const PlacementRefusal& refusal) const {
    if (!refusal.remedy.empty()) return refusal.remedy;
    std::string remedy = "select roots that leave this operation outside";
    if (refusal.id == "chunk.along-divided" || refusal.id == "chunk.combination" ||
        refusal.id == "chunk.mixed-orders")
      if (const ProcessGroup* group = find_tensor_parallel_group())
        remedy += fmt::format(
            "; the graph is tensor-parallel (group '{}', axis tp, {} ranks): a part has rows of each rank's "
            "share of the tokens, and what cuts across the shares needs a trace with tensor-parallel degree "
            "1",
            graph_.text(group->name), group->ranks.size());
    return remedy;
  }

  const ProcessGroup* find_tensor_parallel_group() const {
    for (const ProcessGroup& group : graph_.groups)
      if (group.ranks.size() > 1 && group.axes && group.axes->size() == 1 &&
          graph_.text(group.axes->front()) == "tp")
        return &group;
    return nullptr;
  }

  Placement outside_placement(TypeId id) {
    if (!id) return Placement::whole();
    const Type& type = graph_.context->types[id];
    if (type.kind == TypeKind::kTensor) {
      const auto dims = tokens_.dimensions(type.tensor);
      if (dims.size() > 1) return {PlacementKind::kAmbiguous, -1, {}};
      return dims.empty() ? Placement::whole() : Placement::split(dims[0]);
    }
    if (type.kind == TypeKind::kScalar) {
      if (!tokens_.scales(type.expr)) return Placement::whole();
      return tokens_.is_linear(type.expr) ? Placement::partial() : Placement::local();
    }
    if (type.elements.empty()) return Placement::whole();
    std::vector<Placement> elements;
    for (TypeId element : type.elements) elements.push_back(outside_placement(element));
    Placement tuple = Placement::tuple(std::move(elements));
    return tuple.is_divided() ? tuple : Placement::whole();
  }

  void infer_outside(NodeId id, TypeId type) {
    if (!type) return;
    if (placed_types_.insert(type)) of_type_.at(type) = outside_placement(type);
    if (!of_type_[type].is_divided()) return;
    if (!of_type_[type].is(PlacementKind::kTuple))
      return result_.outside.set(id, ordered(id, type, of_type_[type]));
    Placement tuple = of_type_[type];
    for (std::size_t i = 0; i < tuple.elements.size(); ++i)
      tuple.elements[i] = ordered(id, graph_.context->types[type].elements[i], tuple.elements[i]);
    result_.outside.set(id, tuple);
  }

  // With the blocks of a dimension that more is merged into than the tokens: those of what it is
  // made from.
  Placement ordered(NodeId id, TypeId type_id, const Placement& placement) {
    const TensorType* type = tensor_of(*graph_.context, type_id);
    if (type == nullptr || !placement.is(PlacementKind::kSplit)) return placement;
    const ExprId extent = type->sizes[static_cast<std::size_t>(placement.dim)];
    const auto multiple = tokens_.multiple(extent);
    if (multiple && multiple->factor == 1) return placement;
    const Node& node = step_.nodes[id];
    if (node.kind == NodeKind::kPlaceholder && sharing_ranks_ > 1 && multiple &&
        multiple->factor == tokens_.source(multiple->symbol).factor)
      return join_blocks(facts_.pool(), placement, sharing_ranks_);
    if (has_family(node, OpFamily::kElement)) return element_of(node, placement);
    std::optional<Placement> found;
    for_each_input(*graph_.context, node, [&](NodeId input) {
      const Placement& from = result_.outside[input];
      const TensorType* source = tensor_of(*graph_.context, step_.nodes[input].type);
      if (found || source == nullptr || !from.is(PlacementKind::kSplit)) return;
      const ExprId source_extent = source->sizes[static_cast<std::size_t>(from.dim)];
      if (facts_.equal(source_extent, extent)) {
        found = placement;
        found->blocks = from.blocks;
      } else if (has_family(node, OpFamily::kAllGather) && from.dim == 0 && placement.dim == 0) {
        if (const auto ranks = count_runs(facts_, extent, source_extent))
          found = join_blocks(facts_.pool(), from, *ranks);
      } else if (has_family(node, OpFamily::kReduceScatter) && from.dim == 0 && placement.dim == 0) {
        if (const auto ranks = count_runs(facts_, source_extent, extent))
          found = cut_blocks(facts_.pool(), from, *ranks);
      } else if (has_family(node, OpFamily::kReshape)) {
        if (const auto result = follow_reshape(facts_, *source, *type, from); result.placement)
          found = result.placement;
      }
    });
    // Inside a grid the tokens are behind the batch, elsewhere in front of all else.
    return found.value_or(tokens_.is_inner() ? Placement{PlacementKind::kUnordered, -1, {}} : placement);
  }
  Placement element_of(const Node& getitem, const Placement& placement) const {
    const Arg tuple = arg_of(*graph_.context, getitem, 0), index = arg_of(*graph_.context, getitem, 1);
    if (!tuple.is_node() || !index.is_int() || index.as_int() < 0) return placement;
    const Placement& from = result_.outside[tuple.as_node()];
    const auto i = static_cast<std::size_t>(index.as_int());
    return i < from.elements.size() ? from.elements[i] : placement;
  }

  // Where no input has a token symbol alone, ranks share the tokens: the inputs have the rows of
  // all of them, as many as gathers make of one rank's.
  void find_sharing_ranks() {
    std::int64_t all = 1;
    for (StringId symbol : tokens_.symbols()) all = std::max(all, tokens_.source(symbol).factor);
    if (all == 1) return;
    std::vector<std::int64_t> gathered = {1};  // what gathers make, in multiples of the symbol
    for (NodeId id : step_.order) {
      const Node& node = step_.nodes[id];
      if (!has_family(node, OpFamily::kAllGather)) continue;
      const Arg source = arg_of(*graph_.context, node, 0);
      if (!source.is_node()) continue;  // a list of them
      const auto result = rows_of(id), operand = rows_of(source.as_node());
      if (!result || !operand || std::ranges::find(gathered, *operand) == gathered.end()) continue;
      if (std::ranges::find(gathered, *result) == gathered.end()) gathered.push_back(*result);
    }
    if (std::ranges::find(gathered, all) != gathered.end()) sharing_ranks_ = all;
  }
  // Of a tensor's first dimension, in multiples of a token symbol.
  std::optional<std::int64_t> rows_of(NodeId id) {
    const TensorType* type = tensor_of(*graph_.context, step_.nodes[id].type);
    if (type == nullptr || type->sizes.empty()) return std::nullopt;
    const auto multiple = tokens_.multiple(type->sizes[0]);
    return multiple ? std::optional(multiple->factor) : std::nullopt;
  }

  RegionId region_id(StringId root, bool backward) {
    SideTable<StringId, RegionId>& table = backward ? backward_regions_ : forward_regions_;
    if (!table[root]) {
      result_.regions.push_back({root, backward, roots_.division[root], group_of(root)});
      table.at(root) = RegionId(result_.regions.size() - 1);
    }
    return table[root];
  }

  std::uint32_t group_of(StringId root) {
    if (options_.join == JoinMode::kLate) return roots_.division[root];
    if (!group_of_[root]) group_of_.at(root) = ++group_count_;
    return group_of_[root] - 1;
  }

  RegionId region_of(NodeId id) {
    const Node& node = step_.nodes[id];
    if (node.kind != NodeKind::kCall) return RegionId();
    // An element goes with its tuple: only then has it parts, or none.
    if (const NodeId tuple = tuple_of(*graph_.context, node))
      if (result_.of(tuple).is(PlacementKind::kTuple)) return result_.region[tuple];
    // A wait goes with its collective, of which each part has one.
    if (is_wait(node)) {
      const Arg waited = arg_of(*graph_.context, node, 0);
      const NodeId launch = waited.is_node() ? waited.as_node() : NodeId();
      if (launch && is_launch(step_.nodes[launch]) && result_.region[launch] && result_.is_divided(launch))
        return result_.region[launch];
    }
    if (has_family(node, OpFamily::kIota) && result_.outside[id].is(PlacementKind::kSplit) && counts_data(id))
      return RegionId();
    if (node.module) {
      const StringId root = matcher_.root_of(node.module);
      return root && roots_.modules.contains(root) ? region_id(root, node.is_backward()) : RegionId();
    }
    return accumulation_region(id);
  }

  // Whether numbers that count along the tokens become real ones, or answers: rotary positions, a
  // table's rows, a mask. Those are made whole, and a part takes its share, as a part would count
  // from 0. What sorts and picks rows with them has its own in each part (rows/positions.h).
  bool counts_data(NodeId iota) {
    if (users_.total() == 0) users_ = invert(list_inputs(*graph_.context, step_), step_.order);
    std::vector<NodeId> counted = {iota};
    for (std::size_t i = 0; i < counted.size(); ++i) {
      if (is_answer(counted[i])) continue;
      for (const NodeId user : users_[counted[i]]) {
        if (step_.nodes[user].kind == NodeKind::kOutput) continue;
        if (!keeps_numbers(step_.nodes[user])) return false;
        if (std::ranges::find(counted, user) == counted.end()) counted.push_back(user);
      }
    }
    return true;
  }
  bool is_answer(NodeId id) const {
    const TensorType* type = tensor_of(*graph_.context, step_.nodes[id].type);
    return type != nullptr && (is_floating(type->dtype) || type->dtype == DType::kBool);
  }
  static bool keeps_numbers(const Node& node) {
    constexpr std::array kFamilies = {
        OpFamily::kElementwise, OpFamily::kIdentity,  OpFamily::kCast,
        OpFamily::kReshape,     OpFamily::kUnsqueeze, OpFamily::kSqueeze,
        OpFamily::kExpand,      OpFamily::kEmbedding, OpFamily::kEmbeddingBackward};
    return node.op != nullptr && !node.op->writes &&
           std::ranges::find(kFamilies, node.op->family) != kFamilies.end();
  }

  // Gradient accumulation that autograd inserted: backward, without a module. It joins the region
  // of its latest divided input if every tensor input already has parts there; it must never cause
  // a new split.
  RegionId accumulation_region(NodeId id) {
    const Node& node = step_.nodes[id];
    if (!node.is_backward() || graph_.text(node.target).starts_with("_c10d_functional")) return RegionId();
    RegionId latest;
    for_each_input(*graph_.context, node, [&](NodeId input) {
      if (result_.region[input] && result_.is_divided(input)) latest = result_.region[input];
    });
    if (!latest || !result_.regions[latest.index()].backward) return RegionId();
    bool has_parts = true;
    for_each_input(*graph_.context, node, [&](NodeId input) {
      const bool is_tensor = tensor_of(*graph_.context, step_.nodes[input].type) != nullptr;
      if (is_tensor && !result_.seen_from(input, latest).is_divided()) has_parts = false;
      if (!result_.shares_parts(input, latest) && !(taken_by_[input] == latest)) has_parts = false;
    });
    return has_parts ? latest : RegionId();
  }

  void visit(NodeId id, RegionId region) {
    bool any_divided = false;
    for_each_input(*graph_.context, step_.nodes[id],
                   [&](NodeId input) { any_divided |= result_.seen_from(input, region).is_divided(); });
    if (!any_divided) return;
    try {
      divide(id, region);
    } catch (const PlacementRefusal& refusal) {
      refuse(id, refusal);
    }
  }

  void divide(NodeId id, RegionId region) {
    const Node& node = step_.nodes[id];
    if (node.chunk.role)
      throw PlacementRefusal{"chunk.already-chunked", "it already belongs to a part of a chunked region",
                             "chunk a graph once, with all patterns in one list: roots=[A,B]"};
    if (node.op != nullptr && node.op->is_random)
      throw PlacementRefusal{
          "chunk.random", "it draws random numbers, and a part would draw others than the whole",
          "trace the model without it (dropout of 0), or select roots that leave it outside"};
    const PlacementRule rule = node.op == nullptr ? nullptr : find_placement_rule(*node.op);
    if (rule == nullptr)
      throw PlacementRefusal{
          "chunk.no-rule", "there is no placement rule for this operation",
          node.op == nullptr
              ? "select roots that leave it outside, or add a row for it to the op table and a placement rule"
              : "select roots that leave it outside"};
    call_.begin(id);
    check_types(id);
    check_updates_before(id, region);
    const Placement placement = rule(call_);
    call_.require_all_considered();
    call_.require_sums(placement);
    check_content();
    check_updates_after(id, placement, region);
    result_.set_access(id, call_.accesses());
    for (const Assumption& assumption : call_.assumptions()) result_.assumptions.push_back(assumption);
    if (!placement.is_divided()) return;
    if (call_.cut()) result_.attention.emplace(id, *call_.cut());
    has_division_.insert(region);
    for_each_input(*graph_.context, node, [&](NodeId input) {
      if (!result_.shares_parts(input, region) && result_.seen_from(input, region).is_divided())
        taken_by_.at(input) = region;
    });
    result_.placement.set(id, placement);
    result_.divided.push_back(id);
    if (placement.any_order) equal_rows_.at(result_.effects->storage_of(id)).push_back(id);
  }

  // Rules read dimensions off the recorded types.
  void check_types(NodeId id) {
    const Node& node = step_.nodes[id];
    if (!node.type && !node.op->returns.empty() && !is_untyped_element(node))
      throw PlacementRefusal{"chunk.no-type", "it has no recorded type", "export the graph with types"};
    if (std::string problem = find_wrong_record(graph_, node, tokens_, types_); !problem.empty())
      throw PlacementRefusal{
          "chunk.no-type", std::move(problem),
          "export the graph with its own types again, or select roots that leave this operation outside"};
  }

  // Of a tuple that records no tensor for it either: what a kernel leaves out, or a number.
  bool is_untyped_element(const Node& node) const {
    const bool is_element = has_family(node, OpFamily::kElement);
    const Arg tuple = is_element ? arg_of(*graph_.context, node, 0) : Arg::none();
    const Arg index = is_element ? arg_of(*graph_.context, node, 1) : Arg::none();
    const TypeId type = tuple.is_node() ? step_.nodes[tuple.as_node()].type : TypeId();
    if (!type || !index.is_int() || index.as_int() < 0) return false;
    const std::vector<TypeId>& elements = graph_.context->types[type].elements;
    const auto i = static_cast<std::size_t>(index.as_int());
    return i < elements.size() &&
           (!elements[i] || graph_.context->types[elements[i]].kind == TypeKind::kValue);
  }

  // A part must not see a buffer between the parts' updates.
  void check_updates_before(NodeId id, RegionId region) const {
    for_each_input(*graph_.context, step_.nodes[id], [&](NodeId input) {
      const NodeId storage = result_.effects->storage_of(input);
      if (updated_in_[storage] != region) return;
      const bool are_zeros = step_.nodes[storage].op != nullptr && step_.nodes[storage].op->makes_zeros;
      throw PlacementRefusal{
          "chunk.read-after-update",
          fmt::format("it reads '{}', which the region updates", graph_.text(step_.nodes[input].name)),
          are_zeros ? "add to the zeros out of place, so that each part has its own (scatter_add for "
                      "scatter_add_, index_add for index_add_)"
                    : "read the buffer before its update, or outside the selected module"};
    });
  }

  void note_writes(NodeId id) {
    for (const StorageAccess& access : result_.effects->accesses_of(id))
      if (access.writes && !written_by_[access.storage]) written_by_.at(access.storage) = id;
  }

  // What a rule says of a value for what made it holds until something writes the value.
  void check_content() const {
    const NodeId value = call_.relied_on();
    if (!value) return;
    if (const NodeId writer = written_by_[result_.effects->storage_of(value)])
      throw PlacementRefusal{
          "chunk.written-zeros",
          fmt::format("each part would add its rows to '{}', which is not zeros any more: '{}' writes it",
                      graph_.text(step_.nodes[value].name), graph_.text(step_.nodes[writer].name)),
          "add the rows into zeros, and the sum to the other values after that"};
  }

  // In-place ops: into what all parts share only as a sum over the parts, otherwise only into what
  // each part has of its own.
  void check_updates_after(NodeId id, const Placement& placement, RegionId region) {
    const Node& node = step_.nodes[id];
    if (!node.op->writes) return;
    for (std::size_t i = 0; i < node.op->params.size(); ++i) {
      const Operand written = call_.arg(i, node.op->params[i].name);
      if (!node.op->params[i].is_written || !written.arg.is_node()) continue;
      const NodeId value = written.arg.as_node(), owner = result_.effects->storage_of(value);
      const std::string_view owner_name = graph_.text(step_.nodes[owner].name);
      if (placement.is(PlacementKind::kCarried)) {
        // A value that was placed before the update, whichever way it is taken, would miss it.
        if (owner != value)
          throw PlacementRefusal{"chunk.update-of-view",
                                 fmt::format("it updates a view of '{}', not the buffer itself", owner_name),
                                 {}};
        updated_in_.at(owner) = region;
      } else if (!placement.is_divided()) {
        if (result_.of(value).is_divided())
          throw PlacementRefusal{"chunk.update-of-parts",
                                 fmt::format("it writes all of '{}', which exists in parts", owner_name),
                                 "use the form of the operation that makes a new value"};
      } else if (!result_.has_parts_for(owner, region)) {
        throw PlacementRefusal{
            "chunk.update-outside",
            fmt::format("it writes rows of '{}', which no part has a copy of its own of", owner_name),
            "write to a value made inside the selected module"};
      } else if (!has_place_of(value, placement)) {
        throw PlacementRefusal{"chunk.update-changes-rows",
                               fmt::format("'{}' is placed {}, and what is written to it {}",
                                           graph_.text(step_.nodes[value].name),
                                           print_placement(result_.of(value)), print_placement(placement)),
                               "use the form of the operation that makes a new value"};
      } else {
        end_equal_rows(value, placement);
      }
    }
  }

  // Rows of the value's storage that were equal until now, whose blocks did not matter, are not any
  // more.
  void end_equal_rows(NodeId value, const Placement& written) {
    for (NodeId id : std::exchange(equal_rows_.at(result_.effects->storage_of(value)), {})) {
      if (id != value)
        throw PlacementRefusal{
            "chunk.update-of-view",
            fmt::format("it writes rows of '{}', which are rows of '{}', too: until now all were equal, and "
                        "whether parts of that have the same ones is not known",
                        graph_.text(step_.nodes[value].name), graph_.text(step_.nodes[id].name)),
            "use the form of the operation that makes a new value"};
      Placement known = result_.placement[id];
      known.blocks = written.blocks;
      known.any_order = written.any_order;
      result_.placement.set(id, known);
    }
  }

  // Whether what was placed before a write is placed so after it.
  bool has_place_of(NodeId value, const Placement& written) const {
    const Placement& before = result_.of(value);
    return before.kind == written.kind && before.dim == written.dim &&
           (before.any_order || before.blocks == written.blocks);
  }

  void require_tokens() const {
    if (!tokens_.symbols().empty()) return;
    if (tokens_.is_inner())
      throw PassError(
          "chunk.no-token-symbol",
          "dim=seq divides the second dimension of the [batch, sequence] inputs, which is a plain "
          "number in all of them",
          {},
          "trace with a symbolic sequence length, name the second dimension to symbolize where it makes the "
          "symbol (inputs=[NAME:1], of a preset symbolize=[NAME:1]), or divide the batch (dim=batch)");
    if (tokens_.has_symbolic_grid())
      throw PassError("chunk.no-token-symbol",
                      "dim=batch divides the first dimension of the [batch, sequence] inputs, which is a "
                      "plain number in all "
                      "of them; the second is a symbol",
                      {}, "divide the sequence (dim=seq), or trace with a symbolic batch");
    if (has_one_sequence())
      throw PassError("chunk.no-token-symbol", "the batch is one sequence, which has no parts", {},
                      "divide along the sequence: symbolize{inputs=[NAME:1]},chunk{dim=seq}, of a preset "
                      "symbolize=[NAME:1],dim=seq, with each input that has one");
    throw PassError("chunk.no-token-symbol",
                    "no user input has a symbolic first dimension: the token count is a plain number", {},
                    "run symbolize before chunk (-p symbolize,chunk; --preset ep-overlap{symbolize=yes})");
  }

  // Whether the token numbers are a grid of [1, sequence].
  bool has_one_sequence() const {
    const auto is_one = [&](NodeId id, std::size_t place) {
      const bool is_user = place < graph_.inputs.size() && graph_.text(graph_.inputs[place].role) == "user";
      const TensorType* type = tensor_of(*graph_.context, step_.nodes[id].type);
      return is_user && type != nullptr && type->rank() == 2 && !is_floating(type->dtype) &&
             graph_.context->exprs.constant(type->sizes[0]) == 1;
    };
    for (std::size_t place = 0; place < graph_.inputs.size() && place < step_.order.size(); ++place)
      if (is_one(step_.order[place], place)) return true;
    return false;
  }

  // Of all modules of a pattern some may have nothing to do with tokens. One that exchanges tokens
  // has.
  void leave_out_undivided() {
    const bool may_leave_out = options_.dense && !result_.divided.empty();
    std::vector<RegionId> renumbered;
    std::vector<ChunkRegion> kept;
    for (std::size_t i = 0; i < result_.regions.size(); ++i) {
      const bool is_kept = has_division_.contains(RegionId(i));
      if (!is_kept && !may_leave_out) fail_undivided(RegionId(i));
      renumbered.push_back(is_kept ? RegionId(kept.size()) : RegionId());
      (is_kept ? kept : result_.undivided).push_back(result_.regions[i]);
    }
    if (result_.undivided.empty()) return;
    result_.regions = std::move(kept);
    for (NodeId id : step_.order)
      if (result_.region[id]) result_.region.at(id) = renumbered[result_.region[id].index()];
  }
  [[noreturn]] void fail_undivided(RegionId id) const {
    const ChunkRegion& region = result_.regions[id.index()];
    throw PassError(
        "chunk.nothing-divided",
        fmt::format("nothing in region '{}' ({}) is divided: no value that enters it has a token extent",
                    graph_.text(region.root), region.backward ? "backward" : "forward"),
        site_of_region(id),
        "leave the module out of the roots, or check that the token dimension is symbolic where the module "
        "reads it");
  }

  // Where its first node is.
  Site site_of_region(RegionId region) const {
    for (const auto [id, node] : walk(step_))
      if (result_.region[id] == region) return site_of(graph_, node);
    return {};
  }

  const Graph& graph_;
  const Body& step_;
  const PlacementOptions& options_;
  TokenExtents& tokens_;
  Facts& facts_;
  TypeMemo types_;
  ModuleMatcher matcher_;
  Placements result_;
  PlacementCall call_;
  Obstacles obstacles_;
  NodeLists users_;  // once asked for
  ChunkRoots roots_;
  std::int64_t sharing_ranks_ = 1;  // whose rows the inputs have, one rank's behind the other's
  SideTable<StringId, RegionId> forward_regions_, backward_regions_;
  SideTable<StringId, std::uint32_t> group_of_;  // of a root, from 1 on
  std::uint32_t group_count_ = 0;
  SideTable<TypeId, Placement> of_type_;  // of outside values
  IdSet<TypeId> placed_types_;            // those that of_type_ has
  IdSet<RegionId> has_division_;
  SideTable<NodeId, RegionId> taken_by_;               // the region that takes an outside value in parts
  SideTable<NodeId, RegionId> updated_in_;             // the region that updates a buffer
  SideTable<NodeId, NodeId> written_by_;               // storage: the first node that writes it, so far
  SideTable<NodeId, std::vector<NodeId>> equal_rows_;  // storage: its values in any order, so far
};

}  // namespace

Placements infer_placements(const Graph& graph, const PlacementOptions& options, TokenExtents& tokens,
                            Facts& facts) {
  return Inference(graph, options, tokens, facts).run();
}

}  // namespace epweave
