#include <gmock/gmock.h>
#include <heed/autograd/attention.h>
#include <heed/autograd/backward.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/random.h>

#include <cmath>
#include <functional>
#include <limits>

#include "close.h"

namespace heed::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double inf = std::numeric_limits<double>::infinity();

Tensor of(const detail::Nested& values) { return leaf(tensor(values, f64)); }
Tensor truth(const detail::Nested& values) { return tensor(values, boolean); }

/// The q, k and v of most cases.
struct Small {
  Tensor q = of({{1, 0}, {0, 1}, {1, 1}}), k = of({{1, 1}, {2, 0}, {0, 1}}), v = of({{1, 2}, {3, 4}, {5, 6}});
};

Attention attend(const Small& s, const Mask& mask) { return scaled_dot_product_attention(s.q, s.k, s.v, {.mask = mask, .kernel = Kernel::composed}); }

TEST(AttentionCases, a_query_that_may_attend_to_nothing) {
  const Tensor q = of({{1, 0}, {0, 1}}), k = of({{1, 1}, {2, 0}, {0, 1}}), v = of({{1, 2}, {3, 4}, {5, 6}});
  const AnomalyMode guard;  // no NaN on the way either
  const auto [out, weights] = scaled_dot_product_attention(q, k, v, {.mask = Mask::keep(truth({{1, 1, 0}, {0, 0, 0}})), .kernel = Kernel::composed});
  EXPECT_TRUE(holds(out, {2.33952310, 3.33952310, 0, 0}));
  EXPECT_TRUE(holds(weights, {.33023845, .66976155, 0, 0, 0, 0}));
  const std::vector<Tensor> d = grad({out}, {q, k, v}, {tensor({{1, 2}, {3, 4}}, f64)});
  EXPECT_TRUE(holds(d[0], {.93839158, -.93839158, 0, 0}));
  EXPECT_TRUE(holds(d[1], {-.93839158, 0, .93839158, 0, 0, 0}));
  EXPECT_TRUE(holds(d[2], {.33023845, .66047690, .66976155, 1.33952310, 0, 0}));
}

TEST(AttentionCases, dead_queries_by_every_kind_of_mask) {
  for (const Mask& mask : {Mask::keep(truth({{1}, {0}, {1}})), Mask::bias(tensor({{0}, {-inf}, {0}}, f64)), Mask::causal(-2),
                           Mask::causal(-1) & Mask::window(1), Mask::keep(zeros({3, 3}))}) {
    const Small s;
    const AnomalyMode guard;
    const auto [out, weights] = attend(s, mask);
    const Tensor dead = all(eq(mask.to_tensor(3, 3, f64), -inf), 1);
    EXPECT_TRUE(any(dead).item<bool>()) << to_string(mask);
    EXPECT_TRUE(holds(sum(where(unsqueeze(dead, 1), abs(out), 0)), {0}, 0)) << to_string(mask);
    EXPECT_TRUE(holds(sum(weights, 1), (!dead).to_vector<double>())) << to_string(mask);
    const std::vector<Tensor> d = grad({sum(out * out) + sum(weights * weights)}, {s.q, s.k, s.v});
    for (const Tensor& g : d) EXPECT_TRUE(all(isfinite(g)).item<bool>()) << to_string(mask);
    EXPECT_TRUE(holds(sum(where(unsqueeze(dead, 1), abs(d[0]), 0)), {0}, 0)) << to_string(mask);
  }
}

TEST(AttentionCases, causal_and_another_mask_both_count) {
  const Small s;
  const Attention kept = attend(s, Mask::causal() & Mask::keep(truth({{1, 1, 1}, {0, 1, 1}, {1, 0, 1}})));
  EXPECT_TRUE(holds(kept.weights, {1, 0, 0, 0, 1, 0, .66976155, 0, .33023845}));
  EXPECT_TRUE(holds(kept.output, {1, 2, 3, 4, 2.32095380, 3.32095380}));
  const Attention biased = attend(s, Mask::bias(tensor({{.5, 0, 0}, {-1, 0, 2}, {0, 1, -inf}}, f64)) & Mask::causal());
  EXPECT_TRUE(holds(biased.weights, {1, 0, 0, .42729571, .57270429, 0, .26894142, .73105858, 0}));
  EXPECT_TRUE(holds(biased.output, {1, 2, 2.14540859, 3.14540859, 2.46211716, 3.46211716}));
}

