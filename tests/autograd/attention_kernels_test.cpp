#include <gtest/gtest.h>
#include <heed/autograd/attention.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/grad_mode.h>
#include <heed/autograd/gradcheck.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/random.h>

#include <functional>
#include <limits>

#include "close.h"

// One call, two kernels: they agree in outputs, weights, gradients, dropout, and second derivatives.

namespace heed::test {
namespace {

struct Case {
  const char* name;
  Dims q, k, v;
  std::function<Mask()> mask;
};

Tensor keep_with_dead_row(const Dims& shape) {
  Tensor keep = gt(rand(shape, f64), 0.4);
  bool* p = keep.mutable_data<bool>();
  for (Index j = 0; j < keep.size(-1); ++j) p[j] = false;
  return keep;
}

std::vector<Case> cases() {
  return {
      {"plain", {5, 8}, {7, 8}, {7, 3}, [] { return Mask(); }},
      {"causal", {2, 9, 4}, {2, 9, 4}, {2, 9, 6}, [] { return Mask::causal(); }},
      {"causal with an offset", {2, 3, 7, 8}, {2, 3, 9, 8}, {2, 3, 9, 5}, [] { return Mask::causal(2); }},
      {"lengths",
       {3, 2, 4, 4},
       {3, 2, 6, 4},
       {3, 2, 6, 4},
       [] {
         return Mask::lengths({6, 0, 2});
       }},
      {"window", {2, 8, 4}, {2, 8, 4}, {2, 8, 4}, [] { return Mask::window(3) & Mask::causal(); }},
      {"alibi", {2, 4, 5, 4}, {2, 4, 5, 4}, {2, 4, 5, 4}, [] { return Mask::alibi(4) & Mask::causal(); }},
      {"keep with a dead row",
       {2, 5, 4},
       {2, 6, 4},
       {2, 6, 4},
       [] {
         return Mask::keep(keep_with_dead_row({5, 6}));
       }},
      {"keep of one row for each batch entry",
       {2, 3, 5, 4},
       {2, 3, 6, 4},
       {2, 3, 6, 4},
       [] {
         return Mask::keep(keep_with_dead_row({2, 1, 1, 6}));
       }},
      {"keep of one column",
       {2, 5, 4},
       {2, 6, 4},
       {2, 6, 4},
       [] {
         return Mask::keep(keep_with_dead_row({5, 1}));
       }},
      {"bias for each head",
       {2, 3, 5, 4},
       {2, 3, 6, 4},
       {2, 3, 6, 4},
       [] {
         return Mask::bias(randn({3, 5, 6}, f64));
       }},
      {"two biases and two keeps",
       {2, 5, 4},
       {2, 6, 4},
       {2, 6, 4},
       [] {
         return Mask::bias(randn({5, 6}, f64)) & Mask::bias(randn({6}, f64)) & Mask::keep(gt(rand({5, 6}), 0.2)) &
                Mask::keep(gt(rand({2, 1, 6}), 0.2));
       }},
      {"everything",
       {2, 3, 7, 8},
       {2, 3, 9, 8},
       {2, 3, 9, 5},
       [] {
         return Mask::causal(2) & Mask::keep(gt(rand({2, 1, 7, 9}, f64), 0.3)) & Mask::bias(randn({1, 3, 7, 9}, f64)) & Mask::window(6) &
                Mask::lengths({9, 5});
       }},
      {"keys shared by heads", {2, 4, 5, 4}, {2, 1, 6, 4}, {1, 6, 3}, [] { return Mask(); }},
      {"only values have a batch", {5, 4}, {6, 4}, {3, 6, 2}, [] { return Mask(); }},
      {"no keys", {2, 3, 4}, {2, 0, 4}, {2, 0, 5}, [] { return Mask(); }},
      {"no queries", {2, 0, 4}, {2, 3, 4}, {2, 3, 5}, [] { return Mask(); }},
      {"no batch", {0, 2, 4}, {0, 3, 4}, {0, 3, 5}, [] { return Mask(); }},
      {"beyond a tile", {2, 150, 16}, {2, 150, 16}, {2, 150, 8}, [] { return Mask::causal(); }},
  };
}

struct Everything {
  Attention made;
  std::vector<Tensor> gradients;  // of q, k, v and every bias
};

Everything run(const Case& c, const Mask& mask, Kernel kernel, const AttentionOptions& base, DType dtype) {
  manual_seed(7);
  std::vector<Tensor> inputs{randn(c.q, dtype), randn(c.k, dtype), randn(c.v, dtype)};
  for (const Tensor& bias : mask.biases()) inputs.push_back(bias);
  for (Tensor& t : inputs) t.requires_grad_();
  AttentionOptions options = base;
  options.mask = mask, options.kernel = kernel;
  manual_seed(8);  // the same dropout
  Everything e;
  e.made = scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], options);
  std::vector<Tensor> outputs{e.made.output}, along;
  if (e.made.weights.defined()) outputs.push_back(e.made.weights);
  manual_seed(9);
  for (const Tensor& t : outputs) along.push_back(randn(t.shape(), dtype));
  e.gradients = grad(outputs, inputs, along);
  return e;
}

