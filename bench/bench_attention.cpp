// How attention's cost grows with T, for each kernel, and what other sizes, masks and types cost. After the usual table, a summary in Markdown:
// beside PyTorch where --peer names an interpreter that has it, with the slope of time and of memory over T.
//
//   bench_attention --longest=8192 --threads=1 --peer=python3

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <heed/tensor/storage.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "ceilings.h"
#include "work.h"

namespace {

using namespace heed;
using namespace heed::bench;

struct Flags {
  Index longest = 1024;  ///< T doubles from 64 up to it
  int threads = 1;
  std::string peer;  ///< an interpreter
};

struct Measured {
  double seconds = 0, extra_bytes = 0, flops = 0;
};
using Results = std::map<std::string, Measured>;

/// A row as a benchmark. Extra bytes are those that the first run holds at most, beyond its inputs: results, gradients, and what kernels need.
void measure(benchmark::State& state, const std::string& name, double fma) {
  const Row row(name);
  const std::unique_ptr<Work> work = make_work(row);
  const std::int64_t before = detail::memory_counters().live_bytes;
  detail::reset_peak_bytes();
  work->run();
  state.counters["extra"] = benchmark::Counter(static_cast<double>(detail::memory_counters().peak_bytes - before), benchmark::Counter::kDefaults,
                                               benchmark::Counter::kIs1024);
  for (auto _ : state) work->run();
  const double flops = work->cost.flops * static_cast<double>(state.iterations());
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
  state.counters["of peak"] = benchmark::Counter(flops / fma, benchmark::Counter::kIsRate);
}

/// The usual table, and the figures kept.
class Reporter : public benchmark::ConsoleReporter {
 public:
  using benchmark::ConsoleReporter::ConsoleReporter;
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& r : runs)
      if (r.run_type == Run::RT_Iteration && r.iterations > 0)
        results[r.run_name.function_name] = {r.real_accumulated_time / static_cast<double>(r.iterations), r.counters.at("extra"),
                                             r.counters.at("FLOP/s")};
  }
  Results results;
};

/// The exponent p of y = c x^p that fits best: least squares of the logarithms.
double slope(const std::vector<double>& x, const std::vector<double>& y) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double a = std::log(x[i]), b = std::log(y[i]);
    n += 1, sx += a, sy += b, sxx += a * a, sxy += a * b;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

/// The same rows by PyTorch, in one process.
Results ask_peer(const Flags& flags, const std::vector<std::string>& names) {
  Results results;
  std::string command = fmt::format("'{}' -W ignore '{}' --threads {} --seconds 0.05", flags.peer, HEED_PEER, flags.threads);
  for (const std::string& name : names) command += " '" + name + "'";
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) return results;
  std::string text;
  for (std::array<char, 4096> part; std::fgets(part.data(), part.size(), pipe);) {
    text += part.data();
    if (!text.ends_with('\n')) continue;
    const nlohmann::json answer = nlohmann::json::parse(std::exchange(text, {}), nullptr, false);
    if (answer.is_object() && answer.contains("seconds"))
      results[answer["row"]] = {answer["seconds"].get<double>(), answer["peak_bytes"].get<double>(), 0};
    else
      fmt::print(stderr, "bench_attention: PyTorch: {}\n", answer.is_object() ? answer.value("error", "no answer") : "no answer");
  }
  if (pclose(pipe) != 0) fmt::print(stderr, "bench_attention: {} failed\n", flags.peer);
  return results;
}

std::string name_of(const char* kind, Index T, const char* options) { return fmt::format("{} 1,{},64{}", kind, T, options); }