TEST(AttentionCases, a_boolean_mask_keeps_and_a_float_mask_adds) {
  const Small s;
  const Attention kept = attend(s, Mask::keep(truth({1, 0, 1})));
  EXPECT_TRUE(holds(kept.weights, {.66976155, 0, .33023845, .5, 0, .5, .66976155, 0, .33023845}));
  EXPECT_TRUE(holds(kept.output, {2.32095380, 3.32095380, 3, 4, 2.32095380, 3.32095380}));
  // The lesson's 0/1 matrix of floats is the same when it is said to keep, and a bias when it is said to be one.
  EXPECT_TRUE(same(attend(s, Mask::keep(tensor({1, 0, 1}))).weights, kept.weights));
  EXPECT_THAT(thrown<Error>([] {
                Mask::keep(tensor({0, -inf, 0}));
              }),
              AllOf(HasSubstr("Mask::keep: wants 0 and 1, found -inf"), HasSubstr("Mask::bias")));
  EXPECT_TRUE(same(attend(s, truth({1, 0, 1})).weights, kept.weights));
  EXPECT_TRUE(holds(attend(s, Mask::bias(tensor({1, 0, 1}, f64))).weights,
                    {.44659395, .33320455, .22020150, .45842333, .08315333, .45842333, .53736049, .19768388, .26495563}));
  EXPECT_THAT(thrown<DTypeError>([&] { (void)attend(s, tensor({1, 0, 1}, f64)); }), AllOf(HasSubstr("keep"), HasSubstr("bias")));
}

TEST(AttentionCases, masks_broadcast_from_the_right) {
  const Small s;
  const auto batch = [](const Tensor& t) { return stack({unsqueeze(t, 0), unsqueeze(t, 0)}); };
  const Attention a = scaled_dot_product_attention(batch(s.q), batch(s.k), batch(s.v), {.mask = Mask::keep(truth({{{{1, 1, 0}}}, {{{1, 0, 0}}}}))});
  EXPECT_TRUE(holds(a.weights, {.33023845, .66976155, 0, .66976155, .33023845, 0, .5, .5, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0}));
}

TEST(AttentionCases, a_bias_gets_its_gradient) {
  const Small s;
  Tensor bias = leaf(zeros({3, 3}, f64));
  const Tensor q = s.q.detach(), k = s.k.detach(), v = s.v.detach();
  sum(scaled_dot_product_attention(q, k, v, {.mask = Mask::bias(bias)}).output * tensor({{1, 0}, {2, 0}, {3, 0}}, f64)).backward();
  EXPECT_TRUE(holds(bias.grad(), {-.48621936, .16584192, .32037744, -1.60444837, 0, 1.60444837, -1.91730872, .48936384, 1.42794488}));
  EXPECT_TRUE(holds(sum(bias.grad(), 1), {0, 0, 0}));
}

TEST(AttentionCases, the_scale_comes_from_the_keys) {
  const auto [out, weights] = scaled_dot_product_attention(of({{1, 2}}), eye(2, f64), of({{1, 2, 3}, {4, 5, 6}}));
  EXPECT_TRUE(holds(weights, {.33023845, .66976155}));
  EXPECT_TRUE(holds(out, {3.00928465, 4.00928465, 5.00928465}));
}