void expect_equal(const Everything& a, const Everything& b, double tolerance) {
  EXPECT_TRUE(within(a.made.output, b.made.output, tolerance));
  ASSERT_EQ(a.made.weights.defined(), b.made.weights.defined());
  if (a.made.weights.defined()) {
    EXPECT_EQ(a.made.weights.shape(), b.made.weights.shape());
    EXPECT_TRUE(within(a.made.weights, b.made.weights, tolerance));
  }
  for (std::size_t i = 0; i < a.gradients.size(); ++i) EXPECT_TRUE(within(a.gradients[i], b.gradients[i], 10 * tolerance)) << "gradient " << i;
}

TEST(AttentionKernels, agree) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    for (bool need_weights : {true, false}) {
      manual_seed(1);
      const Mask mask = c.mask();
      const AttentionOptions options{.need_weights = need_weights};
      expect_equal(run(c, mask, Kernel::tiled, options, f64), run(c, mask, Kernel::composed, options, f64), 1e-12);
    }
  }
}

TEST(AttentionKernels, agree_with_dropout_and_scale) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    for (double p : {0.3, 1.0}) {
      manual_seed(1);
      const Mask mask = c.mask();
      const AttentionOptions options{.scale = 0.7, .dropout_p = p, .training = true, .need_weights = false};
      expect_equal(run(c, mask, Kernel::tiled, options, f64), run(c, mask, Kernel::composed, options, f64), 1e-12);
    }
  }
}

/// All weights dropped, whatever the operands are: zeros, also as gradients, of an infinite one too, and of them.
TEST(AttentionKernels, dropping_everything_leaves_nothing_of_infinities) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const Kernel kernel : {Kernel::composed, Kernel::tiled})
    for (const DType dtype : {f32, f64})
      for (const double bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()})
        for (const bool need_weights : {true, false}) {
          const auto filled = [&](const Dims& shape) { return leaf(full(shape, bad, dtype)); };
          const Tensor good = leaf(randn({2, 3, 4}, dtype));
          for (const std::vector<Tensor>& in :
               {std::vector<Tensor>{good, leaf(randn({2, 5, 4}, dtype)), filled({2, 5, 3}), leaf(randn({3, 5}, dtype))},
                std::vector<Tensor>{filled({2, 3, 4}), filled({2, 5, 4}), filled({2, 5, 3}), filled({3, 5})}}) {
            const AttentionOptions options{
                .mask = Mask::causal(2) & Mask::bias(in[3]), .dropout_p = 1, .training = true, .need_weights = need_weights, .kernel = kernel};
            const Attention a = scaled_dot_product_attention(in[0], in[1], in[2], options);
            EXPECT_TRUE(same(a.output, zeros({2, 3, 3}, dtype)));
            EXPECT_EQ(a.weights.defined(), need_weights);
            const std::vector<Tensor> d = grad({a.output}, in, {full({2, 3, 3}, bad, dtype)}, {.create_graph = true});
            Tensor total;
            for (std::size_t i = 0; i < in.size(); ++i) {
              EXPECT_TRUE(same(d[i], zeros(in[i].shape(), dtype))) << "gradient " << i;
              total = total.defined() ? total + sum(d[i]) : sum(d[i]);
            }
            for (const Tensor& t : grad({total}, in)) EXPECT_TRUE(same(t, zeros(t.shape(), dtype)));
          }
        }
  const Tensor x = randn({4, 3}, f64);
  const Attention kept = scaled_dot_product_attention(x, x, x), dropped = scaled_dot_product_attention(x, x, x, {.dropout_p = 1, .training = true});
  EXPECT_TRUE(close(dropped.weights, kept.weights, 1e-14)) << "those before dropout";
}

