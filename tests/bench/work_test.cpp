#include "work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <heed/heed.h>

#include <cmath>
#include <functional>
#include <limits>

// What the benchmarks time is right: their results against definitions in double, written as loops.

namespace heed::bench {
namespace {

using Values = std::vector<double>;

Tensor find(const NamedTensors& all, const std::string& name) {
  for (const auto& [n, t] : all)
    if (n == name) return t;
  ADD_FAILURE() << "no " << name;
  return {};
}

struct Ran {
  explicit Ran(const std::string& name) {
    const std::unique_ptr<Work> work = make_work(Row(name));
    // Copies: a training step moves its parameters.
    for (const auto& [n, t] : work->inputs()) inputs.emplace_back(n, t.detach().clone());
    cost = work->cost;
    work->run();
    results = work->results();
    tolerance = work->row.dtype == f64 ? 1e-12 : 3e-5;
  }
  Values in(const std::string& name) const { return find(inputs, name).to_vector<double>(); }
  /// Within the tolerance, relative to the largest of `want`.
  void expect(const std::string& name, const Values& want) const {
    const Values got = find(results, name).to_vector<double>();
    ASSERT_EQ(got.size(), want.size()) << name;
    double largest = 0;
    for (double w : want) largest = std::max(largest, std::abs(w));
    ASSERT_GT(largest, 0) << name;
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance * largest) << name << " " << i;
  }
  NamedTensors inputs, results;
  Cost cost;
  double tolerance = 0;
};

/// a b for a (m, k) and b (k, n), each transposed first if its letter is t.
Values product(const std::string& form, const Values& a, const Values& b, Index m, Index k, Index n) {
  Values c(static_cast<std::size_t>(m * n));
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j)
      for (Index p = 0; p < k; ++p)
        c[static_cast<std::size_t>(i * n + j)] +=
            a[static_cast<std::size_t>(form[0] == 't' ? p * m + i : i * k + p)] * b[static_cast<std::size_t>(form[1] == 't' ? j * k + p : p * n + j)];
  return c;
}

/// Softmax over the pairs that `allowed` has, of each row; and what a gradient of the result is for the scores.
Values softmax_rows(const Values& scores, Index rows, Index columns, const std::function<bool(Index, Index)>& allowed) {
  Values out(scores.size());
  for (Index i = 0; i < rows; ++i) {
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (Index j = 0; j < columns; ++j)
      if (allowed(i, j)) largest = std::max(largest, scores[static_cast<std::size_t>(i * columns + j)]);
    for (Index j = 0; j < columns; ++j)
      if (allowed(i, j))
        sum += out[static_cast<std::size_t>(i * columns + j)] = std::exp(scores[static_cast<std::size_t>(i * columns + j)] - largest);
    for (Index j = 0; j < columns && sum > 0; ++j) out[static_cast<std::size_t>(i * columns + j)] /= sum;
  }
  return out;
}
Values softmax_gradient(const Values& y, const Values& dy, Index rows, Index columns) {
  Values dx(y.size());
  for (Index i = 0; i < rows; ++i) {
    double dot = 0;
    const auto at = [&](Index j) { return static_cast<std::size_t>(i * columns + j); };
    for (Index j = 0; j < columns; ++j) dot += y[at(j)] * dy[at(j)];
    for (Index j = 0; j < columns; ++j) dx[at(j)] = y[at(j)] * (dy[at(j)] - dot);
  }
  return dx;
}

struct Reference {
  Values output, dq, dk, dv;
};
Reference attention(Values q, const Values& k, const Values& v, const Values& up, Index T, Index d, Index d_v,
                    const std::function<bool(Index, Index)>& allowed) {
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  const auto scaled = [&](Values x) {
    for (double& e : x) e *= scale;
    return x;
  };
  const Values weights = softmax_rows(scaled(product("nt", q, k, T, d, T)), T, T, allowed);
  Reference r;
  r.output = product("nn", weights, v, T, T, d_v);
  if (up.empty()) return r;
  r.dv = product("tn", weights, up, T, T, d_v);
  const Values dscores = scaled(softmax_gradient(weights, product("nt", up, v, T, d_v, T), T, T));
  r.dq = product("nn", dscores, k, T, T, d);
  r.dk = product("tn", dscores, q, T, T, d);
  return r;
}

