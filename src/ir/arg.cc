#include "ir/arg.h"

#include <algorithm>

namespace epweave {

ArgRange ArgPool::add(std::span<const Arg> args) {
  if (args.empty()) return {};
  ArgRange range{static_cast<std::uint32_t>(args_.size()), static_cast<std::uint32_t>(args.size())};
  // `args` may lie in the pool itself.
  const bool inside = args.data() >= args_.data() && args.data() < args_.data() + args_.size();
  if (!inside) {
    args_.insert(args_.end(), args.begin(), args.end());
    return range;
  }
  const auto from = static_cast<std::size_t>(args.data() - args_.data());
  args_.resize(args_.size() + args.size());
  std::copy_n(args_.data() + from, range.count, args_.begin() + range.begin);
  return range;
}

Arg ArgPool::intern_tree(ArgKind kind, std::span<const Arg> children) {
  std::size_t hash = static_cast<std::size_t>(kind);
  for (Arg child : children)
    hash = mix_hash(mix_hash(hash, static_cast<std::size_t>(child.kind())), child.bits());
  const std::uint32_t known = tree_ids_.find(hash, [&](std::uint32_t i) {
    return trees_[i].kind() == kind && std::ranges::equal(this->children(trees_[i]), children);
  });
  if (known != HashIndex::kNone) return trees_[known];
  const Arg tree = trees_.emplace_back(add_tree(kind, children));
  tree_ids_.insert(hash, static_cast<std::uint32_t>(trees_.size() - 1));
  return tree;
}

bool ArgPool::equal(Arg a, Arg b) const {
  if (a == b) return true;
  return a.is_tree() && a.kind() == b.kind() && equal(a.children(), b.children());
}

bool ArgPool::equal(ArgRange a, ArgRange b) const {
  if (a == b) return true;
  if (a.count != b.count) return false;
  for (std::uint32_t i = 0; i < a.count; ++i)
    if (!equal(args_[a.begin + i], args_[b.begin + i])) return false;
  return true;
}

}  // namespace epweave
