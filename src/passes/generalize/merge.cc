#include "passes/generalize/merge.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/devices_on_rank.h"
#include "ops/bind.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/generalize/element_slices.h"
#include "passes/pieces.h"
#include "passes/rank_devices.h"

namespace epweave {
namespace {

using Leaves = std::vector<Arg>;  // what stands at one place on each rank

bool is_all(const Leaves& leaves, ArgKind kind) {
  return std::ranges::all_of(leaves, [&](Arg leaf) { return leaf.is(kind); });
}

class Merger {
 public:
  Merger(const RankJob& job, const JobAxes& axes, Graph& made, GroupPairs& groups, Findings& findings)
      : job_(job),
        context_(job.context()),
        axes_(axes),
        made_(made),
        groups_(groups),
        findings_(findings),
        devices_(job.graphs.size(), RankDevices(context_)),
        writer_(made, axes, job.size()),
        slices_(job.graphs[0], made, writer_),
        finder_(context_) {
    merged_.numbers_of_axis.resize(axes.all().size());
  }

  MergedDifferences run() {
    // One graph differs from none.
    for (std::size_t b = 0; b < made_.bodies.size() && job_.graphs.size() > 1; ++b) merge_body(b);
    writer_.place();
    slices_.place();
    redirect_elements();
    list_devices();
    return std::move(merged_);
  }

 private:
  const Body& body_of(std::size_t g) const { return job_.graphs[g].bodies[body_]; }

  void merge_body(std::size_t b) {
    body_ = b;
    positions_.assign(job_.graphs.size(), SideTable<NodeId, std::uint32_t>());
    for (std::size_t g = 0; g < job_.graphs.size(); ++g)
      for (std::uint32_t i = 0; i < body_of(g).order.size(); ++i) positions_[g].at(body_of(g).order[i]) = i;
    std::vector<const Node*> nodes(job_.graphs.size());
    for (std::size_t i = 0; i < body_of(0).order.size(); ++i) {
      Leaves ids;
      for (std::size_t g = 0; g < nodes.size(); ++g) {
        ids.push_back(Arg::node(body_of(g).order[i]));
        nodes[g] = &body_of(g).nodes[body_of(g).order[i]];
      }
      if (!merge_own_element(ids, nodes)) merge_node(body_of(0).order[i], nodes);
    }
  }

  // Each rank's node takes the element of its own place: the slice stands in its place. Whether the
  // nodes are such.
  bool merge_own_element(const Leaves& ids, const std::vector<const Node*>& nodes) {
    if (body_ != 0 || !has_family(*nodes[0], OpFamily::kElement)) return false;
    const auto index = [&](const Node* node) { return arg_of(context_, *node, 1); };
    const Arg first = index(nodes[0]);
    if (std::ranges::all_of(nodes, [&](const Node* node) { return index(node) == first; })) return false;
    Leaves indices;
    for (const Node* node : nodes) indices.push_back(index(node));
    const ArgumentPlace place{body_, ids[0].as_node(), "index"};
    for (std::size_t g = 0; g < nodes.size(); ++g)
      if (!finder_.find(body_of(g), *nodes[g]))
        return findings_.refuse(place, indices, "the elements are not equal pieces of one value"), true;
    const Arg merged = merge_elements(ids, indices, place);
    if (merged == ids[0]) return true;
    slice_of_.at(ids[0].as_node()) = merged.as_node();
    // What is taken of the element in turn begins where the rank's does.
    const TypeId type = made_.step().nodes[merged.as_node()].type;
    made_.step().nodes[ids[0].as_node()].type = type;
    return true;
  }

  // Readers of such elements read the slices, which have their names.
  void redirect_elements() {
    Body& body = made_.step();
    bool is_any = false;
    for (NodeId id : body.order) {
      const NodeId slice = slice_of_[id];
      is_any |= slice.valid();
      if (slice) body.nodes[slice].name = body.nodes[id].name;
    }
    if (!is_any) return;
    std::erase_if(body.order, [&](NodeId id) { return slice_of_[id].valid(); });
    for (NodeId id : body.order)
      map_arguments(context_, body, id, [&](Arg arg) {
        const NodeId slice = arg.is_node() ? slice_of_[arg.as_node()] : NodeId();
        return slice ? Arg::node(slice) : arg;
      });
  }

