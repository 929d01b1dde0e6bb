#include "testing/row_programs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ir/facts.h"
#include "ir/text/text.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "testing/dice.h"

namespace epweave {
namespace {

struct Input {
  std::string_view name, type, clauses;
  int rows = -1;  // the dimension of its rows of tokens
};

// How u rows of tokens are divided: of each but the last part how many it has, as a call of
// %u_all.
struct Cut {
  std::string_view symbol;
  std::vector<std::string_view> sizes;
};

// The last part has what is left. The traced number of rows is also a number of other things:
// weights have 8 rows, a grid has 4 blocks.
const std::vector<Cut> kCuts = {
    {"range=[8, 64] hint=16 asserts=[Eq(Mod(u, 8), 0)]", {"operator.floordiv(%u_all, 2) : SymInt((u//2))"}},
    {"range=[4, 64] hint=12 asserts=[Eq(Mod(u, 4), 0)]", {"operator.floordiv(%u_all, 2) : SymInt((u//2))"}},
    {"range=[8, 64] hint=16 asserts=[Eq(Mod(u, 8), 0)]", {"operator.sub(%u_all, 4) : SymInt(u - 4)"}},
    {"range=[12, 64] hint=24 asserts=[Eq(Mod(u, 12), 0)]",
     {"operator.floordiv(%u_all, 3) : SymInt((u//3))", "operator.floordiv(%u_all, 3) : SymInt((u//3))"}},
};

const std::vector<Input> kGrid = {{"x", "f32[4, u, 8]", "role=user which=x", 1},
                                  {"ids", "i64[4, u]", "role=user which=tokens", 1},
                                  {"y", "f32[u, 8]", "role=user which=y", 0},
                                  {"k", "i64[u]", "role=user which=tokens", 0}};
// Of one block when traced, and of two with twice the rows.
const std::vector<Input> kBlocks = {{"x", "f32[g, u, 8]", "role=user which=x", 1},
                                    {"ids", "i64[g, u]", "role=user which=tokens", 1},
                                    {"y", "f32[u, g]", "role=user which=y", 0},
                                    {"k", "i64[u]", "role=user which=tokens", 0}};
const std::vector<Input> kFlat = {{"x", "f32[u, 8]", "role=user which=x", 0},
                                  {"ids", "i64[u]", "role=user which=tokens", 0},
                                  {"y", "f32[u]", "role=user which=y", 0}};
const std::vector<Input> kShared = {{"w", "f32[8, 8]", "role=parameter fqn=w"},
                                    {"b", "f32[8]", "role=parameter fqn=b"},
                                    {"we", "f32[8, 8, 8]", "role=parameter fqn=we"},
                                    {"c", "f32[8]", "role=buffer fqn=c"},
                                    {"e", "f32[8, 8]", "role=buffer fqn=e"}};

// What a slot takes.
enum class Kind : std::uint8_t { kFloat, kInteger, kBool, kNumber, kOther };

Kind kind_of(const Context& context, TypeId type) {
  if (!type) return Kind::kOther;
  if (context.types[type].kind == TypeKind::kScalar) return Kind::kNumber;
  const TensorType* tensor = tensor_of(context, type);
  if (tensor == nullptr) return Kind::kOther;
  if (tensor->dtype == DType::kBool) return Kind::kBool;
  return is_floating(tensor->dtype) ? Kind::kFloat : Kind::kInteger;
}

bool is_tensor(Kind kind) {
  return kind != Kind::kNumber && kind != Kind::kOther;
}

// What the integers of a tensor say.
enum class Meaning : std::uint8_t { kData, kOrder, kPositions, kCounts };

// The text with each "%name" mapped.
std::string map_names(std::string_view text, const std::function<std::string(const std::string&)>& map) {
  std::string mapped;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '%') {
      mapped += text[i++];
      continue;
    }
    std::size_t end = i + 1;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
      ++end;
    mapped += "%" + map(std::string(text.substr(i + 1, end - i - 1)));
    i = end;
  }
  return mapped;
}

std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> names;
  map_names(text, [&](const std::string& name) { return names.push_back(name), name; });
  return names;
}

std::string_view target_of(std::string_view call) {
  return call.substr(0, call.find('('));
}

// aten.add_.Tensor
bool writes(std::string_view call) {
  const std::string_view target = target_of(call);
  const std::size_t overload = target.rfind('.');
  return overload > 0 && target[overload - 1] == '_';
}

