#include "cost/bounds.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "analysis/recompute_tags.h"
#include "cost/one_machine.h"

namespace epweave {
namespace {

using Pairs = std::span<const std::pair<Place, Place>>;

// Whether a node that comes behind `before` for its effects alone cannot start before that one's
// end. Streams see to it where kernels are concerned; a launch returns at once, and only who takes
// its value, or waits, is held.
bool holds_back(const StepModel& model, Place before, Place place) {
  if (model.is_costed_launch(before)) return false;
  if (model.kinds[before] == StepKind::kItem && model.cluster.host_sync == 0) return false;
  return model.cluster.launch_joins != 0 || model.kinds[place] == StepKind::kKernel;
}

// Calls visit(Place) for each node before whose end the place's cannot start. Values come first in
// StepModel::before.
template <class Visit>
void visit_delays(const StepModel& model, Place place, const Visit& visit) {
  const auto before = model.before[place];
  const std::size_t values = model.inputs[place].size();
  for (std::size_t i = 0; i < before.size(); ++i)
    if (i < values || holds_back(model, before[i], place)) visit(before[i]);
}

// The nodes that take time, and those without time where paths meet. Vertices are in the order of
// their places.
struct Network {
  std::vector<Place> places;  // by vertex
  std::vector<double> seconds;
  std::vector<std::uint32_t> streams;   // kNoPlace: takes no time
  PlaceLists before, after;             // lists of vertices
  std::vector<std::uint32_t> vertices;  // by place: the vertex behind which it is ready; kNoPlace: at once
  std::uint32_t stream_count = 0;

  std::size_t size() const { return places.size(); }
};

class NetworkBuilder {
 public:
  NetworkBuilder(const StepModel& model, Pairs more)
      : model_(model), more_(list_of(model, more)), last_(model.size(), kNoPlace) {}

  Network run() {
    Network& n = network_;
    n.vertices.assign(model_.size(), kNoPlace);
    n.stream_count = static_cast<std::uint32_t>(model_.step_groups.size()) + 1;
    n.before.begins.assign(1, 0);
    for (Place place = 0; place < model_.size(); ++place) add(place);
    n.after = invert(n.before);
    return std::move(n);
  }

 private:
  static PlaceLists list_of(const StepModel& model, Pairs more) {
    std::vector<std::pair<Place, Place>> pairs;
    for (const auto& [before, after] : more) pairs.emplace_back(after, before);
    return list_pairs(model.size(), pairs);
  }

  void add(Place place) {
    Network& n = network_;
    const auto vertex = static_cast<std::uint32_t>(n.places.size());
    const std::size_t begin = n.before.items.size();
    const auto add_edge = [&](Place before) {
      const std::uint32_t from = n.vertices[before];
      if (from != kNoPlace && std::exchange(last_[from], place) != place) n.before.items.push_back(from);
    };
    visit_delays(model_, place, add_edge);
    for (const Place before : more_[place])
      if (holds_back(model_, before, place)) add_edge(before);
    const std::size_t count = n.before.items.size() - begin;
    const double seconds = model_.seconds[place];
    if (seconds == 0 && count < 2) {
      if (count == 1) n.vertices[place] = n.before.items.back();
      n.before.items.resize(begin);
      return;
    }
    n.vertices[place] = vertex;
    n.places.push_back(place);
    n.seconds.push_back(seconds);
    const bool is_launch = model_.kinds[place] == StepKind::kLaunch;
    n.streams.push_back(seconds == 0 ? kNoPlace : is_launch ? model_.groups[place] + 1 : 0);
    n.before.begins.push_back(static_cast<std::uint32_t>(n.before.items.size()));
  }

  const StepModel& model_;
  PlaceLists more_;
  std::vector<Place> last_;  // by vertex: the place that listed it last
  Network network_;
};

class BoundFinder {
 public:
  BoundFinder(const Network& network, const HeadsAndTails* known, std::span<const Place> waists)
      : n_(network),
        is_waist_(n_.size(), 0),
        heads_(n_.size(), 0),
        tails_(n_.size(), 0),
        jobs_(n_.stream_count),
        dist_(n_.size()),
        known_(known) {
    for (const Place place : waists)
      if (const std::uint32_t v = n_.vertices[place]; v != kNoPlace) is_waist_[v] = 1;
  }