  void merge_node(NodeId id, const std::vector<const Node*>& nodes) {
    std::vector<ArgRange> args, kwargs;
    Leaves attributes;
    for (const Node* node : nodes) {
      args.push_back(node->args);
      kwargs.push_back(node->kwargs);
      attributes.push_back(node->attr);
    }
    const ArgRange merged = merge_positional(id, nodes[0]->op, args);
    const ArgRange merged_keywords = merge_keywords(id, kwargs);
    Node& made = made_.bodies[body_].nodes[id];  // merging adds nodes: no reference stays before
    made.args = merged;
    made.kwargs = merged_keywords;
    merge_attributes(attributes, {body_, id, "value"}, nodes[0]->type);
    merge_types(id, nodes);
  }

  // A constant of the graph: no coordinate can stand in it.
  void merge_attributes(const Leaves& attributes, const ArgumentPlace& place, TypeId type) {
    if (attributes[0].is(ArgKind::kMesh) || attributes[0].is(ArgKind::kProcessGroup)) {
      merge(attributes, place);
      return;
    }
    for (std::size_t g = 1; g < attributes.size(); ++g) {
      const Arg attribute = context_.args.map(attributes[g], [&](Arg leaf) {
        return leaf.is(ArgKind::kTypeRef) ? Arg::type_ref(devices_[g].rename(leaf.as_type(), type)) : leaf;
      });
      if (!context_.args.equal(attribute, attributes[0]))
        return findings_.refuse(place, attributes,
                                "a constant of the graph differs, in which no coordinate can stand");
    }
  }

  ArgRange merge_positional(NodeId id, const OpInfo* op, const std::vector<ArgRange>& ranges) {
    const auto group = op != nullptr ? op->find_param("group_name") : std::nullopt;
    const auto merged = merge_each(ranges, [&](std::uint32_t i, const Leaves& leaves) {
      const bool is_param = op != nullptr && i < op->params.size();
      const ArgumentPlace place{body_, id, is_param ? std::string(op->params[i].name) : std::to_string(i)};
      return group && *group == i ? merge_named_group(leaves, place) : merge(leaves, place);
    });
    return merged ? context_.args.add(*merged) : ranges[0];
  }

  // Keys and values in turn.
  ArgRange merge_keywords(NodeId id, const std::vector<ArgRange>& ranges) {
    const auto merged = merge_each(ranges, [&](std::uint32_t i, const Leaves& leaves) {
      const Arg key = context_.args[ranges[0]][i - i % 2];
      const ArgumentPlace place{body_, id,
                                key.is(ArgKind::kText) ? std::string(context_.text(key.as_name())) : "?"};
      return place.argument == "group_name" && i % 2 == 1 ? merge_named_group(leaves, place)
                                                          : merge(leaves, place);
    });
    return merged ? context_.args.add(*merged) : ranges[0];
  }

  // None where nothing becomes another than the first rank's.
  template <class Merge>
  std::optional<std::vector<Arg>> merge_each(const std::vector<ArgRange>& ranges, Merge&& merge_at) {
    std::vector<Arg> merged;
    bool is_changed = false;
    for (std::uint32_t i = 0; i < ranges[0].count; ++i) {
      Leaves leaves;
      for (ArgRange range : ranges) leaves.push_back(context_.args[range][i]);
      merged.push_back(merge_at(i, leaves));
      is_changed |= !(merged.back() == leaves[0]);
    }
    if (!is_changed) return std::nullopt;
    return merged;
  }

  bool is_same(const Leaves& leaves) const {
    for (std::size_t g = 1; g < leaves.size(); ++g) {
      if (leaves[g].kind() != leaves[0].kind()) return false;
      if (leaves[g].is_node()) {
        if (positions_[g][leaves[g].as_node()] != positions_[0][leaves[0].as_node()]) return false;
      } else if (!leaves[g].is_tree() && !(leaves[g] == leaves[0])) {
        return false;
      }
    }
    return true;
  }

  Arg merge_named_group(const Leaves& leaves, const ArgumentPlace& place) {
    return is_all(leaves, ArgKind::kText) ? merge_group(leaves, place) : merge(leaves, place);
  }

