// The training graph: what a file holds, in memory.
//
// A `Graph` is one rank's view of one training step: tables (symbols, process groups,
// roles of inputs and outputs, the pipeline log) and bodies. bodies[0] is the step, the
// others are nested graphs (FlexAttention's score and mask functions), named.
//
// A `Body` keeps *what* apart from *when*: `nodes` is a table under stable ids that only
// grows, `order` lists the ids that execute, in execution order. A node that is in the
// table but not in the order is not part of the graph any more; its row stays readable,
// so that provenance can name it. One node defines one value.
//
// Graphs are values: a pass copies its input and changes the copy. Copies share the rows of their
// tables of nodes until one of them changes (base/paged_table.h).
// Strings, expressions, types and argument trees live in a `Context` that all graphs of a
// process share and that only grows; ids of two graphs with the same context agree.
//
// Invariants (checked by verify_structure, analysis/verify.h) are listed there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/arena.h"
#include "base/hash_index.h"
#include "base/id.h"
#include "base/interner.h"
#include "base/paged_table.h"
#include "ir/arg.h"
#include "ir/expr.h"
#include "ir/types/type.h"

namespace epweave {

struct LearnedFacts;  // ir/facts.h
struct OpInfo;        // ops/op.h

enum class NodeKind : std::uint8_t { kCall, kPlaceholder, kGetAttr, kOutput };

// Expert-parallel annotations, as the tracer wrote them into meta "custom". None: key absent.
struct EpLabels {
  StringId ep;                    // "EP": compute, dispatch, combine
  StringId token_count_exchange;  // "EP_token_count_exchange"
  StringId token_count_sync;      // "EP_token_count_sync"
  StringId token_exchange;        // "EP_token_exchange": dispatch, combine
  StringId token_exchange_wait;   // "EP_token_exchange_wait"
  friend bool operator==(const EpLabels&, const EpLabels&) = default;
};

// torchtitan's chunking keys. None: key absent.
struct ChunkInfo {
  StringId region;                   // "chunked_region_fqn"
  StringId role;                     // "chunked_region_role"
  std::optional<std::int32_t> part;  // "chunk_id"
  std::optional<bool> backward;      // "chunked_region_is_backward"
  StringId producer;                 // "chunked_region_producer"
  StringId original_name;            // "chunked_original_name"
  StringId proof;                    // "chunked_materialization_proof"
  friend bool operator==(const ChunkInfo&, const ChunkInfo&) = default;
};

enum class ProvenanceRole : std::uint8_t {
  kKept,
  kMoved,
  kBody,
  kSplit,
  kPartInput,
  kMaterialize,
  kSize,
  kAdded,
  kMerged,
  kSpecialized,
};
std::string_view name_of(ProvenanceRole role);  // "kept", "part-input", ...

// A few names, most often one, which is held in place; more belong to a context (Context::own).
class NameList {
 public:
  NameList() = default;
  NameList(StringId name) : one_(name), count_(1) {}  // NOLINT: a name is a list of one

  const StringId* begin() const { return count_ == 1 ? &one_ : many_; }
  const StringId* end() const { return begin() + count_; }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  StringId front() const { return *begin(); }
  StringId operator[](std::size_t i) const { return begin()[i]; }
  friend bool operator==(const NameList& a, const NameList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  friend struct Context;
  explicit NameList(std::span<const StringId> many)
      : many_(many.data()), count_(static_cast<std::uint32_t>(many.size())) {}

  const StringId* many_ = nullptr;
  StringId one_;
  std::uint32_t count_ = 0;
};

// One statement about where a node comes from; `origins` name nodes of Graph::origins.
struct Provenance {
  StringId pass;
  ProvenanceRole role = ProvenanceRole::kKept;
  NameList origins;
  std::uint32_t part = 0;   // which, from 0 ...
  std::uint32_t parts = 0;  // ... of how many; 0: not about a part
  StringId region;
  std::optional<bool> backward;
  StringId reason;
};

// Whether such a record's pass made the node.
bool makes_nodes(ProvenanceRole role);

// The record of a node that is all of its origins once more: body, part 0 of 1. What the node
// before it was (a part, a join), earlier records say.
bool is_copy_record(const Provenance& record);

// The node defines `symbol`, found in its value along `path` (list of steps).
struct Binding {
  StringId symbol;
  ArgRange path;
  friend bool operator==(const Binding&, const Binding&) = default;
};

// What nodes of a trace have beyond the fields of Node. It is the same for many of them: a context
// stores equal ones once (Context::own).
struct NodeExtra {
  std::vector<Binding> bindings;                               // meta "unbacked_bindings"
  std::vector<std::pair<StringId, std::int64_t>> chunk_hints;  // meta "torchtitan_chunk_symbol_hints"
  ArgRange custom;  // other entries of "custom": name, value, name, value, ...
  ArgRange meta;    // other metadata: name, value, ...
  StringId py_type;
  TypeId example_type;
  std::string unknown_fields;  // protobuf fields of a newer format, carried through
  friend bool operator==(const NodeExtra&, const NodeExtra&) = default;
};

// Records about one node, oldest first. They live in a context and never change, so that nodes are
// plain data and a graph is copied at the speed of memory; see append_provenance.
class ProvenanceList {
 public:
  ProvenanceList() = default;
  explicit ProvenanceList(std::span<const Provenance> records) : records_(records) {}