  StepBounds run() {
    propagate_heads(0);
    propagate_tails(n_.size());
    StepBounds bounds;
    bounds.critical_path = longest();
    bounds.load = load();
    bounds.head_load_tail = whole_bound();
    find_joints();
    take_known();
    for (std::size_t i = 0; i < (is_small() ? 2 : 1); ++i) {
      raise_heads();
      raise_tails();
    }
    bounds.joints = std::max({longest(), whole_bound(), bounds.head_load_tail});
    bounds.lower_bound = std::max({bounds.critical_path, bounds.load, bounds.joints});
    return bounds;
  }

  const std::vector<double>& heads() const { return heads_; }
  const std::vector<double>& tails() const { return tails_; }

 private:
  using Vertex = std::uint32_t;

  void propagate_heads(std::size_t from) {
    for (auto v = static_cast<Vertex>(from); v < n_.size(); ++v)
      for (const Vertex before : n_.before[v])
        heads_[v] = std::max(heads_[v], heads_[before] + n_.seconds[before]);
  }
  void propagate_tails(std::size_t to) {
    for (auto v = static_cast<Vertex>(to); v-- > 0;)
      for (const Vertex after : n_.after[v])
        tails_[v] = std::max(tails_[v], tails_[after] + n_.seconds[after]);
  }
  double longest() const {
    double most = 0;
    for (Vertex v = 0; v < n_.size(); ++v) most = std::max(most, heads_[v] + n_.seconds[v] + tails_[v]);
    return most;
  }
  double load() const {
    std::vector<double> sums(n_.stream_count, 0);
    for (Vertex v = 0; v < n_.size(); ++v)
      if (n_.streams[v] != kNoPlace) sums[n_.streams[v]] += n_.seconds[v];
    return std::ranges::max(sums);
  }

  void take_known() {
    if (known_ == nullptr || known_->heads.empty()) return;
    for (Vertex v = 0; v < n_.size(); ++v) {
      heads_[v] = std::max(heads_[v], known_->heads[n_.places[v]]);
      tails_[v] = std::max(tails_[v], known_->tails[n_.places[v]]);
    }
    propagate_heads(0);
    propagate_tails(n_.size());
  }

  void clear_jobs() {
    for (auto& jobs : jobs_) jobs.clear();
  }
  void add_job(Vertex v, double head, double tail) {
    if (n_.streams[v] != kNoPlace) jobs_[n_.streams[v]].push_back({head, n_.seconds[v], tail});
  }
  double jobs_bound(double known) {
    for (auto& jobs : jobs_) known = one_machine_bound(jobs, heap_, known);
    return known;
  }
  double whole_bound() {
    clear_jobs();
    for (Vertex v = 0; v < n_.size(); ++v) add_job(v, heads_[v], tails_[v]);
    return jobs_bound(0);
  }

  // ------------------------------------------------------------------------- joints

  // A longest path, from its first vertex.
  std::vector<Vertex> longest_path() const {
    std::vector<Vertex> path;
    if (n_.size() == 0) return path;
    Vertex at = 0;
    for (Vertex v = 0; v < n_.size(); ++v)
      if (through(v) > through(at)) at = v;
    const auto end = [&](Vertex v) { return heads_[v] + n_.seconds[v]; };
    for (Vertex v = at;;) {
      path.push_back(v);
      const auto before = n_.before[v];
      if (before.empty()) break;
      v = *std::ranges::max_element(before, {}, end);
    }
    std::ranges::reverse(path);
    const auto rest = [&](Vertex v) { return tails_[v] + n_.seconds[v]; };
    for (auto after = n_.after[at]; !after.empty(); after = n_.after[path.back()])
      path.push_back(*std::ranges::max_element(after, {}, rest));
    return path;
  }

  // The vertices that all paths from one to the other go through, where paths fork or meet.
  std::vector<Vertex> find_cuts(Vertex from, Vertex to) {
    inside_.assign(n_.size(), 0);
    inside_[from] = 1;
    for (Vertex v = from; v < to; ++v)
      if (inside_[v] != 0)
        for (const Vertex after : n_.after[v]) inside_[after] = 1;
    std::vector<Vertex> cuts;
    if (inside_[to] == 0) return cuts;
    inside_[to] = 2;
    Vertex reach = to;  // the first vertex that something behind `v` comes from
    for (Vertex v = to + 1; v-- > from;) {
      if (inside_[v] != 2) continue;
      std::size_t edges = 0;
      const bool is_cut = v <= reach;
      for (const Vertex before : n_.before[v])
        if (before >= from && inside_[before] != 0) {
          inside_[before] = 2;
          reach = std::min(reach, before);
          ++edges;
        }
      if (is_cut && (edges > 1 || n_.after[v].size() > 1)) cuts.push_back(v);
    }
    std::ranges::reverse(cuts);
    return cuts;
  }

