#include <fstream>

#include "support.h"

// Saving and loading: what a file holds, what fits, and that nothing is written when something does not.

namespace heed {
namespace {

using test::message_of;
using test::TemporaryFile;
using test::Tied;
using test::values;
using State = std::map<std::string, Tensor>;

std::vector<std::vector<double>> snapshot(const auto& m) {
  std::vector<std::vector<double>> out;
  for (const auto& [name, t] : nn::state_dict(m)) out.push_back(values(t));
  return out;
}

TEST(Save, ComesBackBitForBitIntoTheSameTensors) {
  test::MultiHeadSelfAttention m(8, 2), other(8, 2);
  ASSERT_NE(snapshot(m), snapshot(other));
  const TemporaryFile file;
  nn::save(m, file.path(), {{"epoch", "3"}});
  const auto id = other.qkv.weight.id();
  const nn::LoadReport report = nn::load(other, file.path());
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
  EXPECT_EQ(snapshot(m), snapshot(other));
  EXPECT_EQ(other.qkv.weight.id(), id);
  EXPECT_TRUE(other.qkv.weight.requires_grad() && other.qkv.weight.is_leaf());
  EXPECT_EQ(safetensors_metadata(file.path()).at("epoch"), "3");
  const Tensor x = randn({2, 3, 8});
  EXPECT_EQ(values(m(x).output), values(other(x).output));
}

TEST(Save, ConvertsBetweenFloatDtypes) {
  nn::Linear m(3, 2), wide(3, 2);
  nn::to(wide, f64);
  const TemporaryFile file;
  nn::save(m, file.path());
  nn::load(wide, file.path());
  EXPECT_EQ(wide.weight.dtype(), f64);
  EXPECT_EQ(values(wide.weight), values(m.weight));
  nn::Linear narrow(3, 2);
  nn::save(wide, file.path());
  nn::load(narrow, file.path());
  EXPECT_EQ(values(narrow.weight), values(m.weight));
}

TEST(Save, StoresTiedTensorsOnce) {
  Tied m, other;
  const TemporaryFile file;
  nn::save(m, file.path());
  EXPECT_LT(std::filesystem::file_size(file.path()), 15 * 4 + 8 + 200u);
  const State state = load_safetensors(file.path());
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state.at("wte.weight").id(), state.at("head.weight").id());
  nn::load(other, file.path());
  EXPECT_EQ(values(other.wte.weight), values(m.wte.weight));
  EXPECT_EQ(other.wte.weight.id(), other.head.weight.id());
}

TEST(Save, TakesViews) {
  nn::Linear m(2, 3, false), other(2, 3, false);
  m.weight = transpose(reshape(arange(0, 6), {2, 3}), 0, 1).requires_grad_();
  other.weight = transpose(zeros({2, 3}), 0, 1).requires_grad_();
  const TemporaryFile file;
  nn::save(m, file.path());
  nn::load(other, file.path());
  EXPECT_EQ(values(other.weight), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  EXPECT_FALSE(other.weight.is_contiguous());
}

TEST(Load, OfOneNameOfATiedTensorIsEnough) {
  Tied m;
  nn::load_state_dict(m, {{"wte.weight", full({5, 3}, 2)}});
  EXPECT_EQ(m.head.weight[4][2].item<float>(), 2);
  nn::load_state_dict(m, {{"head.weight", full({5, 3}, 3, f64)}});
  EXPECT_EQ(m.wte.weight[4][2].item<float>(), 3);
  nn::load_state_dict(m, {{"head.weight", full({5, 3}, 4)}, {"wte.weight", full({5, 3}, 4)}});
  EXPECT_EQ(m.wte.weight[4][2].item<float>(), 4);
  const std::string text = message_of<Error>([&] { nn::load_state_dict(m, {{"head.weight", full({5, 3}, 5)}, {"wte.weight", full({5, 3}, 6)}}); });
  EXPECT_NE(text.find("tied to wte.weight"), std::string::npos) << text;
  EXPECT_EQ(m.wte.weight[4][2].item<float>(), 4);
}

/// What they would write decides, bit by bit, whichever name comes first.
TEST(Load, OfTiedNamesWantsTheSameBits) {
  const auto fits = [](const Tensor& one, const Tensor& other) {
    const auto load = [](const Tensor& table, const Tensor& head, DType dtype) {
      Tied m;
      nn::to(m, dtype);
      const auto before = values(m.wte.weight);
      try {
        nn::load_state_dict(m, {{"wte.weight", table}, {"head.weight", head}});
      } catch (const Error&) {
        EXPECT_EQ(values(m.wte.weight), before);
        return false;
      }
      EXPECT_EQ(m.head.weight.id(), m.wte.weight.id());
      return true;
    };
    const bool in_f32 = load(one, other, f32);
    EXPECT_EQ(load(other, one, f32), in_f32);
    const bool in_f64 = load(one, other, f64);
    EXPECT_EQ(load(other, one, f64), in_f64);
    return std::pair(in_f32, in_f64);
  };
  const auto table = [](double last, DType dtype = f32) { return cat({zeros({4, 3}, dtype), reshape(tensor({0.0, 1.0, last}, dtype), {1, 3})}); };
  const std::pair both(true, true), neither(false, false);
  EXPECT_EQ(fits(table(.1), table(.1)), both);
  EXPECT_EQ(fits(table(NAN), table(NAN)), both);
  EXPECT_EQ(fits(table(NAN), table(0)), neither);
  EXPECT_EQ(fits(table(0), table(-0.0)), neither);
  EXPECT_EQ(fits(table(.1), table(.25)), neither);
  EXPECT_EQ(fits(table(.5), table(.5, f64)), both);
  EXPECT_EQ(fits(table(.1, f64), table(.1, f64)), both);
  EXPECT_EQ(fits(table(.1), table(.1, f64)), std::pair(true, false)) << "equal once they are f32";
  EXPECT_EQ(fits(table(.1, f64), table(.1 + 1e-15, f64)), std::pair(true, false));
}

TEST(Load, ReportsEverythingThatDoesNotFitBeforeItWrites) {
  struct Model {
    nn::Linear first{2, 3}, second{3, 1};
    Tensor steps = zeros({}, i64);
    void visit(nn::Visitor& v) { v("first", first), v("second", second), v.buffer("steps", steps); }
  } m;
  State state = nn::state_dict(nn::clone(m));
  for (auto& [name, t] : state) t.fill_(9);
  state.erase("first.bias");
  state["second.weight"] = zeros({3, 1});
  state["steps"] = zeros({});
  state["second.bais"] = zeros({1});
  const auto before = snapshot(m);
  const std::string table =
      "  mismatched  second.weight  f32 (1, 3) in the module, f32 (3, 1) given\n"
      "  mismatched  steps          i64 () in the module, f32 () given\n"
      "  missing     first.bias     f32 (3,)\n"
      "  unexpected  second.bais    f32 (1,)";
  EXPECT_EQ(message_of<Error>([&] { nn::load_state_dict(m, state); }), "load_state_dict: the tensors are not those of the module:\n" + table);
  EXPECT_EQ(snapshot(m), before);

  const TemporaryFile file;
  save_safetensors(file.path(), state);
  EXPECT_EQ(message_of<IoError>([&] { nn::load(m, file.path()); }),
            "load: " + file.path().string() + ": the tensors are not those of the module:\n" + table);
  EXPECT_EQ(snapshot(m), before);

  EXPECT_THROW(nn::load_state_dict(m, state, false), Error) << "shapes are never guessed";
  EXPECT_EQ(snapshot(m), before);
  state.erase("second.weight"), state.erase("steps");
  const nn::LoadReport report = nn::load_state_dict(m, state, false);
  EXPECT_EQ(report.missing, (std::vector<std::string>{"first.bias", "second.weight", "steps"}));
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"second.bais"});
  EXPECT_EQ(m.first.weight[0][0].item<float>(), 9);
}

