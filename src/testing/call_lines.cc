#include "testing/call_lines.h"

#include <fmt/format.h>

namespace epweave {
namespace {

std::string print_call(const CallLine& line, const std::string& part, const std::string& rows) {
  return fmt::format("  %{}{} = {}({}) : {}", line.name, part, line.target, fill_line(line.args, part, rows),
                     fill_line(line.type, part, rows));
}

std::string print_inputs(const std::vector<CallSteps::Input>& inputs) {
  std::string text;
  for (const auto& input : inputs)
    text += fmt::format("  %{} = placeholder : {}{}\n", input.name, fill_line(input.type, "", "u"),
                        input.clauses);
  return text;
}

std::string print_cut(const CallSteps::Input& input) {
  const std::string type = fill_line(input.type, "", "(u//2)"),
                    offset = fill_line(input.offset, "", "(u//2)");
  return fmt::format(
      "  %{0}_s = aten.split_with_sizes.default(%{0}, [%h, %h], 0) : [{1}, {1}+\"{2}\"] from(chunk split "
      "%{0})\n"
      "  %{0}_0 = operator.getitem(%{0}_s, 0) : {1} from(chunk split %{0} 0/2)\n"
      "  %{0}_1 = operator.getitem(%{0}_s, 1) : {1}+\"{2}\" from(chunk split %{0} 1/2)\n",
      input.name, type, offset);
}

}  // namespace

std::string fill_line(const std::string& text, const std::string& first, const std::string& second) {
  return fmt::format(fmt::runtime(text), first, second);
}

std::string CallSteps::step_of(const CallLines& lines) const {
  std::string text = fmt::format("{}{}\ngraph\n{}", head, outputs, print_inputs(inputs));
  for (const CallLine& line : lines) text += print_call(line, "", "u") + "\n";
  return text + fmt::format("  output((%{},))\n", lines.back().name);
}

std::string CallSteps::parts_of(const CallLines& lines, const std::string& join) const {
  std::string text = head + "origins %output = output";
  for (const Input& input : inputs) text += fmt::format(", %{0} = {0}", input.name);
  for (const CallLine& line : lines) text += fmt::format(", %{} = {}", line.name, line.target);
  text += fmt::format(
      "\n{0}\ngraph\n{1}"
      "  %n = aten.sym_size.int(%{2}, 0) : SymInt(u) from(chunk size %{2})\n"
      "  %h = operator.floordiv(%n, 2) : SymInt((u//2)) from(chunk size %{2})\n",
      outputs, print_inputs(inputs), inputs.front().name);
  for (const Input& input : inputs)
    if (!input.offset.empty()) text += print_cut(input);
  for (const CallLine& line : lines)
    for (int k = 0; k < 2; ++k)
      text += print_call(line, fmt::format("_{}", k), "(u//2)") +
              fmt::format(" from(chunk body %{} {}/2)\n", line.name, k);
  const CallLine& last = lines.back();
  return text + fmt::format(
                    "  %joined = {} : {} from(chunk materialize %{})\n  output((%joined,)) from(chunk kept "
                    "%output)\n",
                    fill_line(join, "%" + last.name + "_0", "%" + last.name + "_1"),
                    fill_line(last.type, "", "u"), last.name);
}

}  // namespace epweave
