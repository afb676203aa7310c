#include "support.h"

// Several heads at once: against PyTorch, against single heads, by hand, and what is refused.

namespace heed {
namespace {

using test::Golden;
using test::message_of;
using test::near;
using test::values;

class MultiHeadFloats : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(MultiHead, MultiHeadFloats, ::testing::Values(f32, f64), [](const auto& p) { return p.param == f32 ? "f32" : "f64"; });

/// In f64, with biases that are not 0, so that they count.
nn::MultiHeadAttention in_f64(Index embed_dim, Index num_heads, const nn::MultiHeadAttentionOptions& options = {}) {
  nn::MultiHeadAttention m(embed_dim, num_heads, options);
  nn::to(m, f64);
  const NoGrad off;
  for (auto& [name, p] : nn::named_parameters(m))
    if (name.ends_with("bias")) Tensor(p).copy_(randn(p.shape(), f64));
  return m;
}

void expect_gradients(const nn::MultiHeadAttention& m, const std::function<Tensor()>& output, NamedTensors inputs) {
  for (const auto& named : nn::named_parameters(m)) inputs.push_back(named);
  const GradcheckReport report = gradcheck(output, inputs);
  EXPECT_TRUE(report.ok) << report.message;
}

/// The sequence (B, T, E) swapped in its first two positions.
Tensor swapped(const Tensor& x) { return cat({slice(x, 1, 1, 2), slice(x, 1, 0, 1), slice(x, 1, 2, x.size(1))}, 1); }

TEST_P(MultiHeadFloats, MatchesPyTorch) {
  const DType dtype = GetParam();
  const double tol = test::tolerance(dtype);
  for (const char* file : {"mha_plain", "mha_causal"}) {
    for (const Kernel kernel : {Kernel::automatic, Kernel::composed, Kernel::tiled}) {
      SCOPED_TRACE(file);
      const Golden golden(file);
      Tensor x = golden.get("x", dtype).clone().requires_grad_();
      nn::MultiHeadAttention m(x.size(-1), static_cast<Index>(golden.number("num_heads")));
      nn::to(m, dtype);
      std::map<std::string, Tensor> state;
      for (const auto& [name, p] : nn::named_parameters(m)) state[name] = golden.get("param." + name);
      nn::load_state_dict(m, state);
      const Mask mask = golden.text("causal") == "True" ? Mask::causal() : Mask::none();
      const auto [output, weights] = m(x, {.mask = mask, .kernel = kernel});
      EXPECT_TRUE(near(output, golden.get("out"), tol));
      EXPECT_TRUE(near(weights, golden.get("weights"), tol));
      EXPECT_TRUE(near(m(x, {.mask = mask, .need_weights = false, .kernel = kernel}).output, golden.get("out"), tol));
      EXPECT_TRUE(near(m(x, x.clone(), x.clone(), mask).output, golden.get("out"), tol)) << "three inputs that are equal";
      sum(output * golden.get("g", dtype)).backward();
      EXPECT_TRUE(near(x.grad(), golden.get("dx"), tol));
      // Scores do not change with the bias of the keys: its gradient is rounding around 0, so all are held to the largest of the tensor.
      for (const auto& [name, p] : nn::named_parameters(m)) EXPECT_TRUE(near(p.grad(), golden.get("grad." + name), tol)) << name;
      EXPECT_TRUE(nn::missing_grads(m).empty());
    }
  }
}

TEST(MultiHead, HasPyTorchsNames) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(test::listed(nn::MultiHeadAttention(16, 4)),
            (Names{"in_proj_weight (48, 16)", "in_proj_bias (48,)", "out_proj.weight (16, 16)", "out_proj.bias (16,)"}));
  EXPECT_EQ(test::listed(nn::MultiHeadAttention(16, 4, {.bias = false})), (Names{"in_proj_weight (48, 16)", "out_proj.weight (16, 16)"}));
  EXPECT_EQ(test::listed(nn::MultiHeadAttention(16, 4, {.kdim = 6, .vdim = 10})),
            (Names{"q_proj_weight (16, 16)", "k_proj_weight (16, 6)", "v_proj_weight (16, 10)", "in_proj_bias (48,)", "out_proj.weight (16, 16)",
                   "out_proj.bias (16,)"}));
  EXPECT_EQ(test::listed(nn::MultiHeadAttention(16, 4, {.num_kv_heads = 2})),
            (Names{"q_proj_weight (16, 16)", "k_proj_weight (8, 16)", "v_proj_weight (8, 16)", "in_proj_bias (32,)", "out_proj.weight (16, 16)",
                   "out_proj.bias (16,)"}));
}

TEST(MultiHead, StartsAsPyTorch) {
  manual_seed(1);
  const nn::MultiHeadAttention m(64, 4), apart(64, 4, {.kdim = 32});
  const auto bound = [](const Tensor& t) { return max(abs(t)).item<double>(); };
  EXPECT_NEAR(bound(m.in_proj_weight), std::sqrt(6.0 / 256), 1e-3) << "Xavier over the packed matrix";
  EXPECT_NEAR(bound(apart.q_proj_weight), std::sqrt(6.0 / 128), 1e-3);
  EXPECT_NEAR(bound(apart.k_proj_weight), std::sqrt(6.0 / 96), 1e-3);
  EXPECT_NEAR(bound(m.out_proj.weight), 1.0 / 8, 1e-3);
  EXPECT_EQ(bound(m.in_proj_bias), 0);
  EXPECT_EQ(bound(m.out_proj.bias), 0);
  EXPECT_TRUE(m.in_proj_bias.requires_grad() && m.out_proj.bias.requires_grad() && m.in_proj_weight.requires_grad());
}

TEST(MultiHead, GoesThroughAFile) {
  const test::TemporaryFile file;
  const nn::MultiHeadAttention m = in_f64(8, 2), other = in_f64(8, 2);
  nn::MultiHeadAttention copy = nn::clone(other);
  const Tensor x = randn({2, 3, 8}, f64);
  nn::save(m, file.path());
  nn::load(copy, file.path());
  EXPECT_EQ(values(copy(x).output), values(m(x).output));
  EXPECT_NE(values(other(x).output), values(m(x).output));
}

/// Heads are swapped in front of the positions, and back: the numbers of a case in which both swaps show.
TEST(MultiHead, SplitsAndJoinsHeadsByTheAxisSwap) {
  nn::MultiHeadAttention m(4, 2);
  nn::to(m, f64);
  const Tensor one = eye(4, f64);
  nn::load_state_dict(
      m, {{"in_proj_weight", cat({one, one, one})}, {"in_proj_bias", zeros({12})}, {"out_proj.weight", one}, {"out_proj.bias", zeros({4})}});
  const auto [output, weights] = m(tensor({{{1, 0, 0, 1}, {0, 1, 1, 1}}}, f64));
  const double p = .66976155, q = .33023845;
  EXPECT_TRUE(near(weights, tensor({{{{p, q}, {q, p}}, {{.5, .5}, {q, p}}}}, f64), 1e-8));
  EXPECT_TRUE(near(output, tensor({{{p, q, .5, 1}, {q, p, p, 1}}}, f64), 1e-8));
  EXPECT_TRUE(near(mean(weights, 1), tensor({{{.58488077, .41511923}, {q, p}}}, f64), 1e-8));
}

/// h single heads, side by side and projected, are the same layer.
TEST(MultiHead, IsSingleHeadsSideBySide) {
  manual_seed(2);
  const Index E = 12, H = 3, d = E / H;
  const nn::MultiHeadAttention m = [&] {
    nn::MultiHeadAttention made(E, H, {.bias = false});
    nn::to(made, f64);
    return made;
  }();
  const Tensor x = randn({2, 7, E}, f64);
  for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::causal() & Mask::window(3), Mask::lengths({7, 4}), Mask::bias(randn({7, 7}, f64))}) {
    std::vector<Tensor> outputs, weights;
    for (Index h = 0; h < H; ++h) {
      nn::SingleHeadSelfAttention head(E, d);
      nn::to(head, f64);
      const auto part = [&](Index which) { return transpose(slice(m.in_proj_weight.detach(), 0, which * E + h * d, which * E + (h + 1) * d), 0, 1); };
      nn::load_state_dict(head, {{"W_q", part(0)}, {"W_k", part(1)}, {"W_v", part(2)}});
      const Attention a = head(x, mask);
      outputs.push_back(a.output), weights.push_back(a.weights);
    }
    const Attention all = m(x, mask);
    EXPECT_TRUE(near(all.output, matmul(cat(outputs, -1), transpose(m.out_proj.weight, 0, 1)), 1e-12)) << mask;
    EXPECT_TRUE(near(all.weights, stack(weights, 1), 1e-12)) << mask;
    EXPECT_TRUE(near(m(x, {.mask = mask, .need_weights = false}).output, all.output, 1e-12)) << mask;
  }
}