/// A product that overflows belongs to a weight that has been dropped: nothing of it is left.
TEST(AttentionKernels, what_is_dropped_may_overflow) {
  for (const Kernel kernel : {Kernel::composed, Kernel::tiled})
    for (const Index Tq : {1, 20}) {
      manual_seed(3);
      const Tensor q = randn({Tq, 4}), k = randn({8, 4}), g = full({Tq, 8}, 8);
      const auto run = [&](const Tensor& values) {
        const Tensor a = leaf(q.clone()), b = leaf(k.clone()), v = leaf(values.clone());
        manual_seed(11);
        const Tensor out = scaled_dot_product_attention(a, b, v, {.dropout_p = .6, .training = true, .need_weights = false, .kernel = kernel}).output;
        std::vector<Tensor> all = grad({out}, {a, b, v}, {g.clone()});
        all.push_back(out.detach());
        return all;
      };
      const Tensor dropped = all(eq(run(eye(8))[3], 0), 0, true);  // columns: keys that no query keeps
      if (Tq == 1) {
        ASSERT_TRUE(any(dropped).item<bool>());
      }
      const Tensor column = transpose(dropped, 0, 1), ordinary = randn({8, 8});
      const std::vector<Tensor> want = run(where(column, 1, ordinary)), got = run(where(column, 1e38, ordinary));
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(close(got[i], want[i], 1e-6)) << i;
    }
}

TEST(AttentionKernels, single_precision_agrees) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    manual_seed(1);
    const Mask mask = c.mask();
    if (!mask.biases().empty()) continue;
    expect_equal(run(c, mask, Kernel::tiled, {}, f32), run(c, mask, Kernel::composed, {}, f32), 1e-5);
  }
}

TEST(AttentionKernels, weights_never_change_the_output) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    manual_seed(1);
    const Mask mask = c.mask();
    const Everything with = run(c, mask, Kernel::automatic, {.need_weights = true}, f64),
                     without = run(c, mask, Kernel::automatic, {.need_weights = false}, f64);
    EXPECT_TRUE(within(with.made.output, without.made.output, 1e-12));
  }
}

// Weights and gradients make the weights again from what the forward kept of each row: of scores like these, any other rounding of theirs would be a
// factor. Few queries are computed in another way than many.
TEST(AttentionKernels, rows_of_large_scores_sum_to_1) {
  for (const DType dtype : {f32, f64})
    for (const Index Tq : {1, 2, 3, 5}) {
      SCOPED_TRACE(testing::Message() << dtype << ", " << Tq << " queries");
      manual_seed(3);
      const Tensor q = randn({Tq, 64}, dtype) * 300, k = randn({7, 64}, dtype) * 300;
      Tensor v = ones({7, 1}, dtype).requires_grad_();
      const Attention a = scaled_dot_product_attention(q, k, v, {.kernel = Kernel::tiled});
      EXPECT_TRUE(within(sum(a.weights, -1), ones({Tq}, dtype), 1e-6));
      sum(scaled_dot_product_attention(q, k, v, {.need_weights = false, .kernel = Kernel::tiled}).output).backward();
      EXPECT_NEAR(sum(v.grad()).item<double>(), static_cast<double>(Tq), 1e-5);
      const NoGrad off;
      EXPECT_TRUE(same(scaled_dot_product_attention(q, k, v, {.need_weights = false, .kernel = Kernel::tiled}).output, a.output));
    }
}

TEST(AttentionKernels, tiled_gradients_are_right_to_second_order) {
  manual_seed(2);
  for (bool need_weights : {false, true}) {
    const Mask mask = Mask::causal(1) & Mask::keep(gt(rand({3, 4}, f64), 0.2));
    const auto fn = [&](const std::vector<Tensor>& in) {
      const Attention a = scaled_dot_product_attention(in[0], in[1], in[2],
                                                       {.mask = mask & Mask::bias(in[3]), .need_weights = need_weights, .kernel = Kernel::tiled});
      return need_weights ? std::vector<Tensor>{a.output, a.weights} : std::vector<Tensor>{a.output};
    };
    const std::vector<Tensor> inputs{randn({2, 3, 3}, f64), randn({2, 4, 3}, f64), randn({2, 4, 2}, f64), randn({3, 4}, f64)};
    const GradcheckReport first = gradcheck(fn, inputs), second = gradgradcheck(fn, inputs);
    EXPECT_TRUE(first.ok) << first.message;
    EXPECT_TRUE(second.ok) << second.message;
  }
}

