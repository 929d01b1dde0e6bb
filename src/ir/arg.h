// Arguments of calls and plain data attached to nodes: trees of small values.
//
// A tree is immutable once made; its inner nodes name a range of the pool. Python's
// types are kept apart: a list is not a tuple, 1 is not 1.0, True or "1".
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash_index.h"
#include "base/id.h"
#include "base/interner.h"
#include "ir/expr.h"

namespace epweave {

using NodeId = Id<struct NodeTag>;
using TypeId = Id<struct TypeTag>;

enum class ArgKind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kReal,
  kText,
  kNode,        // the value of a node of the same body
  kUnresolved,  // a node reference whose name no node has: only in graphs that verify refuses
  kSymbolic,    // a symbolic scalar: an expression
  kDType,
  kDevice,
  kLayout,
  kMemoryFormat,
  kGraph,         // a nested graph, by name
  kProcessGroup,  // a process-group object, by name
  kOperator,
  kEllipsis,
  kTypeRef,  // a recorded type, inside kTensor
  // Trees:
  kList,
  kTuple,
  kDict,        // key, value, key, value, ...
  kSlice,       // start, stop, step
  kMesh,        // axes, shape, ranks, device type
  kComplex,     // real, imaginary
  kNamedTuple,  // type name, then field name, value, ...
  kOpaque,      // repr, class name
  kTensor,      // constant: attribute path or None, type, nested lists of values or None
  kSet,
};

// A range of arguments in the pool.
struct ArgRange {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  bool empty() const { return count == 0; }
  friend bool operator==(const ArgRange&, const ArgRange&) = default;
};

// One value. 16 bytes; trees hold their children in the pool.
class Arg {
 public:
  constexpr Arg() = default;
  static Arg none() { return Arg(); }
  static Arg boolean(bool v) { return Arg(ArgKind::kBool, v ? 1 : 0); }
  static Arg integer(std::int64_t v) { return Arg(ArgKind::kInt, static_cast<std::uint64_t>(v)); }
  static Arg real(double v) {
    std::uint64_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    return Arg(ArgKind::kReal, bits);
  }
  static Arg node(NodeId id) { return Arg(ArgKind::kNode, id.index()); }
  static Arg symbolic(ExprId id) { return Arg(ArgKind::kSymbolic, id.index()); }
  static Arg type_ref(TypeId id) { return Arg(ArgKind::kTypeRef, id.index()); }
  static Arg ellipsis() { return Arg(ArgKind::kEllipsis, 0); }
  // kText, kUnresolved, kDType, kDevice, kLayout, kMemoryFormat, kGraph, kProcessGroup, kOperator
  static Arg named(ArgKind kind, StringId id) { return Arg(kind, id.index()); }
  static Arg text(StringId id) { return named(ArgKind::kText, id); }
  static Arg tree(ArgKind kind, ArgRange r) {
    return Arg(kind, (static_cast<std::uint64_t>(r.count) << 32) | r.begin);
  }

  ArgKind kind() const { return kind_; }
  bool is(ArgKind kind) const { return kind_ == kind; }
  bool is_tree() const { return kind_ >= ArgKind::kList; }
  bool is_list() const { return kind_ == ArgKind::kList || kind_ == ArgKind::kTuple; }
  bool is_none() const { return kind_ == ArgKind::kNone; }
  bool is_int() const { return kind_ == ArgKind::kInt; }
  bool is_node() const { return kind_ == ArgKind::kNode; }