bool causal(Index i, Index j) { return j <= i; }

/// An sdpa row of batch B against the reference, entry by entry; `allowed` also knows the entry.
void expect_sdpa(const std::string& name, const std::function<bool(Index b, Index i, Index j, const Values& keep)>& allowed) {
  SCOPED_TRACE(name);
  const Row row(name);
  const Ran ran(name);
  const bool train = row.kind == "sdpa_train";
  const Index B = row.sizes[0], T = row.sizes[1], d = row.sizes[2];
  const Values keep = row.sight == Row::Sight::keep ? ran.in("keep") : Values();
  Reference all;
  double pairs = 0;
  for (Index b = 0; b < B; ++b) {
    const auto part = [&](const std::string& input, Index width) {
      const Values whole = ran.in(input);
      return Values(whole.begin() + b * T * width, whole.begin() + (b + 1) * T * width);
    };
    const auto may = [&](Index i, Index j) { return allowed(b, i, j, keep); };
    for (Index i = 0; i < T; ++i)
      for (Index j = 0; j < T; ++j) pairs += may(i, j) || !keep.empty();
    const Reference one = attention(part("q", d), part("k", d), part("v", row.d_v), train ? part("up", row.d_v) : Values(), T, d, row.d_v, may);
    all.output.insert(all.output.end(), one.output.begin(), one.output.end());
    all.dq.insert(all.dq.end(), one.dq.begin(), one.dq.end());
    all.dk.insert(all.dk.end(), one.dk.begin(), one.dk.end());
    all.dv.insert(all.dv.end(), one.dv.begin(), one.dv.end());
  }
  EXPECT_EQ(allowed_pairs(row), pairs);
  EXPECT_EQ(ran.cost.exps, train ? 2 * pairs : pairs);
  ran.expect("output", all.output);
  if (train) ran.expect("dq", all.dq), ran.expect("dk", all.dk), ran.expect("dv", all.dv);
}

TEST(Work, AttentionOfEveryMask) {
  const auto by_position = [](Index, Index i, Index j, const Values&) { return causal(i, j); };
  for (const char* name : {"sdpa_forward 2,130,64", "sdpa_train 3,77,64", "sdpa_train 2,65,32", "sdpa_train 1,70,128", "sdpa_train 2,90,64 d_v=32",
                           "sdpa_train 2,77,64 f64", "sdpa_train 2,77,64 composed", "sdpa_train 1,600,64"})
    expect_sdpa(name, by_position);
  for (const char* name : {"sdpa_forward 2,77,64 full", "sdpa_train 2,77,64 full"})
    expect_sdpa(name, [](Index, Index, Index, const Values&) { return true; });
  expect_sdpa("sdpa_train 2,150,64 window=20", [](Index, Index i, Index j, const Values&) { return causal(i, j) && i - j < 20; });
  expect_sdpa("sdpa_train 2,10,8 window=64", by_position);
  expect_sdpa("sdpa_train 2,77,64 keep", [](Index, Index i, Index j, const Values& keep) { return keep[static_cast<std::size_t>(i * 77 + j)] != 0; });
  expect_sdpa("sdpa_train 3,100,64 lengths", [](Index b, Index, Index j, const Values&) { return j < 100 * (b + 1) / 3; });
}

/// The gradients of mean squared error of one causal head, for its weights.
TEST(Work, TrainingStep) {
  for (const char* name : {"attention_step 5,128,64", "attention_step 32,32,32", "attention_step 130,64,64", "attention_step 33,16,8 f64",
                           "attention_shapes 12,32,16 f64"}) {
    SCOPED_TRACE(name);
    const Row row(name);
    const Ran ran(name);
    const Index T = row.sizes[0], D = row.sizes[1], H = row.sizes[2];
    if (row.kind == "attention_shapes") {  // steps before the last have moved the weights
      EXPECT_TRUE(std::isfinite(find(ran.results, "loss").item<double>()));
      continue;
    }
    const Values x = ran.in("x"), target = ran.in("target");
    const Values q = product("nn", x, ran.in("W_q"), T, D, H), k = product("nn", x, ran.in("W_k"), T, D, H),
                 v = product("nn", x, ran.in("W_v"), T, D, H);
    const Values output = attention(q, k, v, {}, T, H, H, causal).output;
    double loss = 0;
    Values up(output.size());
    for (std::size_t i = 0; i < up.size(); ++i) {
      const double difference = output[i] - target[i], n = static_cast<double>(up.size());
      loss += difference * difference / n, up[i] = 2 * difference / n;
    }
    const Reference r = attention(q, k, v, up, T, H, H, causal);
    ran.expect("loss", {loss});
    ran.expect("dW_q", product("tn", x, r.dq, D, T, H));
    ran.expect("dW_k", product("tn", x, r.dk, D, T, H));
    ran.expect("dW_v", product("tn", x, r.dv, D, T, H));
  }
}