  // A step forks at its loss: what the forward saves goes around everything behind. So the chain is
  // of the cuts in front of and behind one vertex of a longest path: the one of a few that gives
  // the most.
  void find_chain(const std::vector<Vertex>& path) {
    constexpr std::size_t kSamples = 16;
    for (std::size_t k = 1; k < kSamples; ++k) {
      const Vertex middle = path[path.size() * k / kSamples];
      if (middle == path.front() || middle == path.back()) continue;
      std::vector<Vertex> cuts = find_cuts(path.front(), middle);
      const std::vector<Vertex> behind = find_cuts(middle, path.back());
      cuts.insert(cuts.end(), behind.begin(), behind.end());
      if (cuts.size() > chain_.size()) chain_ = std::move(cuts);
    }
    chain_.erase(std::unique(chain_.begin(), chain_.end()), chain_.end());
  }

  // All of a longest path where others fork off or join it. Between two of those its vertices raise
  // nothing: what comes before one comes before its only predecessor, too. And next to it those
  // through which a path is nearly as long, where others fork and join: all parts go through the
  // keys that they share, while the path may go through the queries of one part.
  void find_joints() {
    constexpr double kNearly = 0.999;
    const std::vector<Vertex> path = longest_path();
    if (path.size() < 2) return;
    find_chain(path);
    for (const Vertex v : path) {
      if (n_.before[v].size() > 1 || n_.after[v].size() > 1) joints_.push_back(v);
      for (const auto& next : {n_.before[v], n_.after[v]})
        for (const Vertex w : next)
          if (n_.before[w].size() > 1 && n_.after[w].size() > 1 && through(w) >= kNearly * through(v))
            beside_.push_back(w);
    }
    sort_once(beside_);
    for (Vertex v = 0; v < n_.size(); ++v)
      if (is_waist_[v] != 0) joints_.push_back(v);
    for (const Vertex v : find_meetings(path)) {
      is_waist_[v] = 1;
      joints_.push_back(v);
    }
    sort_once(joints_);
    std::ranges::set_union(joints_, beside_, std::back_inserter(raised_));
  }
  static void sort_once(std::vector<Vertex>& list) {
    std::ranges::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }

  // By stream, the seconds of all that must be done before the vertex starts.
  const std::vector<double>& load_before(Vertex vertex) {
    loads_.assign(n_.stream_count, 0);
    inside_.assign(n_.size(), 0);
    for (const Vertex before : n_.before[vertex]) inside_[before] = 1;
    for (Vertex v = vertex; v-- > 0;) {
      if (inside_[v] == 0) continue;
      if (n_.streams[v] != kNoPlace) loads_[n_.streams[v]] += n_.seconds[v];
      for (const Vertex before : n_.before[v]) inside_[before] = 1;
    }
    return loads_;
  }

  // Vertices of a path where a long chain of others joins it, as that of another part: there the
  // load of some stream grows by more than the path is long. Found between a few vertices of the
  // path, then by halving.
  std::vector<Vertex> find_meetings(const std::vector<Vertex>& path) {
    constexpr std::size_t kSamples = 16, kMeetings = 2;
    struct Sample {
      std::size_t at;
      std::vector<double> load;
    };
    const auto sample = [&](std::size_t at) { return Sample{at, load_before(path[at])}; };
    const auto growth = [&](const Sample& from, const Sample& to) {
      double most = 0;
      for (std::size_t s = 0; s < to.load.size(); ++s) most = std::max(most, to.load[s] - from.load[s]);
      return most - (heads_[path[to.at]] - heads_[path[from.at]]);
    };
    std::vector<std::pair<Sample, Sample>> spans;
    Sample last = sample(0);
    for (std::size_t k = 1; k <= kSamples; ++k) {
      Sample next = sample((path.size() - 1) * k / kSamples);
      spans.emplace_back(std::move(last), next);
      last = std::move(next);
    }
    std::ranges::stable_sort(spans, [&](const auto& a, const auto& b) {
      return growth(a.first, a.second) > growth(b.first, b.second);
    });
    std::vector<Vertex> found;
    for (std::size_t k = 0; k < kMeetings; ++k) {
      auto& [from, to] = spans[k];
      if (growth(from, to) <= 0) break;
      while (to.at - from.at > 1) {
        Sample middle = sample(from.at + (to.at - from.at) / 2);
        (growth(from, middle) > growth(middle, to) ? to : from) = std::move(middle);
      }
      found.push_back(path[to.at]);
    }
    return found;
  }

  double through(Vertex v) const { return heads_[v] + n_.seconds[v] + tails_[v]; }

