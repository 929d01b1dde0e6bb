// The arguments of a call as words of a key (base/word_table.h), values named by what `of_node`
// pushes for them. Equal words mean equal arguments: each item says how many words follow it.
//
//   add(x, [2, 3])      (tuple of 2) (node ..) (list of 2) (int 2) (int 3)
#pragma once

#include "base/word_table.h"
#include "ir/graph.h"

namespace epweave {

// No kind of an argument has this bit: a word of another sense.
constexpr std::uint64_t kMark = 0x80;

inline std::uint64_t tagged_word(ArgKind kind, std::uint64_t value) {
  return value << 8 | static_cast<std::uint64_t>(kind);
}

template <class OfNode>  // void(NodeId)
void push_words(WordTable& words, const ArgPool& args, Arg arg, const OfNode& of_node);

template <class OfNode>
void push_words(WordTable& words, const ArgPool& args, ArgRange range, const OfNode& of_node) {
  for (const Arg arg : args[range]) push_words(words, args, arg, of_node);
}

template <class OfNode>
void push_words(WordTable& words, const ArgPool& args, Arg arg, const OfNode& of_node) {
  constexpr std::uint64_t kFits = std::uint64_t{1} << 56;
  if (arg.is_node()) {
    of_node(arg.as_node());
  } else if (arg.is_tree()) {
    words.push(tagged_word(arg.kind(), arg.children().count));
    push_words(words, args, arg.children(), of_node);
  } else if (arg.bits() < kFits) {
    words.push(tagged_word(arg.kind(), arg.bits()));
  } else {
    words.push(tagged_word(arg.kind(), 0) | kMark);  // the next word has it
    words.push(arg.bits());
  }
}

// The whole call; `callee`: what tells apart what is called.
template <class OfNode>
void push_call_words(WordTable& words, const ArgPool& args, std::uint64_t callee, const Node& call,
                     const OfNode& of_node) {
  words.push(tagged_word(ArgKind::kOperator, callee));
  words.push(tagged_word(ArgKind::kTuple, call.args.count));
  push_words(words, args, call.args, of_node);
  push_words(words, args, call.kwargs, of_node);
}

}  // namespace epweave