TEST(AttentionCases, batches_queries_or_keys_of_none) {
  for (const Dims& sizes : {Dims{0, 2, 3}, Dims{2, 0, 3}, Dims{2, 3, 0}})
    for (const Mask& mask : {Mask::none(), Mask::causal(0)}) {
      Tensor q = leaf(ones({sizes[0], sizes[1], 2}, f64)), k = leaf(ones({sizes[0], sizes[2], 2}, f64)), v = leaf(ones({sizes[0], sizes[2], 5}, f64));
      const auto [out, weights] = scaled_dot_product_attention(q, k, v, {.mask = mask});
      EXPECT_EQ(out.shape(), (Dims{sizes[0], sizes[1], 5}));
      EXPECT_EQ(weights.shape(), sizes);
      EXPECT_TRUE(sizes[2] > 0 || holds(out, std::vector<double>(30, 0.0), 0));
      (sum(out) + sum(weights)).backward();
      for (const Tensor& t : {q, k, v}) EXPECT_TRUE(same(t.grad(), zeros(t.shape(), f64)));
    }
}

TEST(AttentionCases, weights_only_when_asked_for) {
  const Small s;
  EXPECT_TRUE(scaled_dot_product_attention(s.q, s.k, s.v).weights.defined());
  const Attention a = scaled_dot_product_attention(s.q, s.k, s.v, {.need_weights = false});
  EXPECT_FALSE(a.weights.defined());
  EXPECT_TRUE(close(a.output, scaled_dot_product_attention(s.q, s.k, s.v).output, 1e-14));
}

TEST(AttentionCases, the_weights_returned_are_those_before_dropout) {
  const Small s;
  manual_seed(2);
  const Attention dropped = scaled_dot_product_attention(s.q, s.k, s.v, {.dropout_p = .5, .training = true});
  EXPECT_TRUE(same(dropped.weights, scaled_dot_product_attention(s.q, s.k, s.v).weights));
  EXPECT_FALSE(close(dropped.output, scaled_dot_product_attention(s.q, s.k, s.v).output, 1e-3));
  const RngState before = rng_state();
  const Attention evaluated = scaled_dot_product_attention(s.q, s.k, s.v, {.dropout_p = .5});
  EXPECT_TRUE(same(evaluated.output, scaled_dot_product_attention(s.q, s.k, s.v).output));
  EXPECT_EQ(rng_state(), before);
  const Attention all = scaled_dot_product_attention(s.q, s.k, s.v, {.dropout_p = 1, .training = true});
  EXPECT_TRUE(same(all.output, zeros({3, 2}, f64)));
}

TEST(AttentionCases, errors_name_the_sizes) {
  const auto error = [](const Dims& q, const Dims& k, const Dims& v, const AttentionOptions& options = {}) {
    return thrown<ShapeError>([&] { (void)scaled_dot_product_attention(zeros(q), zeros(k), zeros(v), options); });
  };
  const auto op = HasSubstr("scaled_dot_product_attention");
  EXPECT_THAT(error({3, 64}, {3, 32}, {3, 32}), AllOf(op, HasSubstr("Q d_k=64"), HasSubstr("K d_k=32")));
  EXPECT_THAT(error({3, 4}, {5, 4}, {6, 4}), AllOf(op, HasSubstr("K Tk=5"), HasSubstr("V Tk=6")));
  EXPECT_THAT(error({4}, {5, 4}, {5, 4}), AllOf(op, HasSubstr("(4,)")));
  EXPECT_THAT(error({2, 3, 4}, {3, 5, 4}, {3, 5, 4}), AllOf(op, HasSubstr("(2,)"), HasSubstr("(3,)")));
  EXPECT_THAT(error({3, 4}, {5, 4}, {5, 4}, {.mask = Mask::causal()}), AllOf(op, HasSubstr("Tq=3"), HasSubstr("Tk=5"), HasSubstr("causal(offset)")));
  EXPECT_THAT(error({3, 4}, {5, 4}, {5, 4}, {.mask = Mask::keep(ones({3, 4}))}), AllOf(op, HasSubstr("(3, 4)"), HasSubstr("(3, 5)")));
  EXPECT_THAT(error({3, 4}, {5, 4}, {5, 4}, {.mask = Mask::lengths({5})}), op);
  EXPECT_THAT(error({2, 3, 4}, {2, 5, 4}, {2, 5, 4}, {.mask = Mask::lengths({5, 6})}), AllOf(op, HasSubstr("6"), HasSubstr("Tk=5")));
  EXPECT_THAT(error({2, 3, 4}, {2, 5, 4}, {2, 5, 4}, {.mask = Mask::alibi(4)}), AllOf(op, HasSubstr("4 heads")));
  EXPECT_THROW((void)scaled_dot_product_attention(zeros({3, 4}), zeros({5, 4}), zeros({5, 4}), {.dropout_p = 1.5}), Error);
  EXPECT_THAT(thrown<DTypeError>([] {
                (void)scaled_dot_product_attention(zeros({3, 4}), zeros({5, 4}), zeros({5, 4}), {.mask = Mask::bias(zeros({5}, f64))});
              }),
              AllOf(op, HasSubstr("f64"), HasSubstr("f32")));
  EXPECT_THROW((void)scaled_dot_product_attention(zeros({3, 4}, i64), zeros({5, 4}, i64), zeros({5, 4}, i64)), DTypeError);
}