TEST(Work, StepMovesTheWeights) {
  const std::unique_ptr<Work> work = make_work(Row("attention_step 8,16,8 f64"));
  const Values before = find(work->inputs(), "W_v").to_vector<double>();
  work->run();
  const Values after = find(work->inputs(), "W_v").to_vector<double>(), gradient = find(work->results(), "dW_v").to_vector<double>();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i] - 1e-3 * gradient[i], 1e-15);
}

/// The same model in f64.
TEST(Work, Gpt) {
  const Ran ran("gpt 2,2,32,20,3");
  nn::GPT model({.vocab_size = 65, .block_size = 20, .n_layer = 2, .n_head = 2, .n_embd = 32, .dropout = 0});
  nn::to(model, f64);
  const NamedTensors parameters = nn::named_parameters(model);
  for (const auto& [name, parameter] : parameters) {
    const NoGrad off;
    Tensor(parameter).copy_(find(ran.inputs, name).to(f64));
  }
  const Tensor loss = cross_entropy(reshape(model(find(ran.inputs, "ids")), {-1, 65}), find(ran.inputs, "targets"));
  loss.backward();
  ran.expect("loss", {loss.item<double>()});
  for (const auto& [name, parameter] : parameters) ran.expect("d " + name, parameter.grad().to_vector<double>());
}

TEST(Work, Ops) {
  for (const char* name : {"linear 33,48,70", "linear 40,64,32 f64"}) {
    SCOPED_TRACE(name);
    const Row row(name);
    const Ran ran(name);
    const Index n = row.sizes[0], in = row.sizes[1], out = row.sizes[2];
    const Values x = ran.in("x"), weight = ran.in("weight"), bias = ran.in("bias"), up = ran.in("up");
    Values y = product("nt", x, weight, n, in, out), dbias(bias.size());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()], dbias[i % bias.size()] += up[i];
    ran.expect("y", y), ran.expect("dbias", dbias);
    ran.expect("dx", product("nn", up, weight, n, out, in));
    ran.expect("dweight", product("tn", up, x, out, n, in));
  }
  for (const char* name : {"softmax 40,100", "softmax_train 40,100", "softmax_train 7,1000 f64"}) {
    SCOPED_TRACE(name);
    const Row row(name);
    const Ran ran(name);
    const Values y = softmax_rows(ran.in("x"), row.sizes[0], row.sizes[1], [](Index, Index) { return true; });
    ran.expect("y", y);
    if (row.kind == "softmax_train") ran.expect("dx", softmax_gradient(y, ran.in("up"), row.sizes[0], row.sizes[1]));
  }
  const Ran chain("overhead add 4x4 chain=50");
  Values y = chain.in("x");
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += 50 * chain.in("c")[i];
  chain.expect("y", y), chain.expect("dx", chain.in("up"));
}

TEST(Work, NamesThatMeanNothing) {
  const auto refusal = [](const char* name) {
    try {
      Row{name};
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal(""), HasSubstr("none of"));
  EXPECT_THAT(refusal("relu 4,4"), HasSubstr("sdpa_train"));
  EXPECT_THAT(refusal("overhead mul 4x4"), HasSubstr("add"));
  EXPECT_THAT(refusal("sdpa_train 1,2"), HasSubstr("3 sizes"));
  EXPECT_THAT(refusal("sdpa_train 1,2,x"), HasSubstr("not a size: x"));
  EXPECT_THAT(refusal("sdpa_train 1,2,0"), HasSubstr("not a size: 0"));
  EXPECT_THAT(refusal("sdpa_train 1,2,3 window"), HasSubstr("not a size"));
  EXPECT_THAT(refusal("linear 1,2,3 keep"), HasSubstr("no such option: keep"));
}

}  // namespace
}  // namespace heed::bench