// Parsed, with the types that follow from the rules; none: it is no graph.
std::optional<Graph> read_program(const std::string& text, std::shared_ptr<Context> context = nullptr) {
  try {
    Graph graph = parse_text(text, "program", std::move(context));
    Facts facts(graph);
    Body& step = graph.bodies.front();
    for (NodeId id : step.order) {
      Node& node = step.nodes[id];
      if (node.kind != NodeKind::kCall || node.type) continue;
      if (!has_type_rule(node)) return {};
      node.type = infer_type(facts, graph, step, node);
      if (!node.type) return {};
    }
    return graph;
  } catch (const InputError&) {
    return {};
  } catch (const TypeMismatch&) {
    return {};
  }
}

struct Call {
  std::string name, text;
};

class Program {
 public:
  explicit Program(std::uint64_t seed)
      : dice_(seed),
        cut_(dice_.pick(kCuts)),
        inputs_(dice_.one_in(3) ? kFlat : kGrid),
        has_ranks_(dice_.one_in(4)),
        is_edited_(dice_.one_in(4)) {
    inputs_.insert(inputs_.end(), kShared.begin(), kShared.end());
  }

  std::optional<RowProgram> make() {
    draw_calls();
    draw_results();
    if (results_.empty()) return {};
    drop_unused();
    if (is_edited_) repeat_call();
    a_ = read_program(print_a());
    if (!a_ || !(is_edited_ ? write_edited() : write_parts())) return {};
    std::optional<Graph> b = read_program(print_b(), a_->context);
    if (!b) return {};
    return RowProgram{std::move(*a_), std::move(*b)};
  }

 private:
  // A departure from the rules by which parts are written, at one call.
  enum class Fault : std::uint8_t {
    kNone,
    kOtherPart,  // the last part reads the first part's value
    kLiteral,    // parts have another literal
    kAllRows,    // parts have the number of all rows
    kJoin,       // parts are joined in another order, or the first of them twice
    kLeftOut,    // the last part's call is left out
    kLater,      // a part's call comes later
    kOtherJoin,  // a sum for a concatenation, or along another dimension
  };
  static constexpr std::size_t kFaults = 8;

  std::size_t parts() const { return cut_.sizes.size() + 1; }
  static std::string part_of(const std::string& name, std::size_t part) {
    return fmt::format("{}_{}", name, part);
  }

  // -----------------------------------------------------------------------------------------------
  // the first graph

  void draw_calls() {
    add({"n", fmt::format("aten.sym_size.int(%x, {}) : SymInt(u)", inputs_.front().rows)});
    if (inputs_.front().rows == 1) {
      const bool has_blocks = inputs_.front().type == kBlocks.front().type;
      if (has_blocks) add({"g_all", "aten.sym_size.int(%x, 0) : SymInt(g)"});
      add({"m", has_blocks ? "operator.mul(%n, %g_all)" : "operator.mul(%n, 4)"});
      add({"f", "aten.reshape.default(%x, [-1, 8])"});
      add({"fk", "aten.reshape.default(%ids, [-1])"});
    }
    const std::size_t count = 2 + dice_.below(9);
    for (std::size_t tries = 0; tries < 5 * count && drawn_ < count; ++tries) {
      const auto calls = row_program_calls()[dice_.below(row_program_calls().size() - (has_ranks_ ? 0 : 1))];
      draw_call(dice_.pick(calls));
    }
    // Which rows meet is seen where they are added up.
    if (dice_.one_in(2)) draw_call("$a = aten.mul.Tensor({f}, {f}); $ = aten.sum.dim_IntList($a, [0])");
  }

  void add(Call call) {
    calls_.push_back(std::move(call));
    refresh_kinds();
  }

  bool refresh_kinds() {
    const std::optional<Graph> graph = read_program(print_a());
    if (!graph) return false;
    kinds_.clear();
    for (NodeId id : graph->step().order) {
      const Node& node = graph->step().nodes[id];
      if (node.kind != NodeKind::kOutput)
        kinds_.emplace_back(graph->text(node.name), kind_of(*graph->context, node.type));
    }
    return true;
  }