/// One table for each kind of work and mask, and the slopes over the longer half of the sizes, where fixed costs are small.
void summarize(const Flags& flags, const Results& heed, double fma) {
  constexpr Index shortest_fitted = 256;  // smaller blocks are not seen by the counter of peaks
  fmt::print("\n### How cost grows\n\nOne head, d = 64, {} thread{}, of {:.0f} GFLOP/s.\n", flags.threads, flags.threads > 1 ? "s" : "", fma * 1e-9);
  for (const char* kind : {"sdpa_forward", "sdpa_train"})
    for (const char* mask : {"", " full"}) {
      std::vector<std::string> names;
      for (Index T = 64; T <= flags.longest; T *= 2)
        if (const std::string name = name_of(kind, T, mask); heed.contains(name) && heed.contains(name + " composed")) names.push_back(name);
      if (names.empty()) continue;  // filtered out
      const Results peer = flags.peer.empty() ? Results() : ask_peer(flags, names);
      std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> fits;  // by column: sizes, values
      const auto cell = [&](const char* column, Index T, double value, const std::string& text) {
        if (T >= shortest_fitted && value > 0) fits[column].first.push_back(static_cast<double>(T)), fits[column].second.push_back(value);
        return " " + text + " |";
      };
      fmt::print("\n| {}{} | tiled | GFLOP/s | of peak | extra | composed | extra |{}\n|---|---:|---:|---:|---:|---:|---:|{}\n", kind,
                 *mask ? ", no mask" : ", causal", flags.peer.empty() ? "" : " PyTorch |", flags.peer.empty() ? "" : "---:|");
      for (Index T = 64; T <= flags.longest; T *= 2) {
        const auto tiled = heed.find(name_of(kind, T, mask)), composed = heed.find(name_of(kind, T, mask) + " composed");
        if (tiled == heed.end() || composed == heed.end()) continue;
        const auto ms = [](double s) { return fmt::format("{:.{}g} ms", s * 1e3, s < 1 ? 3 : 4); };
        const auto mb = [](double b) { return fmt::format("{:.{}g} MB", b * 1e-6, b < 1e9 ? 3 : 4); };
        std::string line = fmt::format("| T = {} |", T);
        line += cell("tiled time", T, tiled->second.seconds, ms(tiled->second.seconds));
        line += fmt::format(" {:.0f} | {:.0f} % |", tiled->second.flops * 1e-9, 100 * tiled->second.flops / fma);
        line += cell("tiled memory", T, tiled->second.extra_bytes, mb(tiled->second.extra_bytes));
        line += cell("composed time", T, composed->second.seconds, ms(composed->second.seconds));
        line += cell("composed memory", T, composed->second.extra_bytes, mb(composed->second.extra_bytes));
        if (const auto p = peer.find(name_of(kind, T, mask)); p != peer.end())
          line += cell("PyTorch time", T, p->second.seconds, ms(p->second.seconds));
        fmt::print("{}\n", line);
      }
      std::string text;
      for (const auto& [column, points] : fits)
        if (points.first.size() > 1) text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", column, slope(points.first, points.second));
      fmt::print("\nSlopes over T from {} on: {}.\n", shortest_fitted, text.empty() ? "too few sizes" : text);
    }
}

/// Takes heed's flags out of the arguments.
Flags flags_of(int& argc, char** argv) {
  Flags flags;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&](const char* name) { return argument.starts_with(name) ? argument.substr(std::string(name).size()) : std::string(); };
    if (const std::string v = value("--longest="); !v.empty())
      flags.longest = std::stoll(v);
    else if (const std::string t = value("--threads="); !t.empty())
      flags.threads = std::stoi(t);
    else if (const std::string p = value("--peer="); !p.empty())
      flags.peer = p;
    else
      argv[kept++] = argv[i];
  }
  argc = kept;
  return flags;
}

}  // namespace

int main(int argc, char** argv) try {
  const Flags flags = flags_of(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  set_num_threads(flags.threads);
  const double fma = measure_fma(flags.threads, 0.1);

  std::vector<std::string> names;
  for (const char* kind : {"sdpa_forward", "sdpa_train"}) {
    for (const char* mask : {"", " full"})
      for (const char* kernel : {"", " composed"})
        for (Index T = 64; T <= flags.longest; T *= 2) names.push_back(name_of(kind, T, mask) + kernel);
    for (const char* other : {"8,77,64", "8,1000,64", "8,512,32", "8,512,128", "8,512,64 d_v=32", "8,512,64 keep", "8,512,64 window=64",
                              "8,512,64 lengths", "8,512,64", "8,512,64 f64"})
      names.push_back(fmt::format("{} {}", kind, other));
  }
  for (const std::string& name : names)
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { measure(state, name, fma); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);

  Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  summarize(flags, reporter.results, fma);
} catch (const std::exception& e) {
  fmt::print(stderr, "bench_attention: {}\n", e.what());
  return 1;
}