  bool as_bool() const { return expect(ArgKind::kBool), bits_ != 0; }
  std::int64_t as_int() const { return expect(ArgKind::kInt), static_cast<std::int64_t>(bits_); }
  double as_real() const {
    expect(ArgKind::kReal);
    double v;
    std::memcpy(&v, &bits_, sizeof v);
    return v;
  }
  NodeId as_node() const { return expect(ArgKind::kNode), NodeId(static_cast<std::uint32_t>(bits_)); }
  ExprId as_expr() const { return expect(ArgKind::kSymbolic), ExprId(static_cast<std::uint32_t>(bits_)); }
  TypeId as_type() const { return expect(ArgKind::kTypeRef), TypeId(static_cast<std::uint32_t>(bits_)); }
  StringId as_name() const {
    EPWEAVE_DCHECK(!is_tree() && kind_ >= ArgKind::kText);
    return StringId(static_cast<std::uint32_t>(bits_));
  }
  ArgRange children() const {
    EPWEAVE_DCHECK(is_tree());
    return {static_cast<std::uint32_t>(bits_), static_cast<std::uint32_t>(bits_ >> 32)};
  }
  std::uint64_t bits() const { return bits_; }

  // Same kind and bits. For trees: the same range; equal trees made by ArgPool::intern_tree have
  // the same range.
  friend constexpr bool operator==(const Arg&, const Arg&) = default;

 private:
  constexpr Arg(ArgKind kind, std::uint64_t bits) : kind_(kind), bits_(bits) {}
  void expect([[maybe_unused]] ArgKind kind) const { EPWEAVE_DCHECK(kind_ == kind); }

  ArgKind kind_ = ArgKind::kNone;
  std::uint64_t bits_ = 0;
};

// Owns the children of all trees. Grows only, so a range stays valid; a span does not survive an
// addition.
class ArgPool {
 public:
  ArgRange add(std::span<const Arg> args);
  Arg add_tree(ArgKind kind, std::span<const Arg> children) { return Arg::tree(kind, add(children)); }
  // As add_tree, but an equal tree made by this function before is returned again. Children must be
  // interned too.
  Arg intern_tree(ArgKind kind, std::span<const Arg> children);
  // The same for arguments that stand in no tree: equal ones get the same range.
  ArgRange intern(std::span<const Arg> args) {
    return args.empty() ? ArgRange() : intern_tree(ArgKind::kTuple, args).children();
  }

  std::span<const Arg> operator[](ArgRange r) const { return {args_.data() + r.begin, r.count}; }
  std::span<const Arg> children(Arg tree) const { return (*this)[tree.children()]; }
  bool equal(Arg a, Arg b) const;  // deep
  bool equal(ArgRange a, ArgRange b) const;

  // Calls visit(NodeId) for every node reference in the tree, in order.
  template <class Visit>
  void for_each_node(Arg arg, const Visit& visit) const {
    if (arg.is_node()) {
      visit(arg.as_node());
    } else if (arg.is_tree()) {
      const ArgRange r = arg.children();
      for (std::uint32_t i = 0; i < r.count; ++i) for_each_node(args_[r.begin + i], visit);
    }
  }
  template <class Visit>
  void for_each_node(ArgRange range, const Visit& visit) const {
    for (std::uint32_t i = 0; i < range.count; ++i) for_each_node(args_[range.begin + i], visit);
  }

  // The tree with every leaf replaced by map(leaf); the same tree where nothing changed.
  template <class Map>
  Arg map(Arg arg, const Map& map_leaf) {
    if (!arg.is_tree()) return map_leaf(arg);
    const ArgRange mapped = map(arg.children(), map_leaf);
    return mapped == arg.children() ? arg : Arg::tree(arg.kind(), mapped);
  }
  template <class Map>
  ArgRange map(ArgRange range, const Map& map_leaf) {
    std::array<Arg, 8> few;
    std::vector<Arg> many(range.count > few.size() ? range.count : 0);
    const std::span<Arg> mapped(many.empty() ? few.data() : many.data(), range.count);
    bool changed = false;
    for (std::uint32_t i = 0; i < range.count; ++i) {
      const Arg before = args_[range.begin + i];
      mapped[i] = map(before, map_leaf);
      changed |= !(mapped[i] == before);
    }
    return changed ? add(mapped) : range;
  }

 private:
  std::vector<Arg> args_;
  std::vector<Arg> trees_;  // the interned ones
  HashIndex tree_ids_;      // positions in trees_
};

}  // namespace epweave
