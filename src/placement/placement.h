// Placement inference: how each value of the selected regions relates to what the region's code
// yields when it is fed one part of the tokens at a time (docs/chunking.md).
//
// The token extent u of the inputs is cut into N parts. A region is the code of one selected module
// in one direction. Part values are always well defined: what the region's code yields for part k.
// A placement says how the whole value relates to them:
//
//   Whole      v = v_k for every k             weights, masks
//   Split(d)   v = cat(v_k, d)                 activations
//   Local(d)   v's rows are the parts', in an order nobody wrote down: sorted, exchanged rows
//   Partial    v = v_0 + .. + v_{N-1}          weight gradients, counts, every size that is a multiple of u
//   Carried    v_k was computed from v_{k-1}   buffer updates
//   Tuple      one placement per element
//
// A dimension may be split in blocks: the b*s rows of a [b, s] grid whose s is divided are b
// blocks, and a part has some rows of each.
//
// One forward walk assigns each region node a placement and says how it takes each argument.
// Nothing here depends on N. Regions may be divided differently (`layers.*.moe` in four parts,
// `layers.*.feed_forward` in two); one that takes a value of another group of regions sees what
// rejoins it, as a value from outside.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/effects.h"
#include "base/hash_index.h"
#include "ir/graph.h"
#include "placement/token_extent.h"

namespace epweave {

enum class PlacementKind : std::uint8_t {
  kWhole,
  kSplit,
  kLocal,
  kPartial,
  kCarried,
  kTuple,
  kAmbiguous,  // of an outside value with two token extents: refused when used
  kUnordered,  // of an outside value whose rows were merged in an order that nothing shows: the same
};

struct Placement {
  PlacementKind kind = PlacementKind::kWhole;
  int dim = -1;  // Split, Local; -1: a Local scalar
  std::vector<Placement> elements;
  // Of Split: how many blocks the dimension has, each of which is divided; none: one. Of Local: the
  // blocks of the value whose rows these are, or are positions of.
  PolyId blocks = {};
  bool any_order = false;  // Split: all rows are equal, so that the blocks do not matter

  static Placement whole() { return {}; }
  static Placement split(int dim) { return {PlacementKind::kSplit, dim, {}}; }
  static Placement local(int dim = -1) { return {PlacementKind::kLocal, dim, {}}; }
  static Placement partial() { return {PlacementKind::kPartial, -1, {}}; }
  static Placement carried() { return {PlacementKind::kCarried, -1, {}}; }
  static Placement tuple(std::vector<Placement> elements);

  bool is(PlacementKind k) const { return kind == k; }
  bool is_whole() const { return kind == PlacementKind::kWhole; }
  bool is_partial() const { return kind == PlacementKind::kPartial; }
  bool is_local() const { return kind == PlacementKind::kLocal; }
  // Rows along one dimension, in a known order or not.
  bool is_rows() const {
    return kind == PlacementKind::kSplit || (kind == PlacementKind::kLocal && dim >= 0);
  }
  bool is_divided() const;
  friend bool operator==(const Placement&, const Placement&) = default;
};
std::string print_placement(const Placement& placement);  // "Split(0)", "(Split(0), Partial)"

// The placements of a body's values. A graph has few different ones, each of which is kept once.
class PlacementTable {
 public:
  explicit PlacementTable(std::size_t size = 0) : numbers_(size, 0) {}

  const Placement& operator[](NodeId id) const { return distinct_[numbers_[id]]; }
  void set(NodeId id, const Placement& placement);

