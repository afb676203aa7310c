// Why scores are divided by sqrt(d_k), measured: scores, weights and gradients of one attention head as the lesson writes it, W and x standard
// normal.
#include <fmt/format.h>
#include <heed/heed.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <exception>

using namespace heed;

namespace {

/// One way to begin: the weights, times a factor, and the scale of the scores.
struct Start {
  std::string weights, scores;
  nn::Init init;
  double factor, scale;
};

/// Of one head and one sequence.
struct Measured {
  double spread, largest, entropy, gauge, learn, W_q, W_k, W_v;
};

/// The gradient of a random projection of the output, relative to output and weights, so that W may have any units.
double pull(const Tensor& W, const Tensor& output) {
  return norm(W.grad()).item<double>() * norm(W).item<double>() / norm(output).item<double>() / std::sqrt(static_cast<double>(W.numel()));
}

Measured measure(const Start& start, Index d_model, Index d_head, Index length) {
  nn::SingleHeadSelfAttention head(d_model, d_head, start.init);
  nn::to(head, f64);
  {
    NoGrad off;
    for (Tensor W : nn::parameters(head)) W.copy_(W * start.factor);
  }
  const Tensor x = randn({length, d_model}, f64), direction = randn({length, d_head}, f64);
  const auto [output, weights] = head(x, AttentionOptions{.scale = start.scale});
  sum(output * direction).backward();

  const NoGrad off;
  const Tensor scores = matmul(matmul(x, head.W_q), transpose(matmul(x, head.W_k), 0, 1)) * start.scale;
  const auto report = nn::attention_report(weights);
  const auto& row = report.heads.front();
  const double n = static_cast<double>(length), learn = mean(gt(report.gauge, 0.01 * (1 - 1 / n) / n).to(f64)).item<double>();
  return {std::sqrt(mean(square(scores)).item<double>()),
          row.largest,
          row.entropy,
          row.gauge,
          learn,
          pull(head.W_q, output),
          pull(head.W_k, output),
          pull(head.W_v, output)};
}

/// The median of each number over independent draws: where softmax is saturated a rare tie outweighs all else in a mean.
Measured typical(const Start& start, Index d_model, Index d_head, Index length, std::uint64_t seed) {
  manual_seed(seed);  // the same weights and sequences for every start
  std::vector<Measured> draws;
  for (int i = 0; i < 15; ++i) draws.push_back(measure(start, d_model, d_head, length));
  Measured median{};
  for (const auto member : {&Measured::spread, &Measured::largest, &Measured::entropy, &Measured::gauge, &Measured::learn, &Measured::W_q,
                            &Measured::W_k, &Measured::W_v}) {
    std::nth_element(draws.begin(), draws.begin() + 7, draws.end(), [&](const Measured& a, const Measured& b) { return a.*member < b.*member; });
    median.*member = draws[7].*member;
  }
  return median;
}

/// Rows 0 and 1 are the lesson's weights, without and with the scale.
void explain(const std::vector<Start>& starts, const std::vector<Measured>& rows, double d_model, double root) {
  const auto best = std::max_element(rows.begin(), rows.end(), [](const Measured& a, const Measured& b) { return a.gauge < b.gauge; });
  const Start& mends = starts[static_cast<std::size_t>(best - rows.begin())];
  fmt::print(
      "\nEntries of q and k have variance d_model, so scores have d_model^2 d_k: std {:.0f}, measured {:.0f}.\n"
      "The largest weight is {:.3f}; {:.0f}% of the queries learn. 1 / sqrt(d_k) takes away a factor of {:.3g} and\n"
      "leaves one of d_model: std {:.0f}, largest {:.3f}, {:.0f}% learn. What mends it: weights / sqrt(d_model)\n"
      "and scores / sqrt(d_k), together 1 / (d_model sqrt(d_k)). Largest p(1-p) here, {:.4f}, with\n"
      "{}, {}: std {:.2f}, largest {:.3f}, {:.0f}% learn;\n"
      "dW_q {:.2g}, where the lesson's start has {:.2g} without scale and {:.2g} with it.\n\n",
      d_model * root, rows[0].spread, rows[0].largest, 100 * rows[0].learn, root, rows[1].spread, rows[1].largest, 100 * rows[1].learn, best->gauge,
      mends.weights, mends.scores, best->spread, best->largest, 100 * best->learn, best->W_q, rows[0].W_q, rows[1].W_q);
}

}  // namespace

int main(int argc, char** argv) {
  Index d_model = 128, d_head = 64;
  std::vector<Index> lengths = {5, 64};
  std::uint64_t seed = 1;
  CLI::App app("Measures what the scale of the scores does to softmax and to the gradients behind it.");
  const auto size = CLI::Range(Index{1}, Index{4096});
  app.add_option("--d-model", d_model, "size of an embedding")->check(size)->capture_default_str();
  app.add_option("--d-head", d_head, "size of queries, keys and values")->check(size)->capture_default_str();
  app.add_option("--length", lengths, "tokens in a sequence; several make several tables")
      ->check(CLI::Range(Index{2}, Index{4096}))
      ->capture_default_str();
  app.add_option("--seed", seed, "of weights and sequences")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  try {
    const double root_model = std::sqrt(static_cast<double>(d_model)), root = std::sqrt(static_cast<double>(d_head));
    using enum nn::Init;
    const std::vector<Start> starts = {{"standard normal", "q k", lesson, 1, 1},
                                       {"standard normal", "q k / sqrt(d_k)", lesson, 1, 1 / root},
                                       {"normal / sqrt(d_model)", "q k", lesson, 1 / root_model, 1},
                                       {"normal / sqrt(d_model)", "q k / sqrt(d_k)", lesson, 1 / root_model, 1 / root},
                                       {"Xavier", "q k", xavier, 1, 1},
                                       {"Xavier", "q k / sqrt(d_k)", xavier, 1, 1 / root}};
    for (const Index length : lengths) {
      fmt::print("d_model {}, d_head {}, {} tokens; tokens all alike would have weights of {:.3f}, entropy {:.3f}\n", d_model, d_head, length,
                 1 / static_cast<double>(length), std::log(static_cast<double>(length)));
      fmt::print("{:23}{:16}{:>8}{:>8}{:>8}{:>7}{:>6}{:>8}{:>8}{:>8}\n", "weights", "scores", "std", "largest", "entropy", "p(1-p)", "learn", "dW_q",
                 "dW_k", "dW_v");
      std::vector<Measured> rows;
      for (const Start& start : starts) {
        const Measured& m = rows.emplace_back(typical(start, d_model, d_head, length, seed));
        fmt::print("{:23}{:16}{:8.2f}{:8.3f}{:8.3f}{:7.4f}{:5.0f}%{:8.1e}{:8.1e}{:8.1e}\n", start.weights, start.scores, m.spread, m.largest,
                   m.entropy, m.gauge, 100 * m.learn, m.W_q, m.W_k, m.W_v);
      }
      explain(starts, rows, static_cast<double>(d_model), root);
    }
    fmt::print(
        "Medians of 15 draws, d_k = d_head. learn: queries whose p(1-p) is above 1% of the largest possible.\n"
        "dW: norm of the gradient of a random projection of the output, relative to weights and output. Where\n"
        "few queries learn, it comes from those few, close to a tie, and all others get next to nothing.\n");
  } catch (const std::exception& e) {
    fmt::print(stderr, "saturation: {}\n", e.what());
    return 1;
  }
}