TEST(Masks, as_a_matrix_to_add) {
  EXPECT_TRUE(holds(Mask::none().to_tensor(2, 3), {0, 0, 0, 0, 0, 0}));
  EXPECT_TRUE(holds(Mask::causal().to_tensor(2, 2, f64), {0, -inf, 0, 0}));
  EXPECT_TRUE(holds(Mask::causal(1).to_tensor(2, 3), {0, 0, -inf, 0, 0, 0}));
  EXPECT_TRUE(holds(Mask::window(1).to_tensor(2, 2), {0, -inf, -inf, 0}));
  EXPECT_TRUE(holds((Mask::causal(1) & Mask::window(2)).to_tensor(2, 3), {0, 0, -inf, -inf, 0, 0}));
  EXPECT_TRUE(holds((Mask::bias(tensor({{1, 2}})) & Mask::keep(truth({{1}, {0}}))).to_tensor(2, 2), {1, 2, -inf, -inf}));
  const Tensor lengths = Mask::lengths({2, 0}).to_tensor(1, 3);
  EXPECT_EQ(lengths.shape(), (Dims{2, 1, 3}));
  EXPECT_TRUE(holds(lengths, {0, 0, -inf, -inf, -inf, -inf}));
  const Tensor alibi = Mask::alibi(2).to_tensor(2, 2, f64);
  EXPECT_EQ(alibi.shape(), (Dims{2, 2, 2}));
  EXPECT_TRUE(holds(alibi, {0, -1 / 16., -1 / 16., 0, 0, -1 / 256., -1 / 256., 0}));
}

TEST(Masks, slopes_of_the_paper) {
  EXPECT_EQ(detail::alibi_slopes(8), (std::vector<double>{-1 / 2., -1 / 4., -1 / 8., -1 / 16., -1 / 32., -1 / 64., -1 / 128., -1 / 256.}));
  const std::vector<double> three = detail::alibi_slopes(3);
  EXPECT_EQ(three.size(), 3u);
  EXPECT_TRUE(holds(from_vector(three, {3}), {-1 / 16., -1 / 256., -1 / 4.}));
}

