// Small steps and their rewrite in two parts, for tests of `verify A B`: the calls are written
// once.
//
//   const CallSteps steps{.head = "epweave text 1\ndevice cpu\nsymbol u ...\n", .inputs = {{"x", "f32[{1}, 8]", "8*({1})"}}};
//   const CallLines lines = {{"s", "aten.sum.dim_IntList", "%x{0}, [0]", "f32[8]"}};
//   steps.step_of(lines)                                     %s = aten.sum.dim_IntList(%x, [0]) : f32[8]
//   steps.parts_of(lines, "aten.add.Tensor({0}, {1})")       %s_0 of %x_0, %s_1 of %x_1, and their sum
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace epweave {

// A call of the step and of its two parts: "{0}" is "" in the step, "_0" and "_1" in the parts;
// "{1}" is the rows, "u" and "(u//2)".
struct CallLine {
  std::string name, target, args, type;
};
using CallLines = std::vector<CallLine>;

std::string fill_line(const std::string& text, const std::string& first, const std::string& second);

struct CallSteps {
  struct Input {
    std::string name, type;  // with "{1}" for the rows
    std::string offset;      // of the second part in memory, in elements; empty: the parts take all of it
    std::string clauses;     // behind the type: " role=user which=x"
  };
  std::string head;  // up to the origins; declares u
  std::vector<Input> inputs;
  std::string outputs;  // "output other\n"

  std::string step_of(const CallLines& lines) const;
  // `join`, of "{0}" and "{1}", puts the parts of the last line together.
  std::string parts_of(const CallLines& lines, const std::string& join) const;
};

}  // namespace epweave
