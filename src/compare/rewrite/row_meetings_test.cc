// Each kind of order beside each: right (.), assumed (?) or refused (!).
#include "compare/rewrite/row_meetings.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "analysis/effects.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/row_blocks.h"
#include "ir/text/text.h"
#include "ir/walk.h"

namespace epweave {
namespace {

constexpr const char* kSortedStep = R"(epweave text 1
device cpu
graph
  %x = placeholder : i64[8] role=user which=x
  %y = placeholder : i64[8] role=user which=y
  %s = aten.argsort.stable(%x, stable=True)
  %t = aten.argsort.stable(%y, stable=True)
  output([%s, %t])
)";

struct Meetings {
  Graph step = parse_text(kSortedStep, "step");
  std::vector<Violation> violations;
  RewriteClaims claims{step, step, {}, violations};
  bool has_claims = claims.read();
  Effects effects{step, step.step()};
  ValueNumbers numbers{step, effects};
  FrameTerms terms{step, numbers};
  RowBlocks blocks{claims};
  SortedCounts counts{claims, {effects, effects}, blocks, numbers, terms};
  RowMeetings meetings{numbers, terms, counts};

  using Kind = FrameTerms::Kind;
  FrameOrder order(Kind kind, std::vector<std::uint64_t> values, const FrameOrder& of = {}) {
    return FrameOrder::known(terms.intern({kind, of.frame, std::move(values)}));
  }
  std::uint64_t word(std::string_view name) {
    for (const auto [id, node] : walk(step.step()))
      if (step.text(node.name) == name) return terms.word(Arg::node(id));
    return 0;
  }
  char beside(const FrameOrder& x, const FrameOrder& y) {
    meetings.begin();
    switch (meetings.meet(x, y)) {
      case RowMeeting::kRight:
        return '.';
      case RowMeeting::kUnknown:
        return '?';
      case RowMeeting::kWrong:
        return '!';
    }
    return ' ';
  }
};

TEST_CASE("each kind of order beside each") {
  Meetings m;
  REQUIRE(m.has_claims);
  using T = FrameTerms;
  const std::uint64_t s = m.word("s"), t = m.word("t");
  const FrameOrder tokens = m.order(T::kTokenOrder, {1}), blocks = m.order(T::kTokenOrder, {2}),
                   sort = m.order(T::kSort, {s, 1}), unknown = m.order(T::kUnknown, {1}),
                   runs = m.order(T::kRuns, {t, 0});
  const std::uint64_t of_sort = sort.frame.index(), of_tokens = tokens.frame.index();
  const std::vector<std::pair<std::string, FrameOrder>> orders = {
      {"no rows      ", {}},
      {"alike        ", {FrameOrder::Kind::kAny, {}}},
      {"counted      ", {FrameOrder::Kind::kCounted, {}}},
      {"remainders   ", m.order(T::kTokenOrder, {0})},
      {"tokens       ", tokens},
      {"in 2 blocks  ", blocks},
      {"sorted       ", sort},
      {"other sort   ", m.order(T::kSort, {t, 1})},
      {"sort of 2    ", m.order(T::kSort, {s, 2})},
      {"picked       ", m.order(T::kPick, {t}, sort)},
      {"placed       ", m.order(T::kPlace, {t}, sort)},
      {"exchanged    ", m.order(T::kExchange, {s, t}, sort)},
      {"dealt        ", m.order(T::kDeal, {s, t}, sort)},
      {"gathered     ", m.order(T::kGather, {s}, sort)},
      {"scattered    ", m.order(T::kScatter, {s}, sort)},
      {"each twice   ", m.order(T::kEach, {2}, sort)},
      {"joined       ", m.order(T::kJoin, {of_sort, 8, of_tokens, 8})},
      {"joined others", m.order(T::kJoin, {of_tokens, 8, of_sort, 8})},
      {"in runs      ", runs},
      {"runs sorted  ", m.order(T::kPick, {s}, runs)},
      {"unknown      ", unknown},
      {"another      ", m.order(T::kUnknown, {2})},
      {"data made    ", m.order(T::kOwn, {1})},
      {"of unknown   ", m.order(T::kEach, {2}, unknown)},
  };
  std::string table;
  for (const auto& [name, x] : orders) {
    table += name + " ";
    for (const auto& [other, y] : orders) table += m.beside(x, y);
    table += "\n";
  }
  CHECK(table == R"(no rows       ........................
alike         ........................
counted       ........................
remainders    ......!!!!!!!!!!!!!!????
tokens        .....!!!!!!!!!!!!!!!????
in 2 blocks   ....!.!!!!!!!!!!!!!!????
sorted        ...!!!.!!!!!!!!!!!??????
other sort    ...!!!!.!!!!!!!!!!??????
sort of 2     ...!!!!!.!!!!!!!!!??????
picked        ...!!!!!!.!!!!!!!!??????
placed        ...!!!!!!!.!!!!!!!??????
exchanged     ...!!!!!!!!.!!!!!!??????
dealt         ...!!!!!!!!!.!!!!!??????
gathered      ...!!!!!!!!!!.!!!!??????
scattered     ...!!!!!!!!!!!.!!!??????
each twice    ...!!!!!!!!!!!!.!!??????
joined        ...!!!!!!!!!!!!!.!??????
joined others ...!!!!!!!!!!!!!!.??????
in runs       ...!!!????????????.!????
runs sorted   ...!!!????????????!.????
unknown       ...?????????????????.???
another       ...??????????????????.??
data made     ...???????????????????.?
of unknown    ...????????????????????.
)");
}

}  // namespace
}  // namespace epweave
