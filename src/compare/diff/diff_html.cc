#include "compare/diff/diff_html.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "compare/diff/diff_page.h"

namespace epweave {
namespace {

constexpr std::string_view kDataMark = "/*DATA*/";

// JSON that may stand inside a <script>: no "<" that could end it.
std::string quote(std::string_view text) {
  const std::string json =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string safe;
  safe.reserve(json.size());
  for (char c : json) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

// Texts that many nodes share, written once and named by position.
class Texts {
 public:
  std::size_t position_of(std::string text) {
    const auto [found, is_new] = positions_.try_emplace(std::move(text), list_.size());
    if (is_new) list_.push_back(&found->first);
    return found->second;
  }
  std::string json() const {
    std::string out = "[";
    for (const std::string* text : list_)
      out += fmt::format("{}{}", out.size() == 1 ? "" : ",", quote(*text));
    return out + "]";
  }

 private:
  std::unordered_map<std::string, std::size_t> positions_;
  std::vector<const std::string*> list_;  // keys stay where they are
};

// "aten.mm.default(%x, %w)" of "%mm = aten.mm.default(%x, %w)"; an output has no name before it.
std::string_view without_name(std::string_view head, std::string_view name) {
  const std::size_t skipped = name.size() + 4;  // "%", " = "
  const bool is_named = head.size() > skipped && head.starts_with('%') && head.substr(1, name.size()) == name;
  return is_named ? head.substr(skipped) : head;
}

// One side of a body: columns with an entry for each node in execution order.
class Side {
 public:
  Side(const Graph& graph, Texts& texts) : graph_(graph), lines_(graph), texts_(texts) {}

  // `part_of`: which part of its origin each node is; null where none is a part.
  std::string json(const Body& body, const IdVector<NodeId, std::uint32_t>* part_of) {
    part_of_ = part_of;
    names_ = calls_ = types_ = modules_ = parts_ = directions_ = "";
    for (NodeId id : body.order) add(body, id);
    return fmt::format(R"({{"name":[{}],"call":[{}],"type":[{}],"module":[{}],"part":[{}],"backward":[{}]}})",
                       names_, calls_, types_, modules_, parts_, directions_);
  }

 private:
  void add(const Body& body, NodeId id) {
    const Node& node = body.nodes[id];
    const std::string_view name = graph_.text(node.name);
    const StringId module = node.module ? node.module : node.chunk.region;
    std::string_view comma = names_.empty() ? "" : ",";
    names_ += fmt::format("{}{}", comma, quote(name));
    calls_ += fmt::format("{}{}", comma, quote(without_name(lines_.head(body, id), name)));
    types_ += fmt::format("{}{}", comma, texts_.position_of(node.type ? lines_.type(node.type) : ""));
    modules_ += fmt::format("{}{}", comma, texts_.position_of(std::string(graph_.text(module))));
    parts_ += fmt::format("{}{}", comma, part_of(id));
    directions_ += fmt::format("{}{:d}", comma, node.is_backward());
  }

  int part_of(NodeId id) const {
    return part_of_ == nullptr || (*part_of_)[id] == kNoPart ? -1 : static_cast<int>((*part_of_)[id]);
  }

  const Graph& graph_;
  NodeLines lines_;
  Texts& texts_;
  const IdVector<NodeId, std::uint32_t>* part_of_ = nullptr;
  std::string names_, calls_, types_, modules_, parts_, directions_;
};

class Places {
 public:
  explicit Places(const Body* body) {
    if (body == nullptr) return;
    for (NodeId id : body->order) place_.at(id) = count_++;
  }
  int operator[](NodeId id) const { return id ? place_[id] : -1; }

 private:
  SideTable<NodeId, int> place_;
  int count_ = 0;
};

// [bits of the changes, place in A or -1, [places in B], place of the node it is about or -1,
// [details]]
std::string diff_row(const NodeDiff& diff, const Places& a, const Places& b) {
  std::string images, details;
  for (NodeId id : diff.b) images += fmt::format("{}{}", images.empty() ? "" : ",", b[id]);
  for (const std::string& detail : diff.details)
    details += fmt::format("{}{}", details.empty() ? "" : ",", quote(detail));
  return fmt::format("[{},{},[{}],{},[{}]]", diff.changes.bits(), a[diff.a], images,
                     diff.a ? b[diff.about] : a[diff.about], details);
}

std::string body_json(const BodyDiff& body, Side& before, Side& after) {
  const Places a(body.a), b(body.b);
  std::string origins, diffs;
  if (body.a != nullptr && body.b != nullptr)
    for (NodeId id : body.b->order)
      origins += fmt::format("{}{}", origins.empty() ? "" : ",", a[body.origin[id]]);
  for (const NodeDiff& diff : body.nodes)
    diffs += fmt::format("{}{}", diffs.empty() ? "\n" : ",\n", diff_row(diff, a, b));
  const Body none;
  return fmt::format("\"a\":{},\n\"b\":{},\n\"origin\":[{}],\n\"diffs\":[{}]",
                     before.json(body.a == nullptr ? none : *body.a, nullptr),
                     after.json(body.b == nullptr ? none : *body.b, body.a == nullptr ? nullptr : &body.part),
                     origins, diffs);
}

std::string tables_json(const GraphDiff& diff) {
  std::string rows;
  for (const TableDiff& row : diff.tables)
    rows += fmt::format("{}[{},{},{}]", rows.empty() ? "\n" : ",\n", quote(row.table), quote(row.before),
                        quote(row.after));
  return "[" + rows + "]";
}

std::string data_json(const DiffSides& sides, const GraphDiff& diff) {
  Texts texts;
  Side before(sides.a, texts), after(sides.b, texts);
  std::string graphs, changes;
  for (const BodyDiff& body : diff.bodies)
    graphs += fmt::format("{}{{\"name\":{},\n{}}}", graphs.empty() ? "" : ",\n",
                          quote(sides.a.text(body.name)), body_json(body, before, after));
  for (int i = 0; i < kChangeKinds; ++i)
    changes += fmt::format("{}{}", i == 0 ? "" : ",", quote(name_of(static_cast<Change>(1U << i))));
  return fmt::format(
      "{{\"files\":[{},{}],\n\"paired_by\":{},\"same\":{},\"same_nested\":{},\n\"changes\":[{}],\n\"tables\":"
      "{},\n"
      "\"graphs\":[{}],\n\"texts\":{}}}",
      quote(sides.name_a), quote(sides.name_b), quote(name_of(diff.pairing)), diff.is_same(),
      diff.same_nested, changes, tables_json(diff), graphs, texts.json());
}

}  // namespace

std::string print_diff_html(const DiffSides& sides, const GraphDiff& diff) {
  const std::string_view page = kDiffPage;
  const std::size_t mark = page.find(kDataMark);
  EPWEAVE_CHECK(mark != page.npos);
  std::string out(page.substr(0, mark));
  out += data_json(sides, diff);
  out += page.substr(mark + kDataMark.size());
  return out;
}

}  // namespace epweave