TEST(MultiHead, GradientsOfEveryForm) {
  manual_seed(3);
  {
    const nn::MultiHeadAttention m = in_f64(6, 2);
    Tensor x = randn({2, 3, 6}, f64).requires_grad_();
    expect_gradients(m, [&] { return m(x, Mask::causal()).output; }, {{"x", x}});
    expect_gradients(m, [&] { return m(x, {.mask = Mask::lengths({3, 2}), .need_weights = false}).output; }, {{"x", x}});
    const auto unweighted = [&] { return m(x, {.mask = Mask::causal(), .need_weights = false}).output; };
    const GradcheckReport second =
        gradgradcheck(unweighted, {{"x", x}, {"in_proj_weight", m.in_proj_weight}}, {.mode = GradcheckMode::directional()});
    EXPECT_TRUE(second.ok) << second.message;
    const auto through_weights = [&] { return m(x).weights; };
    const GradcheckReport report = gradcheck(through_weights, {{"x", x}, {"in_proj_weight", m.in_proj_weight}});
    EXPECT_TRUE(report.ok) << report.message;
  }
  {
    const nn::MultiHeadAttention m = in_f64(4, 2, {.kdim = 3, .vdim = 5});
    Tensor q = randn({2, 2, 4}, f64).requires_grad_(), k = randn({2, 3, 3}, f64).requires_grad_(), v = randn({2, 3, 5}, f64).requires_grad_();
    expect_gradients(m, [&] { return m(q, k, v).output; }, {{"q", q}, {"k", k}, {"v", v}});
  }
  for (const bool need_weights : {true, false}) {
    const nn::MultiHeadAttention m = in_f64(8, 4, {.num_kv_heads = 2});
    Tensor x = randn({2, 3, 8}, f64).requires_grad_(), bias = randn({1, 4, 3, 3}, f64).requires_grad_();
    const Mask mask = Mask::causal() & Mask::bias(bias);
    expect_gradients(m, [&] { return m(x, {.mask = mask, .need_weights = need_weights}).output; }, {{"x", x}, {"bias", bias}});
  }
}