  // What stands for all ranks' leaves; the first rank's where that is so or nothing explains the
  // difference.
  Arg merge(const Leaves& leaves, const ArgumentPlace& place) {
    const Arg first = leaves[0];
    if (is_all(leaves, ArgKind::kMesh)) return merge_mesh(leaves, place);
    if (first.is_tree()) return merge_tree(leaves, place);
    // Devices also where they are equal: another node may show that the rank calls them otherwise.
    if (is_all(leaves, ArgKind::kDevice)) return merge_devices(leaves, place);
    if (is_same(leaves)) return first;
    if (is_all(leaves, ArgKind::kProcessGroup)) return merge_group(leaves, place);
    if (std::ranges::all_of(leaves, [](Arg leaf) { return leaf.is_int(); }))
      return merge_numbers(leaves, place);
    if (std::ranges::all_of(leaves, [](Arg leaf) { return leaf.is_node(); }))
      return merge_elements(leaves, leaves, place);
    findings_.refuse(place, leaves, "nothing explains the difference");
    return first;
  }

  Arg merge_tree(const Leaves& leaves, const ArgumentPlace& place) {
    const Arg first = leaves[0];
    std::vector<ArgRange> ranges;
    for (Arg leaf : leaves) {
      if (leaf.kind() != first.kind() || leaf.children().count != first.children().count)
        return findings_.refuse(place, leaves, "its form differs"), first;
      ranges.push_back(leaf.children());
    }
    const auto merged = merge_each(ranges, [&](std::uint32_t i, const Leaves& items) {
      return merge(items, {body_, place.node, fmt::format("{}[{}]", place.argument, i)});
    });
    return merged ? context_.args.add_tree(first.kind(), *merged) : first;
  }

  Arg merge_mesh(const Leaves& leaves, const ArgumentPlace& place) {
    const auto base = read_mesh(context_, leaves[0]);
    bool differs = false;
    for (std::size_t g = 1; g < leaves.size(); ++g) {
      differs |= !context_.args.equal(leaves[g], leaves[0]);
      const auto other = read_mesh(context_, leaves[g]);
      const auto moved = base ? mesh_through(*base, {job_.ranks[0], job_.ranks[g]}) : std::nullopt;
      if (!moved || !other || moved->ranks != other->ranks || moved->axes != other->axes ||
          moved->shape != other->shape)
        return findings_.refuse(place, leaves, "it is not the mesh of the same axes through each rank"),
               leaves[0];
    }
    if (differs) findings_.explain(place, "mesh", print_axes(*base));
    return leaves[0];
  }

  std::string print_axes(const MeshValue& mesh) const {
    std::string text;
    for (StringId axis : mesh.axes)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", context_.text(axis));
    return fmt::format("mesh of {} through the rank", text);
  }

  Arg merge_group(const Leaves& leaves, const ArgumentPlace& place) {
    if (auto why = groups_.pair(leaves))
      findings_.refuse(place, leaves, *std::move(why));
    else if (!is_same(leaves))
      findings_.explain(place, "group", fmt::format("group of {}", groups_.print(leaves[0].as_name())));
    return leaves[0];
  }

  Arg merge_devices(const Leaves& leaves, const ArgumentPlace& place) {
    for (std::size_t g = 1; g < leaves.size(); ++g)
      if (!devices_[g].pair(leaves[0].as_name(), leaves[g].as_name()))
        return findings_.refuse(place, leaves, "elsewhere the ranks' devices are paired otherwise"),
               leaves[0];
    if (!is_same(leaves)) findings_.explain(place, "device", print_device(leaves[0].as_name()));
    return leaves[0];
  }
  // What each given rank, and each of which a given graph says it, calls the first rank's devices.
  void list_devices() {
    if (job_.graphs.size() == 1) return;  // as it says itself
    std::map<Rank, DeviceNames> of_ranks = read_rank_devices(job_.graphs[0]);
    DeviceNames own;
    for (const RankDevices& rank : devices_)
      for (const auto& entry : rank.names()) own.emplace(entry.first, entry.first);
    for (std::size_t g = 0; g < devices_.size(); ++g) {
      const DeviceNames& names = g == 0 ? own : devices_[g].names();
      of_ranks[job_.ranks[g]] = names;
      if (g == 0) continue;
      for (const auto& [rank, recorded] : read_rank_devices(job_.graphs[g]))
        of_ranks.emplace(rank, follow(names, recorded));
    }
    const auto differs = [](const auto& entry) { return entry.first != entry.second; };
    if (std::ranges::none_of(of_ranks,
                             [&](const auto& rank) { return std::ranges::any_of(rank.second, differs); }))
      return;
    std::vector<Arg> ranks;
    for (const auto& [rank, names] : of_ranks) {
      std::vector<Arg> list;
      for (const auto& [first, here] : names) {
        list.push_back(Arg::text(first));
        list.push_back(Arg::text(here));
      }
      ranks.push_back(Arg::text(made_.intern(std::to_string(rank))));
      ranks.push_back(context_.args.add_tree(ArgKind::kDict, list));
    }
    merged_.devices = context_.args.add_tree(ArgKind::kDict, ranks);
  }
  static DeviceNames follow(const DeviceNames& names, const DeviceNames& behind) {
    DeviceNames result;
    for (const auto& [first, here] : names)
      if (const auto found = behind.find(here); found != behind.end()) result.emplace(first, found->second);
    return result;
  }
  std::string print_device(StringId device) const {
    return fmt::format("{} device of the rank", device_kind(context_.text(device)));
  }