TEST(AttentionKernels, one_tensor_in_all_slots) {
  manual_seed(3);
  const auto fn = [](const std::vector<Tensor>& in) {
    return scaled_dot_product_attention(in[0], in[0], in[0], {.mask = Mask::causal(), .need_weights = false, .kernel = Kernel::tiled}).output;
  };
  const std::vector<Tensor> x{randn({4, 3}, f64)};
  EXPECT_TRUE(gradcheck(fn, x).ok);
  EXPECT_TRUE(gradgradcheck(fn, x).ok);
}

TEST(AttentionKernels, views_are_read_in_place) {
  manual_seed(4);
  // Heads cut out of one projection, as multi-head layers do: rows far apart, heads between them.
  const Tensor qkv = randn({2, 6, 3 * 8}, f64);
  const auto head = [&](Index i) { return transpose(reshape(slice(qkv, 2, 8 * i, 8 * i + 8), {2, 6, 2, 4}), 1, 2); };
  const AttentionOptions tiled{.mask = Mask::causal(), .need_weights = false, .kernel = Kernel::tiled};
  const AttentionOptions composed{.mask = Mask::causal(), .need_weights = false, .kernel = Kernel::composed};
  EXPECT_TRUE(within(scaled_dot_product_attention(head(0), head(1), head(2), tiled).output,
                     scaled_dot_product_attention(head(0), head(1), head(2), composed).output, 1e-12));
  // Columns that are not dense.
  const Tensor odd = transpose(randn({2, 4, 6}, f64), 1, 2);
  EXPECT_TRUE(within(scaled_dot_product_attention(odd, odd, odd, tiled).output, scaled_dot_product_attention(odd, odd, odd, composed).output, 1e-12));
}

/// Heads that are views into rows of all heads give results that lie the same way: joining them copies nothing.
TEST(AttentionKernels, results_lie_as_the_heads_do) {
  manual_seed(9);
  for (const auto& [Tq, Tk] : {std::pair<Index, Index>{40, 40}, {3, 40}, {1, 40}, {40, 0}}) {
    const auto heads = [](Index rows, Index size) { return leaf(transpose(randn({2, rows, 3, size}, f64), 1, 2)); };
    const Tensor q = heads(Tq, 5), k = heads(Tk, 5), v = heads(Tk, 7);
    const auto plain = [](const Tensor& t) { return leaf(t.detach().clone()); };
    const std::vector<Tensor> views{q, k, v}, copies{plain(q), plain(k), plain(v)};
    const AttentionOptions options{.mask = Mask::causal(Tk - Tq), .need_weights = false};
    const Tensor y = scaled_dot_product_attention(q, k, v, options).output,
                 want = scaled_dot_product_attention(copies[0], copies[1], copies[2], options).output;
    EXPECT_TRUE(close(y, want, 1e-14));
    EXPECT_TRUE(transpose(y, 1, 2).is_contiguous());
    EXPECT_TRUE(want.is_contiguous());
    const Tensor g = randn(y.shape(), f64);
    const std::vector<Tensor> d = grad({y}, views, {g}), e = grad({want}, copies, {g});
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(close(d[i], e[i], 1e-14)) << i;
      EXPECT_TRUE(transpose(d[i], 1, 2).is_contiguous()) << i;
    }
  }
}

TEST(AttentionPlan, says_which_kernel_runs_and_what_it_costs) {
  const Tensor x = zeros({2, 100, 64});
  const AttentionPlan with = attention_plan(x, x, x), without = attention_plan(x, x, x, {.need_weights = false});
  EXPECT_EQ(with.kernel, Kernel::composed);
  EXPECT_EQ(without.kernel, Kernel::tiled);
  EXPECT_FALSE(without.reason.empty());
  EXPECT_DOUBLE_EQ(without.flops, 2.0 * 2 * 100 * 100 * 128);
  EXPECT_DOUBLE_EQ(attention_plan(x, x, x, {.mask = Mask::causal()}).flops, 2.0 * 2 * (100 * 101 / 2) * 128);
  EXPECT_DOUBLE_EQ(attention_plan(x, x, x, {.mask = Mask::lengths({100, 50})}).flops, 2.0 * (100 * 100 + 100 * 50) * 128);
  EXPECT_GT(with.bytes, 2 * 100 * 100 * 4.0);
  EXPECT_THROW(attention_plan(x, zeros({2, 100, 32}), x), ShapeError);
}

}  // namespace
}  // namespace heed::test