  bool empty() const { return records_.empty(); }
  std::size_t size() const { return records_.size(); }
  auto begin() const { return records_.begin(); }
  auto end() const { return records_.end(); }
  auto rbegin() const { return records_.rbegin(); }
  auto rend() const { return records_.rend(); }
  const Provenance& operator[](std::size_t i) const { return records_[i]; }
  const Provenance& front() const { return records_.front(); }
  const Provenance& back() const { return records_.back(); }

 private:
  std::span<const Provenance> records_;
};

struct Context {
  Context() : exprs(strings) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  StringTable strings;
  ExprPool exprs;
  TypePool types;
  ArgPool args;
  std::shared_ptr<LearnedFacts> facts;  // learned last

  std::string_view text(StringId id) const { return strings.text_or_empty(id); }

  // Keeps it for as long as the context lives; an equal one that was kept before is returned again.
  const NodeExtra* own(NodeExtra extra);
  ProvenanceList own(std::span<const Provenance> records);
  NameList own(std::span<const StringId> names);

 private:
  std::deque<NodeExtra> extras_;
  HashIndex extra_ids_;  // positions in extras_
  Arena arena_;
};

// What most walks over a large body read comes first: it fits one cache line.
struct Node {
  StringId name;
  StringId target;
  const OpInfo* op = nullptr;  // row of the op table; none for unknown targets and for kinds but kCall
  NodeKind kind = NodeKind::kCall;
  bool has_custom = false;       // meta "custom" exists, maybe empty
  std::optional<bool> backward;  // meta "autograd_backward"; absent means forward
  ArgRange args;
  ArgRange kwargs;                   // name, value, name, value, ...
  TypeId type;                       // none: no recorded value
  const NodeExtra* extra = nullptr;  // null: all empty; owned by the context, replaced, never edited
  ProvenanceList provenance;         // empty in a graph that no pass has touched

  StringId module;  // "layers.3.moe.router.gate"
  StringId source;  // user's source location
  StringId recompute;
  ChunkInfo chunk;
  EpLabels ep;
  std::optional<std::int64_t> seq_nr;
  Arg attr;  // of a kGetAttr

