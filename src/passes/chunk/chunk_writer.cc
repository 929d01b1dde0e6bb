#include "passes/chunk/chunk_writer.h"

#include <fmt/format.h>

#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/chunk/chunk_site.h"

namespace epweave {

ChunkWriter::ChunkWriter(const Graph& graph, const ChunkPlan& plan, const PartSymbols& symbols,
                         Graph& chunked)
    : in_(graph),
      plan_(plan),
      symbols_(symbols),
      out_(chunked),
      facts_(chunked),
      types_(facts_),
      pass_(chunked.intern("chunk")),
      uses_(2 * chunked.step().nodes.size(), 0) {}

StringId ChunkWriter::fresh_name(std::string_view base) {
  const auto intern_new = [&](std::string_view text) {
    const std::size_t before = context().strings.size();
    const StringId name = out_.intern(text);
    // A text that nothing had before names no node.
    const bool is_fresh = name.index() >= before || !is_name(name);
    return is_fresh && made_names_.insert(name) ? name : StringId();
  };
  StringId name = intern_new(base);
  for (int i = 1; !name; ++i) name = intern_new(fmt::format("{}_{}", base, i));
  return name;
}

// Of the input graph. Asked for seldom: most names that the pass makes up are new texts.
bool ChunkWriter::is_name(StringId text) {
  if (!names_) {
    names_.emplace();
    for (const Node& node : in_.step().nodes) names_->insert(node.name);
  }
  return names_->contains(text);
}

Node ChunkWriter::make(const NewCall& call) {
  Node node;
  node.name = fresh_name(call.name);
  node.target = out_.intern(call.target);
  node.args = context().args.add(call.args);
  node.kwargs = call.kwargs;
  resolve_op(context(), node);
  const Node& origin = in_.step().nodes[call.origin];
  Provenance record{.pass = pass_, .role = call.role, .origins = origins_of(origin)};
  if (call.part) {
    record.part = static_cast<std::uint32_t>(*call.part);
    record.parts = static_cast<std::uint32_t>(plan_.division(call.region).parts);
  }
  if (call.region) {
    const ChunkRegion& region = plan_.placements.regions[call.region.index()];
    record.region = region.root;
    record.backward = region.backward;
    set_chunk(node, call.region, call.chunk_role, call.part);
    if (!call.chunk_proof.empty()) node.chunk.proof = out_.intern(call.chunk_proof);
    const std::string_view root = out_.text(region.root);
    if (auto dot = root.rfind('.'); dot != root.npos) node.module = out_.intern(root.substr(0, dot));
    node.has_custom = true;
    if (region.backward) node.backward = true;
  }
  append_provenance(context(), node, std::move(record));
  return node;
}

Node ChunkWriter::make_part(NodeId id, std::size_t part) {
  const Node& original = in_.step().nodes[id];
  const RegionId region_id = plan_.placements.region[id];
  const ChunkRegion& region = plan_.placements.regions[region_id.index()];
  Node node = original;
  part_name_.assign(out_.text(original.name)).append("_chunk").append(std::to_string(part));
  node.name = fresh_name(part_name_);
  set_chunk(node, region_id, "body", part);
  node.chunk.original_name = original.name;
  if (region.backward) node.backward = true;
  append_provenance(context(), node,
                    {.pass = pass_,
                     .role = ProvenanceRole::kBody,
                     .origins = origins_of(original),
                     .part = static_cast<std::uint32_t>(part),
                     .parts = static_cast<std::uint32_t>(plan_.division(region_id).parts),
                     .region = region.root,
                     .backward = region.backward});
  if (node.extra && !node.extra->bindings.empty()) {
    NodeExtra extra = *node.extra;
    for (Binding& binding : extra.bindings) binding.symbol = symbols_.twin(binding.symbol, part);
    node.extra = context().own(std::move(extra));
  }
  return node;
}

Node ChunkWriter::make_again(NodeId original, std::string_view reason) {
  Node node = in_.step().nodes[original];
  append_provenance(context(), node,
                    {.pass = pass_,
                     .role = ProvenanceRole::kKept,
                     .origins = origins_of(node),
                     .reason = out_.intern(reason)});
  return node;
}

NodeId ChunkWriter::repeat(NodeId function, std::string_view reason) {
  Node node = out_.step().nodes[function];
  if (function.index() < in_.step().nodes.size())
    append_provenance(context(), node,
                      {.pass = pass_,
                       .role = ProvenanceRole::kBody,
                       .origins = origins_of(node),
                       .parts = 1,
                       .reason = out_.intern(reason)});
  node.name = fresh_name(name(function));
  const NodeId id = out_.step().nodes.push_back(node);
  keep(id, node.type);
  return id;
}

ArgRange ChunkWriter::memory_format(std::string_view format) {
  return context().args.add(std::vector{Arg::text(out_.intern("memory_format")),
                                        Arg::named(ArgKind::kMemoryFormat, out_.intern(format))});
}

void ChunkWriter::set_chunk(Node& node, RegionId region_id, std::string_view role,
                            std::optional<std::size_t> part) {
  const ChunkRegion& region = plan_.placements.regions[region_id.index()];
  node.chunk = ChunkInfo();
  node.chunk.region = region.root;
  node.chunk.role = out_.intern(role);
  node.chunk.backward = region.backward;
  node.chunk.producer = out_.intern("graph");
  if (part) node.chunk.part = static_cast<std::int32_t>(*part);
}

// Of a call of the chunked graph. What is wrong is told of the user's call that it stands for.
TypeId ChunkWriter::type_of(const Node& node) {
  try {
    return types_.infer(out_, out_.step(), node);
  } catch (const TypeMismatch& error) {
    throw PassError(
        "chunk.part-type", fmt::format("{} does not type-check: {}", name_for_user(out_, node), error.what()),
        site_for_user(out_, node),
        node.op != nullptr && node.op->is_view && node.op->family == OpFamily::kReshape
            ? "run canonicalize in front of chunk: it spells views as reshape, which copies where a part's "
              "strides need it"
            : "the sizes of the parts do not fit together here; select roots that leave this operation "
              "outside");
  }
}

NodeId ChunkWriter::add(Node node) {
  node.type = type_of(node);
  mentions_ |= is_mentioning(node.type);
  for_each_input(context(), node, [&](NodeId input) { count_use(input); });
  return out_.step().nodes.push_back(std::move(node));
}

bool ChunkWriter::is_mentioning(TypeId type) {
  if (!type) return false;
  if (mention_[type] == Mention::kUnknown)
    mention_.at(type) = symbols_.mentioned(type) ? Mention::kYes : Mention::kNo;
  return mention_[type] == Mention::kYes;
}

void ChunkWriter::keep(NodeId id, TypeId type) {
  order_.push_back(id);
  mentions_ |= is_mentioning(type);
}

NodeId ChunkWriter::append(Node node) {
  const NodeId id = add(std::move(node));
  order_.push_back(id);
  return id;
}

NodeId ChunkWriter::append_whole(Node node, NodeId original) {
  const NodeId id = append(std::move(node));
  const TypeId recorded = in_.step().nodes[original].type;
  Node& made = out_.step().nodes[id];
  if (recorded && made.type && says_the_same(made.type, recorded)) made.type = recorded;
  return id;
}

TypeId ChunkWriter::retype(NodeId id) {
  Node& node = out_.step().nodes[id];
  if (node.kind != NodeKind::kCall || !has_type_rule(node)) return node.type;
  const TypeId type = type_of(node);
  if (type && !says_the_same(type, node.type)) node.type = type;
  return node.type;
}

// Whether `recorded` can stay: it is equal, and all its symbols stay.
bool ChunkWriter::says_the_same(TypeId type, TypeId recorded) {
  return same_type(facts_, context(), type, recorded) && !is_mentioning(recorded);
}

}  // namespace epweave
