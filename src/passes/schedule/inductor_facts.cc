#include "passes/schedule/inductor_facts.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/collectives.h"
#include "cost/extents.h"
#include "cost/prices.h"
#include "ops/bind.h"
#include "ops/memory_traits.h"
#include "passes/schedule/inductor_extents.h"

namespace epweave {
namespace {

// What kinds of collectives the reference tells apart, and can merge.
enum class BucketKind : std::uint8_t { kNone, kGather, kScatter, kReduce };

BucketKind bucket_kind_of(const OpInfo& op) {
  if (op.returns.size() != 1 || op.returns.front().type != "Tensor") return BucketKind::kNone;
  if (op.family == OpFamily::kAllGather) return BucketKind::kGather;
  if (op.writes) return BucketKind::kNone;
  if (op.family == OpFamily::kReduceScatter) return BucketKind::kScatter;
  return op.family == OpFamily::kAllReduce ? BucketKind::kReduce : BucketKind::kNone;
}

bool is_schedulable(const Node& launch) {
  return is_launch(launch) && launch.op->family != OpFamily::kBroadcast;
}

class InductorFactsFinder {
 public:
  InductorFactsFinder(const Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                      GatherKey gathers)
      : context_(*graph.context),
        body_(graph.step()),
        m_(model),
        p_(problem),
        gathers_(gathers),
        extents_(graph),
        pricer_(graph, model.cluster, extents_),
        guessed_(graph, kElementsUnknown) {}

  InductorFacts run() {
    find_nodes();
    find_collectives();
    find_reach();
    return std::move(f_);
  }

 private:
  const Node& node(Place place) const { return body_.nodes[m_.nodes[place]]; }

  void find_nodes() {
    const std::size_t n = m_.size();
    f_.roles.assign(n, InductorRole::kOther);
    f_.ms.resize(n);
    f_.is_cheap.resize(n);
    f_.blocks_path.resize(n);
    f_.value_inputs.resize(n);
    f_.value_users = invert(m_.inputs);
    MemoryTraits traits(context_);
    for (Place i = 0; i < n; ++i) {
      const Node& call = node(i);
      f_.ms[i] = m_.seconds[i] * 1e3;
      if (call.kind == NodeKind::kPlaceholder) f_.roles[i] = InductorRole::kInput;
      if (p_.work[i] == PlaceWork::kPinned && call.kind != NodeKind::kPlaceholder &&
          call.kind != NodeKind::kOutput)
        f_.roles[i] = InductorRole::kRank;
      for (const Place input : m_.inputs[i])
        if (f_.roles[input] != InductorRole::kRank) ++f_.value_inputs[i];
      if (call.kind != NodeKind::kCall || f_.roles[i] == InductorRole::kRank) continue;
      if (traits.has(call, kCountsFlops)) f_.roles[i] = InductorRole::kCompute;
      f_.is_cheap[i] = traits.has(call, kIsPointwise) || traits.has(call, kIsDeclaredView);
      f_.blocks_path[i] = call.op == nullptr || is_launch(call) || is_wait(call);
    }
  }

  // ------------------------------------------------------------------------- collectives

  void find_collectives() {
    f_.collective.assign(m_.size(), kNoPlace);
    for (Place i = 0; i < m_.size(); ++i) {
      const Place start = start_waited_by(i);
      if (start == kNoPlace) continue;
      std::uint32_t& number = f_.collective[start];
      if (number == kNoPlace) {
        number = static_cast<std::uint32_t>(f_.collectives.size());
        f_.collectives.push_back(describe_collective(start, i));
        f_.roles[start] = InductorRole::kLaunch;
      }
      f_.roles[i] = InductorRole::kWait;
      f_.collective[i] = number;
    }
    f_.keys = static_cast<std::uint32_t>(keys_.size());
  }

  // A wait of a wait, or of a view of a result, is none.
  Place start_waited_by(Place i) const {
    if (m_.kinds[i] != StepKind::kWait || m_.launches[i] == kNoPlace || m_.inputs[i].size() != 1)
      return kNoPlace;
    Place taken = m_.inputs[i].front();
    if (has_family(node(taken), OpFamily::kElement) && !m_.inputs[taken].empty())
      taken = m_.inputs[taken].front();
    return taken == m_.launches[i] && is_schedulable(node(taken)) ? taken : kNoPlace;
  }