TEST(MultiHead, CrossAttention) {
  manual_seed(4);
  nn::MultiHeadAttention m(6, 2);
  nn::to(m, f64);
  const Tensor q = randn({2, 4, 6}, f64), k = randn({2, 9, 6}, f64), v = randn({2, 9, 6}, f64);
  const auto [output, weights] = m(q, k, v, Mask::lengths({9, 5}));
  EXPECT_EQ(output.shape(), (Dims{2, 4, 6}));
  EXPECT_EQ(weights.shape(), (Dims{2, 2, 4, 9}));
  EXPECT_EQ(max(abs(slice(weights[1], -1, 5, 9))).item<double>(), 0);
  EXPECT_TRUE(near(slice(output, 0, 1, 2), m(slice(q, 0, 1, 2), slice(slice(k, 0, 1, 2), 1, 0, 5), slice(slice(v, 0, 1, 2), 1, 0, 5)).output, 1e-12))
      << "keys beyond the length are as good as absent";
  EXPECT_FALSE(near(m(q, v, k).output, m(q, k, v).output, 1e-3)) << "keys are not values";
}

TEST(MultiHead, OneSequenceWithoutABatch) {
  const nn::MultiHeadAttention m = in_f64(6, 3);
  const Tensor x = randn({5, 6}, f64);
  const Attention one = m(x, Mask::causal()), batch = m(unsqueeze(x, 0), Mask::causal());
  EXPECT_EQ(one.output.shape(), (Dims{5, 6}));
  EXPECT_EQ(one.weights.shape(), (Dims{3, 5, 5}));
  EXPECT_EQ(values(one.output), values(batch.output));
  EXPECT_EQ(values(one.weights), values(batch.weights));
}