  Arg merge_numbers(const Leaves& leaves, const ArgumentPlace& place) {
    if (body_ != 0)
      return findings_.refuse(place, leaves, "it is in a nested graph, which has no coordinates"), leaves[0];
    std::vector<std::int64_t> values;
    for (Arg leaf : leaves) values.push_back(leaf.as_int());
    AffineAnswer answer = solve_affine(job_, axes_, values);
    if (!answer.function) {
      if (answer.next)
        merged_.undecided.push_back({place, leaves, std::move(answer)});
      else
        findings_.refuse(place, leaves, answer.why);
      return leaves[0];
    }
    count(*answer.function);
    findings_.explain(place, "coordinate", answer.function->print(axes_));
    return Arg::node(writer_.write(*answer.function));
  }

  // It is found from the given ranks alone, where what repair_numbers writes is proved for all.
  void count(const Affine& function) {
    for (const auto& [axis, scale] : function.terms) ++merged_.numbers_of_axis[axis];
  }

  // Equal pieces of one value, by a coordinate. `written`: what stands at the place.
  Arg merge_elements(const Leaves& leaves, const Leaves& written, const ArgumentPlace& place) {
    const auto refuse = [&](std::string why, std::optional<Rank> next = {}) {
      findings_.refuse(place, written, std::move(why), next);
      return leaves[0];
    };
    std::vector<TakenPiece> pieces;
    for (std::size_t g = 0; g < leaves.size(); ++g) {
      const auto piece = finder_.find(body_of(g), body_of(g).nodes[leaves[g].as_node()]);
      if (!piece || (g > 0 && positions_[g][piece->of] != positions_[0][pieces[0].of]))
        return refuse("it reads another value");
      pieces.push_back(*piece);
    }
    const auto choice = body_ == 0 ? find_piece_choice(finder_, job_.graphs[0], pieces, leaves[0].as_node())
                                   : std::optional<PieceChoice>();
    if (!choice) return refuse("the elements are not equal pieces of one value");
    const AffineAnswer answer = solve_affine(job_, axes_, choice->indices);
    if (!answer.function) return refuse(answer.why, answer.next);
    for (Rank rank = 0; rank < job_.size(); ++rank)
      if (const std::int64_t index = *answer.function->at(axes_, rank); index < 0 || index >= choice->count)
        return refuse(fmt::format("it would be element {}, which is {} on rank {}, of a split into {}",
                                  answer.function->print(axes_), index, rank, choice->count),
                      rank);
    count(*answer.function);
    const TakenPiece& piece = pieces[0];
    Affine start = *answer.function;
    start.offset *= piece.size();
    for (auto& [axis, scale] : start.terms) scale *= piece.size();
    Affine end = start;
    end.offset += piece.size();
    findings_.explain(place, "element",
                      fmt::format("slice of dimension {} from {}", piece.dim, start.print(axes_)));
    return Arg::node(slices_.slice(leaves[0].as_node(), piece, {writer_.write(start), writer_.write(end)}));
  }

  void merge_types(NodeId id, const std::vector<const Node*>& nodes) {
    const TypeId first = nodes[0]->type;
    // Of equal meshes, one may not be the rank's.
    const bool is_mesh = recorded_mesh(context_, *nodes[0]).has_value();
    std::vector<TypeId> types{first};
    for (std::size_t g = 1; g < nodes.size(); ++g) types.push_back(devices_[g].rename(nodes[g]->type, first));
    const auto is_first = [&](TypeId type) { return type == first; };
    if (is_mesh || !std::ranges::all_of(types, is_first)) return merge_values(id, nodes, types);
    // Those of calls follow from their operands'.
    const bool is_renamed =
        !std::ranges::all_of(nodes, [&](const Node* node) { return node->type == first; });
    if (is_renamed && nodes[0]->kind != NodeKind::kCall)
      findings_.explain({body_, id, "type"}, "device", print_device(find_device(context_, first)));
  }