  // How many joints back to look for the ancestors of one, the k-th from an end: few for most, 8
  // times as many for each 8th, and so on; as much work for each of these ranges.
  std::size_t span_of(std::size_t k, Vertex joint) const {
    if (is_waist_[joint] != 0) return ~std::size_t{0};
    const int ranges = std::countr_zero(k | std::size_t{1} << 30) / 3;
    return (is_small() ? std::size_t{32} : std::size_t{8}) << 3 * ranges;
  }
  // Where the search for ancestors of a joint ends, and that for its descendants. From one of the
  // chain it takes in kLinks of it, so that the joints contain a sum over the chain's links, and
  // from one beside the path kBeside of those: a layer or two have so many.
  Vertex first_before(Vertex joint) const {
    const std::size_t span = span_of(joints_.size() - 1 - place_in(joints_, joint), joint);
    return std::min({before_in(joints_, span, joint), before_in(chain_, kLinks, joint),
                     before_in(beside_, kBeside, joint)});
  }
  Vertex end_behind(Vertex joint) const {
    const std::size_t span = span_of(place_in(joints_, joint), joint);
    return std::max(
        {end_in(joints_, span, joint), end_in(chain_, kLinks, joint), end_in(beside_, kBeside, joint)});
  }
  static std::size_t place_in(std::span<const Vertex> list, Vertex joint) {
    return static_cast<std::size_t>(std::ranges::lower_bound(list, joint) - list.begin());
  }
  static bool has(std::span<const Vertex> list, Vertex joint) {
    return std::ranges::binary_search(list, joint);
  }
  // Of a list that has the joint, the one so many in front of it; all where there are fewer.
  static Vertex before_in(std::span<const Vertex> list, std::size_t count, Vertex joint) {
    if (!has(list, joint)) return joint;
    const std::size_t k = place_in(list, joint);
    return k < count ? 0 : list[k - count];
  }
  // Behind the one so many behind it.
  Vertex end_in(std::span<const Vertex> list, std::size_t count, Vertex joint) const {
    if (!has(list, joint)) return joint;
    const std::size_t k = place_in(list, joint);
    return list.size() - k <= count ? static_cast<Vertex>(n_.size()) : list[k + count] + 1;
  }
  static constexpr std::size_t kLinks = 4, kBeside = 24;
  bool is_small() const { return n_.size() < 4000; }

  void raise_heads() {
    std::size_t done = 0;
    for (const Vertex joint : raised_) {
      propagate_heads_between(done, joint);
      done = joint;
      const Vertex first = first_before(joint);
      clear_jobs();
      std::fill(dist_.begin() + first, dist_.begin() + joint, -1.0);
      for (const Vertex before : n_.before[joint]) dist_[before] = 0;
      for (Vertex v = joint; v-- > first;) {
        if (dist_[v] < 0) continue;
        add_job(v, heads_[v], dist_[v]);
        for (const Vertex before : n_.before[v])
          dist_[before] = std::max(dist_[before], dist_[v] + n_.seconds[v]);
      }
      heads_[joint] = jobs_bound(heads_[joint]);
    }
    propagate_heads_between(done, n_.size());
  }
  void propagate_heads_between(std::size_t from, std::size_t to) {
    for (auto v = static_cast<Vertex>(from); v < std::min(to + 1, n_.size()); ++v)
      for (const Vertex before : n_.before[v])
        heads_[v] = std::max(heads_[v], heads_[before] + n_.seconds[before]);
  }

  void raise_tails() {
    std::size_t done = n_.size();
    for (auto at = raised_.rbegin(); at != raised_.rend(); ++at) {
      const Vertex joint = *at;
      propagate_tails_between(joint, done);
      done = joint;
      const Vertex end = end_behind(joint);
      clear_jobs();
      std::fill(dist_.begin() + joint, dist_.begin() + end, -1.0);
      for (const Vertex after : n_.after[joint]) dist_[after] = 0;
      for (Vertex v = joint + 1; v < end; ++v) {
        if (dist_[v] < 0) continue;
        add_job(v, dist_[v], tails_[v]);
        for (const Vertex after : n_.after[v])
          dist_[after] = std::max(dist_[after], dist_[v] + n_.seconds[v]);
      }
      tails_[joint] = jobs_bound(tails_[joint]);
    }
    propagate_tails_between(0, done);
  }
  void propagate_tails_between(std::size_t from, std::size_t to) {
    for (auto v = static_cast<Vertex>(std::min(to, n_.size())); v-- > from;)
      for (const Vertex after : n_.after[v])
        tails_[v] = std::max(tails_[v], tails_[after] + n_.seconds[after]);
  }

