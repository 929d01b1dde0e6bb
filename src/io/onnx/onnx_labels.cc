#include "io/onnx/onnx_labels.h"

#include <fmt/format.h>

#include "io/onnx/onnx_facts.h"
#include "ops/op.h"

namespace epweave::onnx_form {
namespace {

void list_names(const Context& context, Arg arg, const std::string& parameter,
                std::vector<std::string>& out) {
  if (arg.is_node()) out.push_back(parameter);
  if (!arg.is_tree()) return;
  for (std::uint32_t i = 0; i < arg.children().count; ++i)
    list_names(context, context.args.children(arg)[i], fmt::format("{}[{}]", parameter, i), out);
}

}  // namespace

std::string parameter_name(const Node& node, std::uint32_t position) {
  if (node.op != nullptr && position < node.op->params.size())
    return std::string(node.op->params[position].name);
  return fmt::format("arg{}", position);
}

std::string keyword_name(const Context& context, const Node& node, std::uint32_t place) {
  const std::string_view key = context.text(context.args[node.kwargs][place].as_name());
  const bool is_name = text::is_key(key) && !key.starts_with(kPrefix);
  return is_name ? std::string(key) : fmt::format("keyword{}", place / 2);
}

std::vector<std::string> list_input_names(const Context& context, const Node& node) {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < node.args.count; ++i)
    list_names(context, context.args[node.args][i], parameter_name(node, i), names);
  for (std::uint32_t i = 0; i + 1 < node.kwargs.count; i += 2)
    list_names(context, context.args[node.kwargs][i + 1], keyword_name(context, node, i), names);
  return names;
}

std::string describe_node(const Node& node, text::Printer& printer) {
  std::string text(printer.context().text(node.module));
  if (node.is_backward()) text += text.empty() ? "backward" : " backward";
  if (node.chunk.part) text += fmt::format("{}part {}", text.empty() ? "" : ", ", *node.chunk.part);
  if (node.type) {
    printer.type(node.type);
    text += fmt::format("{}{}", text.empty() ? "" : " : ", printer.take());
  }
  return text;
}

}  // namespace epweave::onnx_form
