#include "support.h"

// What each layer computes, with gradients, against PyTorch; how it starts; what it refuses.

namespace heed {
namespace {

using test::Golden;
using test::message_of;
using test::near;
using test::values;

class Floats : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Layers, Floats, ::testing::Values(f32, f64), [](const auto& p) { return p.param == f32 ? "f32" : "f64"; });

TEST_P(Floats, SingleHeadMatchesPyTorch) {
  const DType dtype = GetParam();
  const double tol = test::tolerance(dtype);
  for (const char* name : {"single_head_plain", "single_head_causal_batched"}) {
    SCOPED_TRACE(name);
    const Golden golden(name);
    const Tensor W_q = golden.get("W_q");
    nn::SingleHeadSelfAttention head(W_q.size(0), W_q.size(1));
    nn::to(head, dtype);
    nn::load_state_dict(head, {{"W_q", W_q}, {"W_k", golden.get("W_k")}, {"W_v", golden.get("W_v")}});
    Tensor x = golden.get("x", dtype).clone().requires_grad_();
    const auto [output, weights] = head(x, golden.text("causal") == "True" ? Mask::causal() : Mask::none());
    EXPECT_TRUE(near(output, golden.get("out"), tol));
    EXPECT_TRUE(near(weights, golden.get("weights"), tol));
    sum(output * golden.get("g", dtype)).backward();
    EXPECT_TRUE(near(x.grad(), golden.get("dx"), tol));
    EXPECT_TRUE(near(head.W_q.grad(), golden.get("dW_q"), tol));
    EXPECT_TRUE(near(head.W_k.grad(), golden.get("dW_k"), tol));
    EXPECT_TRUE(near(head.W_v.grad(), golden.get("dW_v"), tol));
  }
}

TEST_P(Floats, EmbeddingMatchesPyTorch) {
  const DType dtype = GetParam();
  const Golden golden("embedding");
  nn::Embedding table(7, 5);
  nn::to(table, dtype);
  nn::load_state_dict(table, {{"weight", golden.get("weight")}});
  const Tensor out = table(golden.get("ids"));
  EXPECT_TRUE(near(out, golden.get("out"), test::tolerance(dtype)));
  sum(out * golden.get("g", dtype)).backward();
  EXPECT_TRUE(near(table.weight.grad(), golden.get("dweight"), test::tolerance(dtype)));
}

TEST_P(Floats, LayerNormMatchesPyTorch) {
  const DType dtype = GetParam();
  const Golden golden("layer_norm");
  nn::LayerNorm norm(10, golden.number("eps"));
  nn::to(norm, dtype);
  nn::load_state_dict(norm, {{"weight", golden.get("weight")}, {"bias", golden.get("bias")}});
  Tensor x = golden.get("x", dtype).clone().requires_grad_();
  const Tensor out = norm(x);
  EXPECT_TRUE(near(out, golden.get("out"), test::tolerance(dtype)));
  sum(out * golden.get("g", dtype)).backward();
  EXPECT_TRUE(near(x.grad(), golden.get("dx"), test::tolerance(dtype)));
  EXPECT_TRUE(near(norm.weight.grad(), golden.get("dweight"), test::tolerance(dtype)));
  EXPECT_TRUE(near(norm.bias.grad(), golden.get("dbias"), test::tolerance(dtype)));
}

TEST(Gradients, OfEveryLayer) {
  const auto check = [](auto layer, const auto& output, Tensor x) {
    nn::to(layer, f64);
    NamedTensors inputs = nn::named_parameters(layer);
    if (detail::is_float(x.dtype())) inputs.emplace_back("x", x.requires_grad_());
    const GradcheckReport report = gradcheck([&] { return output(layer, x); }, inputs);
    EXPECT_TRUE(report.ok) << report.message;
  };
  const auto plain = [](auto& layer, const Tensor& x) { return layer(x); };
  const Tensor x = randn({2, 3, 6}, f64);
  check(nn::Linear(6, 4), plain, x);
  check(nn::Linear(6, 4, false), plain, x);
  check(nn::LayerNorm(6), plain, x);
  check(nn::Embedding(5, 4), plain, tensor({{1, 4}, {1, 0}}, i64));
  check(nn::Sequential(nn::Linear(6, 4), heed::tanh, nn::Linear(4, 2)), plain, x);
  check(
      nn::SingleHeadSelfAttention(6, 4), [](auto& head, const Tensor& t) { return head(t, Mask::causal()).output; }, x);
  check(
      test::MultiHeadSelfAttention(6, 2), [](auto& m, const Tensor& t) { return m(t, Mask::causal()).output; }, x);
}

// Linear

TEST(Linear, IsXTimesTheTransposedWeightPlusBias) {
  nn::Linear m(3, 2);
  nn::load_state_dict(m, {{"weight", tensor({{1, 2, 3}, {4, 5, 6}})}, {"bias", tensor({10, 20})}});
  EXPECT_EQ(values(m(tensor({{1, 0, -1}, {1, 1, 1}}))), (std::vector<double>{8, 18, 16, 35}));
  EXPECT_EQ(m(zeros({4, 5, 3})).shape(), (Dims{4, 5, 2}));
  EXPECT_EQ(values(m(zeros({3}))), (std::vector<double>{10, 20}));
  m.bias = {};
  EXPECT_EQ(values(m(ones({3}))), (std::vector<double>{6, 15}));
}

TEST(Linear, StartsUniformWithinOneOverTheRootOfIn) {
  manual_seed(1);
  const auto spread = [](const Tensor& t) { return std::sqrt(var(t.to(f64)).item<double>()); };
  const auto bound = [](const Tensor& t) { return max(abs(t)).item<float>(); };
  const nn::Linear wide(100, 400), tall(400, 100);
  EXPECT_LE(bound(wide.weight), 0.1f);
  EXPECT_GT(bound(wide.weight), 0.0999f);
  EXPECT_NEAR(spread(wide.weight), 0.0577, 0.001);
  EXPECT_LE(bound(wide.bias), 0.1f);
  EXPECT_LE(bound(tall.weight), 0.05f);
  EXPECT_NEAR(spread(tall.weight), 0.0577 / 2, 0.0005);
  EXPECT_NEAR(mean(wide.weight).item<double>(), 0, 0.002);
  EXPECT_NE(values(wide.weight), values(nn::Linear(100, 400).weight));
  manual_seed(1);
  EXPECT_EQ(values(wide.weight), values(nn::Linear(100, 400).weight)) << "the same seed, the same layer";
}

TEST(Linear, TakesNoInputsAndNoOutputs) {
  nn::Linear m(0, 2);
  EXPECT_EQ(values(m.bias), (std::vector<double>{0, 0}));
  nn::load_state_dict(m, {{"weight", zeros({2, 0})}, {"bias", tensor({7, 8})}});
  const Tensor out = m(zeros({2, 0}));
  EXPECT_EQ(values(out), (std::vector<double>{7, 8, 7, 8}));
  sum(out).backward();
  EXPECT_EQ(m.weight.grad().shape(), (Dims{2, 0}));
  EXPECT_EQ(values(m.bias.grad()), (std::vector<double>{2, 2}));
  EXPECT_EQ(nn::Linear(3, 0)(zeros({2, 3})).shape(), (Dims{2, 0}));
  EXPECT_NE(message_of<ShapeError>([] { nn::Linear(-1, 2); }).find("Linear"), std::string::npos);
  EXPECT_THROW(nn::Linear(2, 3)(zeros({2, 4})), ShapeError);
  EXPECT_THROW(nn::Linear(2, 3)(zeros({2, 2}, f64)), DTypeError);
}

// SingleHeadSelfAttention

TEST(SingleHead, TakesMasksAndOptionsByAnyName) {
  manual_seed(2);
  const nn::SingleHeadSelfAttention head(6, 4);
  const Tensor x = randn({2, 5, 6});
  const Tensor keep = gt(tril(ones({5, 5})), 0);
  const std::vector<double> open = values(head(x).output), causal = values(head(x, Mask::causal()).output);
  EXPECT_NE(open, causal);
  EXPECT_EQ(values(head(x, {}).output), open);
  EXPECT_EQ(values(head(x, Mask::none()).output), open);
  EXPECT_EQ(values(head(x, keep).output), causal) << "a boolean tensor is a mask";
  EXPECT_EQ(values(head(x, Mask::keep(tril(ones({5, 5})))).output), causal);
  EXPECT_EQ(values(head(x, {.mask = Mask::causal()}).output), causal);
  EXPECT_FALSE(head(x, {.need_weights = false}).weights.defined());
  const AttentionOptions options{.mask = Mask::causal(), .scale = 0.0};
  const auto [out, weights] = head(x, options);
  EXPECT_NEAR(weights[1][4][0].item<double>(), 0.2, 1e-6);
  EXPECT_NE(message_of<DTypeError>([&] { head(x, tril(ones({5, 5}))); }).find("Mask::keep"), std::string::npos);
}

TEST(SingleHead, HasTheShapesOfTheLesson) {
  const nn::SingleHeadSelfAttention head(128, 64, nn::Init::lesson);
  const auto [out, weights] = head(randn({5, 128}));
  EXPECT_EQ(out.shape(), (Dims{5, 64}));
  EXPECT_EQ(weights.shape(), (Dims{5, 5}));
  for (double row : values(sum(weights, 1))) EXPECT_NEAR(row, 1, 1e-6);
}

TEST(SingleHead, StartsAsTold) {
  manual_seed(3);
  const auto spread = [](const Tensor& t) { return std::sqrt(var(t.to(f64)).item<double>()); };
  const nn::SingleHeadSelfAttention trains(128, 64), lesson(128, 64, nn::Init::lesson);
  const double bound = std::sqrt(6.0 / (128 + 64));
  for (const Tensor& w : {trains.W_q, trains.W_k, trains.W_v}) {
    EXPECT_LE(max(abs(w)).item<double>(), bound + 1e-7);
    EXPECT_NEAR(spread(w), bound / std::sqrt(3.0), 0.003);
  }
  for (const Tensor& w : {lesson.W_q, lesson.W_k, lesson.W_v}) EXPECT_NEAR(spread(w), 1, 0.03);
  EXPECT_NE(values(trains.W_q), values(trains.W_k));
}

TEST(SingleHead, NamesTheSizesThatDoNotFit) {
  const nn::SingleHeadSelfAttention head(6, 4);
  const std::string text = message_of<ShapeError>([&] { head(zeros({5, 7})); });
  EXPECT_NE(text.find("d_model=6"), std::string::npos) << text;
  EXPECT_NE(text.find("(5, 7)"), std::string::npos) << text;
  EXPECT_THROW(head(zeros({6})), ShapeError);
  EXPECT_THROW(head(zeros({5, 6}, f64)), DTypeError);
  EXPECT_THROW(head(zeros({5, 6}), Mask::keep(ones({4, 4}))), ShapeError);
  EXPECT_THROW(nn::SingleHeadSelfAttention(6, -4), ShapeError);
}

TEST(SingleHead, TakesEmptyBatchesAndSequences) {
  const nn::SingleHeadSelfAttention head(6, 4);
  EXPECT_EQ(head(zeros({0, 5, 6})).output.shape(), (Dims{0, 5, 4}));
  EXPECT_EQ(head(zeros({2, 0, 6})).output.shape(), (Dims{2, 0, 4}));
}

// The others

TEST(Embedding, StartsStandardNormalAndRefusesBadIds) {
  manual_seed(4);
  const nn::Embedding table(1000, 16);
  EXPECT_NEAR(var(table.weight).item<double>(), 1, 0.03);
  EXPECT_NEAR(mean(table.weight).item<double>(), 0, 0.03);
  EXPECT_THROW(table(tensor({1000}, i64)), IndexError);
  EXPECT_THROW(table(tensor({-1}, i64)), IndexError);
  EXPECT_EQ(table(tensor(3, i64)).shape(), (Dims{16}));
}

TEST(LayerNorm, RunsOverAllOfItsDims) {
  nn::LayerNorm norm(Dims{2, 3});
  const Tensor out = norm(randn({4, 2, 3}));
  for (double m : values(mean(out, {1, 2}))) EXPECT_NEAR(m, 0, 1e-6);
  EXPECT_THROW(norm(zeros({3, 2})), ShapeError);
  EXPECT_THROW(nn::LayerNorm(4, -1e-5), Error);
  EXPECT_THROW(nn::LayerNorm(4, std::nan("")), Error);
}

TEST(Dropout, OfEverythingIsZero) {
  nn::Dropout drop(1);
  Tensor x = tensor({1, -2, 3}).requires_grad_();
  const Tensor y = drop(x);
  EXPECT_EQ(values(y), (std::vector<double>{0, 0, 0}));
  y.backward(ones({3}));
  EXPECT_EQ(values(x.grad()), (std::vector<double>{0, 0, 0}));
  for (double p : {-0.1, 1.1, std::nan("")}) EXPECT_THROW(nn::Dropout{p}, Error) << p;
}

TEST(Dropout, WorksInTrainingOnly) {
  manual_seed(5);
  nn::Dropout drop(0.25);
  const Tensor x = ones({10000});
  const std::vector<double> y = values(drop(x));
  const auto zeros = std::count(y.begin(), y.end(), 0.0);
  EXPECT_NEAR(static_cast<double>(zeros), 2500, 150);
  EXPECT_NEAR(*std::max_element(y.begin(), y.end()), 1 / 0.75, 1e-6);
  nn::train(drop, false);
  const RngState state = rng_state();
  EXPECT_EQ(drop(x).id(), x.id());
  EXPECT_EQ(rng_state(), state) << "nothing was drawn";
}

TEST(Sequential, HandsOnWhatEachReturns) {
  const nn::Linear a(3, 4), b(4, 2);
  const nn::Sequential all(a, relu, b, [](const Tensor& t) { return t * 2; });
  const Tensor x = randn({5, 3});
  EXPECT_EQ(values(all(x)), values(b(relu(a(x))) * 2));
  const nn::Sequential nested(all, nn::Linear(2, 1));
  EXPECT_EQ(nested(x).shape(), (Dims{5, 1}));
  EXPECT_EQ(nn::named_parameters(nested)[2].first, "0.2.weight");
  EXPECT_EQ(nn::Sequential(nn::Embedding(5, 3), nn::SingleHeadSelfAttention(3, 2))(tensor({1, 2}, i64)).weights.shape(), (Dims{2, 2}));
}

TEST(Layers, PointAtTheLineThatCalledThem) {
  const nn::Sequential all(nn::Linear(3, 4), nn::Linear(4, 2));
  const nn::SingleHeadSelfAttention head(3, 2);
  const Tensor bad = full({2, 3}, HUGE_VAL);
  const AnomalyMode anomaly;
  const int line = __LINE__ + 1;
  const std::string text = message_of<GradError>([&] { all(bad - bad); }), here = "layers_test.cpp:" + std::to_string(line);
  EXPECT_NE(text.find(here), std::string::npos) << text;
  const std::string of_head = message_of<GradError>([&] { head(bad); });
  EXPECT_NE(of_head.find("layers_test.cpp:" + std::to_string(line + 2)), std::string::npos) << of_head;
}

}  // namespace
}  // namespace heed