  const Network& n_;
  std::vector<std::uint8_t> is_waist_;
  std::vector<double> heads_, tails_;
  std::vector<std::vector<MachineJob>> jobs_;  // by stream
  MachineHeap heap_;
  std::vector<Vertex> chain_;         // cuts of the paths in front of and behind one vertex
  std::vector<Vertex> joints_;        // of the longest path, the chain among them
  std::vector<Vertex> beside_;        // next to it
  std::vector<Vertex> raised_;        // all of these
  std::vector<std::uint8_t> inside_;  // of a search between two vertices
  std::vector<double> loads_;         // by stream
  std::vector<double> dist_;          // longest path to or from a joint; negative: none
  const HeadsAndTails* known_;        // null: none
};

// Raises heads to what comes before needs, and tails to what comes behind.
void propagate(const StepModel& model, HeadsAndTails& paths) {
  for (Place place = 0; place < model.size(); ++place)
    visit_delays(model, place, [&](Place before) {
      paths.heads[place] = std::max(paths.heads[place], paths.heads[before] + model.seconds[before]);
    });
  for (auto place = static_cast<Place>(model.size()); place-- > 0;)
    visit_delays(model, place, [&](Place before) {
      paths.tails[before] = std::max(paths.tails[before], paths.tails[place] + model.seconds[place]);
    });
}

// Of every place, those that take no time included.
HeadsAndTails spread(const StepModel& model, const Network& network, const BoundFinder& finder) {
  HeadsAndTails all{std::vector<double>(model.size(), 0), std::vector<double>(model.size(), 0)};
  for (std::uint32_t v = 0; v < network.size(); ++v) {
    all.heads[network.places[v]] = finder.heads()[v];
    all.tails[network.places[v]] = finder.tails()[v];
  }
  propagate(model, all);
  return all;
}

}  // namespace

StepBounds find_bounds(const StepModel& model, Pairs more, HeadsAndTails* known,
                       std::span<const Place> waists) {
  const Network network = NetworkBuilder(model, more).run();
  BoundFinder finder(network, known, waists);
  const StepBounds bounds = finder.run();
  if (known != nullptr) *known = spread(model, network, finder);
  return bounds;
}

HeadsAndTails find_longest_paths(const StepModel& model) {
  HeadsAndTails paths{std::vector<double>(model.size(), 0), std::vector<double>(model.size(), 0)};
  propagate(model, paths);
  return paths;
}

std::vector<Place> find_critical_path(const StepModel& model, const HeadsAndTails& paths) {
  std::vector<Place> path;
  if (model.size() == 0) return path;
  std::vector<Place> previous(model.size(), kNoPlace), next(model.size(), kNoPlace);
  const auto end = [&](Place place) { return paths.heads[place] + model.seconds[place]; };
  const auto rest = [&](Place place) { return paths.tails[place] + model.seconds[place]; };
  Place at = 0;
  for (Place place = 0; place < model.size(); ++place) {
    if (end(place) + paths.tails[place] > end(at) + paths.tails[at]) at = place;
    visit_delays(model, place, [&](Place before) {
      if (previous[place] == kNoPlace || end(before) > end(previous[place])) previous[place] = before;
      if (next[before] == kNoPlace || rest(place) > rest(next[before])) next[before] = place;
    });
  }
  for (Place place = at; place != kNoPlace; place = previous[place]) path.push_back(place);
  std::ranges::reverse(path);
  for (Place place = next[at]; place != kNoPlace; place = next[place]) path.push_back(place);
  return path;
}

Place find_forward_end(const Graph& graph, const StepModel& model) {
  Place end = kNoPlace;
  for (const Place place : find_critical_path(model, find_longest_paths(model))) {
    const Node& node = graph.step().nodes[model.nodes[place]];
    if (model.kinds[place] == StepKind::kKernel && !node.is_backward()) end = place;
  }
  return end;
}

std::vector<std::pair<Place, Place>> keep_recomputation_behind(const Graph& graph, const StepModel& model) {
  const RecomputeTags tags(graph);
  const Place border = find_forward_end(graph, model);
  std::vector<std::pair<Place, Place>> pairs;
  if (border == kNoPlace) return pairs;
  for (Place place = border + 1; place < model.size(); ++place) {
    const bool takes_time = model.kinds[place] == StepKind::kKernel || model.is_costed_launch(place);
    if (takes_time && tags.is_repeated(graph, graph.step().nodes[model.nodes[place]]))
      pairs.emplace_back(border, place);
  }
  return pairs;
}

}  // namespace epweave
