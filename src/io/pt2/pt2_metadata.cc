#include "io/pt2/pt2_metadata.h"

#include <array>
#include <vector>

namespace epweave {
namespace {

constexpr int kMaxCustomDepth = 50;

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> pieces;
  for (;;) {
    const std::size_t end = text.find(at);
    pieces.push_back(text.substr(0, end));
    if (end == text.npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

// "key,path,type": commas in brackets belong to a piece.
std::vector<std::string_view> split_entry(std::string_view text) {
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[') ++depth;
    if (text[i] == ')' || text[i] == ']') --depth;
    if (text[i] != ',' || depth != 0) continue;
    pieces.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

std::string_view stripped(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

StringId* label_of(std::string_view key, Node& node) {
  if (key == "module_fqn") return &node.module;
  if (key == "EP") return &node.ep.ep;
  if (key == "EP_token_count_exchange") return &node.ep.token_count_exchange;
  if (key == "EP_token_count_sync") return &node.ep.token_count_sync;
  if (key == "EP_token_exchange") return &node.ep.token_exchange;
  if (key == "EP_token_exchange_wait") return &node.ep.token_exchange_wait;
  return nullptr;
}

}  // namespace

std::string last_user_frame(std::string_view trace) {
  // File "model.py", line 3, in forward
  //   x @ w
  constexpr std::string_view kFile = "File \"", kLine = "\", line ", kIn = ", in ";
  std::string last, last_own;
  const std::vector<std::string_view> lines = split(trace, '\n');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = stripped(lines[i]);
    const std::size_t middle = line.find(kLine), end = line.find(kIn, middle);
    if (!line.starts_with(kFile) || middle == line.npos || end == line.npos) continue;
    const std::string_view file = line.substr(kFile.size(), middle - kFile.size());
    const std::string_view number = line.substr(middle + kLine.size(), end - middle - kLine.size());
    const std::string_view code = i + 1 < lines.size() ? stripped(lines[i + 1]) : std::string_view();
    last = fmt::format("{}:{} in {}: {}", file, number, line.substr(end + kIn.size()),
                       code.starts_with(kFile) ? std::string_view() : code);
    const bool is_torch = file.starts_with("torch/") || file.find("/site-packages/torch/") != file.npos ||
                          file.starts_with('<');
    if (!is_torch) last_own = last;
  }
  if (!last_own.empty()) return last_own;
  return last.empty() ? std::string(trace) : last;
}

void Pt2Metadata::read(const Json& metadata, Node& node) {
  NodeExtra extra;
  std::vector<Arg> meta;
  for (const auto& [key, value] : metadata.items()) {
    const std::string& said = json_.as_text(value);
    if (said.empty()) continue;
    if (key == "stack_trace") {
      node.source = context_.strings.intern(last_user_frame(said));
    } else if (key == "custom") {
      read_custom(said, node, extra);
    } else {
      meta.push_back(text(key));
      meta.push_back(key == "nn_module_stack"   ? module_stack(said, node)
                     : key == "torch_fn"        ? pieces(said, ArgKind::kTuple)
                     : key == "source_fn_stack" ? pieces(said, ArgKind::kList)
                                                : text(said));
    }
  }
  extra.meta = context_.args.add(meta);
  if (!extra.meta.empty() || !extra.custom.empty()) node.extra = context_.own(std::move(extra));
}

// {key: (path, type)}; the last path is the node's module.
Arg Pt2Metadata::module_stack(std::string_view said, Node& node) {
  std::vector<Arg> entries;
  std::string_view module;
  for (const std::string_view item : split(said, ';')) {
    const std::vector<std::string_view> parts = split_entry(item);
    if (parts.size() != 3) return text(said);
    const Arg pair[] = {text(parts[1]), text(parts[2])};
    entries.push_back(text(parts[0]));
    entries.push_back(context_.args.intern_tree(ArgKind::kTuple, pair));
    module = parts[1] == "_empty_nn_module_stack_from_metadata_hook" ? std::string_view() : parts[1];
  }
  if (!module.empty() && !node.module) node.module = context_.strings.intern(module);
  return context_.args.intern_tree(ArgKind::kDict, entries);
}

Arg Pt2Metadata::pieces(std::string_view said, ArgKind kind) {
  std::vector<Arg> items;
  for (const std::string_view item : split(said, ';')) items.push_back(text(item));
  return context_.args.intern_tree(kind, items);
}

void Pt2Metadata::read_custom(const std::string& said, Node& node, NodeExtra& extra) {
  bool is_too_deep = false;
  const Json custom = Json::parse(
      said,
      [&](int depth, Json::parse_event_t, const Json&) {
        is_too_deep |= depth > kMaxCustomDepth;
        return depth <= kMaxCustomDepth;
      },
      false);
  if (is_too_deep || !custom.is_object()) json_.fail("metadata 'custom' is no JSON object, or nests deeply");
  std::vector<Arg> entries;
  for (const auto& [key, value] : custom.items()) {
    StringId* const label = label_of(key, node);
    if (label != nullptr && value.is_string()) {
      *label = context_.strings.intern(json_.as_text(value));
      continue;
    }
    entries.push_back(text(key));
    entries.push_back(plain(value));
  }
  extra.custom = context_.args.add(entries);
  node.has_custom = true;
}

Arg Pt2Metadata::plain(const Json& value) {
  if (value.is_null()) return Arg::none();
  if (value.is_boolean()) return Arg::boolean(value.get<bool>());
  if (value.is_number_integer()) return Arg::integer(json_.as_integer(value));
  if (value.is_number()) return Arg::real(value.get<double>());
  if (value.is_string()) return text(json_.as_text(value));
  std::vector<Arg> items;
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) items.push_back(text(key));
    items.push_back(plain(item));
  }
  return context_.args.intern_tree(value.is_object() ? ArgKind::kDict : ArgKind::kList, items);
}

}  // namespace epweave