TEST(Load, RefusesUndefinedTensorsAndComputedOnes) {
  nn::Linear m(2, 3);
  const auto before = snapshot(m);
  EXPECT_THROW(nn::load_state_dict(m, {{"weight", zeros({3, 2})}, {"bias", Tensor()}}), Error);
  EXPECT_EQ(snapshot(m), before);
  m.bias = m.bias * 1;
  EXPECT_NE(message_of<Error>([&] {
              nn::load_state_dict(m, {{"weight", zeros({3, 2})}, {"bias", zeros({3})}});
            }).find("not a leaf"),
            std::string::npos);
  m.bias = expand(zeros({1}), {3});
  EXPECT_THROW(nn::load_state_dict(m, {{"weight", zeros({3, 2})}, {"bias", zeros({3})}}), Error);
  EXPECT_EQ(snapshot(m)[1], before[1]);
}

TEST(Load, MayReadFromTheTensorsItWrites) {
  struct Pair {
    Tensor a = full({2}, 1), b = full({2}, 2);
    void visit(nn::Visitor& v) { v("a", a), v("b", b); }
  } m;
  nn::load_state_dict(m, {{"a", m.b}, {"b", m.a}});
  EXPECT_EQ(m.a[0].item<float>(), 2);
  EXPECT_EQ(m.b[0].item<float>(), 1);
}

TEST(Load, IsSeenByGraphsRecordedBefore) {
  nn::Linear m(2, 3);
  Tensor x = randn({1, 2}).requires_grad_();
  const Tensor loss = sum(square(m(x)));
  nn::load_state_dict(m, nn::state_dict(nn::Linear(2, 3)));
  EXPECT_NE(message_of<GradError>([&] { loss.backward(); }), "");
}

TEST(Load, OfBadFilesIsAnError) {
  nn::Linear m(2, 3);
  const auto before = snapshot(m);
  const TemporaryFile file;
  EXPECT_THROW(nn::load(m, file.path()), IoError);
  std::ofstream(file.path()) << "not a safetensors file";
  EXPECT_THROW(nn::load(m, file.path()), IoError);
  EXPECT_THROW(nn::save(m, file.path() / "inside"), IoError);
  EXPECT_EQ(snapshot(m), before);
}

}  // namespace
}  // namespace heed
