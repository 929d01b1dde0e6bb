#include "compare/rewrite/storage_writers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/collectives.h"
#include "ops/op.h"
#include "ops/rules.h"

namespace epweave {
namespace {

const OpInfo& find_copy() {
  static const OpInfo& copy = *std::ranges::find(ops(), &rules::clone, &OpInfo::type_rule);
  return copy;
}

std::optional<Body> copy_moved(const RewriteClaims& claims) {
  std::optional<Body> apart;
  const Body& body = claims.graph_b().step();
  for (NodeId id : body.order) {
    if (claims[id].kind != ClaimKind::kMoved) continue;
    if (!apart) apart = body;
    Node& node = apart->nodes[id];
    node.op = &find_copy();
    node.args.count = 1;
  }
  return apart;
}

}  // namespace

StorageWriters::StorageWriters(const Effects& effects)
    : context_(effects.context()),
      body_(effects.body()),
      effects_(effects),
      seen_(body_.nodes.size()),
      state_(body_.nodes.size()) {
  for (NodeId id : body_.order) read(id);
}

StorageWriters::StorageWriters(RewriteClaims& claims)
    : context_(*claims.graph_b().context),
      apart_(copy_moved(claims)),
      body_(apart_ ? *apart_ : claims.graph_b().step()),
      own_effects_(std::in_place, claims.graph_b(), body_),
      effects_(*own_effects_),
      seen_(body_.nodes.size()),
      state_(body_.nodes.size()) {
  for (NodeId id : body_.order) {
    read(id);
    copy_state(claims, id);
  }
}

void StorageWriters::append(Range range) {
  for (std::uint32_t i = 0; i < range.count; ++i) writes_.push_back(SeenWrite(writes_[range.begin + i]));
}

void StorageWriters::read(NodeId id) {
  const auto begin = static_cast<std::uint32_t>(writes_.size());
  for (const StorageAccess& access : effects_.accesses_of(id)) append(state_[access.storage]);
  if (has_copies_) read_copies(id);
  seen_[id] = {begin, static_cast<std::uint32_t>(writes_.size()) - begin};
  if (repeats_wait(id)) return;
  for (const StorageAccess& access : effects_.accesses_of(id)) {
    if (!access.writes) continue;
    state_[access.storage] = {static_cast<std::uint32_t>(writes_.size()), 1};
    writes_.push_back({id, SeenWrite::How::kDirect, access.storage});
  }
}

// A second wait for a collective finds in its result what was written there since the first,
// whichever view of it is waited for. Whether both give one value: analysis/repeated_waits.h.
bool StorageWriters::repeats_wait(NodeId id) {
  const NodeId launch = find_waited_launch(context_, body_, id);
  return launch && std::exchange(waited_.at(effects_.storage_of(id)), launch) == launch;
}

// Storage that nothing writes, but that is a copy of what was written.
void StorageWriters::read_copies(NodeId id) {
  if (!reads_elements(body_.nodes[id])) return;
  const auto accesses = effects_.accesses_of(id);
  std::vector<NodeId> done;
  const auto read = [&](NodeId input) {
    const NodeId storage = effects_.storage_of(input);
    if (state_[storage].count == 0 || std::ranges::find(done, storage) != done.end()) return;
    if (std::ranges::find(accesses, storage, &StorageAccess::storage) != accesses.end()) return;
    done.push_back(storage);
    append(state_[storage]);
  };
  for_each_input(context_, body_.nodes[id], read);
  // A wait completes its collective, which reads what it sends until then.
  if (!is_wait(body_.nodes[id])) return;
  const NodeId launch = find_waited_launch(context_, body_, id);
  if (launch) for_each_input(context_, body_.nodes[launch], read);
}

// What a rewrite added to cut or join values has what its operands held.
void StorageWriters::copy_state(RewriteClaims& claims, NodeId id) {
  const ClaimKind kind = claims[id].kind;
  // As a wait leaves what it waited for.
  if (kind == ClaimKind::kMoved && is_wait(claims.graph_a().step().nodes[claims[id].origin])) {
    state_[id] = {static_cast<std::uint32_t>(writes_.size()), 1};
    writes_.push_back({id, SeenWrite::How::kDirect, id});
    has_copies_ = true;
    return;
  }
  if (kind == ClaimKind::kWhole || kind == ClaimKind::kPart || seen_[id].count == 0) return;
  if (effects_.storage_of(id) != id || state_[id].count != 0) return;
  const bool is_join = kind == ClaimKind::kJoin || kind == ClaimKind::kBlocks;
  std::map<NodeId, std::vector<NodeId>> parts;  // of a write of A: those of its parts that are seen
  std::vector<SeenWrite> state;
  for (const SeenWrite& write : seen_by(id)) {
    const bool is_part =
        is_join && write.how != SeenWrite::How::kJoined && claims[write.writer].kind == ClaimKind::kPart;
    if (!is_part) {
      state.push_back({write.writer, write.how, id});
      continue;
    }
    std::vector<NodeId>& seen = parts[claims.find_class(claims[write.writer].origin)];
    if (std::ranges::find(seen, write.writer) == seen.end()) seen.push_back(write.writer);
  }
  for (const auto& [origin, seen] : parts) {
    if (seen.size() == claims[seen.front()].parts) {
      state.push_back({seen.back(), SeenWrite::How::kJoined, id});
    } else {
      for (NodeId writer : seen) state.push_back({writer, SeenWrite::How::kTorn, id});
    }
  }
  state_[id] = {static_cast<std::uint32_t>(writes_.size()), static_cast<std::uint32_t>(state.size())};
  writes_.insert(writes_.end(), state.begin(), state.end());
  has_copies_ = true;
}

}  // namespace epweave
