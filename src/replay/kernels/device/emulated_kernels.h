// How the emulated device runs a kernel: loops over its indices. Each is compiled twice, for the
// sake of the fused multiply-add; wider vectors would only take time to compile.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "replay/kernels/device/emulated_warp.h"
#include "replay/kernels/host/levels.h"
#include "replay/kernels/tasks/task_list.h"

namespace epweave::replay::device {

using namespace tasks;  // NOLINT: what a device runs

// A GPU runs threads at the same time; here one comes after the other, in orders that make what no
// barrier divides visible. A thread that needs what another one does meanwhile, or did not do yet,
// gets other values than a GPU may give it: of each two neighbours the odd one comes later, even
// ones go up and odd ones down.
template <class Task>
[[gnu::always_inline]] inline void run_threads(const Task& task, std::int64_t count) {
  constexpr std::int64_t kStretch = 4096;  // what they read twice still lies in the cache
  for (std::int64_t first = 0; first < count; first += kStretch) {
    const std::int64_t held = count - first < kStretch ? count - first : kStretch;
    for (std::int64_t i = 0; i < held; i += 2) task.run(first + i);
    for (std::int64_t i = held / 2 * 2 - 1; i > 0; i -= 2) task.run(first + i);
  }
}

// Thread `i` of those that a block runs one after the other between two barriers: up or down by
// turns, also from block to block.
template <class Task>
[[gnu::always_inline]] inline int thread_at(std::int64_t number, int i) {
  return number % 2 != 0 ? Task::kThreads - 1 - i : i;
}

// What a block's memory and registers hold before anything is written: NaN, or -1.
template <class T>
inline void leave_unwritten(T* first, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memset(static_cast<void*>(first), 0xff, count * sizeof(T));
}

// Blocks of threads: each phase for all threads.
template <class Task>
[[gnu::always_inline]] inline void run_blocks(const Task& task, std::int64_t blocks) {
  typename Task::Shared shared;
  std::vector<typename Task::Registers> registers(Task::kThreads);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const typename Task::Part part = task.part_of(static_cast<std::uint32_t>(block));
    if (!task.has_work(part)) continue;
    leave_unwritten(&shared, 1);
    leave_unwritten(registers.data(), registers.size());
    std::int64_t number = block;
    for (int i = 0; i < Task::kThreads; ++i) {
      const int t = thread_at<Task>(number, i);
      task.start(part, t, shared, registers[static_cast<std::size_t>(t)]);
    }
    for (decltype(Task::chunks(part)) chunk = 0; chunk < Task::chunks(part); ++chunk) {
      if (!task.has_steps(part, chunk)) continue;
      ++number;
      for (int i = 0; i < Task::kThreads; ++i) {
        const int t = thread_at<Task>(number, i);
        task.template phase<0>(part, chunk, t, shared, registers[static_cast<std::size_t>(t)]);
      }
      if constexpr (Task::kPhases == 2) {
        ++number;
        for (int i = 0; i < Task::kThreads; ++i) {
          const int t = thread_at<Task>(number, i);
          task.template phase<1>(part, chunk, t, shared, registers[static_cast<std::size_t>(t)]);
        }
      }
    }
    for (int t = 0; t < Task::kThreads; ++t) task.store(part, t, registers[static_cast<std::size_t>(t)]);
  }
}

// The same of rows: each step for all threads.
template <class Task>
[[gnu::always_inline]] inline void run_rows(const Task& task, std::int64_t blocks) {
  typename Task::Shared shared;
  for (std::int64_t block = 0; block < blocks; ++block) {
    leave_unwritten(&shared, 1);
    for (std::int64_t step = 0; step < task.steps(); ++step)
      for (int i = 0; i < Task::kThreads; ++i)
        task.step(step, block, thread_at<Task>(block + step, i), shared);
  }
}

// The same of warps: what a warp computes is done in one go, up or down by turns.
template <class Task>
[[gnu::always_inline]] inline void run_warps(const Task& task, std::int64_t blocks) {
  using Lanes = EmulatedWarp<typename Task::Registers>;
  typename Task::Shared shared;
  std::vector<typename Task::Registers> registers(Task::kThreads);
  for (std::int64_t block = 0; block < blocks; ++block) {
    leave_unwritten(&shared, 1);
    leave_unwritten(registers.data(), registers.size());
    const typename Task::Part part = task.part_of(static_cast<std::uint32_t>(block));
    std::int64_t number = block;
    const auto each_warp = [&](auto what) {
      for (int i = 0; i < Task::kWarps; ++i) {
        const int w = number % 2 != 0 ? Task::kWarps - 1 - i : i;
        Lanes warp(registers.data() + w * Lanes::kLanes, w);
        what(warp);
      }
    };
    for (int i = 0; i < Task::kThreads; ++i) task.start(part, thread_at<Task>(number, i), shared);
    each_warp([&](Lanes& warp) { task.begin(part, warp); });
    for (int chunk = 0; chunk < task.chunks(part); ++chunk) {
      const TilePairs pairs = task.pairs(part, chunk);
      if (pairs.kind == TilePairs::Kind::kNone) continue;
      ++number;
      for (int i = 0; i < Task::kThreads; ++i) task.load(part, chunk, thread_at<Task>(number, i), shared);
      each_warp([&](Lanes& warp) { task.compute(part, chunk, pairs, warp, shared); });
    }
    each_warp([&](Lanes& warp) { task.finish(part, warp, shared); });
  }
}

template <class Task>
[[gnu::always_inline]] inline void run_body(const Task& task, std::int64_t count) {
  if constexpr (is_block_task<Task>)
    run_blocks(task, count);
  else if constexpr (is_row_task<Task>)
    run_rows(task, count);
  else if constexpr (is_warp_task<Task>)
    run_warps(task, count);
  else
    run_threads(task, count);
}

template <class Task>
void run_base(const Task& task, std::int64_t count) {
  run_body(task, count);
}
#if defined(__x86_64__)
template <class Task>
EPWEAVE_AVX2 void run_avx2(const Task& task, std::int64_t count) {
  run_body(task, count);
}
#endif

template <class Task>
void run_emulated(const void* bytes, std::int64_t count) {
  Task task;
  std::memcpy(static_cast<void*>(&task), bytes, sizeof task);
  switch (cpu::level()) {
#if defined(__x86_64__)
    case cpu::Level::kAvx512:
    case cpu::Level::kAvx2:
      return run_avx2(task, count);
#endif
    default:
      return run_base(task, count);
  }
}

// The kernels of EPWEAVE_DEVICE_BLOCK_TASKS, EPWEAVE_DEVICE_ROW_TASKS and
// EPWEAVE_DEVICE_WARP_TASKS, compiled apart.
void run_emulated_product(TaskKind kind, const void* task, std::int64_t blocks);
void run_emulated_rows(TaskKind kind, const void* task, std::int64_t blocks);
void run_emulated_warps(TaskKind kind, const void* task, std::int64_t blocks);

}  // namespace epweave::replay::device