  InductorCollective describe_collective(Place start, Place wait) {
    const Node& launch = node(start);
    const StepGroup& group = m_.step_groups[m_.groups[start]];
    InductorCollective found{.start = start, .wait = wait, .group = m_.groups[start]};
    const BucketKind kind = bucket_kind_of(*launch.op);
    found.is_gather = kind == BucketKind::kGather;
    if (kind != BucketKind::kNone) found.bucket = find_bucket(launch, kind, found.group);
    found.key = number_of(keys_, std::pair(kind, found.bucket));
    found.bytes = bytes_of(launch);
    if (kind == BucketKind::kReduce) found.bytes /= 2;
    found.ms = f_.ms[start];
    if (group.ranks > 1) found.latency_ms = collective_seconds(m_.cluster, launch.op->family, 0, group) * 1e3;
    return found;
  }

  std::uint32_t find_bucket(const Node& launch, BucketKind kind, std::uint32_t group) {
    StringId reduction;
    if (kind != BucketKind::kGather)
      if (const auto position = launch.op->find_param("reduce_op"))
        if (const Arg arg = arg_of(context_, launch, *position); arg.is(ArgKind::kText))
          reduction = arg.as_name();
    const TensorType* result = tensor_of(context_, launch.type);
    const bool is_any = kind == BucketKind::kGather && gathers_ == GatherKey::kAnyDtype;
    const int dtype = result == nullptr || is_any ? -1 : static_cast<int>(result->dtype);
    return number_of(buckets_, std::tuple(group, kind == BucketKind::kGather, reduction.index(), dtype));
  }

  template <class Key>
  static std::uint32_t number_of(std::map<Key, std::uint32_t>& numbers, const Key& key) {
    return numbers.try_emplace(key, static_cast<std::uint32_t>(numbers.size())).first->second;
  }

  // What a buffer that is written into gives counts once.
  std::int64_t bytes_of(const Node& launch) {
    const Arg* out = find_kwarg(context_, launch, "out");
    std::int64_t bytes = bytes_of(launch.type);
    for_each_input(context_, launch, [&](NodeId input) {
      if (out == nullptr || *out != Arg::node(input)) bytes += bytes_of(body_.nodes[input].type);
    });
    return bytes;
  }
  std::int64_t bytes_of(TypeId type) {
    std::int64_t bytes = 0;
    for (const PricedTensor& tensor : pricer_.tensors_of(type)) bytes += guessed_.bytes(*tensor.type);
    return bytes;
  }

  // ------------------------------------------------------------------------- what needs what

  void find_reach() {
    const auto n = static_cast<Place>(m_.size());
    std::vector<std::uint32_t> ordinals(n, kNeverNeeded);
    for (Place i = 0; i < n; ++i)
      if (f_.roles[i] == InductorRole::kCompute) ordinals[i] = f_.computes++;
    f_.compute_before.assign(n, 0);
    for (Place i = 0; i < n; ++i)
      for (const Place before : p_.inputs[i]) {
        std::uint32_t& most = f_.compute_before[i];
        most = std::max(most, f_.compute_before[before]);
        if (ordinals[before] != kNeverNeeded) most = std::max(most, ordinals[before] + 1);
      }
    f_.needed_by = ordinals;
    f_.is_needed_by_scatter.resize(n);
    for (Place i = n; i-- > 0;) {
      f_.is_needed_by_scatter[i] = is_scatter(i);
      for (const Place after : p_.users[i]) {
        if (f_.is_needed_by_scatter[after]) f_.is_needed_by_scatter[i] = true;
        if (ordinals[i] == kNeverNeeded) f_.needed_by[i] = std::min(f_.needed_by[i], f_.needed_by[after]);
      }
    }
  }
  bool is_scatter(Place i) const {
    return is_launch(node(i)) && bucket_kind_of(*node(i).op) == BucketKind::kScatter;
  }

  const Context& context_;
  const Body& body_;
  const StepModel& m_;
  const ScheduleProblem& p_;
  GatherKey gathers_;
  Extents extents_;
  Pricer pricer_;
  InductorExtents guessed_;
  InductorFacts f_;
  std::map<std::tuple<std::uint32_t, bool, std::uint32_t, int>, std::uint32_t> buckets_;
  std::map<std::pair<BucketKind, std::uint32_t>, std::uint32_t> keys_;
};

}  // namespace

InductorFacts find_inductor_facts(const Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                                  GatherKey gathers) {
  return InductorFactsFinder(graph, model, problem, gathers).run();
}

}  // namespace epweave