  // `types`: by the first rank's names of devices.
  void merge_values(NodeId id, const std::vector<const Node*>& nodes, const std::vector<TypeId>& types) {
    Leaves values;
    std::vector<std::string> texts;
    for (const Node* node : nodes) {
      const bool is_value = node->type && context_.types[node->type].kind == TypeKind::kValue;
      if (is_value) values.push_back(context_.types[node->type].value);
      texts.push_back(node->type ? print_type(context_, node->type) : "none");
    }
    const ArgumentPlace place{body_, id, "type"};
    const bool is_all_value = values.size() == nodes.size();
    if (is_all_value && is_all(values, ArgKind::kMesh))
      merge_mesh(values, place);
    else if (is_all_value && is_all(values, ArgKind::kProcessGroup))
      merge_group(values, place);
    else if (body_ != 0 || !merge_offsets(id, types))
      findings_.refuse(place, std::move(texts),
                       is_all_value ? "its value, which the trace fixes, differs"
                                    : "its size or type differs, for which no symbol stands");
  }

  // Views of the same form that begin at a place of the rank's, also within a tuple: whether
  // functions of the coordinates say where.
  bool merge_offsets(NodeId id, const std::vector<TypeId>& types) {
    // Inputs stand in front of the coordinates.
    if (made_.step().nodes[id].kind != NodeKind::kCall) return false;
    const auto type = merge_offsets(types);
    if (type) made_.step().nodes[id].type = *type;
    return type.has_value();
  }

  std::optional<TypeId> merge_offsets(const std::vector<TypeId>& types) {
    if (std::ranges::all_of(types, [&](TypeId type) { return type == types[0]; })) return types[0];
    if (std::ranges::find(types, TypeId()) != types.end()) return std::nullopt;
    const Type first = context_.types[types[0]];
    if (first.kind == TypeKind::kTensor) return merge_offset(types);
    if (first.kind != TypeKind::kTuple && first.kind != TypeKind::kList) return std::nullopt;
    Type merged = first;
    for (std::size_t i = 0; i < first.elements.size(); ++i) {
      std::vector<TypeId> elements;
      for (TypeId of : types) {
        const Type& other = context_.types[of];
        if (other.kind != first.kind || other.elements.size() != first.elements.size()) return std::nullopt;
        elements.push_back(other.elements[i]);
      }
      const auto element = merge_offsets(elements);
      if (!element) return std::nullopt;
      merged.elements[i] = *element;
    }
    return context_.types.intern(std::move(merged));
  }

  std::optional<TypeId> merge_offset(const std::vector<TypeId>& types) {
    std::vector<std::int64_t> offsets;
    Type type = context_.types[types[0]];
    const ExprId none = type.tensor.offset;
    for (TypeId of : types) {
      const TensorType* tensor = tensor_of(context_, of);
      if (tensor == nullptr) return std::nullopt;
      const Count offset = tensor->offset ? context_.exprs.constant(tensor->offset) : Count(0);
      if (!offset) return std::nullopt;
      offsets.push_back(*offset);
      Type other = context_.types[of];
      other.tensor.offset = none;
      if (context_.types.intern(std::move(other)) != types[0]) return std::nullopt;
    }
    const AffineAnswer answer = solve_affine(job_, axes_, offsets);
    if (!answer.function) return std::nullopt;
    const NodeId place = writer_.write(*answer.function);
    type.tensor.offset = context_.types[made_.step().nodes[place].type].expr;
    return context_.types.intern(std::move(type));
  }

  const RankJob& job_;
  Context& context_;
  const JobAxes& axes_;
  Graph& made_;
  GroupPairs& groups_;
  Findings& findings_;
  std::vector<RankDevices> devices_;  // of each rank
  PlaceWriter writer_;
  ElementSlices slices_;
  PieceFinder finder_;
  MergedDifferences merged_;
  SideTable<NodeId, NodeId> slice_of_;  // by the first rank's node of an element that differs
  std::size_t body_ = 0;                // that is merged
  std::vector<SideTable<NodeId, std::uint32_t>> positions_;  // of each graph's nodes in it
};

}  // namespace

MergedDifferences merge_differences(const RankJob& job, const JobAxes& axes, Graph& made, GroupPairs& groups,
                                    Findings& findings) {
  return Merger(job, axes, made, groups, findings).run();
}

}  // namespace epweave