TEST(Masks, in_words_and_together) {
  EXPECT_EQ(to_string(Mask::none()), "none");
  EXPECT_EQ(to_string(Mask::causal()), "causal");
  EXPECT_EQ(to_string(Mask::causal(2) & Mask::window(4) & Mask::alibi(2)), "causal(2) & window(4) & alibi(2 heads)");
  EXPECT_EQ(to_string(Mask::lengths({3, 0}) & Mask::keep(ones({2, 3}))), "lengths(3, 0) & keep(2, 3)");
  EXPECT_EQ(to_string(Mask::none() & Mask::causal()), "causal");
  EXPECT_EQ(to_string(Mask::window(3) & Mask::window(2)), "window(2)");
  EXPECT_EQ(to_string(Mask::lengths({3, 1}) & Mask::lengths({2, 4})), "lengths(2, 1)");
  EXPECT_EQ(to_string(Mask::causal(1) & Mask::causal(1)), "causal(1)");
  EXPECT_THROW((void)(Mask::causal(1) & Mask::causal(2)), Error);
  EXPECT_THROW((void)(Mask::lengths({1}) & Mask::lengths({1, 2})), Error);
  EXPECT_THROW((void)(Mask::alibi(2) & Mask::alibi(2)), Error);
  EXPECT_THROW((void)Mask::lengths({}), ShapeError);
  EXPECT_THROW((void)Mask::lengths({-1}), ShapeError);
  EXPECT_THROW((void)Mask::window(0), ShapeError);
  EXPECT_THROW((void)Mask::alibi(0), ShapeError);
  EXPECT_THROW((void)Mask::bias(ones({2}, i64)), DTypeError);
  EXPECT_TRUE(Mask::none().is_none() && !Mask::causal().is_none());
}