 private:
  SideTable<NodeId, std::uint32_t> numbers_;  // in distinct_
  std::deque<Placement> distinct_{Placement::whole()};
  HashIndex index_;  // of all but the first
};

// How a node takes one of its node references.
struct Access {
  enum class Kind : std::uint8_t {
    kPart,    // part k of a divided value, the value itself of a Whole one
    kPrefix,  // parts 0 to k of dimension `dim` of a divided value
    kWhole,   // joined first
    kSlice,   // part k of dimension `dim` of the whole
    kChain,   // part k takes what part k-1 of this node made, part 0 the whole
    kAny,     // only dtype and device are read
  };
  Kind kind = Kind::kPart;
  std::int16_t dim = 0;
  PolyId blocks = {};  // kSlice: of each block of the dimension
};

using RegionId = Id<struct RegionTag>;

struct ChunkRegion {
  StringId root;
  bool backward = false;
  std::uint32_t division = 0;  // how its tokens are divided: that of the pattern that selected its root
  std::uint32_t group = 0;     // regions of one group, all divided alike, hand over parts to each other
};

// Something a rule takes for granted.
struct Assumption {
  NodeId node;
  std::string text;
  bool is_open = false;  // nothing else in the graph bears it out
};

// What queries of a part see along a divided sequence.
enum class AttentionMode : std::uint8_t {
  kWholeKv,      // all keys: what the whole model computes, for any mask
  kPrefix,       // the keys of their part and of those before: the same for a causal mask
  kIndependent,  // the keys of their part: the same only if no query sees a key of another part
};

// How far the gradient of each part goes before the parts are added up. A gradient that two ranks
// share:
//
//   early    mm -> cast           per part;   add (p0 + p1);   reduce_scatter -> wait
//   eager    mm -> cast -> reduce_scatter -> wait   per part;   add (p1 + p0)
enum class GradAccumulation : std::uint8_t {
  kEarly,  // to the collective that reduces it: one for all parts
  // Through that collective, to where autograd adds up gradients, when modules are chunked in eager
  // mode: one collective for each part, and the last part is the first to arrive.
  kEager,
};

// Which regions hand over parts.
enum class JoinMode : std::uint8_t {
  kLate,     // all that are divided alike
  kRegions,  // forward to backward of one module; between modules values are joined and cut again
};

// How the parts of a divided attention call differ from it beyond their operands.
struct AttentionCut {
  int dim = -1;       // of the query: 0 the batch, 2 the sequence
  bool keys = false;  // the keys are the part's own, too
  // The keys are those of parts 0 to k. A part's gradients of these are summands of what parts 0 to
  // k of the keys get.
  bool prefix = false;
  // The score (mask) function is given numbers of rows that must count from the part's first row.
  bool score = false, mask = false;
  bool causal = false;  // is_causal of scaled dot product attention must
};

// Whether a row may be combined with its part's own share of a sum over the rows: x - x.sum(0).
enum class OwnSums : std::uint8_t {
  kRefuse,
  kAccept,  // the user says that the share is what the module means; the plan prints it
};

struct PlacementOptions {
  std::vector<std::string> roots;             // patterns (analysis/module_path.h)
  std::vector<std::uint32_t> divisions = {};  // of each pattern, by number; none: all alike
  bool require_exchange = true;               // regions only where the module exchanges tokens
  bool dense = false;                         // regions of all selected modules
  bool exact_casts = false;  // join a Partial before a narrowing cast instead of casting each part
  AttentionMode attention = AttentionMode::kWholeKv;
  GradAccumulation grad_accumulation = GradAccumulation::kEarly;
  JoinMode join = JoinMode::kLate;
  OwnSums own_sums = OwnSums::kRefuse;
};

// A pattern that matches the path of no module.
struct UnmatchedPattern {
  std::string pattern;
  std::string nearest;  // the path that was probably meant, with numbers as "*"; or empty
};
std::string print_unmatched(const UnmatchedPattern& unmatched);

class Placements {
 public:
  std::vector<ChunkRegion> regions;
  SideTable<NodeId, RegionId> region;      // none: outside all regions
  PlacementTable placement;                // of region nodes
  std::vector<NodeId> divided;             // region nodes that are divided, in execution order
  std::shared_ptr<const Effects> effects;  // of the graph that the placements are of
  std::vector<Assumption> assumptions;
  std::vector<std::string> unused_patterns;  // that match modules but select no region
  std::vector<UnmatchedPattern> unmatched_patterns;
  std::vector<ChunkRegion> undivided;  // that dense=true selects, but no tokens enter; they stay as they are
  std::map<NodeId, AttentionCut> attention;  // divided attention calls

  bool is_divided(NodeId node) const { return placement[node].is_divided(); }
  // Of a divided node's i-th node reference (in the order of for_each_input).
  Access access(NodeId node, std::size_t i) const {
    const std::uint32_t begin = access_begin_[node];
    return begin == kNoAccess ? Access() : accesses_[begin + i];
  }
  void set_access(NodeId node, const std::vector<Access>& accesses);
  // Of any value; outside values by their type.
  const Placement& of(NodeId node) const { return region[node] ? placement[node] : outside[node]; }
  // Whether the value is one of a region that hands over parts to `user`.
  bool shares_parts(NodeId value, RegionId user) const {
    return region[value] && regions[region[value].index()].group == regions[user.index()].group;
  }
  // Whether the value has parts that a node of `user` can take as they are.
  bool has_parts_for(NodeId value, RegionId user) const {
    return is_divided(value) && shares_parts(value, user);
  }
  // What a node of `user` takes the value for.
  const Placement& seen_from(NodeId value, RegionId user) const {
    return shares_parts(value, user) ? placement[value] : outside[value];
  }
  PlacementTable outside;

 private:
  static constexpr std::uint32_t kNoAccess = UINT32_MAX;
  SideTable<NodeId, std::uint32_t> access_begin_{kNoAccess};
  std::vector<Access> accesses_;
};

// Throws PassError: no region, an op without a rule, a combination that a rule refuses, a region in
// which nothing is divided.
Placements infer_placements(const Graph& graph, const PlacementOptions& options, TokenExtents& tokens,
                            Facts& facts);

}  // namespace epweave
