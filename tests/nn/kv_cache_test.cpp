#include "support.h"

// Decoding piece by piece equals the whole sequence, the check that says so, and what the cache refuses.

namespace heed {
namespace {

using test::message_of;
using test::near;
using test::values;

nn::MultiHeadAttention layer_in(DType dtype, Index E, Index H, const nn::MultiHeadAttentionOptions& options = {}) {
  nn::MultiHeadAttention m(E, H, options);
  nn::to(m, dtype);
  return m;
}

/// Rows 0-1, then 2-3 as one chunk, then one at a time, against numbers from elsewhere.
TEST(KVCache, ChunkRowsAreThoseOfTheWholeSequence) {
  const Tensor q = tensor({{1, 0}, {0, 1}, {1, 1}, {2, 0}}, f64), v = tensor({{1}, {10}, {100}, {1000}}, f64);
  const Tensor whole = tensor({{1}, {7.02785394}, {53.07979021}, {663.37917100}}, f64);
  const NoGrad off;
  const auto feed = [&](nn::KVCache& cache, Index begin, Index end) {
    const Index offset = cache.length();
    const auto [k, all_v] = cache.append(slice(q, 0, begin, end), slice(v, 0, begin, end));
    return scaled_dot_product_attention(slice(q, 0, begin, end), k, all_v, {.mask = Mask::causal(offset)}).output;
  };
  nn::KVCache chunks, steps;
  EXPECT_TRUE(near(feed(chunks, 0, 2), slice(whole, 0, 0, 2), 1e-9));
  EXPECT_TRUE(near(feed(chunks, 2, 4), slice(whole, 0, 2, 4), 1e-9));
  for (Index t = 0; t < 4; ++t) EXPECT_TRUE(near(feed(steps, t, t + 1), slice(whole, 0, t, t + 1), 1e-9));
}

/// The layer, piece by piece, in every kind of mask that knows positions.
TEST(KVCache, SuppliesTheOffsetToTheLayer) {
  manual_seed(1);
  for (const DType dtype : {f32, f64}) {
    for (const Index kv : {Index{4}, Index{2}, Index{1}}) {
      const nn::MultiHeadAttention m = layer_in(dtype, 8, 4, {.num_kv_heads = kv});
      const Tensor x = randn({2, 9, 8}, dtype);
      const double tol = dtype == f64 ? 1e-12 : 1e-5;
      for (const Mask& mask :
           {Mask::causal(), Mask::causal() & Mask::window(3), Mask::causal() & Mask::alibi(4), Mask::causal() & Mask::window(4) & Mask::alibi(4)}) {
        const NoGrad off;
        const Attention whole = m(x, mask);
        nn::KVCache cache;
        for (const auto& [begin, end] : std::vector<std::pair<Index, Index>>{{0, 3}, {3, 4}, {4, 9}}) {
          const Attention a = m(slice(x, 1, begin, end), mask, &cache);
          EXPECT_TRUE(near(a.output, slice(whole.output, 1, begin, end), tol)) << mask << " from " << begin;
          EXPECT_TRUE(near(a.weights, slice(slice(whole.weights, 2, begin, end), 3, 0, end), tol)) << mask << " from " << begin;
          EXPECT_EQ(cache.length(), end);
        }
        cache.truncate(4);
        EXPECT_TRUE(near(m(slice(x, 1, 4, 9), {.mask = mask, .need_weights = false}, &cache).output, slice(whole.output, 1, 4, 9), tol)) << mask;
      }
    }
  }
}

/// A window that is not causal counts from the cache's length too: keys within 2 of the query.
TEST(KVCache, PlacesAWindowWithoutCausal) {
  const nn::MultiHeadAttention m = layer_in(f64, 4, 1);
  const NoGrad off;
  nn::KVCache cache;
  m(randn({1, 5, 4}, f64), Mask::none(), &cache);
  const Tensor weights = m(randn({1, 2, 4}, f64), Mask::window(2), &cache).weights;
  EXPECT_EQ(values(gt(weights[0][0], 0)), (std::vector<double>{0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(values(gt(m(randn({1, 1, 4}, f64), Mask::none(), &cache).weights, 0)), std::vector<double>(8, 1));
}

/// What a cache does to a mask: the same kernels, the same derivatives of second order, and words that say it.
TEST(KVCache, PlacesMasksThatAreNotCausal) {
  manual_seed(5);
  const Mask mask = (Mask::window(2) & Mask::alibi(2)).at(3);
  EXPECT_EQ(to_string(mask), "window(2) & alibi(2 heads), queries from 3 on");
  EXPECT_EQ(to_string(Mask::causal().at(3)), "causal(3)");
  EXPECT_THROW(mask.at(4), Error);
  EXPECT_EQ(mask.at(3).offset(), 3);
  Tensor q = randn({1, 2, 2, 3}, f64).requires_grad_(), k = randn({1, 2, 5, 3}, f64).requires_grad_(), v = randn({1, 2, 5, 3}, f64).requires_grad_();
  const auto run = [&](Kernel kernel) {
    return scaled_dot_product_attention(q, k, v, {.mask = mask, .need_weights = false, .kernel = kernel}).output;
  };
  EXPECT_TRUE(near(run(Kernel::tiled), run(Kernel::composed), 1e-12));
  const NamedTensors inputs = {{"q", q}, {"k", k}, {"v", v}};
  for (const Kernel kernel : {Kernel::tiled, Kernel::composed}) {
    const GradcheckReport first = gradcheck([&] { return run(kernel); }, inputs), second = gradgradcheck([&] { return run(kernel); }, inputs);
    EXPECT_TRUE(first.ok) << first.message;
    EXPECT_TRUE(second.ok) << second.message;
  }
}

TEST(KVCache, GrowsGeometrically) {
  const NoGrad off;
  nn::KVCache cache;
  EXPECT_EQ(cache.length(), 0);
  EXPECT_FALSE(cache.keys().defined());
  std::vector<Tensor> rows;
  Index capacity = 0, growths = 0;
  for (int t = 0; t < 1000; ++t) {
    rows.push_back(randn({2, 1, 3}));
    cache.append(rows.back(), rows.back() * 2);
    if (cache.capacity() != capacity) capacity = cache.capacity(), ++growths;
  }
  EXPECT_LE(growths, 8);
  EXPECT_EQ(cache.length(), 1000);
  EXPECT_EQ(values(cache.keys()), values(cat(rows, 1)));
  EXPECT_EQ(values(cache.values()), values(cat(rows, 1) * 2));
}

TEST(KVCache, CopiesGoOnByThemselves) {
  const NoGrad off;
  nn::KVCache cache;
  const Tensor one = ones({1, 1, 2}), two = full({1, 1, 2}, 2), three = full({1, 1, 2}, 3);
  cache.append(one, one);
  nn::KVCache copy = cache;
  cache.append(two, two), copy.append(three, three);
  EXPECT_EQ(values(cache.keys()), (std::vector<double>{1, 1, 2, 2}));
  EXPECT_EQ(values(copy.keys()), (std::vector<double>{1, 1, 3, 3}));
  const nn::KVCache moved = std::move(copy);
  EXPECT_EQ(values(moved.values()), (std::vector<double>{1, 1, 3, 3}));
  cache.clear();
  EXPECT_EQ(cache.length(), 0);
  cache.append(zeros({4, 1, 5}), zeros({4, 1, 6}));
  EXPECT_EQ(cache.values().shape(), (Dims{4, 1, 6})) << "sizes are forgotten too";
}

TEST(KVCache, RefusesAndStaysAsItWas) {
  manual_seed(2);
  const nn::MultiHeadAttention m = layer_in(f32, 8, 2);
  const Tensor x = randn({2, 3, 8});
  nn::KVCache cache;
  const std::string recording = message_of<GradError>([&] { m(x, Mask::causal(), &cache); });
  EXPECT_NE(recording.find("NoGrad"), std::string::npos) << recording;
  EXPECT_THROW(cache.append(x, x), GradError);
  EXPECT_EQ(cache.length(), 0);
  const NoGrad off;
  EXPECT_THROW(m(x, Mask::keep(ones({7, 7})), &cache), ShapeError);
  EXPECT_EQ(cache.length(), 0);
  const Tensor first = m(x, Mask::causal(), &cache).output;
  EXPECT_THROW(m(x, Mask::keep(ones({3, 3})), &cache), ShapeError) << "the cache makes it 6 keys";
  EXPECT_THROW(m(randn({1, 3, 8}), Mask::causal(), &cache), ShapeError);
  EXPECT_NE(message_of<Error>([&] { m(x, Mask::causal(7), &cache); }).find("3"), std::string::npos) << "two offsets";
  EXPECT_EQ(cache.length(), 3);
  EXPECT_EQ(m(x, Mask::causal(3), &cache).weights.shape(), (Dims{2, 2, 3, 6})) << "the cache's own offset may be named";
  EXPECT_THROW(cache.truncate(7), IndexError);
  EXPECT_THROW(cache.truncate(-1), IndexError);
  EXPECT_THROW(cache.append(zeros({2, 2, 1, 4}, f64), zeros({2, 2, 1, 4}, f64)), DTypeError);
  EXPECT_THROW(cache.append(zeros({2, 2, 1, 4}), zeros({2, 2, 2, 4})), ShapeError);
  EXPECT_EQ(cache.length(), 6);
  EXPECT_EQ(m(randn({2, 0, 8}), Mask::causal(), &cache).output.shape(), (Dims{2, 0, 8}));
  EXPECT_EQ(cache.length(), 6);
}

// check_cache_equivalence

TEST(CacheEquivalence, HoldsForTheLayer) {
  manual_seed(3);
  for (const DType dtype : {f32, f64}) {
    const auto report = nn::check_cache_equivalence(layer_in(dtype, 8, 4, {.num_kv_heads = 2}), randn({2, 11, 8}, dtype));
    EXPECT_TRUE(report.ok) << report.message;
  }
  EXPECT_THROW(nn::check_cache_equivalence(layer_in(f32, 8, 4), randn({8})), ShapeError);
}

/// The two wrong alignments that are known from elsewhere, and a cache that forgets.
TEST(CacheEquivalence, FindsWrongAlignments) {
  manual_seed(4);
  const nn::MultiHeadAttention m = layer_in(f64, 8, 2);
  const Tensor x = randn({2, 7, 8}, f64);
  const auto whole = [&](const Tensor& all) { return m(all, Mask::causal()).output; };
  const auto check = [&](const std::function<Tensor(const Tensor&, nn::KVCache&)>& step) {
    return nn::check_cache_equivalence(
        whole, [&]() -> nn::Decoder { return [&step, cache = nn::KVCache()](const Tensor& piece) mutable { return step(piece, cache); }; }, x);
  };
  EXPECT_TRUE(check([&](const Tensor& piece, nn::KVCache& cache) { return m(piece, Mask::causal(), &cache).output; }).ok);
  const auto unmasked = check([&](const Tensor& piece, nn::KVCache& cache) { return m(piece, Mask::none(), &cache).output; });
  EXPECT_FALSE(unmasked.ok) << "chunks see their own future";
  EXPECT_NE(unmasked.message.find("chunk of"), std::string::npos) << unmasked.message;
  const auto forgetful = check([&](const Tensor& piece, nn::KVCache&) { return m(piece, Mask::causal()).output; });
  EXPECT_FALSE(forgetful.ok);
  EXPECT_EQ(forgetful.position, 1);
  const auto top_left = check([&](const Tensor& piece, nn::KVCache& cache) {
    Tensor keep = tril(ones({piece.size(1), cache.length() + piece.size(1)}));
    return m(piece, Mask::keep(keep), &cache).output;
  });
  EXPECT_FALSE(top_left.ok);
}

TEST(CacheEquivalence, NamesDropout) {
  const auto report = nn::check_cache_equivalence(layer_in(f32, 8, 2, {.dropout = 0.5}), randn({2, 5, 8}));
  EXPECT_FALSE(report.ok);
  EXPECT_NE(report.message.find("not deterministic"), std::string::npos) << report.message;
}

}  // namespace
}  // namespace heed