/// Masks whose offset or window lies near the ends of an Index mean what they say.
TEST(Masks, positions_at_the_ends_of_an_index) {
  constexpr Index most = std::numeric_limits<Index>::max(), least = std::numeric_limits<Index>::min(), large = Index{1} << 62;
  const auto seen = [](const Mask& mask) {
    const Tensor allowed = eq(mask.to_tensor(3, 3, f64), 0), v = of({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}), q = zeros({3, 2}, f64);
    for (const Kernel kernel : {Kernel::composed, Kernel::tiled}) {
      const AttentionOptions options{.mask = mask, .need_weights = false, .kernel = kernel};
      EXPECT_TRUE(same(gt(scaled_dot_product_attention(q, q, v, options).output, 0), allowed)) << mask;
      EXPECT_EQ(attention_plan(q, q, v, options).flops, 10 * sum(allowed.to(i64)).item<double>()) << mask;
    }
    return allowed.to_vector<double>();
  };
  const std::vector<double> everything(9, 1), nothing(9, 0), below{1, 0, 0, 1, 1, 0, 1, 1, 1};
  EXPECT_EQ(seen(Mask::causal(most)), everything);
  EXPECT_EQ(seen(Mask::causal(least)), nothing);
  EXPECT_EQ(seen(Mask::causal(most) & Mask::window(most)), (std::vector<double>{0, 1, 1, 0, 0, 1, 0, 0, 0})) << "i + offset - j < offset";
  EXPECT_EQ(seen(Mask::causal(large) & Mask::window(large + 1)), (std::vector<double>{1, 1, 1, 0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(seen(Mask::causal(large) & Mask::window(large / 2)), nothing);
  EXPECT_EQ(seen(Mask::window(large + 2).at(-large)), (std::vector<double>{1, 1, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(seen(Mask::causal(0) & Mask::window(most)), below);
  for (const Index offset : {most, least}) EXPECT_TRUE(all(isfinite(Mask::alibi(1).at(offset).to_tensor(2, 2))).item<bool>()) << offset;
}

/// As loops say it, value and gradients of sum(out * g).
struct Plain {
  std::vector<double> out, dq, dk, dv;

  Plain(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g, const std::function<bool(Index, Index, Index)>& allowed) {
    const auto flat = [](const Tensor& t) { return t.to_vector<double>(); };
    const std::vector<double> Q = flat(q), K = flat(k), V = flat(v), G = flat(g);
    const Index B = q.size(0), Tq = q.size(1), Tk = k.size(1), d = q.size(2), e = v.size(2);
    const auto at = [](Index a, Index rows, Index row, Index columns, Index column) {
      return static_cast<std::size_t>((a * rows + row) * columns + column);
    };
    out.resize(G.size()), dq.resize(Q.size()), dk.resize(K.size()), dv.resize(V.size());
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    for (Index b = 0; b < B; ++b)
      for (Index i = 0; i < Tq; ++i) {
        std::vector<double> p(static_cast<std::size_t>(Tk)), dp(p.size());
        double total = 0, mean = 0;
        for (Index j = 0; j < Tk; ++j) {
          double score = 0, pull = 0;
          for (Index c = 0; c < d; ++c) score += scale * Q[at(b, Tq, i, d, c)] * K[at(b, Tk, j, d, c)];
          for (Index c = 0; c < e; ++c) pull += G[at(b, Tq, i, e, c)] * V[at(b, Tk, j, e, c)];
          total += p[static_cast<std::size_t>(j)] = allowed(b, i, j) ? std::exp(score) : 0;
          dp[static_cast<std::size_t>(j)] = pull;
        }
        if (total == 0) continue;
        for (std::size_t j = 0; j < p.size(); ++j) mean += (p[j] /= total) * dp[j];
        for (Index j = 0; j < Tk; ++j) {
          const double weight = p[static_cast<std::size_t>(j)], ds = scale * weight * (dp[static_cast<std::size_t>(j)] - mean);
          for (Index c = 0; c < e; ++c)
            out[at(b, Tq, i, e, c)] += weight * V[at(b, Tk, j, e, c)], dv[at(b, Tk, j, e, c)] += weight * G[at(b, Tq, i, e, c)];
          for (Index c = 0; c < d; ++c) dq[at(b, Tq, i, d, c)] += ds * K[at(b, Tk, j, d, c)], dk[at(b, Tk, j, d, c)] += ds * Q[at(b, Tq, i, d, c)];
        }
      }
  }
};

TEST(Masks, windows_with_offsets_and_lengths_are_a_plain_loop) {
  struct Place {
    Index Tq, offset, window;
  };
  const Index Tk = 9;
  manual_seed(4);
  for (const Place& at : {Place{9, 0, 1}, Place{9, 0, 3}, Place{9, 0, 9}, Place{9, 0, 40}, Place{1, 8, 1}, Place{1, 8, 4}, Place{4, 5, 3},
                          Place{4, 3, 2}, Place{9, -4, 3}, Place{3, 12, 5}, Place{3, 30, 5}})
    for (const bool causal : {true, false})
      for (const bool padded : {true, false}) {
        const Tensor q = leaf(randn({2, at.Tq, 4}, f64)), k = leaf(randn({2, Tk, 4}, f64)), v = leaf(randn({2, Tk, 3}, f64)),
                     g = randn({2, at.Tq, 3}, f64);
        const std::vector<Index> lengths{padded ? 5 : Tk, Tk};
        const Plain want(q, k, v, g, [&](Index b, Index i, Index j) {
          return std::abs(i + at.offset - j) < at.window && (!causal || j <= i + at.offset) && j < lengths[static_cast<std::size_t>(b)];
        });
        Mask mask = causal ? Mask::causal(at.offset) & Mask::window(at.window) : Mask::window(at.window).at(at.offset);
        if (padded) mask = mask & Mask::lengths(lengths);
        for (const Kernel kernel : {Kernel::composed, Kernel::tiled}) {
          SCOPED_TRACE(testing::Message() << mask << ", " << at.Tq << " queries, kernel " << static_cast<int>(kernel));
          const Tensor out = scaled_dot_product_attention(q, k, v, {.mask = mask, .need_weights = false, .kernel = kernel}).output;
          const std::vector<Tensor> d = grad({out}, {q, k, v}, {g});
          EXPECT_TRUE(holds(out, want.out, 1e-12));
          EXPECT_TRUE(holds(d[0], want.dq, 1e-12));
          EXPECT_TRUE(holds(d[1], want.dk, 1e-12));
          EXPECT_TRUE(holds(d[2], want.dv, 1e-12));
        }
      }
}

}  // namespace
}  // namespace heed::test
