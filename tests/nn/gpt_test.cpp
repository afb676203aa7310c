#include "support.h"

// GPT: against PyTorch, names and start, gradients, causality, caches, and what is refused.

namespace heed {
namespace {

using test::Golden;
using test::message_of;
using test::near;
using test::values;

constexpr nn::GPTConfig tiny{.vocab_size = 11, .block_size = 8, .n_layer = 2, .n_head = 2, .n_embd = 8, .dropout = 0};

/// Far enough from its start that every part counts.
nn::GPT model_in(DType dtype, const nn::GPTConfig& config = tiny, double scale = 0.3) {
  nn::GPT m(config);
  nn::to(m, dtype);
  const NoGrad off;
  for (auto& [name, p] : nn::named_parameters(m)) Tensor(p).copy_(randn(p.shape(), dtype) * scale);
  return m;
}

Tensor loss_of(const nn::GPT& m, const Tensor& idx, const Tensor& targets) {
  const Tensor logits = m(idx);
  return cross_entropy(reshape(logits, {-1, logits.size(2)}), reshape(targets, {-1}));
}

class GPTFloats : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(GPT, GPTFloats, ::testing::Values(f32, f64), [](const auto& p) { return p.param == f32 ? "f32" : "f64"; });

nn::GPT golden_model(const Golden& golden, DType dtype) {
  const auto size = [&](const char* key) { return static_cast<Index>(golden.number(key)); };
  nn::GPT m({.vocab_size = size("vocab_size"),
             .block_size = size("block_size"),
             .n_layer = size("n_layer"),
             .n_head = size("n_head"),
             .n_embd = size("n_embd"),
             .dropout = 0});
  nn::to(m, dtype);
  std::map<std::string, Tensor> state;
  for (const auto& [name, p] : nn::named_parameters(m)) state[name] = golden.get("param." + name);
  nn::load_state_dict(m, state);
  return m;
}

TEST_P(GPTFloats, HasPyTorchsLogitsLossAndGradients) {
  const DType dtype = GetParam();
  const double tol = test::tolerance(dtype);
  const Golden golden("gpt_loss");
  const nn::GPT m = golden_model(golden, dtype);
  EXPECT_TRUE(near(m(golden.get("idx")), golden.get("logits"), tol));
  const Tensor loss = loss_of(m, golden.get("idx"), golden.get("targets"));
  EXPECT_TRUE(near(loss, golden.get("loss"), tol));
  loss.backward();
  EXPECT_TRUE(nn::missing_grads(m).empty());
  for (const auto& [name, p] : nn::named_parameters(m)) EXPECT_TRUE(near(p.grad(), golden.get("grad." + name), tol)) << name;
}

/// Twelve steps of AdamW with clipping. In f32 Adam divides by roots of tiny second moments, so that rounding grows with each step.
TEST_P(GPTFloats, TrainsAsPyTorch) {
  const DType dtype = GetParam();
  const Golden start("gpt_loss"), golden("gpt_adamw_after_12_steps");
  const nn::GPT m = golden_model(start, dtype);
  nn::AdamW opt(nn::named_parameters(m), {.lr = golden.number("lr"),
                                          .betas = {golden.number("beta1"), golden.number("beta2")},
                                          .eps = golden.number("eps"),
                                          .weight_decay = golden.number("weight_decay")});
  const std::vector<double> losses = values(golden.get("losses"));
  ASSERT_EQ(losses.size(), 12U);
  for (double want : losses) {
    opt.zero_grad();
    const Tensor loss = loss_of(m, golden.get("idx"), golden.get("targets"));
    EXPECT_NEAR(loss.item<double>(), want, (dtype == f64 ? 1e-9 : 1e-4) * want);
    loss.backward();
    nn::clip_grad_norm(nn::parameters(m), golden.number("clip_grad_norm"));
    opt.step();
  }
  for (const auto& [name, p] : nn::named_parameters(m)) {
    // The gradient of a key's bias is rounding around 0, which Adam scales up to whole steps.
    if (name.ends_with("c_attn.bias")) {
      for (const Index part : {0, 2})
        EXPECT_TRUE(near(slice(p, 0, part * 16, part * 16 + 16), slice(golden.get("param." + name), 0, part * 16, part * 16 + 16),
                         dtype == f64 ? 1e-8 : 5e-3))
            << name;
      continue;
    }
    EXPECT_TRUE(near(p, golden.get("param." + name), dtype == f64 ? 1e-8 : 2e-3)) << name;
  }
}

TEST(GPT, HasTheNamesOfPublishedCheckpoints) {
  const nn::GPT m({.vocab_size = 11, .block_size = 8, .n_layer = 1, .n_head = 2, .n_embd = 4});
  EXPECT_EQ(
      test::listed(m),
      (std::vector<std::string>{
          "transformer.wte.weight (11, 4)", "transformer.wpe.weight (8, 4)", "transformer.h.0.ln_1.weight (4,)", "transformer.h.0.ln_1.bias (4,)",
          "transformer.h.0.attn.c_attn.weight (12, 4)", "transformer.h.0.attn.c_attn.bias (12,)", "transformer.h.0.attn.c_proj.weight (4, 4)",
          "transformer.h.0.attn.c_proj.bias (4,)", "transformer.h.0.ln_2.weight (4,)", "transformer.h.0.ln_2.bias (4,)",
          "transformer.h.0.mlp.c_fc.weight (16, 4)", "transformer.h.0.mlp.c_fc.bias (16,)", "transformer.h.0.mlp.c_proj.weight (4, 16)",
          "transformer.h.0.mlp.c_proj.bias (4,)", "transformer.ln_f.weight (4,)", "transformer.ln_f.bias (4,)"}));
  const auto state = nn::state_dict(m);
  ASSERT_TRUE(state.contains("lm_head.weight"));
  EXPECT_EQ(state.at("lm_head.weight").id(), state.at("transformer.wte.weight").id());
  // GPT-2's smallest has 124439808 numbers, tied ones once; here by its formula, in small.
  EXPECT_EQ(nn::num_parameters(m), 11 * 4 + 8 * 4 + (12 * 4 * 4 + 13 * 4) + 2 * 4);
}

TEST(GPT, StartsAsGPT2) {
  manual_seed(5);
  const nn::GPT m({.vocab_size = 500, .block_size = 64, .n_layer = 8, .n_head = 4, .n_embd = 64});
  for (const auto& [name, p] : nn::named_parameters(m)) {
    const double mean_value = mean(p).item<double>(), deviation = std::sqrt(var(p).item<double>());
    if (name.find("ln_") != std::string::npos) {
      EXPECT_EQ(values(p), values(full(p.shape(), name.ends_with("weight") ? 1 : 0))) << name;
    } else if (name.ends_with("bias")) {
      EXPECT_EQ(values(p), values(zeros(p.shape()))) << name;
    } else {
      const double want = name.ends_with("c_proj.weight") ? 0.02 / 4 : 0.02;
      EXPECT_NEAR(deviation, want, 0.05 * want) << name;
      EXPECT_NEAR(mean_value, 0, 0.1 * want) << name;
      EXPECT_GT(max(abs(p)).item<double>(), 3 * want) << name << " is normal, not uniform";
    }
    EXPECT_TRUE(p.requires_grad()) << name;
  }
  // Knowing nothing costs log(vocab_size).
  const Tensor idx = randint(0, 500, {4, 64});
  EXPECT_NEAR(loss_of(m, idx, randint(0, 500, {4, 64})).item<double>(), std::log(500.0), 0.1);
}

TEST(GPT, GradientsOfTheLossByEveryParameter) {
  manual_seed(6);
  const nn::GPT m = model_in(f64);
  const Tensor idx = randint(0, 11, {2, 5}), targets = randint(0, 11, {2, 5});
  const auto loss = [&] { return loss_of(m, idx, targets); };
  for (const GradcheckMode& mode : {GradcheckMode::directional(), GradcheckMode::sampled(6)}) {
    const GradcheckReport report = gradcheck(loss, nn::named_parameters(m), {.mode = mode});
    EXPECT_TRUE(report.ok) << report.message;
  }
  const GradcheckReport second = gradgradcheck(loss, nn::named_parameters(m), {.mode = GradcheckMode::directional(1)});
  EXPECT_TRUE(second.ok) << second.message;
}

TEST(GPT, F32IsF64Rounded) {
  manual_seed(7);
  nn::GPT m = model_in(f32), exact = nn::clone(m);
  nn::to(exact, f64);
  const Tensor idx = randint(0, 11, {3, 8}), targets = randint(0, 11, {3, 8});
  EXPECT_TRUE(near(m(idx), exact(idx), 1e-5));
  loss_of(m, idx, targets).backward();
  loss_of(exact, idx, targets).backward();
  const auto want = nn::named_parameters(exact);
  std::size_t i = 0;
  for (const auto& [name, p] : nn::named_parameters(m)) EXPECT_TRUE(near(p.grad(), want[i++].second.grad(), 2e-5)) << name;
}

TEST(GPT, IsCausal) {
  manual_seed(8);
  const nn::GPT m = model_in(f64);
  const auto blocks = nn::check_causality(
      [&](Tensor x) {
        for (const nn::GPTBlock& block : m.transformer.h) x = block(x);
        return m.lm_head(m.transformer.ln_f(x));
      },
      randn({2, 6, 8}, f64));
  EXPECT_TRUE(blocks.ok) << blocks.message;
  // From tokens on: later ones change nothing, to the bit.
  const Tensor idx = randint(0, 11, {2, 8});
  for (Index t = 1; t < 8; ++t) {
    const Tensor other = cat({slice(idx, 1, 0, t), 10 - slice(idx, 1, t, 8)}, 1);
    EXPECT_EQ(values(slice(m(other), 1, 0, t)), values(slice(m(idx), 1, 0, t))) << t;
  }
}

TEST(GPT, PiecesWithCachesAreTheWhole) {
  manual_seed(9);
  for (const DType dtype : {f32, f64}) {
    const nn::GPT m = model_in(dtype);
    const nn::CacheReport report = nn::check_cache_equivalence(m, randint(0, 11, {2, 8}));
    EXPECT_TRUE(report.ok) << report.message;
  }
  nn::GPT dropping = model_in(f32, {.vocab_size = 11, .block_size = 8, .n_layer = 1, .n_head = 2, .n_embd = 8, .dropout = 0.5});
  EXPECT_FALSE(nn::check_cache_equivalence(dropping, randint(0, 11, {2, 8})).ok);
  nn::train(dropping, false);
  EXPECT_TRUE(nn::check_cache_equivalence(dropping, randint(0, 11, {2, 8})).ok);
}

TEST(GPT, DropsInTrainingOnly) {
  manual_seed(10);
  const nn::GPTConfig config{.vocab_size = 11, .block_size = 8, .n_layer = 1, .n_head = 2, .n_embd = 8, .dropout = 0.3};
  nn::GPT m = model_in(f32, config);
  const Tensor idx = randint(0, 11, {2, 8});
  EXPECT_NE(values(m(idx)), values(m(idx)));
  nn::train(m, false);
  EXPECT_EQ(values(m(idx)), values(m(idx)));
  // Each of the four places drops by itself.
  for (int place = 0; place < 4; ++place) {
    if (place == 0) m.transformer.drop.training = true;
    if (place == 1) m.transformer.h[0].attn.training = true;
    if (place == 2) m.transformer.h[0].attn.resid_dropout.training = true;
    if (place == 3) m.transformer.h[0].mlp.dropout.training = true;
    EXPECT_NE(values(m(idx)), values(m(idx))) << place;
    nn::train(m, false);
  }
}

TEST(GPT, KeepsNoWeights) {
  const nn::GPTConfig config{.vocab_size = 5, .block_size = 512, .n_layer = 1, .n_head = 1, .n_embd = 4, .dropout = 0};
  const nn::GPT m(config);
  // A matrix of 512 x 512 alone would hold a megabyte.
  EXPECT_LT(saved_bytes(m(randint(0, 5, {1, 512}))), 512 * 512 * 4);
}

TEST(GPT, GoesThroughAFileWithItsTie) {
  const test::TemporaryFile file;
  const nn::GPT m = model_in(f32);
  nn::GPT other(tiny);
  nn::save(m, file.path());
  nn::load(other, file.path());
  const Tensor idx = randint(0, 11, {2, 8});
  EXPECT_EQ(values(other(idx)), values(m(idx)));
  EXPECT_EQ(other.lm_head.weight.id(), other.transformer.wte.weight.id());
  const nn::GPT copy = nn::clone(other);
  EXPECT_EQ(copy.lm_head.weight.id(), copy.transformer.wte.weight.id());
  EXPECT_NE(copy.lm_head.weight.id(), other.lm_head.weight.id());
}

TEST(GPT, RefusesWhatMakesNoSense) {
  const auto with = [](auto change) {
    nn::GPTConfig c = tiny;
    change(c);
    return message_of<Error>([&] { nn::GPT{c}; });
  };
  EXPECT_EQ(with([](auto& c) { c.n_head = 3; }), "GPT: n_head does not divide n_embd: n_embd=8, n_head=3");
  EXPECT_EQ(with([](auto& c) { c.vocab_size = 0; }), "GPT: vocab_size is below 1: 0");
  EXPECT_EQ(with([](auto& c) { c.n_layer = -1; }), "GPT: n_layer is negative: -1");
  EXPECT_EQ(with([](auto& c) { c.dropout = 1.5; }), "GPT: dropout is not in [0, 1]: 1.5");
  EXPECT_NE(with([](auto& c) { c.n_embd = Index{1} << 61; }), "");

  const nn::GPT m(tiny);
  const Caller here{"run.cpp", 7};
  EXPECT_EQ(message_of<ShapeError>([&] {
              m(randint(0, 11, {1, 9}), nullptr, here);
            }),
            "GPT: more positions than block_size: T=9, block_size=8 (called at run.cpp:7)");
  EXPECT_NE(message_of<ShapeError>([&] { m(randint(0, 11, {4})); }), "");
  EXPECT_NE(message_of<DTypeError>([&] { m(zeros({1, 4})); }), "");
  EXPECT_NE(message_of<IndexError>([&] { m(full({1, 4}, 11, i64)); }), "");
  EXPECT_EQ(m(zeros({2, 0}, i64)).shape(), (Dims{2, 0, 11}));

  std::vector<nn::KVCache> caches;
  EXPECT_NE(message_of<GradError>([&] { m(randint(0, 11, {1, 2}), &caches); }), "");
  const NoGrad off;
  m(randint(0, 11, {1, 6}), &caches);
  EXPECT_EQ(message_of<ShapeError>([&] {
              m(randint(0, 11, {1, 3}), &caches, here);
            }),
            "GPT: more positions than block_size: T=3 after 6 in the caches, block_size=8 (called at run.cpp:7)");
  EXPECT_NE(message_of<ShapeError>([&] { m(randint(0, 11, {2, 1}), &caches); }), "") << "another batch";
  for (const nn::KVCache& cache : caches) EXPECT_EQ(cache.length(), 6);
  caches.pop_back();
  EXPECT_EQ(message_of<ShapeError>([&] {
              m(randint(0, 11, {1, 1}), &caches, here);
            }),
            "GPT: wants a cache for each layer: 1 caches, n_layer=2 (called at run.cpp:7)");
  caches.resize(2);
  EXPECT_EQ(message_of<ShapeError>([&] {
              m(randint(0, 11, {1, 1}), &caches, here);
            }),
            "GPT: the caches of its layers are of one length: 6 and 0 (called at run.cpp:7)");
}

}  // namespace
}  // namespace heed
