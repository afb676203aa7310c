// Times rows for bench/report.py. Reads requests from standard input, a line each, and answers each with a line of JSON:
//
//   about                   versions
//   ceilings THREADS SECONDS
//   fma THREADS SECONDS
//   THREADS SECONDS ROW     one sample of a row: the median time of one run, and what else there is to say about it
//
// A row keeps its inputs until another is asked for; report.py starts a process for each, so that its first call and its memory are its own.

#include <heed/tensor/kernels/onednn.h>
#include <heed/tensor/storage.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ceilings.h"
#include "steady.h"
#include "work.h"

namespace {

using namespace heed;
using namespace heed::bench;
using nlohmann::json;

double timed_run(Work& work) {
  const auto before = std::chrono::steady_clock::now();
  work.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
}

/// Bytes in memory that are no file's: now, and the most since the process began; 0 where Linux is not asked.
struct Resident {
  std::int64_t now = 0, peak = 0;
  static Resident read() {
    std::ifstream status("/proc/self/status");
    std::int64_t total_peak = 0, files = 0, kib = 0;
    Resident r;
    for (std::string line, key; std::getline(status, line);) {
      std::istringstream in(line);
      in >> key >> kib;
      if (key == "VmHWM:") total_peak = kib * 1024;
      if (key == "RssFile:") files = kib * 1024;
      if (key == "RssAnon:") r.now = kib * 1024;
    }
    r.peak = std::max(total_peak - files, r.now);
    return r;
  }
  /// From here on the peak is counted anew.
  static Resident restart() {
    std::ofstream("/proc/self/clear_refs") << 5;
    return read();
  }
};

/// A row at work.
struct Subject {
  explicit Subject(const std::string& name) : before(Resident::restart()), work(make_work(Row(name))) { detail::reset_peak_bytes(); }

  json sample(int threads, double seconds) {
    set_num_threads(threads);
    const BackendGuard backend(work->row.backend);
    json answer = {{"row", work->row.name}, {"threads", threads}};
    const bool first = last_threads == 0, other_threads = threads != last_threads;
    double once = 0;
    if (first) answer["first_seconds"] = once = timed_run(*work);
    // Then ready for this number of threads: another run or two, unless they are long.
    if (other_threads && once < 0.3) timed_run(*work), once = timed_run(*work);
    last_threads = threads;
    if (once == 0) once = last_time;

    // Runs too short for the clock are timed together.
    const auto batch = std::max<std::int64_t>(1, static_cast<std::int64_t>(200e-6 / std::max(once, 1e-9)));
    std::vector<double> times;
    double sum = 0;
    const Steady start = steady_counters();
    do {
      const auto begin = std::chrono::steady_clock::now();
      for (std::int64_t i = 0; i < batch; ++i) work->run();
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / static_cast<double>(batch));
      sum += times.back() * static_cast<double>(batch);
    } while (sum < seconds);
    const Steady end = steady_counters();
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    last_time = times[times.size() / 2];

    const double runs = static_cast<double>(batch) * static_cast<double>(times.size()), items = static_cast<double>(work->items);
    answer["seconds"] = last_time / items;
    if (first) answer["first_seconds"] = answer["first_seconds"].get<double>() / items;
    answer["runs"] = runs;
    answer["peak_bytes"] = Resident::read().peak > 0 ? Resident::read().peak - before.now : detail::memory_counters().peak_bytes;
    answer["counted_peak_bytes"] = detail::memory_counters().peak_bytes;
    answer["cost"] = {{"flops", work->cost.flops / items},
                      {"exps", work->cost.exps / items},
                      {"bytes", work->cost.bytes / items},
                      {"dtype", work->row.dtype == f64 ? "f64" : "f32"}};
    if (first) answer["kept_bytes"] = work->kept_bytes();
    const auto each = [&](std::int64_t n) { return static_cast<double>(n) / runs; };
    const auto counted = [&](std::optional<std::int64_t> a, std::optional<std::int64_t> b) { return a && b ? json(each(*b - *a)) : json(nullptr); };
    answer["steady"] = {{"blocks", each(end.blocks - start.blocks)},
                        {"system_allocations", each(end.system_allocations - start.system_allocations)},
                        {"page_faults", each(end.page_faults - start.page_faults)},
                        {"primitives", each(end.primitives - start.primitives)},
                        {"mallocs", counted(start.mallocs, end.mallocs)},
                        {"locks", counted(start.locks, end.locks)},
                        {"parallel_regions", counted(start.parallel_regions, end.parallel_regions)}};
    return answer;
  }

  Resident before;
  std::unique_ptr<Work> work;
  int last_threads = 0;
  double last_time = 0;
};

json about() { return {{"heed", version()}, {"build", build_info()}, {"onednn", kernels::onednn::version()}}; }

json ceilings(int threads, double seconds) {
  const Ceilings c = measure_ceilings(threads, seconds);
  return {{"fma_f32", c.fma_f32}, {"fma_f64", c.fma_f64}, {"exp_f32", c.exp_f32}, {"exp_f64", c.exp_f64}, {"copy", c.copy}};
}

}  // namespace

int main() {
  manual_seed(static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()));
  std::unique_ptr<Subject> subject;
  for (std::string line; std::getline(std::cin, line);) {
    json answer;
    try {
      std::istringstream in(line);
      std::string what, row;
      int threads = 1;
      double seconds = 0;
      in >> what;
      if (what == "about") {
        answer = about();
      } else if (what == "ceilings" || what == "fma") {
        if (!(in >> threads >> seconds) || threads < 1) throw Error("wants THREADS SECONDS");
        answer = what == "fma" ? json{{"fma_f32", measure_fma(threads, seconds)}} : ceilings(threads, seconds);
      } else {
        std::istringstream number(what);
        if (!(number >> threads) || threads < 1 || !(in >> seconds) || !std::getline(in >> std::ws, row)) throw Error("wants THREADS SECONDS ROW");
        if (!subject || subject->work->row.name != row) subject.reset(), subject = std::make_unique<Subject>(row);
        answer = subject->sample(threads, seconds);
      }
    } catch (const std::exception& e) {
      answer = {{"error", e.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