  void draw_call(std::string_view lines) {
    const std::vector<Call> before = calls_;
    taken_.clear();
    const std::string name = fmt::format("v{}", drawn_);
    for (std::size_t begin = 0; begin < lines.size();) {
      const std::size_t end = std::min(lines.find("; ", begin), lines.size());
      const std::optional<Call> call = fill(lines.substr(begin, end - begin), name);
      if (!call) return void(calls_ = before);
      calls_.push_back(*call);
      begin = end + 2;
    }
    if (refresh_kinds())
      ++drawn_;
    else
      calls_ = before;
  }

  // "$a = op({f}, $b)", of this program's values.
  std::optional<Call> fill(std::string_view line, const std::string& name) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '$') {
        text += "%" + name;
        if (i + 1 < line.size() && std::isalpha(static_cast<unsigned char>(line[i + 1])) != 0) text += "_";
      } else if (line[i] == '{') {
        const auto operand = take_operand(line[i + 1]);
        if (!operand) return {};
        text += *operand;
        i += 2;
      } else {
        text += line[i];
      }
    }
    const std::size_t equals = text.find(" = ");
    return Call{text.substr(1, equals - 1), text.substr(equals + 3)};
  }

  // {1} is what the first slot took.
  std::optional<std::string> take_operand(char slot) {
    if (std::isdigit(static_cast<unsigned char>(slot)) != 0)
      return taken_.at(static_cast<std::size_t>(slot - '1'));
    const std::optional<std::string> operand = draw_operand(slot);
    if (operand) taken_.push_back(*operand);
    return operand;
  }

  std::optional<std::string> draw_operand(char slot) {
    if (slot == 'd') return std::to_string(std::max<std::size_t>(dice_.below(5), 2) - 2);
    std::vector<std::string> fits;
    for (const auto& [name, kind] : kinds_)
      if (slot == 't'   ? is_tensor(kind)
          : slot == 'n' ? kind == Kind::kNumber
          : slot == 'f' ? kind == Kind::kFloat
          : slot == 'i' ? kind == Kind::kInteger
          : slot == 'o' ? meaning(name) == Meaning::kOrder
          : slot == 'p' ? meaning(name) == Meaning::kOrder || meaning(name) == Meaning::kPositions
          : slot == 'c' ? meaning(name) == Meaning::kCounts
                        : kind == Kind::kBool)
        fits.push_back(name);
    if (fits.empty()) return {};
    const std::size_t last = std::min<std::size_t>(fits.size(), dice_.one_in(2) ? 3 : fits.size());
    return "%" + fits[fits.size() - 1 - dice_.below(last)];
  }

  Kind kind(const std::string& name) const {
    const auto found = std::ranges::find(kinds_, name, &std::pair<std::string, Kind>::first);
    return found == kinds_.end() ? Kind::kOther : found->second;
  }

  // By the call that makes it; what moves, picks or adds to positions makes positions.
  Meaning meaning(const std::string& name) const {
    const auto call = std::ranges::find(calls_, name, &Call::name);
    if (call == calls_.end() || kind(name) != Kind::kInteger) return Meaning::kData;
    const std::vector<std::string> operands = names_in(call->text);
    const bool is_sort = std::ranges::any_of(operands, [&](const std::string& operand) {
      const auto made = std::ranges::find(calls_, operand, &Call::name);
      return made != calls_.end() && made->text.starts_with("aten.sort.");
    });
    if (call->text.starts_with("aten.argsort.") || (is_sort && call->text.ends_with(", 1)")))
      return Meaning::kOrder;
    if (call->text.starts_with("aten.arange.")) return Meaning::kPositions;
    const std::string_view target = target_of(call->text);
    const bool is_of_ids = !operands.empty() && call->text.starts_with("aten.sum.");
    const auto summed = is_of_ids ? std::ranges::find(calls_, operands.front(), &Call::name) : calls_.end();
    if (summed != calls_.end() && summed->text.starts_with("aten.one_hot.")) return Meaning::kCounts;
    if (target.starts_with("aten.sum.") || operands.empty()) return Meaning::kData;
    const Meaning first = meaning(operands.front());
    return first == Meaning::kOrder ? Meaning::kPositions : first;
  }

  // The last tensor, and some others.
  void draw_results() {
    for (auto call = calls_.rbegin(); call != calls_.rend() && results_.size() < 3; ++call)
      if (is_tensor(kind(call->name)) && call->name.starts_with('v') && (results_.empty() || dice_.one_in(5)))
        results_.push_back(call->name);
  }

  void drop_unused() {
    std::set<std::string> used(results_.begin(), results_.end());
    std::vector<Call> kept;
    for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
      if (!used.contains(call->name) && !writes(call->text)) continue;
      for (const std::string& name : names_in(call->text)) used.insert(name);
      kept.push_back(*call);
    }
    calls_.assign(kept.rbegin(), kept.rend());
  }

  std::string print_head() const {
    return fmt::format("symbol u {}\n{}{}", cut_.symbol,
                       inputs_.front().type == kBlocks.front().type ? "symbol g range=[1, 64] hint=1\n" : "",
                       has_ranks_ ? "info rank = 0\ninfo world_size = 2\ngroup g ranks=[0, 1]\n" : "");
  }

  std::string print_a() const {
    std::string text = "epweave text 1\ndevice cpu\n" + print_head() + "\ngraph\n";
    for (const Input& input : inputs_)
      text += fmt::format("  %{} = placeholder : {} {}\n", input.name, input.type, input.clauses);
    for (const Call& call : calls_) text += fmt::format("  %{} = {}\n", call.name, call.text);
    return text + print_output(results_) + "\n";
  }
  static std::string print_output(const std::vector<std::string>& results) {
    return results.empty() ? "  output([%x])" : fmt::format("  output([%{}])", fmt::join(results, ", %"));
  }

  // -----------------------------------------------------------------------------------------------
  // the second graph

  bool write_parts() {
    if (dice_.one_in(3)) fault_ = static_cast<Fault>(1 + dice_.below(kFaults - 1));
    fault_at_ = calls_[dice_.below(calls_.size())].name;
    part_by_part_ = dice_.one_in(3);
    pending_.resize(parts());
    cut_inputs();
    for (const Call& call : calls_)
      if (!write_call(call)) return false;
    for (std::string& result : results_) {
      const std::optional<std::string> whole = whole_of(result);
      if (!whole) return false;
      result = *whole;
    }
    flush();
    return true;
  }

  void cut_inputs() {
    for (const Input& input : inputs_)
      lines_.push_back(fmt::format("%{0} = placeholder : {1} {2} from(chunk kept %{0})", input.name,
                                   input.type, input.clauses));
    lines_.push_back(fmt::format("%u_all = aten.sym_size.int(%x, {}) : SymInt(u) from(chunk size %x)",
                                 inputs_.front().rows));
    std::string rest = "%u_all";
    for (std::size_t k = 0; k < cut_.sizes.size(); ++k) {
      lines_.push_back(fmt::format("%u_{} = {} from(chunk size %x)", k, cut_.sizes[k]));
      lines_.push_back(fmt::format("%u_rest{} = operator.sub({}, %u_{}) from(chunk size %x)", k, rest, k));
      rest = fmt::format("%u_rest{}", k);
    }
    for (const Input& input : inputs_)
      if (input.rows >= 0) cut(std::string(input.name), static_cast<std::size_t>(input.rows), "1");
  }

  // Pieces of a whole value along a dimension of so many times u rows.
  void cut(const std::string& name, std::size_t dim, std::string_view times) {
    std::vector<std::string> sizes;
    for (std::size_t k = 0; k < parts(); ++k) {
      std::string size = k < cut_.sizes.size() ? fmt::format("%u_{}", k) : fmt::format("%u_rest{}", k - 1);
      if (times != "1") {
        lines_.push_back(
            fmt::format("%{}_size{} = operator.mul({}, {}) from(chunk size %x)", name, k, size, times));
        size = fmt::format("%{}_size{}", name, k);
      }
      sizes.push_back(size);
    }
    lines_.push_back(fmt::format(
        "%{0}_cut = aten.split_with_sizes.default(%{0}, [{1}], {2}) from(chunk split %{0} @layers fwd)", name,
        fmt::join(sizes, ", "), dim));
    for (std::size_t k = 0; k < parts(); ++k)
      lines_.push_back(
          fmt::format("%{0}_{1} = operator.getitem(%{0}_cut, {1}) from(chunk split %{0} {1}/{2} @layers fwd)",
                      name, k, parts()));
    cut_values_.insert(name);
  }

  // A call made twice, with other calls between the two.
  void repeat_call() {
    const std::size_t i = dice_.below(calls_.size());
    const std::string name = calls_[i].name + "_b";
    const std::size_t at = i + 1 + dice_.below(calls_.size() - i);
    for (std::size_t j = at; j < calls_.size(); ++j)
      if (dice_.one_in(2)) take_instead(calls_[j].text, calls_[i].name, name);
    if (dice_.one_in(2)) results_.push_back(name);
    calls_.insert(calls_.begin() + static_cast<std::ptrdiff_t>(at), {name, calls_[i].text});
  }

  static void take_instead(std::string& text, const std::string& name, const std::string& other) {
    text = map_names(text, [&](const std::string& operand) { return operand == name ? other : operand; });
  }

  // A's calls in another order, again, one for two, or left out.
  bool write_edited() {
    for (const Input& input : inputs_)
      lines_.push_back(fmt::format("%{0} = placeholder : {1} {2} from(bucket kept %{0})", input.name,
                                   input.type, input.clauses));
    edited_.clear();
    for (const Call& call : calls_) edited_.push_back({call, fmt::format("bucket kept %{}", call.name)});
    for (std::size_t edits = 1 + dice_.below(2); edits > 0; --edits) edit();
    for (const EditedCall& made : edited_)
      lines_.push_back(fmt::format("%{} = {} from({})", made.call.name, made.call.text, made.origin));
    return !edited_.empty();
  }

  void edit() {
    if (edited_.empty()) return;
    const std::size_t i = dice_.below(edited_.size()), j = dice_.below(edited_.size());
    const EditedCall chosen = edited_[i];
    switch (dice_.below(4)) {
      case 0:  // moved
        edited_.erase(edited_.begin() + static_cast<std::ptrdiff_t>(i));
        edited_.insert(edited_.begin() + static_cast<std::ptrdiff_t>(std::min(j, edited_.size())), chosen);
        return;
      case 1: {  // again, for those behind it
        const std::string again = fmt::format("{}_again{}", chosen.call.name, edited_.size());
        const std::size_t at = std::max(i, j) + 1;
        for (std::size_t k = at; k < edited_.size(); ++k)
          if (!dice_.one_in(3)) take_instead(edited_[k].call.text, chosen.call.name, again);
        edited_.insert(edited_.begin() + static_cast<std::ptrdiff_t>(at),
                       {{again, chosen.call.text}, fmt::format("recompute body %{} 0/1", chosen.call.name)});
        return;
      }
      case 2:  // one for two
        for (std::size_t k = i + 1; k < edited_.size(); ++k) {
          if (edited_[k].call.text != chosen.call.text) continue;
          edited_[i].origin = fmt::format("bucket merged %{} %{}", chosen.call.name, edited_[k].call.name);
          return leave_out(k, chosen.call.name);
        }
        return;
      default:  // left out: users take an operand
        const std::vector<std::string> operands = names_in(chosen.call.text);
        if (!operands.empty()) leave_out(i, operands.front());
    }
  }

  void leave_out(std::size_t i, const std::string& instead) {
    const std::string name = edited_[i].call.name;
    edited_.erase(edited_.begin() + static_cast<std::ptrdiff_t>(i));
    for (EditedCall& other : edited_) take_instead(other.call.text, name, instead);
    for (std::string& result : results_)
      if (result == name) result = instead;
  }

  bool is_divided(const std::string& name) const {
    return divided_.contains(name) || std::ranges::any_of(inputs_, [&](const Input& input) {
             return input.rows >= 0 && input.name == name;
           });
  }

  bool write_call(const Call& call) {
    const std::vector<std::string> operands = names_in(call.text);
    const bool reads_part = std::ranges::any_of(operands, [&](const auto& name) { return is_divided(name); });
    const bool is_kept =
        call.name == "g_all" || (call.name != "n" && (reads_part ? dice_.one_in(14) : !dice_.one_in(3)));
    return is_kept ? write_kept(call) : write_divided(call, operands);
  }

  bool write_kept(const Call& call) {
    bool has_all = true;
    const std::string text = map_names(call.text, [&](const std::string& name) {
      const std::optional<std::string> whole = whole_of(name);
      has_all = has_all && whole;
      return whole.value_or(name);
    });
    flush();
    lines_.push_back(fmt::format("%{0} = {1} from(chunk kept %{0})", call.name, text));
    return has_all;
  }

  bool write_divided(const Call& call, const std::vector<std::string>& operands) {
    const bool is_here = call.name == fault_at_;
    std::map<std::string, std::string> shared;  // operands that each part has all of
    for (const std::string& name : operands) {
      const bool is_whole =
          is_divided(name) ? is_tensor(kind(name)) && call.name != "n" && dice_.one_in(20) : !cut_kept(name);
      if (!is_whole) continue;
      const std::optional<std::string> whole = whole_of(name);
      if (!whole) return false;
      shared[name] = *whole;
    }
    if (is_here && fault_ == Fault::kAllRows) {
      for (const std::string& name : operands)
        if (kind(name) == Kind::kNumber) shared[name] = "u_all";
    }
    const bool goes_on = writes(call.text) && shared.contains(operands.front()) && dice_.one_in(2);
    for (std::size_t k = 0; k < parts(); ++k) {
      const bool is_last = k + 1 == parts();
      if (goes_on && k > 0) shared[operands.front()] = part_of(call.name, k - 1);
      const auto of_part = [&](const std::string& name) {
        if (const auto found = shared.find(name); found != shared.end()) return found->second;
        const bool is_other = is_here && is_last && fault_ == Fault::kOtherPart;
        const std::string part = part_of(name, is_other ? 0 : k);
        const auto left_out = instead_.find(part);
        return left_out == instead_.end() ? part : left_out->second;
      };
      std::string text = map_names(call.text, of_part);
      if (is_here && fault_ == Fault::kLiteral) change_literal(text);
      if (is_here && is_last && fault_ == Fault::kLeftOut && !operands.empty()) {
        instead_[part_of(call.name, k)] = of_part(operands.front());
        continue;
      }
      text = fmt::format("%{} = {} from(chunk body %{} {}/{} @layers fwd)", part_of(call.name, k),
                         drop_type(text), call.name, k, parts());
      if (is_here && fault_ == Fault::kLater)
        later_.push_back(std::move(text));
      else
        pending_[k].push_back(std::move(text));
    }
    divided_.insert(call.name);
    if (!part_by_part_) flush_parts();
    return true;
  }

  static std::string drop_type(const std::string& text) { return text.substr(0, text.find(" : ")); }

  // One more, in the first number that is no part of a name.
  void change_literal(std::string& text) {
    for (std::size_t i = target_of(text).size(); i < text.size(); ++i) {
      const bool is_number = std::isdigit(static_cast<unsigned char>(text[i])) != 0 &&
                             (text[i - 1] == ' ' || text[i - 1] == '[' || text[i - 1] == '-');
      if (!is_number || text[i] == '9') continue;
      text[i] = static_cast<char>(text[i] + 1);
      return;
    }
  }

  // Pieces of a value that B has whole, where it has rows of tokens.
  bool cut_kept(const std::string& name) {
    if (cut_values_.contains(name)) return !dice_.one_in(6);
    if (dice_.one_in(6)) return false;
    const Node* node = find(*a_, name);
    const TensorType* type = node == nullptr ? nullptr : tensor_of(*a_->context, node->type);
    if (type == nullptr) return false;
    for (std::size_t d = 0; d < type->rank(); ++d) {
      const std::string_view extent = a_->context->exprs.text(type->sizes[d]);
      const std::string_view times = extent == "u"     ? "1"
                                     : extent == "2*u" ? "2"
                                     : extent == "4*u" ? "4"
                                     : extent == "g*u" ? "%g_all"
                                                       : "";
      if (times.empty()) continue;
      flush();
      cut(name, d, times);
      return true;
    }
    return false;
  }

  static const Node* find(const Graph& graph, const std::string& name) {
    for (NodeId id : graph.step().order)
      if (graph.text(graph.step().nodes[id].name) == name) return &graph.step().nodes[id];
    return nullptr;
  }

  // The value itself, or its parts joined; none: they cannot be.
  std::optional<std::string> whole_of(const std::string& name) {
    if (!divided_.contains(name)) return name;
    if (kind(name) == Kind::kNumber) return name == "n" ? std::optional<std::string>("u_all") : std::nullopt;
    if (joined_.contains(name)) return name + "_j";
    if (!is_tensor(kind(name))) return {};
    flush();
    const std::optional<Graph> so_far = read_program(print_b(), a_->context);
    const Node* whole = find(*a_, name);
    const Node* part = so_far ? find(*so_far, part_of(name, 0)) : nullptr;
    if (whole == nullptr || part == nullptr) return {};
    join(name, draw_join(*whole, *part));
    joined_.insert(name);
    return name + "_j";
  }

  // The dimension along which parts are concatenated; none: they are added up.
  std::optional<std::size_t> draw_join(const Node& whole, const Node& part) {
    const TensorType& all = *tensor_of(*a_->context, whole.type);
    const TensorType& one = *tensor_of(*a_->context, part.type);
    if (fault_ == Fault::kOtherJoin && dice_.one_in(2)) {
      if (all.rank() == 0 || dice_.one_in(3)) return {};
      return dice_.below(all.rank());
    }
    for (std::size_t d = 0; d < std::min(all.rank(), one.rank()); ++d)
      if (all.sizes[d] != one.sizes[d]) return d;
    return {};
  }

  void join(const std::string& name, std::optional<std::size_t> dim) {
    std::vector<std::string> values;
    for (std::size_t k = 0; k < parts(); ++k) {
      const auto left_out = instead_.find(part_of(name, k));
      values.push_back(left_out == instead_.end() ? part_of(name, k) : left_out->second);
    }
    if (fault_ == Fault::kJoin) {
      if (dice_.one_in(2))
        std::ranges::reverse(values);
      else
        values.back() = values.front();
    }
    const std::string origin = fmt::format("from(chunk materialize %{} @layers fwd)", name);
    if (dim) {
      lines_.push_back(fmt::format("%{}_j = aten.cat.default([%{}], {}) {}", name, fmt::join(values, ", %"),
                                   *dim, origin));
      return;
    }
    std::string sum = values.front();
    for (std::size_t k = 1; k < values.size(); ++k) {
      const std::string next = k + 1 < values.size() ? fmt::format("{}_j{}", name, k) : name + "_j";
      lines_.push_back(fmt::format("%{} = aten.add.Tensor(%{}, %{}) {}", next, sum, values[k], origin));
      sum = next;
    }
  }

  void flush_parts() {
    for (std::vector<std::string>& part : pending_) {
      lines_.insert(lines_.end(), part.begin(), part.end());
      part.clear();
    }
  }
  void flush() {
    flush_parts();
    lines_.insert(lines_.end(), later_.begin(), later_.end());
    later_.clear();
  }

  std::string print_b() const {
    std::string text =
        "epweave text 1\ndevice cpu\npass chunk options=\"roots=layers\" tool=\"epweave 0.1.0\"\norigins "
        "%output = "
        "output";
    for (const Input& input : inputs_) text += fmt::format(", %{0} = {0}", input.name);
    for (const Call& call : calls_) text += fmt::format(", %{} = {}", call.name, target_of(call.text));
    text += "\n" + print_head() + "\ngraph\n";
    for (const std::string& line : lines_) text += "  " + line + "\n";
    const bool is_done = is_edited_ || std::ranges::all_of(results_, [&](const std::string& name) {
                           return std::ranges::any_of(lines_, [&](const std::string& line) {
                             return line.starts_with(fmt::format("%{} = ", name));
                           });
                         });
    return text + fmt::format("{} from({} kept %output)\n",
                              print_output(is_done ? results_ : std::vector<std::string>()),
                              is_edited_ ? "bucket" : "chunk");
  }

  Dice dice_;
  Cut cut_;
  std::vector<Input> inputs_;
  bool has_ranks_;
  bool is_edited_;  // B has A's calls in whole, and not parts of them

  std::vector<Call> calls_;
  std::size_t drawn_ = 0;
  std::vector<std::string> taken_;                   // by the slots of the call that is drawn
  std::vector<std::pair<std::string, Kind>> kinds_;  // in their order
  std::vector<std::string> results_;
  std::optional<Graph> a_;

  Fault fault_ = Fault::kNone;
  std::string fault_at_;
  bool part_by_part_ = false;
  std::vector<std::string> lines_, later_;
  std::vector<std::vector<std::string>> pending_;  // of each part, what follows the lines
  std::set<std::string> divided_, joined_, cut_values_;
  std::map<std::string, std::string> instead_;  // of a part's value that is left out

  struct EditedCall {
    Call call;
    std::string origin;  // "bucket kept %v0"
  };
  std::vector<EditedCall> edited_;
};

}  // namespace

std::optional<RowProgram> make_row_program(std::uint64_t seed) {
  return Program(seed).make();
}

}  // namespace epweave