/// Shared keys and values are those of a layer that has them once for each query head.
TEST(MultiHead, GroupedHeadsAreRepeatedHeads) {
  manual_seed(5);
  const Index E = 12, H = 6, d = 2;
  for (const Index kv : {Index{1}, Index{2}, Index{3}}) {
    const nn::MultiHeadAttention shared = in_f64(E, H, {.num_kv_heads = kv});
    nn::MultiHeadAttention full = in_f64(E, H);
    const auto repeat = [&](const Tensor& rows) {  // of each head H / kv times
      const Index in = rows.numel() / (kv * d);
      return reshape(expand(reshape(rows.detach(), {kv, 1, d, in}), {kv, H / kv, d, in}), {E, in});
    };
    const auto part = [&](Index begin, Index size) { return slice(shared.in_proj_bias.detach(), 0, begin, begin + size); };
    nn::load_state_dict(full, {{"in_proj_weight", cat({shared.q_proj_weight.detach(), repeat(shared.k_proj_weight), repeat(shared.v_proj_weight)})},
                               {"in_proj_bias", cat({part(0, E), flatten(repeat(part(E, kv * d))), flatten(repeat(part(E + kv * d, kv * d)))})},
                               {"out_proj.weight", shared.out_proj.weight.detach()},
                               {"out_proj.bias", shared.out_proj.bias.detach()}});
    const Tensor x = randn({2, 5, E}, f64);
    for (const Mask& mask :
         {Mask::none(), Mask::causal(), Mask::causal() & Mask::alibi(H), Mask::lengths({5, 2}) & Mask::window(2),
          Mask::keep(gt(rand({2, 1, 5, 5}), 0.3)), Mask::bias(randn({2, H, 5, 5}, f64)) & Mask::causal(), Mask::keep(gt(rand({5, 5}), 0.3))}) {
      const Attention a = shared(x, mask), b = full(x, mask);
      EXPECT_TRUE(near(a.output, b.output, 1e-12)) << mask << ", " << kv << " heads of keys";
      EXPECT_TRUE(near(a.weights, b.weights, 1e-12)) << mask << ", " << kv << " heads of keys";
      EXPECT_TRUE(near(shared(x, {.mask = mask, .need_weights = false}).output, b.output, 1e-12)) << mask;
    }
  }
}

/// With one head and weights that change nothing the layer is attention over turned queries and keys.
TEST(MultiHead, TurnsQueriesAndKeysToTheirPositions) {
  manual_seed(8);
  for (const nn::RotaryPairs pairs : {nn::RotaryPairs::neighbors, nn::RotaryPairs::halves}) {
    nn::MultiHeadAttention m(4, 1, {.bias = false, .rotary = nn::RotaryOptions{.base = 100, .pairs = pairs}});
    nn::to(m, f64);
    const Tensor one = eye(4, f64), x = randn({2, 5, 4}, f64), turned = nn::rotary(x, {.base = 100, .pairs = pairs});
    nn::load_state_dict(m, {{"in_proj_weight", cat({one, one, one})}, {"out_proj.weight", one}});
    const Attention want = scaled_dot_product_attention(turned, turned, x, {.mask = Mask::causal()});
    EXPECT_TRUE(near(m(x, Mask::causal()).output, want.output, 1e-12));
    const Tensor last = slice(x, 1, 3, 5);
    EXPECT_TRUE(near(m(last, x, x, Mask::causal(3)).output, slice(want.output, 1, 3, 5), 1e-12)) << "queries stand where the mask says";
  }
  const nn::MultiHeadAttention m = in_f64(12, 3, {.num_kv_heads = 1, .rotary = nn::RotaryOptions{}});
  Tensor x = randn({2, 4, 12}, f64);
  const auto report = nn::check_cache_equivalence(m, randn({2, 9, 12}, f64));
  EXPECT_TRUE(report.ok) << report.message;
  expect_gradients(m, [&] { return m(x, Mask::causal()).output; }, {{"x", x.requires_grad_()}});
  EXPECT_FALSE(near(m(x).output, swapped(m(swapped(x)).output), 1e-6)) << "order counts";
  EXPECT_THROW(nn::MultiHeadAttention(6, 2, {.rotary = nn::RotaryOptions{}}), ShapeError);
}

TEST(MultiHead, MasksOfBatchOrOfHeads) {
  manual_seed(6);
  const nn::MultiHeadAttention m = in_f64(8, 2);
  const Tensor x = randn({2, 3, 8}, f64);
  const Tensor by_batch = gt(rand({2, 1, 3, 3}), 0.5), by_head = gt(rand({1, 2, 3, 3}), 0.5);
  const Attention batch = m(x, by_batch), head = m(x, by_head);
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 2; ++h) {
      EXPECT_EQ(values(gt(batch.weights[b][h], 0)), values(by_batch[b][0]));
      EXPECT_EQ(values(gt(head.weights[b][h], 0)), values(by_head[0][h]));
    }
  for (const Mask& mask : {Mask::keep(ones({2, 3, 3})), Mask::bias(zeros({2, 3, 3}, f64))}) {
    const std::string text = message_of<ShapeError>([&] { m(x, mask); });
    EXPECT_NE(text.find("rank 3"), std::string::npos) << text;
    EXPECT_NE(text.find("could be confused"), std::string::npos) << text;
  }
}