  bool is_backward() const { return backward.value_or(false); }
};

static_assert(std::is_trivially_copyable_v<Node>);

struct Body {
  StringId name;  // none for the step
  PagedTable<NodeId, Node> nodes;
  std::vector<NodeId> order;
  std::string unknown_fields;
};

struct Symbol {
  StringId name;
  std::optional<ExprId> lower, upper;  // both or neither
  std::optional<std::int64_t> hint;
  bool size_like = false;
  std::optional<bool> unbacked;
  std::optional<std::vector<ExprId>> asserts;
  std::optional<ExprId> replaced_by;
  std::vector<ExprId> assumptions;
  StringId part_of;
  std::string unknown_fields;
};

struct ProcessGroup {
  StringId name;
  std::vector<std::uint32_t> ranks;
  StringId description;
  std::optional<std::vector<StringId>> axes;
  StringId priority;
  StringId split_from;
  StringId backend;
  std::string unknown_fields;
};

struct InputRole {
  StringId name, role, fqn, which;
  ArgRange more;  // name, value, ...
  std::string unknown_fields;
};

struct OutputRole {
  StringId role, fqn;
  ArgRange more;
  std::string unknown_fields;
};

struct PassRun {
  std::string name, options, tool;
  std::uint32_t nodes_before = 0, nodes_after = 0;
  std::string input_sha256;
  std::vector<std::string> notes;
  std::string unknown_fields;
};

struct Origin {
  StringId name, target;
};

struct Version {
  std::uint32_t format = 1;
  std::uint32_t min_reader = 1;
  std::string producer;
  std::vector<std::string> required_features;
  std::string unknown_fields;
};

struct Graph {
  std::shared_ptr<Context> context = std::make_shared<Context>();
  Version version;
  Arg info;
  std::vector<PassRun> passes;
  std::vector<Origin> origins;  // nodes of the first pass's input; empty before any pass ran
  std::vector<ProcessGroup> groups;
  std::vector<Symbol> symbols;
  std::vector<InputRole> inputs;
  std::vector<OutputRole> outputs;
  std::vector<Body> bodies;
  std::string unknown_fields;

  Body& step() { return bodies.front(); }
  const Body& step() const { return bodies.front(); }
  const Body* find_body(StringId name) const;
  // The first of that name; null: the table has none, or there is no name.
  const ProcessGroup* find_group(StringId name) const;

  std::string_view text(StringId id) const { return context->text(id); }
  StringId intern(std::string_view text) const { return context->strings.intern(text); }
};

// The value of keyword argument `name` of the node, or null.
const Arg* find_kwarg(const Context& context, const Node& node, std::string_view name);

// Positional or keyword argument `position`/`name` of a call, or null where it is left to its
// default.
const Arg* find_arg(const Context& context, const Node& node, std::size_t position, std::string_view name);

// Drops nested graphs that no node names any more: neither one of the step nor one of a nested
// graph that stays.
void drop_unnamed_bodies(Graph& graph);

inline const TensorType* tensor_of(const Context& context, TypeId type) {
  if (!type || context.types[type].kind != TypeKind::kTensor) return nullptr;
  return &context.types[type].tensor;
}

// The name of the process group that an argument means: what it says, or, where it is a node that
// looks a group up, what is recorded to be its value. None where only the running program knows.
StringId recorded_group(const Context& context, const Body& body, Arg group);

// Where the node is in the user's model, for messages.
Site site_of(const Graph& graph, const Node& node);

// Adds a record about the node, or puts another in place of the last one.
void append_provenance(Context& context, Node& node, const Provenance& record);
void replace_last_provenance(Context& context, Node& node, const Provenance& record);

// The last record that says that the node is a copy (is_copy_record); null: it is none.
const Provenance* find_copy_record(const Node& node);
// The last record that says that the node was made, as a part, a join, an addition; null: the node
// is one of the input.
const Provenance* find_maker(const Node& node);

// The origins that a new node made from this one stands for: those of its last record, or itself
// where no pass has recorded anything yet.
NameList origins_of(const Node& node);

// Calls visit(NodeId) for each node reference among args and kwargs, in order, with repetition.
template <class Visit>
void for_each_input(const Context& context, const Node& node, const Visit& visit) {
  context.args.for_each_node(node.args, visit);
  context.args.for_each_node(node.kwargs, visit);
}

// Puts map(leaf) in place of every leaf of the positional and keyword arguments.
template <class Map>
void map_arguments(Context& context, Node& node, const Map& map) {
  node.args = context.args.map(node.args, map);
  node.kwargs = context.args.map(node.kwargs, map);
}

// The same of a row of the table, which `map` leaves alone; one that stays as it is keeps its page
// shared.
template <class Map>
void map_arguments(Context& context, Body& body, NodeId id, const Map& map) {
  const Node& node = std::as_const(body.nodes)[id];
  const ArgRange args = context.args.map(node.args, map), kwargs = context.args.map(node.kwargs, map);
  if (args == node.args && kwargs == node.kwargs) return;
  Node& changed = body.nodes[id];
  changed.args = args;
  changed.kwargs = kwargs;
}

}  // namespace epweave