TEST(MultiHead, DropsWeightsInTrainingOnly) {
  manual_seed(7);
  nn::MultiHeadAttention m(8, 2, {.dropout = 0.5});
  const nn::MultiHeadAttention plain = [&] {
    nn::MultiHeadAttention p(8, 2);
    nn::load_state_dict(p, nn::state_dict(m));
    return p;
  }();
  const Tensor x = randn({2, 6, 8});
  const Attention first = m(x), second = m(x);
  EXPECT_NE(values(first.output), values(second.output));
  EXPECT_EQ(values(first.weights), values(plain(x).weights)) << "returned weights are those before";
  nn::train(m, false);
  const RngState state = rng_state();
  EXPECT_EQ(values(m(x).output), values(plain(x).output));
  EXPECT_EQ(rng_state(), state) << "nothing was drawn";
  EXPECT_NE(values(m(x, {.dropout_p = 0.5, .training = true}).output), values(plain(x).output)) << "options name another";
}

TEST(MultiHead, NamesWhatDoesNotFit) {
  const std::string heads = message_of<ShapeError>([] { nn::MultiHeadAttention(10, 4); });
  EXPECT_NE(heads.find("embed_dim=10"), std::string::npos) << heads;
  EXPECT_NE(heads.find("num_heads=4"), std::string::npos) << heads;
  const std::string groups = message_of<ShapeError>([] { nn::MultiHeadAttention(12, 6, {.num_kv_heads = 4}); });
  EXPECT_NE(groups.find("num_heads=6"), std::string::npos) << groups;
  EXPECT_NE(groups.find("num_kv_heads=4"), std::string::npos) << groups;
  EXPECT_THROW(nn::MultiHeadAttention(8, 0), ShapeError);
  EXPECT_THROW(nn::MultiHeadAttention(-8, 2), ShapeError);
  EXPECT_THROW(nn::MultiHeadAttention(8, 2, {.num_kv_heads = 0}), ShapeError);
  EXPECT_THROW(nn::MultiHeadAttention(8, 2, {.dropout = 1.5}), Error);
  const nn::MultiHeadAttention m(8, 2), other(8, 2, {.kdim = 3});
  EXPECT_THROW(m(zeros({2, 3, 7})), ShapeError);
  EXPECT_THROW(m(zeros({8})), ShapeError);
  EXPECT_THROW(m(zeros({1, 2, 3, 8})), ShapeError);
  EXPECT_THROW(m(zeros({2, 3, 8}), zeros({2, 4, 8}), zeros({2, 5, 8})), ShapeError);
  EXPECT_THROW(m(zeros({2, 3, 8}), zeros({3, 4, 8}), zeros({3, 4, 8})), ShapeError);
  EXPECT_THROW(m(zeros({2, 3, 8}, f64)), DTypeError);
  EXPECT_THROW(m(zeros({2, 3, 8}), ones({3, 3})), DTypeError) << "a float tensor is not a mask";
  EXPECT_NE(message_of<ShapeError>([&] { other(zeros({2, 3, 8})); }).find("kdim=3"), std::string::npos);
}

TEST(MultiHead, TakesEmptyBatchesAndSequences) {
  const nn::MultiHeadAttention m = in_f64(8, 2), grouped = in_f64(8, 2, {.num_kv_heads = 1});
  for (const nn::MultiHeadAttention* layer : {&m, &grouped}) {
    EXPECT_EQ((*layer)(zeros({0, 3, 8}, f64)).output.shape(), (Dims{0, 3, 8}));
    EXPECT_EQ((*layer)(zeros({2, 0, 8}, f64)).weights.shape(), (Dims{2, 2, 0, 0}));
    const Tensor out = (*layer)(ones({2, 3, 8}, f64), zeros({2, 0, 8}, f64), zeros({2, 0, 8}, f64)).output;
    EXPECT_TRUE(near(out, expand(layer->out_proj.bias, {2, 3, 8}), 0)) << "attention to nothing";
  }
}

TEST(MultiHead, SeesNoFutureAndPointsAtItsCaller) {
  const nn::MultiHeadAttention m = in_f64(8, 2);
  const auto report = nn::check_causality([&](const Tensor& x) { return m(x, Mask::causal()).output; }, randn({2, 5, 8}, f64));
  EXPECT_TRUE(report.ok) << report.message;
  const Tensor bad = full({2, 3, 8}, HUGE_VAL, f64);
  const AnomalyMode anomaly;
  const std::string text = message_of<GradError>([&] { m(bad); });
  EXPECT_NE(text.find("multi_head_attention_test.cpp"), std::string::npos) << text;
}

}  // namespace
}  // namespace heed
